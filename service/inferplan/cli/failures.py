"""Errors as a person reads them, and as exit codes: 2 bad input, 3 nothing fits, 4 server away, 1 anything else."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NoReturn, TypeVar, cast

import click
import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, PreconditionFailure
from grpc_status import rpc_status

from inferplan.errors import (
    InferplanError,
    InvalidInputError,
    NotFoundError,
    PreconditionError,
    StorageStateError,
    StorageUnavailableError,
)

MessageT = TypeVar("MessageT", bound=Message)

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_NOTHING_FITS = 3
EXIT_SERVER_AWAY = 4

_EXIT_CODES = {
    grpc.StatusCode.INVALID_ARGUMENT: EXIT_BAD_INPUT,
    grpc.StatusCode.NOT_FOUND: EXIT_BAD_INPUT,
    grpc.StatusCode.ALREADY_EXISTS: EXIT_BAD_INPUT,
    grpc.StatusCode.FAILED_PRECONDITION: EXIT_NOTHING_FITS,
    grpc.StatusCode.UNAVAILABLE: EXIT_SERVER_AWAY,
    grpc.StatusCode.DEADLINE_EXCEEDED: EXIT_SERVER_AWAY,
}


@contextmanager
def explained() -> Iterator[None]:
    """Print errors on standard error and leave with their exit code; nothing goes to standard output."""
    try:
        yield
    except grpc.RpcError as error:
        _leave(*_explain_call(error))
    except InvalidInputError as error:
        _leave(EXIT_BAD_INPUT, [f"{v.field}: {v.description}" if v.field else v.description for v in error.violations])
    except (NotFoundError, StorageStateError) as error:
        _leave(EXIT_BAD_INPUT, [str(error)])
    except StorageUnavailableError as error:
        _leave(EXIT_SERVER_AWAY, [str(error)])
    except InferplanError as error:
        _leave(EXIT_FAILED, [str(error)])


def _explain_call(error: grpc.RpcError) -> tuple[int, list[str]]:
    assert isinstance(error, grpc.Call)
    code = error.code()
    status = rpc_status.from_call(error)
    lines: list[str] = []
    exit_code = _EXIT_CODES.get(code, EXIT_FAILED)
    if status is None:
        away = code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
        return exit_code, [
            f"the server does not answer: {error.details()}" if away else f"{code.name}: {error.details()}"
        ]
    for detail in status.details:
        lines += _detail_lines(detail)
        if _reason(detail) in (StorageStateError.reason, PreconditionError.reason):
            exit_code = EXIT_BAD_INPUT
    listed = _unpack(status.details, BadRequest)
    if listed is None:
        lines.insert(0, status.message)
    elif "not listed" in status.message:
        lines.append(status.message.partition(";")[0])
    return exit_code, lines


def _detail_lines(detail: AnyMessage) -> list[str]:
    bad_request = _unpack([detail], BadRequest)
    if bad_request is not None:
        return [
            f"{item.field}: {item.description}" if item.field else item.description
            for item in bad_request.field_violations
        ]
    failure = _unpack([detail], PreconditionFailure)
    if failure is not None:
        return [f"  {item.type} ({item.subject}): {item.description}" for item in failure.violations]
    return []


def _reason(detail: AnyMessage) -> str:
    info = _unpack([detail], ErrorInfo)
    return info.reason if info is not None else ""


def _unpack(details: Iterable[AnyMessage], message_type: type[MessageT]) -> MessageT | None:
    for detail in details:
        if detail.Is(cast(Descriptor, message_type.DESCRIPTOR)):
            message = message_type()
            detail.Unpack(message)
            return message
    return None


def _leave(exit_code: int, lines: list[str]) -> NoReturn:
    for line in lines:
        click.echo(f"error: {line}" if not line.startswith("  ") else line, err=True)
    sys.exit(exit_code)
