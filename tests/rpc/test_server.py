"""What every call passes through, and how the server starts and stops."""

from __future__ import annotations

import io
import json
import threading
from pathlib import Path

import grpc
import pytest
import structlog
from google.rpc.error_details_pb2 import ErrorInfo
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from pydantic import SecretStr

from inferplan.errors import InvalidInputError
from inferplan.planning.planner import Planner, PlanRequest
from inferplan.resources.plan import Plan
from inferplan.rpc.logging import SecretMasker, configure_logging, password_of
from inferplan.rpc.server import SERVICE_NAMES, PlanningServer, ServerOptions
from inferplan.rpc.startup import open_planner
from inferplan.settings import Settings, mask_password
from inferplan.simulation import Cancellation
from inferplan.v1 import catalog_service_pb2, catalog_service_pb2_grpc, plan_service_pb2_grpc
from support.requests import create_plan_request, detail


def test_health_of_every_service(channel: grpc.Channel) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    for name in (*SERVICE_NAMES, ""):
        reply = stub.Check(health_pb2.HealthCheckRequest(service=name))
        assert reply.status == health_pb2.HealthCheckResponse.SERVING


def test_reflection_names_every_service(channel: grpc.Channel) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    (reply,) = stub.ServerReflectionInfo(iter([request]))
    assert {service.name for service in reply.list_services_response.service} >= set(SERVICE_NAMES)


def test_a_second_server_on_the_port_is_refused(server: PlanningServer, tmp_path: Path) -> None:
    settings = Settings(database_url=SecretStr(f"sqlite:///{tmp_path / 'other.db'}"))
    with open_planner(settings) as planner, pytest.raises(InvalidInputError, match="in use"):
        PlanningServer(planner, ServerOptions(listen=f"127.0.0.1:{server.port}"))


def test_the_caller_request_id_comes_back(channel: grpc.Channel) -> None:
    stub = catalog_service_pb2_grpc.CatalogServiceStub(channel)
    _reply, call = stub.GetEngine.with_call(
        catalog_service_pb2.GetEngineRequest(name="engines/vllm"), metadata=(("x-request-id", "caller-7"),)
    )
    assert dict(call.initial_metadata())["x-request-id"] == "caller-7"
    _reply, call = stub.GetEngine.with_call(
        catalog_service_pb2.GetEngineRequest(name="engines/vllm"), metadata=(("x-request-id", "no spaces, please"),)
    )
    assert len(dict(call.initial_metadata())["x-request-id"]) == 32


def test_an_unknown_exception_is_opaque_and_logged_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "hunter2-in-a-dsn"
    log = io.StringIO()
    monkeypatch.setattr("sys.stderr", log)
    configure_logging("info", [secret])

    def explode(*_arguments: object) -> None:
        raise RuntimeError(f"connection to postgresql://user:{secret}@host failed")

    monkeypatch.setattr(Planner, "create_plan", explode)
    settings = Settings(database_url=SecretStr(f"sqlite:///{tmp_path / 'inferplan.db'}"))
    try:
        with (
            open_planner(settings) as planner,
            PlanningServer(planner, ServerOptions(listen="127.0.0.1:0")) as running,
            grpc.insecure_channel(f"127.0.0.1:{running.port}") as channel,
            pytest.raises(grpc.RpcError) as caught,
        ):
            plan_service_pb2_grpc.PlanServiceStub(channel).CreatePlan(
                create_plan_request(), metadata=(("x-request-id", "find-me"),)
            )
    finally:
        structlog.reset_defaults()
    assert isinstance(caught.value, grpc.Call)
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    seen = f"{caught.value.details()} {caught.value.trailing_metadata()}"
    assert "find-me" in seen
    assert secret not in seen
    assert "Traceback" not in seen
    assert "RuntimeError" not in seen
    info = detail(caught.value, ErrorInfo)
    assert info is not None
    assert info.metadata["request_id"] == "find-me"
    entries = [json.loads(line) for line in log.getvalue().splitlines()]
    assert secret not in log.getvalue()
    assert any("RuntimeError" in entry.get("exception", "") for entry in entries)
    assert {"call"} <= {entry["event"] for entry in entries}
    assert all(entry["request_id"] == "find-me" for entry in entries if entry["event"] == "call")


def test_a_method_that_is_not_implemented_says_so(channel: grpc.Channel) -> None:
    request = catalog_service_pb2.DeleteModelRequest(name="models/a")
    with pytest.raises(grpc.RpcError) as caught:
        catalog_service_pb2_grpc.CatalogServiceStub(channel).DeleteModel(request)
    assert isinstance(caught.value, grpc.Call)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "README" in (caught.value.details() or "")


def test_calls_in_flight_finish_when_the_server_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 4
    all_inside = threading.Barrier(calls + 1)
    released = threading.Event()
    create_plan = Planner.create_plan

    def slow_create_plan(planner: Planner, request: PlanRequest, cancellation: Cancellation) -> Plan:
        all_inside.wait(timeout=60)
        released.wait(timeout=60)
        return create_plan(planner, request, cancellation)

    monkeypatch.setattr(Planner, "create_plan", slow_create_plan)
    settings = Settings(database_url=SecretStr(f"sqlite:///{tmp_path / 'inferplan.db'}"))
    with open_planner(settings) as planner:
        server = PlanningServer(planner, ServerOptions(listen="127.0.0.1:0", handler_threads=calls))
        server.start()
        with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            stub = plan_service_pb2_grpc.PlanServiceStub(channel)
            pending = [stub.CreatePlan.future(create_plan_request("draining")) for _ in range(calls)]
            all_inside.wait(timeout=60)
            stopping = threading.Thread(target=server.stop, kwargs={"drain_seconds": 60})
            stopping.start()
            released.set()
            stopping.join(timeout=60)
            revisions = sorted(call.result(timeout=60).revision for call in pending)
    assert revisions == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("postgresql://user:p%40ss@host:5432/db", "postgresql://user:***@host:5432/db"),
        ("postgresql://user:p@ss@host/db", "postgresql://user:***@host/db"),
        (
            "postgresql://host/db?user=u&password=secret&sslmode=require",
            "postgresql://host/db?user=u&password=***&sslmode=require",
        ),
        ("postgresql://user@host/db", "postgresql://user@host/db"),
        ("sqlite:////var/lib/inferplan.db", "sqlite:////var/lib/inferplan.db"),
        ("user:secret@host", "***"),
    ],
)
def test_passwords_in_urls_are_masked(url: str, masked: str) -> None:
    assert mask_password(url) == masked


def test_a_secret_is_cut_out_in_every_spelling_and_depth() -> None:
    masker = SecretMasker([password_of("postgresql://user:p%40ss@host/db")])
    entry = masker(None, "info", {"event": "p@ss and p%40ss", "nested": {"list": ["p@ss"]}, "number": 5})
    assert entry == {"event": "*** and ***", "nested": {"list": ["***"]}, "number": 5}
