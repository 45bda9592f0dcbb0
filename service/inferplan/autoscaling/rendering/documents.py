"""YAML and JSON with stable key order, and comments that name plan, revision and formula."""

from __future__ import annotations

import io
import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, SingleQuotedScalarString

from inferplan.autoscaling.policy import AutoscalingPolicy, ColdStart
from inferplan.autoscaling.rendering.request import RenderedFile, RenderingRequest

_COMMENT_WIDTH = 110
_INLINE_COMMENT_CHARACTERS = 200

YAML_MEDIA_TYPE = "application/yaml"
JSON_MEDIA_TYPE = "application/json"


class Commented(dict[str, Any]):
    """A mapping with a comment behind some of its keys."""

    def __init__(self, values: Mapping[str, Any], comments: Mapping[str, str]) -> None:
        super().__init__(values)
        self.comments = dict(comments)


def header_lines(request: RenderingRequest, purpose: str) -> list[str]:
    """The comment at the top of a file: purpose, plan, revision, configuration, and each value's formula."""
    configuration = request.configuration
    plan = (
        f"plan {request.plan_name}, revision {request.revision}" if request.plan_name else "a plan that was not stored"
    )
    lines = [
        purpose,
        f"Rendered by inferplan from {plan}.",
        f"{request.model_name} on {configuration.gpus_per_replica} x {configuration.accelerator} a replica, "
        f"{configuration.engine} {configuration.engine_version}.",
        *cold_start_lines(request.policy.cold_start),
        *(f"{derivation.field}: {derivation.formula}" for derivation in request.policy.derivations),
    ]
    return [
        wrapped for line in lines for wrapped in textwrap.wrap(one_line(line), _COMMENT_WIDTH, subsequent_indent="  ")
    ]


def cold_start_lines(cold_start: ColdStart | None) -> list[str]:
    """The expected cold start by part, in one line; none where nothing is expected."""
    if cold_start is None:
        return []
    parts = [
        f"{name} {seconds:g} s"
        for name, seconds in (
            ("node boot", cold_start.node_boot_seconds),
            ("image pull", cold_start.image_pull_seconds),
            ("weights fetched in", cold_start.weights_fetch_seconds),
            ("weights loaded in", cold_start.weights_load_seconds),
            ("compile and capture", cold_start.compile_and_capture_seconds),
        )
        if seconds is not None
    ]
    detail = f" ({', '.join(parts)})" if parts else ""
    return [f"Expected cold start: {cold_start.total_seconds:g} s{detail}."]


def one_line(text: str) -> str:
    """The text without line breaks and control characters, which would end a comment."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())


def formula(policy: AutoscalingPolicy, *fields: str) -> str:
    """The formulas of some fields, for the comment behind a value; empty where the policy has none."""
    found = [derivation.formula for derivation in policy.derivations if derivation.field in fields]
    return "; ".join(found)


def yaml_file(filename: str, header: Sequence[str], documents: Sequence[Mapping[str, Any]]) -> RenderedFile:
    """One YAML file of one or more documents."""
    writer = YAML()
    writer.default_flow_style = False
    writer.allow_unicode = True
    writer.width = 4096  # no folding: a query stays on one line, as it is read
    writer.indent(mapping=2, sequence=2, offset=0)
    text = "".join(f"# {line}\n" for line in header)
    for index, document in enumerate(documents):
        stream = io.StringIO()
        writer.dump(_converted(document), stream)
        text += ("---\n" if index else "") + stream.getvalue()
    return RenderedFile(filename, YAML_MEDIA_TYPE, text)


def json_file(filename: str, document: Mapping[str, Any]) -> RenderedFile:
    """One JSON file; JSON has no comments."""
    return RenderedFile(filename, JSON_MEDIA_TYPE, json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def _converted(value: Any) -> Any:
    if isinstance(value, Mapping):
        mapping = CommentedMap((key, _converted(item)) for key, item in value.items())
        comments = value.comments if isinstance(value, Commented) else {}
        for key, comment in comments.items():
            text = one_line(comment)[:_INLINE_COMMENT_CHARACTERS]
            # A comment behind a nested block would land in front of its first line, so it goes above the key.
            if text and isinstance(mapping[key], CommentedMap | CommentedSeq):
                mapping.yaml_set_comment_before_after_key(key, before=text)
            elif text:
                mapping.yaml_add_eol_comment(text, key, column=0)
        return mapping
    if isinstance(value, list | tuple):
        return CommentedSeq(_converted(item) for item in value)
    if not isinstance(value, str) or not _needs_quotes(value):
        return value
    # Quoted, so that no parser of YAML 1.1 reads "20", "yes" or "1e3" as something else; single quotes around queries,
    # which hold double ones.
    return SingleQuotedScalarString(value) if '"' in value and value.isprintable() else DoubleQuotedScalarString(value)


def _needs_quotes(text: str) -> bool:
    is_plain = text.isprintable() and text[:1].isalpha() and '"' not in text
    return not is_plain or text.lower() in _YAML_1_1_WORDS


_YAML_1_1_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"})
