"""A benchmark file that comes in pieces: the header first, then chunks, until the client has sent all."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import grpc

from inferplan.errors import CancelledError, InvalidInputError
from inferplan.rpc.validation import message_violations, raise_violations
from inferplan.v1 import profile_service_pb2

MAXIMUM_FILE_BYTES = 64 * 1024 * 1024


def read_import_stream(
    requests: Iterator[profile_service_pb2.ImportProfileRequest], is_active: Callable[[], bool]
) -> tuple[profile_service_pb2.ImportProfileHeader, bytes]:
    """The header and the whole file. `is_active` says whether the client is still there.

    Raises InvalidInputError for messages in another order or beyond their limits, and CancelledError if the client
    went before it had sent all: what came until then is not taken for a file.
    """
    try:
        header, content = _header(requests), _content(requests)
    except grpc.RpcError:
        raise _gone() from None
    # A call that was cancelled between two pieces ends its stream like one that is complete.
    if not is_active():
        raise _gone()
    return header, content


def _gone() -> CancelledError:
    return CancelledError("the client went before the file was whole; nothing was stored")


def _header(requests: Iterator[profile_service_pb2.ImportProfileRequest]) -> profile_service_pb2.ImportProfileHeader:
    first = next(requests, None)
    if first is None:
        raise InvalidInputError.single("header", "must be the first message; the stream is empty", "REQUIRED")
    if first.WhichOneof("part") == "chunk":
        raise InvalidInputError.single("header", "must be the first message, before the first chunk", "REQUIRED")
    raise_violations(message_violations(first))
    return first.header


def _content(requests: Iterator[profile_service_pb2.ImportProfileRequest]) -> bytes:
    content = bytearray()
    for request in requests:
        raise_violations(message_violations(request))
        if request.WhichOneof("part") == "header":
            raise InvalidInputError.single("header", "may come once, as the first message", "REPEATED")
        content += request.chunk
        if len(content) > MAXIMUM_FILE_BYTES:
            description = (
                f"the file has more than {MAXIMUM_FILE_BYTES} bytes, which is the most that is legal; split it"
            )
            raise InvalidInputError.single("chunk", description, "TOO_LONG")
    if not content:
        raise InvalidInputError.single("chunk", "the file is empty; legal: 1 byte to 64 MiB", "REQUIRED")
    return bytes(content)
