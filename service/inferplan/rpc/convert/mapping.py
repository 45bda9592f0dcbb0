"""The rules by which a domain dataclass and a message correspond.

Field for field by name, with these differences:

- `x_seconds: float` is the message's `google.protobuf.Duration x`;
- an enum member is the message's enum value of the same name behind the enum's prefix, None is `_UNSPECIFIED`;
- None is an unset field; for a field without presence, its zero;
- a tuple is a repeated field, a mapping a map, an aware datetime a Timestamp;
- an unset field takes the dataclass's default where it has one.

What does not follow these rules registers a `Codec` for its type, or for one field of a dataclass. A dataclass field
without counterpart is a programming error and raises TypeError; tests walk every pair.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, TypeVar, cast

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

DomainT = TypeVar("DomainT")
MessageT = TypeVar("MessageT", bound=Message)

NANOSECONDS_PER_SECOND = 1_000_000_000


@dataclasses.dataclass(frozen=True, slots=True)
class FieldCodec:
    """How one dataclass field that breaks the rules is written to and read from its message."""

    write: Callable[[Any, Any], None]
    read: Callable[[Any], Any]


_field_codecs: dict[tuple[type, str], FieldCodec] = {}


def register_field(domain_type: type, name: str, codec: FieldCodec) -> None:
    """Use `codec` for the field `name` of `domain_type` from now on."""
    _field_codecs[(domain_type, name)] = codec


def duration_from_seconds(seconds: float) -> Duration:
    """A Duration rounded to whole nanoseconds, which is all that it can hold."""
    nanoseconds = round(seconds * NANOSECONDS_PER_SECOND)
    whole, rest = divmod(abs(nanoseconds), NANOSECONDS_PER_SECOND)
    sign = -1 if nanoseconds < 0 else 1
    return Duration(seconds=sign * whole, nanos=sign * rest)


def seconds_from_duration(duration: Duration) -> float:
    """Seconds of a Duration."""
    return (duration.seconds * NANOSECONDS_PER_SECOND + duration.nanos) / NANOSECONDS_PER_SECOND


def timestamp_from_datetime(moment: datetime) -> Timestamp:
    """The Timestamp of an aware datetime."""
    timestamp = Timestamp()
    timestamp.FromDatetime(moment.astimezone(UTC))
    return timestamp


def datetime_from_timestamp(timestamp: Timestamp) -> datetime:
    """The moment in UTC, to the microsecond."""
    return datetime.fromtimestamp(0, UTC) + timedelta(seconds=timestamp.seconds, microseconds=timestamp.nanos // 1000)


def to_message(value: object, message_type: type[MessageT]) -> MessageT:
    """A new message that holds the dataclass instance `value`."""
    message = message_type()
    fill_message(value, message)
    return message


def fill_message(value: object, message: Message) -> None:
    """Write the dataclass instance `value` into `message`, which is empty."""
    domain_type = type(value)
    for field in dataclasses.fields(cast(Any, value)):
        content = getattr(value, field.name)
        codec = _field_codecs.get((domain_type, field.name))
        if codec is not None:
            codec.write(content, message)
        elif content is not None:
            _write_field(content, message, _counterpart(domain_type, field.name, message))


def from_message(message: Message, domain_type: type[DomainT]) -> DomainT:
    """The dataclass instance that `message` stands for. It never judges: validation is somebody else's."""
    hints = _type_hints(cast(Any, domain_type))
    arguments: dict[str, Any] = {}
    for field in dataclasses.fields(cast(Any, domain_type)):
        codec = _field_codecs.get((domain_type, field.name))
        if codec is not None:
            arguments[field.name] = codec.read(message)
            continue
        descriptor = _counterpart(domain_type, field.name, message)
        value = _read_field(message, descriptor, hints[field.name])
        has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        if value is None and has_default:
            continue
        if value is None and dataclasses.is_dataclass(hints[field.name]):
            # A part that must be there and is not: empty, so that everything wrong with the rest can be told too.
            value = from_message(getattr(message, descriptor.name), hints[field.name])
        arguments[field.name] = value
    return domain_type(**arguments)


def enum_name(descriptor: EnumDescriptor, member: Enum) -> str:
    """Name of the message's enum value for a domain member: the prefix, then the member's name."""
    return f"{_enum_prefix(descriptor)}_{member.name}"


@functools.cache
def _type_hints(domain_type: type) -> Mapping[str, Any]:
    return typing.get_type_hints(domain_type)


