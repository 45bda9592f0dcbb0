"""What an endpoint says about itself: the models that it serves and its engine's version."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any

from inferplan.errors import InvalidInputError

ANSWER_SECONDS = 10.0
LARGEST_ANSWER_BYTES = 1_000_000
VERSION_PATHS = ("/version", "/get_server_info")
"""vLLM answers the first and SGLang the second, both with a JSON object that holds `version`."""


@dataclass(frozen=True, slots=True)
class EndpointFacts:
    """Names of the served models; the engine's version, empty if the endpoint does not say."""

    models: tuple[str, ...]
    engine_version: str


def read_endpoint_facts(url: str) -> EndpointFacts:
    """Ask the endpoint. Raises InvalidInputError if `url` is not legal or nothing there speaks OpenAI's API."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInputError.single("URL", f"{url!r} is not legal; legal is such as http://127.0.0.1:8000")
    if parts.username or parts.password or parts.query:
        raise InvalidInputError.single("URL", "may hold neither a password nor a query, since it would be recorded")
    listed = _get_json(url, "/v1/models")
    data = listed.get("data") if isinstance(listed, dict) else None
    if not isinstance(data, list):
        raise InvalidInputError.single(
            "URL", f"{url}/v1/models does not answer as OpenAI's API does; is the server up?"
        )
    models = tuple(str(entry["id"]) for entry in data if isinstance(entry, dict) and "id" in entry)
    return EndpointFacts(models, _version(url))


def _version(url: str) -> str:
    for path in VERSION_PATHS:
        answer = _get_json(url, path)
        if isinstance(answer, dict) and isinstance(answer.get("version"), str):
            return str(answer["version"])
    return ""


def _get_json(url: str, path: str) -> Any:
    """The JSON at `path`, None if there is none: an endpoint need not have it."""
    try:
        with urllib.request.urlopen(url.rstrip("/") + path, timeout=ANSWER_SECONDS) as answer:
            return json.loads(answer.read(LARGEST_ANSWER_BYTES))
    except (urllib.error.URLError, OSError, ValueError):
        return None
