"""The contents of stored resources as bytes and back, exactly.

The payload is compact canonical JSON: keys sorted, UTF-8, no NaN, floats with enough digits to give back the same bits.
Equal contents have equal bytes. Beside it stands its schema version:

- a payload of a newer version is refused: it may hold what this release would drop unseen;
- keys that this release does not know are ignored within a version, so a field may be added (with a default that means
  "absent") without a new version;
- absent keys take the dataclass default, so payloads from before the field was added are read;
- anything else (a field renamed, removed, of another meaning or unit) is a new version, and `PayloadCodec.decode` then
  converts older documents before they are structured.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Generic, TypeVar

from cattrs import BaseValidationError, Converter, transform_error
from cattrs.gen import make_dict_unstructure_fn, override
from cattrs.strategies import configure_tagged_union

from inferplan.catalog.architecture import GroupedAttention, LatentAttention
from inferplan.errors import InvalidInputError, StorageStateError
from inferplan.profiles.calibration import Calibration
from inferplan.profiles.profile import ImportHeader, Profile
from inferplan.resources.plan import PlanContent, PlanInput
from inferplan.sizing.workload import ConstantLength, LengthDistribution, LognormalLength, UniformLength
from inferplan.storage.text_rules import document_violations, refuse

PAYLOAD_SCHEMA_VERSION = 1

MAXIMUM_PAYLOAD_BYTES = 16 * 1024 * 1024
"""Far above any plan that a request below gRPC's 4 MiB can ask for."""

PROFILE_COLUMNS = ("name", "status", "status_reason", "superseded_by", "create_time", "created_by")
CALIBRATION_COLUMNS = ("create_time", "created_by")
"""Fields that are given when a resource is stored, or change afterwards, and are not part of its payload."""

_TAG = "kind"
_TAGS: dict[type, str] = {
    GroupedAttention: "grouped",
    LatentAttention: "latent",
    ConstantLength: "constant",
    UniformLength: "uniform",
    LognormalLength: "lognormal",
}


_Content = TypeVar("_Content")


class PayloadCodec(Generic[_Content]):
    """Writes and reads one kind of content. `kind` is its name in messages, `path` that of its fields' violations."""

    def __init__(self, content_type: type[_Content], kind: str, schema_version: int, path: str = "") -> None:
        self.schema_version = schema_version
        self._content_type = content_type
        self._kind = kind
        self._path = path

    def encode(self, content: _Content) -> bytes:
        """The payload of the current schema version.

        Raises InvalidInputError, naming every field, for NaN, infinity, NUL characters and text that is not Unicode.
        """
        document = _CONVERTER.unstructure(content)
        refuse(document_violations(document, self._path))
        payload = _canonical(document)
        if len(payload) > MAXIMUM_PAYLOAD_BYTES:
            raise InvalidInputError.single(
                self._kind, f"takes {len(payload)} bytes; legal: at most {MAXIMUM_PAYLOAD_BYTES}", "TOO_LONG"
            )
        return payload

    def digest(self, content: _Content) -> str:
        """SHA-256 in hexadecimal of the payload: equal for equal contents. Raises what `encode` raises."""
        return hashlib.sha256(self.encode(content)).hexdigest()

    def decode(self, payload: bytes, schema_version: int) -> _Content:
        """The content that was stored. Raises StorageStateError for a payload of a newer release, or a damaged one."""
        if schema_version > self.schema_version:
            raise StorageStateError(
                f"this {self._kind} was written by a newer release (payload schema {schema_version}; this release "
                f"reads up to {self.schema_version}); read it with that release"
            )
        try:
            return _CONVERTER.structure(json.loads(payload), self._content_type)
        except (json.JSONDecodeError, UnicodeDecodeError):
            detail = "not JSON"
        except BaseValidationError as error:
            detail = "; ".join(transform_error(error))
        raise StorageStateError(f"a stored {self._kind} is damaged: {detail}; restore the database")