def _counterpart(domain_type: type, name: str, message: Message) -> FieldDescriptor:
    fields = message.DESCRIPTOR.fields_by_name
    found = fields.get(name) or (fields.get(name.removesuffix("_seconds")) if name.endswith("_seconds") else None)
    if found is None:
        raise TypeError(f"{message.DESCRIPTOR.full_name} has no field for {domain_type.__name__}.{name}")
    return cast(FieldDescriptor, found)


@functools.cache
def _enum_prefix(descriptor: EnumDescriptor) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", descriptor.name).upper()


def _write_field(content: Any, message: Message, descriptor: FieldDescriptor) -> None:
    if isinstance(content, Mapping):
        getattr(message, descriptor.name).update(content)
    elif isinstance(content, tuple):
        _write_repeated(content, message, descriptor)
    elif descriptor.type == FieldDescriptor.TYPE_MESSAGE:
        _fill_submessage(content, getattr(message, descriptor.name))
    else:
        setattr(message, descriptor.name, _scalar(content, descriptor))


def _write_repeated(content: tuple[Any, ...], message: Message, descriptor: FieldDescriptor) -> None:
    target = getattr(message, descriptor.name)
    for item in content:
        if descriptor.type == FieldDescriptor.TYPE_MESSAGE:
            _fill_submessage(item, target.add())
        else:
            target.append(_scalar(item, descriptor))


def _fill_submessage(content: Any, target: Message) -> None:
    if isinstance(target, Duration):
        target.CopyFrom(duration_from_seconds(content))
    elif isinstance(target, Timestamp):
        target.CopyFrom(timestamp_from_datetime(content))
    else:
        target.SetInParent()
        writer = _union_writers.get(type(content))
        if writer is None:
            fill_message(content, target)
        else:
            writer(content, target)


def _scalar(content: Any, descriptor: FieldDescriptor) -> Any:
    if isinstance(content, Enum):
        enum_type = descriptor.enum_type
        assert enum_type is not None
        return enum_type.values_by_name[enum_name(enum_type, content)].number
    return content


def _read_field(message: Message, descriptor: FieldDescriptor, hint: Any) -> Any:
    """The field's value in domain terms; None if unset, or zero without presence where the domain allows None."""
    value = getattr(message, descriptor.name)
    if descriptor.is_repeated:
        return _read_repeated(value, hint)
    inner, optional = _unwrap_optional(hint)
    if descriptor.has_presence and not message.HasField(descriptor.name):
        return None
    if descriptor.type == FieldDescriptor.TYPE_MESSAGE:
        return _read_message(value, inner)
    if descriptor.type == FieldDescriptor.TYPE_ENUM:
        return _read_enum(value, descriptor, inner)
    if not descriptor.has_presence and optional and not value:
        return None
    return value


def _read_repeated(value: Any, hint: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    item = typing.get_args(hint)[0]
    if dataclasses.is_dataclass(item) or item in _union_readers or item is float:
        return tuple(_read_message(entry, item) if isinstance(entry, Message) else entry for entry in value)
    return tuple(value)


def _read_message(value: Message, domain_type: Any) -> Any:
    if isinstance(value, Duration):
        return seconds_from_duration(value)
    if isinstance(value, Timestamp):
        return datetime_from_timestamp(value)
    reader = _union_readers.get(domain_type)
    return reader(value) if reader else from_message(value, domain_type)


def _read_enum(value: int, descriptor: FieldDescriptor, domain_type: Any) -> Any:
    enum_type = descriptor.enum_type
    assert enum_type is not None
    found = enum_type.values_by_number.get(value)
    if found is None or value == 0:
        return None
    return domain_type[found.name.removeprefix(f"{_enum_prefix(enum_type)}_")]


def _unwrap_optional(hint: Any) -> tuple[Any, bool]:
    if not isinstance(hint, types.UnionType) and typing.get_origin(hint) is not typing.Union:
        return hint, False
    arguments = typing.get_args(hint)
    present = tuple(argument for argument in arguments if argument is not type(None))
    optional = len(present) < len(arguments)
    inner = present[0] if len(present) == 1 else functools.reduce(lambda left, right: left | right, present)
    return inner, optional


_union_writers: dict[type, Callable[[Any, Any], None]] = {}
_union_readers: dict[Any, Callable[[Any], Any]] = {}


def register_union(union: Any, write: Callable[[Any, Any], None], read: Callable[[Any], Any]) -> None:
    """Use `write` for every member of the union type `union` and `read` for the union itself."""
    for member in typing.get_args(union):
        _union_writers[member] = write
    _union_readers[union] = read
