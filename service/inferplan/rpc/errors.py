"""Domain errors as gRPC statuses with details: no traceback, no secret, no text of an unknown exception."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, PreconditionFailure, ResourceInfo, RetryInfo
from google.rpc.status_pb2 import Status

from inferplan.errors import (
    MAXIMUM_REPORTED_VIOLATIONS,
    AlreadyExistsError,
    BrokenRule,
    CancelledError,
    ConflictError,
    InferplanError,
    InvalidInputError,
    NotFoundError,
    NothingFitsError,
    OverloadedError,
    PreconditionError,
    StorageStateError,
    StorageUnavailableError,
    UnimplementedError,
    Violation,
)
from inferplan.rpc.convert.mapping import duration_from_seconds

ERROR_DOMAIN = "inferplan"

MAXIMUM_DETAIL_BYTES = 5000
"""Details travel base64-encoded, a third longer, in a header; HTTP/2 peers refuse headers beyond 8 KiB in all."""

MAXIMUM_MESSAGE_CHARACTERS = 500
MAXIMUM_DESCRIPTION_CHARACTERS = 600

STATUS_CODES: dict[type[InferplanError], grpc.StatusCode] = {
    InvalidInputError: grpc.StatusCode.INVALID_ARGUMENT,
    NotFoundError: grpc.StatusCode.NOT_FOUND,
    AlreadyExistsError: grpc.StatusCode.ALREADY_EXISTS,
    NothingFitsError: grpc.StatusCode.FAILED_PRECONDITION,
    PreconditionError: grpc.StatusCode.FAILED_PRECONDITION,
    ConflictError: grpc.StatusCode.ABORTED,
    OverloadedError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    StorageUnavailableError: grpc.StatusCode.UNAVAILABLE,
    StorageStateError: grpc.StatusCode.FAILED_PRECONDITION,
    UnimplementedError: grpc.StatusCode.UNIMPLEMENTED,
    CancelledError: grpc.StatusCode.CANCELLED,
}


def status_for(error: InferplanError) -> tuple[grpc.StatusCode, Status]:
    """The status of a domain error, with ErrorInfo and at most one each of the other details."""
    code = STATUS_CODES[type(error)]
    info = ErrorInfo(reason=error.reason, domain=ERROR_DOMAIN)
    message = str(error)
    details: list[Message] = [info]
    if isinstance(error, InvalidInputError):
        shown = list(_within_header(error.violations))
        missing = len(error.violations) - len(shown)
        message = _count_message(len(error.violations), missing, shown[0])
        info.metadata["violations"] = str(len(error.violations))
        details.append(BadRequest(field_violations=[_field_violation(violation) for violation in shown]))
    elif isinstance(error, NothingFitsError):
        info.metadata["nearest"] = _cut(error.nearest, MAXIMUM_DESCRIPTION_CHARACTERS)
        details.append(_precondition_failure(error.broken_rules))
    elif isinstance(error, PreconditionError):
        details.append(_precondition_failure([error.broken_rule]))
    elif isinstance(error, NotFoundError | AlreadyExistsError):
        details.append(ResourceInfo(resource_type=error.resource_type, resource_name=_cut(error.resource_name, 300)))
    elif isinstance(error, OverloadedError | StorageUnavailableError):
        details.append(RetryInfo(retry_delay=duration_from_seconds(error.retry_after_seconds)))
    return code, _status(code, message, details)


def internal_status(request_id: str) -> tuple[grpc.StatusCode, Status]:
    """What a caller sees of an unexpected exception: an id to look for in the log."""
    info = ErrorInfo(reason="INTERNAL", domain=ERROR_DOMAIN, metadata={"request_id": request_id})
    return grpc.StatusCode.INTERNAL, _status(
        grpc.StatusCode.INTERNAL, f"internal error; the log has it under request id {request_id}", [info]
    )


def _status(code: grpc.StatusCode, message: str, details: Sequence[Message]) -> Status:
    status = Status(code=code.value[0], message=_cut(message, MAXIMUM_MESSAGE_CHARACTERS))
    for detail in details:
        packed = AnyMessage()
        packed.Pack(detail)
        status.details.append(packed)
    return status


def _within_header(violations: Sequence[Violation]) -> Iterator[Violation]:
    """As many violations as fit in the header, at most MAXIMUM_REPORTED_VIOLATIONS, at least one."""
    used_bytes = 0
    for index, violation in enumerate(violations[:MAXIMUM_REPORTED_VIOLATIONS]):
        used_bytes += _field_violation(violation).ByteSize() + 4
        if index and used_bytes > MAXIMUM_DETAIL_BYTES:
            return
        yield violation


def _count_message(total: int, missing: int, first: Violation) -> str:
    text = f"{first.field}: {first.description}" if first.field else first.description
    if total == 1:
        return text
    more = f", of which {missing} are not listed" if missing else ""
    return f"{total} violations{more}; the first: {text}"


def _field_violation(violation: Violation) -> BadRequest.FieldViolation:
    return BadRequest.FieldViolation(
        field=_cut(violation.field, 200),
        description=_cut(violation.description, MAXIMUM_DESCRIPTION_CHARACTERS),
        reason=violation.reason,
    )


def _precondition_failure(rules: Sequence[BrokenRule]) -> PreconditionFailure:
    failure = PreconditionFailure()
    for rule in rules[:MAXIMUM_REPORTED_VIOLATIONS]:
        entry = PreconditionFailure.Violation(
            type=rule.rule,
            subject=_cut(rule.subject, 200),
            description=_cut(rule.description, MAXIMUM_DESCRIPTION_CHARACTERS),
        )
        if failure.violations and failure.ByteSize() + entry.ByteSize() > MAXIMUM_DETAIL_BYTES:
            break
        failure.violations.append(entry)
    return failure


def _cut(text: str, most_characters: int) -> str:
    return text if len(text) <= most_characters else text[: most_characters - 1] + "…"
