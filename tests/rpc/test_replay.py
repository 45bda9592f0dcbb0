"""SimulatePlan over time, over a real channel: progress, recorded traces, cancellation and limits."""

from __future__ import annotations

import grpc
import pytest

from inferplan.v1 import plan_service_pb2, plan_service_pb2_grpc
from support.requests import create_plan_request, violations

Stub = plan_service_pb2_grpc.PlanServiceStub
Request = plan_service_pb2.SimulatePlanRequest
NAME = "deployments/replayed/plans/latest"


@pytest.fixture(scope="module")
def plans(channel: grpc.Channel) -> Stub:
    stub = Stub(channel)
    stub.CreatePlan(create_plan_request("replayed"))
    return stub


def report_of(plans: Stub, request: Request) -> plan_service_pb2.SimulationReport:
    *progress, last = plans.SimulatePlan(request)
    ratios = [event.progress.done_ratio for event in progress]
    assert ratios == sorted(ratios)
    assert all(0 <= ratio <= 1 for ratio in ratios)
    return last.report


def test_a_replay_reports_the_fleet_over_time(plans: Stub) -> None:
    request = Request(
        name=NAME, trace="diurnal:peak=40,trough=5,hours=6", policy_source=plan_service_pb2.POLICY_SOURCE_FORECAST
    )
    report = report_of(plans, request)
    assert len(report.intervals) == 360
    assert report.worst_interval in report.intervals
    assert len(report.events) == report.scale_events
    assert report.static_peak_gpu_hours == pytest.approx(6 * report.static_peak_replicas)
    assert report.policy.derivations[-1].field == "maximum_replicas"


def test_progress_is_told_while_it_runs(plans: Stub) -> None:
    request = Request(name=NAME, trace="diurnal:peak=60,trough=20", policy_source=plan_service_pb2.POLICY_SOURCE_PLAN)
    events = list(plans.SimulatePlan(request))
    ratios = [event.progress.done_ratio for event in events if event.HasField("progress")]
    assert ratios
    assert max(ratios) > 0


def test_a_replay_ends_with_its_client(plans: Stub) -> None:
    request = Request(
        name=NAME, trace="diurnal:peak=100,trough=50", policy_source=plan_service_pb2.POLICY_SOURCE_PLAN, suggest=True
    )
    call = plans.SimulatePlan(request)
    next(call)
    call.cancel()
    # A gate that still held the cancelled run would shed one of these.
    for _ in range(3):
        assert report_of(plans, Request(name=NAME, trace="constant:rate=5,hours=0.1")).gpu_hours > 0


def test_a_recorded_trace_arrives_whole(plans: Stub) -> None:
    trace = plan_service_pb2.RecordedTrace(
        title="mine",
        arrival_gap_microseconds=[0] + [100_000] * 1999,
        input_tokens=[40] * 2000,
        output_tokens=[10] * 2000,
    )
    report = report_of(plans, Request(name=NAME, recorded_trace=trace))
    assert report.performance.simulated_requests == 2000
    assert report.performance.output_tokens_per_second == pytest.approx(100, rel=0.05)


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (Request(name=NAME, trace="weekly:peak=3"), "trace"),
        (
            Request(name=NAME, recorded_trace=plan_service_pb2.RecordedTrace()),
            "recorded_trace.arrival_gap_microseconds",
        ),
        (
            Request(
                name=NAME,
                recorded_trace=plan_service_pb2.RecordedTrace(arrival_gap_microseconds=[0, 1], input_tokens=[1]),
            ),
            "trace.input_tokens",
        ),
        (
            Request(
                name=NAME,
                recorded_trace=plan_service_pb2.RecordedTrace(arrival_gap_microseconds=[0, 10**15]),
            ),
            "trace.arrivals[1]",
        ),
        (Request(name=NAME, trace="constant:rate=1", suggest=True), "suggest"),
        (Request(name=NAME, trace="constant:rate=1", target="keda"), "target"),
    ],
)
def test_a_replay_that_cannot_be_is_refused(plans: Stub, request_: Request, field: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        list(plans.SimulatePlan(request_))
    assert isinstance(caught.value, grpc.Call)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert field in violations(caught.value)