def encode_plan_content(content: PlanContent) -> bytes:
    """The payload of a plan; see PayloadCodec.encode."""
    return _PLAN_CODEC.encode(content)


def decode_plan_content(payload: bytes, schema_version: int) -> PlanContent:
    """The plan that was stored; see PayloadCodec.decode."""
    return _PLAN_CODEC.decode(payload, schema_version)


def request_digest(deployment_id: str, plan_input: PlanInput) -> str:
    """SHA-256 in hexadecimal of what a request asks: equal for equal requests, however they were written."""
    return document_digest([deployment_id, _CONVERTER.unstructure(plan_input)])


def document_digest(document: Any) -> str:
    """SHA-256 in hexadecimal of a document of plain data: equal for equal documents."""
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _canonical(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def _converter() -> Converter:
    converter = Converter()
    # A float field may hold a whole number such as 50; it is written as 50.0, so that equal contents have equal bytes.
    converter.register_unstructure_hook(float, float)
    for kind in (int, float, str, bool):
        converter.register_structure_hook(kind, _exactly)
    # Enumerations are text too, and would go to the hook of text.
    converter.register_structure_hook(StrEnum, lambda value, kind: kind(value))
    converter.register_unstructure_hook(datetime, lambda moment: moment.astimezone(UTC).isoformat())
    converter.register_structure_hook(datetime, _instant)
    for resource_type, columns in ((Profile, PROFILE_COLUMNS), (Calibration, CALIBRATION_COLUMNS)):
        _leave_out(converter, resource_type, columns)
    # Left out where absent, so that requests from before the field was added keep their digest and their seed.
    converter.register_unstructure_hook_factory(
        lambda kind: kind is PlanInput,
        lambda kind: make_dict_unstructure_fn(kind, converter, cold_start=override(omit_if_default=True)),
    )
    for union in (GroupedAttention | LatentAttention, LengthDistribution):
        configure_tagged_union(union, converter, tag_generator=_TAGS.__getitem__, tag_name=_TAG)
    # cattrs takes "one of these or nothing" for a union of its own, and has no rule for it.
    write_length = converter.get_unstructure_hook(LengthDistribution)
    read_length = converter.get_structure_hook(LengthDistribution)
    optional_length = LengthDistribution | None
    converter.register_unstructure_hook(optional_length, lambda value: None if value is None else write_length(value))
    converter.register_structure_hook(
        optional_length, lambda value, kind: None if value is None else read_length(value, kind)
    )
    return converter


def _leave_out(converter: Converter, resource_type: type, columns: tuple[str, ...]) -> None:
    """Write `resource_type` without the fields that have columns of their own."""
    left_out: dict[str, Any] = {name: override(omit=True) for name in columns}
    converter.register_unstructure_hook_factory(
        lambda kind: kind is resource_type, lambda kind: make_dict_unstructure_fn(kind, converter, **left_out)
    )


def _exactly(value: Any, kind: type) -> Any:
    """A value of exactly the type that the field has; cattrs alone would turn the text "5" into the number 5."""
    if type(value) is not kind:
        raise TypeError(f"{value!r} is not of type {kind.__name__}")
    return value


def _instant(value: Any, _kind: type) -> datetime:
    moment = datetime.fromisoformat(value)
    if moment.utcoffset() is None:
        raise ValueError(f"{value!r} has no time zone; an instant is needed")
    return moment.astimezone(UTC)


_CONVERTER = _converter()

_PLAN_CODEC = PayloadCodec(PlanContent, "plan", PAYLOAD_SCHEMA_VERSION)
PROFILE_CODEC = PayloadCodec(Profile, "profile", 1, path="profile")
IMPORT_HEADER_CODEC = PayloadCodec(ImportHeader, "header", 1, path="header")
CALIBRATION_CODEC = PayloadCodec(Calibration, "calibration", 1, path="calibration")
