"""A request's field constraints, as the contract states them, told so that a caller can mend the request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import protovalidate
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from inferplan.errors import InvalidInputError, Violation

LONGEST_SHOWN_VALUE = 60


def message_violations(message: Message) -> list[Violation]:
    """Every constraint of the contract that `message` breaks, each with what was found and what would be legal."""
    descriptor = cast(Descriptor, message.DESCRIPTOR)
    return [_translate(found, descriptor) for found in protovalidate.collect_violations(message)]


def raise_violations(violations: Iterable[Violation]) -> None:
    """Raise InvalidInputError if there is any violation; identical complaints about one field are told once."""
    unique = tuple(dict.fromkeys(violations))
    if unique:
        raise InvalidInputError(unique)


def unsupported_violations(message: Message, fields: Iterable[str]) -> list[Violation]:
    """Parts of the contract that this version does not do; ignoring one would answer another question."""
    set_fields = {descriptor.name for descriptor, _value in message.ListFields()}
    return [
        Violation(field, "is not supported by this version; leave it empty", "UNSUPPORTED")
        for field in fields
        if field in set_fields
    ]


def _translate(found: protovalidate.Violation, descriptor: Descriptor) -> Violation:
    proto = found.proto
    path, field = _walk(proto.field, descriptor)
    reason = (proto.rule_id or "invalid_value").replace(".", "_").upper()
    description = proto.message or "is not legal"
    if field is not None and field.enum_type is not None and reason.startswith("ENUM"):
        description = f"must be one of {', '.join(_legal_names(field.enum_type))}"
    elif reason == "REQUIRED":
        description = _required_description(proto.message, path, field)
    shown = _shown(found.field_value)
    return Violation(path, f"{shown}: {description}" if shown else description, reason)


def _required_description(message: str | None, path: str, field: FieldDescriptor | None) -> str:
    if field is None and message and "oneof" in message:
        return "exactly one of its fields must be set"
    return message.replace("value is required", "must be set") if message else f"{path} must be set"


def _walk(field_path: object, descriptor: Descriptor) -> tuple[str, FieldDescriptor | None]:
    """The path as text, `objectives[1].percentile`, and the last field's descriptor, None for a oneof."""
    text = ""
    field: FieldDescriptor | None = None
    current: Descriptor | None = descriptor
    for element in getattr(field_path, "elements", ()):
        name = element.field_name
        field = current.fields_by_name.get(name) if current is not None else None
        if field is None and current is not None and name in current.oneofs_by_name:
            members = "|".join(member.name for member in current.oneofs_by_name[name].fields)
            return (f"{text}.{members}" if text else members), None
        text = f"{text}.{name}" if text else name
        if element.subscript is not None:
            value = element.subscript.value
            text += f"[{value}]" if isinstance(value, int) else f"[{value!r}]"
        current = field.message_type if field is not None else None
        if current is not None and current.GetOptions().map_entry:
            current = current.fields_by_name["value"].message_type
    return text, field


def _legal_names(enum: EnumDescriptor) -> list[str]:
    return [value.name for value in enum.values if value.number != 0]


def _shown(value: object) -> str:
    """A scalar as it was sent, shortened; empty for messages, empty text and absent values."""
    if value is None or isinstance(value, Message) or hasattr(value, "DESCRIPTOR") or value in ("", b""):
        return ""
    if not isinstance(value, bool | int | float | str):
        return ""
    text = repr(value)
    return text if len(text) <= LONGEST_SHOWN_VALUE else f"{text[: LONGEST_SHOWN_VALUE - 1]}…"
