"""Field masks of replies: lists that a caller wants in short form (https://google.aip.dev/157)."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TypeVar, cast

from google.protobuf.descriptor import Descriptor
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message

from inferplan.errors import Violation

MessageT = TypeVar("MessageT", bound=Message)

EVERYTHING = "*"
MAXIMUM_PATHS = 100


def mask_violations(mask: FieldMask, message_type: type[Message], path: str) -> list[Violation]:
    """Paths that name no field, each with the nearest that does."""
    if len(mask.paths) > MAXIMUM_PATHS:
        return [Violation(f"{path}.paths", f"has {len(mask.paths)} paths; legal: at most {MAXIMUM_PATHS}")]
    violations = []
    for index, text in enumerate(mask.paths):
        if text != EVERYTHING:
            violations += _path_violations(text, cast(Descriptor, message_type.DESCRIPTOR), f"{path}.paths[{index}]")
    return violations


def masked(messages: Sequence[MessageT], mask: FieldMask) -> list[MessageT]:
    """The messages with the mask's fields alone; whole without paths."""
    if not mask.paths or EVERYTHING in mask.paths:
        return list(messages)
    short = []
    for message in messages:
        kept = type(message)()
        mask.MergeMessage(message, kept)
        short.append(kept)
    return short


def _path_violations(text: str, descriptor: Descriptor, where: str) -> list[Violation]:
    current: Descriptor | None = descriptor
    for name in text.split("."):
        field = current.fields_by_name.get(name) if current is not None else None
        if current is None:
            return [Violation(where, f"{text[:100]!r} goes on below a field without parts", "UNKNOWN_FIELD")]
        if field is None:
            near = difflib.get_close_matches(name[:100], current.fields_by_name, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}? " if near else ""
            legal = ", ".join(current.fields_by_name)
            return [Violation(where, f"{name[:100]!r} is no field; {hint}legal: {legal}", "UNKNOWN_FIELD")]
        # A mask selects list entries only whole.
        current = None if field.is_repeated else field.message_type
    return []
