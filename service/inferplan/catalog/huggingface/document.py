"""From the bytes of a config.json to one JSON object, within limits that no real file reaches."""

from __future__ import annotations

import json

from inferplan.errors import InvalidInputError

MAXIMUM_CONFIG_BYTES = 1024 * 1024
"""Published config.json files are 1 to 60 KB, even those that list every unquantised module."""


def parse_config_object(text: str | bytes, field: str) -> dict[str, object]:
    """The JSON object in `text`. Raises InvalidInputError at `field` for anything else, unparsed if it is too big."""
    size_bytes = _size_bytes(text)
    if size_bytes > MAXIMUM_CONFIG_BYTES:
        raise InvalidInputError.single(
            field,
            f"is {size_bytes} bytes long; a config.json has at most {MAXIMUM_CONFIG_BYTES} bytes",
            reason="TOO_LARGE",
        )
    try:
        value = json.loads(_decoded(text))
    except RecursionError:
        raise InvalidInputError.single(field, "is nested too deeply to be a config.json", "NOT_JSON") from None
    except ValueError as error:
        # JSONDecodeError, UnicodeDecodeError and the interpreter's refusal of numbers with thousands of digits.
        raise InvalidInputError.single(
            field, f"is not JSON ({str(error)[:200]}); give the model's config.json as it was published", "NOT_JSON"
        ) from None
    if not isinstance(value, dict):
        raise InvalidInputError.single(
            field, "is JSON, but not an object; give the model's config.json as it was published", "NOT_AN_OBJECT"
        )
    return value


def _size_bytes(text: str | bytes) -> int:
    if isinstance(text, bytes) or len(text) > MAXIMUM_CONFIG_BYTES:
        return len(text)
    return len(text.encode("utf-8", errors="surrogatepass"))


def _decoded(text: str | bytes) -> str:
    # Editors on Windows put a byte order mark in front, which json.loads refuses.
    return (text.decode("utf-8") if isinstance(text, bytes) else text).removeprefix("\ufeff")
