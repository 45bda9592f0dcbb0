"""The gRPC server: services, health, reflection, and how it starts and stops."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType

import grpc
import structlog
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from inferplan.errors import InvalidInputError
from inferplan.planning.planner import Planner
from inferplan.rpc.catalog_servicer import CatalogServicer
from inferplan.rpc.gate import WorkGate
from inferplan.rpc.interceptors import CallInterceptor
from inferplan.rpc.plan_servicer import PlanServicer
from inferplan.rpc.profile_servicer import ProfileServicer
from inferplan.rpc.sizing_servicer import SizingServicer
from inferplan.simulation import compile_kernels
from inferplan.v1 import (
    catalog_service_pb2,
    catalog_service_pb2_grpc,
    plan_service_pb2,
    plan_service_pb2_grpc,
    profile_service_pb2,
    profile_service_pb2_grpc,
    sizing_service_pb2,
    sizing_service_pb2_grpc,
)

_log = structlog.get_logger("inferplan.server")

SERVICE_NAMES = tuple(
    file.DESCRIPTOR.services_by_name[name].full_name
    for file, name in (
        (catalog_service_pb2, "CatalogService"),
        (plan_service_pb2, "PlanService"),
        (profile_service_pb2, "ProfileService"),
        (sizing_service_pb2, "SizingService"),
    )
)

HEALTH_THREADS = 2
"""Health.Watch holds a thread for as long as a client watches; this many watchers more than handlers may do so."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How the server runs. `listen` is HOST:PORT or unix:PATH; port 0 takes a free one.

    `planning_slots` calls simulate at once, `planning_queue` more wait for at most `planning_wait_seconds`; there are
    more handler threads than both, so that reads never wait for simulations. `compile_first` False leaves the simulator
    to be compiled by the first call that needs it, for a server that answers one command only.
    """

    listen: str
    handler_threads: int = 8
    planning_slots: int = 2
    planning_queue: int = 2
    planning_wait_seconds: float = 1.0
    compile_first: bool = True
    maximum_concurrent_rpcs: int = 256
    maximum_message_bytes: int = 4 * 1024 * 1024
    reflection: bool = True


class PlanningServer:
    """A running server. Use it as a context manager, or call `stop`."""

    def __init__(self, planner: Planner, options: ServerOptions) -> None:
        self._compile_first = options.compile_first
        self._executor = ThreadPoolExecutor(options.handler_threads + HEALTH_THREADS, thread_name_prefix="rpc")
        self._server = grpc.server(
            self._executor,
            interceptors=[CallInterceptor()],
            maximum_concurrent_rpcs=options.maximum_concurrent_rpcs,
            options=_channel_options(options),
        )
        gate = WorkGate(options.planning_slots, options.planning_queue, options.planning_wait_seconds)
        plan_service_pb2_grpc.add_PlanServiceServicer_to_server(PlanServicer(planner, gate), self._server)
        sizing_service_pb2_grpc.add_SizingServiceServicer_to_server(SizingServicer(planner, gate), self._server)
        catalog_service_pb2_grpc.add_CatalogServiceServicer_to_server(CatalogServicer(planner), self._server)
        profile_service_pb2_grpc.add_ProfileServiceServicer_to_server(
            ProfileServicer(planner.profiles, planner.calibrations, gate), self._server
        )
        self._health = health.HealthServicer(
            experimental_non_blocking=True, experimental_thread_pool=ThreadPoolExecutor(HEALTH_THREADS)
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        if options.reflection:
            reflection.enable_server_reflection(
                (*SERVICE_NAMES, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
            )
        self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        self.port = _bind(self._server, options.listen)

    def start(self) -> None:
        """Take calls. The simulator is compiled first, so that health turns to SERVING when every call is ready."""
        if self._compile_first:
            compile_kernels()
        self._server.start()
        self._set_health(health_pb2.HealthCheckResponse.SERVING)
        _log.info("serving", port=self.port)

    def stop(self, drain_seconds: float, notice_seconds: float = 0.0) -> None:
        """Report NOT_SERVING, go on for `notice_seconds`, then let calls in flight finish for at most `drain_seconds`.

        The notice is for load balancers: a call that reaches a stopping server before a handler took it is cancelled.
        """
        self._health.enter_graceful_shutdown()
        time.sleep(notice_seconds)
        self._server.stop(drain_seconds).wait()
        self._executor.shutdown(wait=False, cancel_futures=True)
        _log.info("stopped")

    def wait(self) -> None:
        """Return when the server has stopped."""
        self._server.wait_for_termination()

    def _set_health(self, status: health_pb2.HealthCheckResponse.ServingStatus.ValueType) -> None:
        for name in (*SERVICE_NAMES, ""):
            self._health.set(name, status)

    def __enter__(self) -> PlanningServer:
        self.start()
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.stop(drain_seconds=1.0)


def _channel_options(options: ServerOptions) -> Sequence[tuple[str, int]]:
    return (
        # without this a second server binds the same port and takes a part of the calls, silently
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", options.maximum_message_bytes),
        ("grpc.max_send_message_length", options.maximum_message_bytes),
        # so that clients of a new replica find it: they re-resolve when a connection ends
        ("grpc.max_connection_age_ms", 15 * 60 * 1000),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    )


def _bind(server: grpc.Server, listen: str) -> int:
    try:
        return server.add_insecure_port(listen)
    except RuntimeError:
        raise InvalidInputError.single(
            "listen", f"cannot listen on {listen}: it is in use by another server, or no address of this machine"
        ) from None
