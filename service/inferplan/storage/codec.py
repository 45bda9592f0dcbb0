"""A plan's content as bytes and back, exactly.

The payload is compact canonical JSON: keys sorted, UTF-8, no NaN, floats with enough digits to give back the same bits.
Equal contents have equal bytes. Beside it stands its schema version:

- a payload of a newer version is refused: it may hold what this release would drop unseen;
- keys that this release does not know are ignored within a version, so a field may be added (with a default that means
  "absent") without a new version;
- absent keys take the dataclass default, so payloads from before the field was added are read;
- anything else (a field renamed, removed, of another meaning or unit) is a new version, and `decode_plan_content` then
  converts older documents before they are structured.
"""

from __future__ import annotations

import hashlib
import json
from enum import StrEnum
from typing import Any

from cattrs import BaseValidationError, Converter, transform_error
from cattrs.strategies import configure_tagged_union

from inferplan.catalog.architecture import GroupedAttention, LatentAttention
from inferplan.errors import InvalidInputError, StorageStateError
from inferplan.resources.plan import PlanContent, PlanInput
from inferplan.sizing.workload import ConstantLength, LengthDistribution, LognormalLength, UniformLength
from inferplan.storage.text_rules import document_violations, refuse

PAYLOAD_SCHEMA_VERSION = 1

MAXIMUM_PAYLOAD_BYTES = 16 * 1024 * 1024
"""Far above any plan that a request below gRPC's 4 MiB can ask for."""

_TAG = "kind"
_TAGS: dict[type, str] = {
    GroupedAttention: "grouped",
    LatentAttention: "latent",
    ConstantLength: "constant",
    UniformLength: "uniform",
    LognormalLength: "lognormal",
}


def encode_plan_content(content: PlanContent) -> bytes:
    """The payload of the current schema version.

    Raises InvalidInputError, naming every field, for NaN, infinity, NUL characters and text that is not Unicode.
    """
    document = _CONVERTER.unstructure(content)
    refuse(document_violations(document))
    payload = json.dumps(document, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    if len(payload) > MAXIMUM_PAYLOAD_BYTES:
        raise InvalidInputError.single(
            "plan", f"takes {len(payload)} bytes; legal: at most {MAXIMUM_PAYLOAD_BYTES}", "TOO_LONG"
        )
    return payload


def request_digest(deployment_id: str, plan_input: PlanInput) -> str:
    """SHA-256 in hexadecimal of what a request asks: equal for equal requests, however they were written."""
    document = [deployment_id, _CONVERTER.unstructure(plan_input)]
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def decode_plan_content(payload: bytes, schema_version: int) -> PlanContent:
    """The content that was stored. Raises StorageStateError for a payload of a newer release, or a damaged one."""
    if schema_version > PAYLOAD_SCHEMA_VERSION:
        raise StorageStateError(
            f"this plan was written by a newer release (payload schema {schema_version}; this release reads up to "
            f"{PAYLOAD_SCHEMA_VERSION}); read it with that release"
        )
    try:
        return _CONVERTER.structure(json.loads(payload), PlanContent)
    except (json.JSONDecodeError, UnicodeDecodeError):
        detail = "not JSON"
    except BaseValidationError as error:
        detail = "; ".join(transform_error(error))
    raise StorageStateError(f"a stored plan is damaged: {detail}; restore the database")


def _converter() -> Converter:
    converter = Converter()
    # A float field may hold a whole number such as 50; it is written as 50.0, so that equal contents have equal bytes.
    converter.register_unstructure_hook(float, float)
    for kind in (int, float, str, bool):
        converter.register_structure_hook(kind, _exactly)
    # Enumerations are text too, and would go to the hook of text.
    converter.register_structure_hook(StrEnum, lambda value, kind: kind(value))
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


def _exactly(value: Any, kind: type) -> Any:
    """A value of exactly the type that the field has; cattrs alone would turn the text "5" into the number 5."""
    if type(value) is not kind:
        raise TypeError(f"{value!r} is not of type {kind.__name__}")
    return value


_CONVERTER = _converter()
