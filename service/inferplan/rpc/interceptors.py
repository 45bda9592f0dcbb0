"""What every call passes through: a request id and a log entry, and no exception that reaches the wire as it is."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, cast

import grpc
import structlog
from grpc_status import rpc_status

from inferplan.errors import InferplanError, UnimplementedError
from inferplan.rpc.errors import internal_status, status_for

REQUEST_ID_HEADER = "x-request-id"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

_log = structlog.get_logger("inferplan.rpc")

HEALTH_SERVICE_PREFIX = "/grpc.health.v1.Health/"


class CallInterceptor(grpc.ServerInterceptor):
    """The outermost interceptor.

    It takes the caller's `x-request-id` (or draws one), returns it in the initial metadata, logs each call once with
    its outcome, and turns whatever the handler raises into a status: a domain error into its own, anything else into an
    opaque INTERNAL, since grpc would send an exception's text, passwords in it included.
    """

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Wrap the handler of one call; health checks pass as they are, since they come every few seconds."""
        handler = continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or method.startswith(HEALTH_SERVICE_PREFIX):
            return handler
        request_id = _request_id(handler_call_details.invocation_metadata)
        call = _Call(method, request_id)
        if handler.request_streaming and handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(
                call.guard_stream(handler.stream_stream), handler.request_deserializer, handler.response_serializer
            )
        if handler.request_streaming:
            return grpc.stream_unary_rpc_method_handler(
                call.guard(handler.stream_unary), handler.request_deserializer, handler.response_serializer
            )
        if handler.response_streaming:
            return grpc.unary_stream_rpc_method_handler(
                call.guard_stream(handler.unary_stream), handler.request_deserializer, handler.response_serializer
            )
        return grpc.unary_unary_rpc_method_handler(
            call.guard(handler.unary_unary), handler.request_deserializer, handler.response_serializer
        )


class _Call:
    """One call: its name, its id, and how its handler is wrapped."""

    def __init__(self, method: str, request_id: str) -> None:
        self._method = method
        self._request_id = request_id

    def guard(self, behavior: Any) -> Callable[[Any, grpc.ServicerContext], Any]:
        """`behavior`, which returns one reply, with a log entry and clean errors."""

        def guarded(request: Any, context: grpc.ServicerContext) -> Any:
            started = self._begin(context)
            try:
                reply = behavior(request, context)
            except Exception as error:  # noqa: BLE001 - the outermost frame: nothing may pass
                self._fail(error, context, started)
            self._log_outcome("OK", started)
            return reply

        return guarded

    def guard_stream(self, behavior: Any) -> Callable[[Any, grpc.ServicerContext], Iterator[Any]]:
        """`behavior`, which yields replies, with a log entry and clean errors."""

        def guarded(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            started = self._begin(context)
            try:
                yield from behavior(request, context)
            except Exception as error:  # noqa: BLE001 - the outermost frame: nothing may pass
                self._fail(error, context, started)
            self._log_outcome("OK", started)

        return guarded

    def _begin(self, context: grpc.ServicerContext) -> float:
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=self._request_id, method=self._method)
        context.send_initial_metadata(((REQUEST_ID_HEADER, self._request_id),))
        return time.monotonic()

    def _fail(self, error: Exception, context: grpc.ServicerContext, started: float) -> None:
        """Log and abort; it does not return, since aborting raises grpc's own exception."""
        if isinstance(error, NotImplementedError) and cast(Any, context).code() is grpc.StatusCode.UNIMPLEMENTED:
            error = UnimplementedError(
                f"{self._method} is part of the contract but not of this version; see the README"
            )
        if isinstance(error, InferplanError):
            code, status = status_for(error)
            self._log_outcome(code.name, started, reason=error.reason)
        else:
            code, status = internal_status(self._request_id)
            _log.error("unexpected exception", exception_type=type(error).__qualname__, exc_info=error)
            self._log_outcome(code.name, started)
        context.abort_with_status(rpc_status.to_status(status))

    def _log_outcome(self, code: str, started: float, **details: str) -> None:
        _log.info("call", code=code, duration_seconds=round(time.monotonic() - started, 6), **details)


def _request_id(metadata: Any) -> str:
    for key, value in metadata or ():
        if key == REQUEST_ID_HEADER and isinstance(value, str) and _REQUEST_ID.fullmatch(value):
            return value
    return uuid.uuid4().hex
