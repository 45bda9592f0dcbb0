"""Where KServe fetches the model."""

from __future__ import annotations

import re

from inferplan.autoscaling.rendering.options import URI, Option, ResolvedOptions, optional
from inferplan.autoscaling.rendering.request import RenderingRequest
from inferplan.errors import InvalidInputError

MODEL_URI_OPTION = Option(
    "model_uri", "", "URI of the weights; empty: hf://<model name> where that is a repository", optional(URI)
)

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


def model_uri(request: RenderingRequest, options: ResolvedOptions) -> str:
    """The URI. Raises InvalidInputError where the model's name is no repository and no URI is given."""
    given = options.text("model_uri")
    if given:
        return given
    if _REPOSITORY.fullmatch(request.model_name):
        return f"hf://{request.model_name}"
    raise InvalidInputError.single(
        "options[model_uri]",
        f"must be set, since {request.model_name!r} names no repository; legal: such as "
        "hf://meta-llama/Llama-3.1-8B-Instruct",
        "REQUIRED",
    )
