"""Predictions and simulations over a real channel: right values, bad input, cancellation, shedding."""

from __future__ import annotations

import threading
from pathlib import Path

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from pydantic import SecretStr

from inferplan.planning.planner import Planner
from inferplan.planning.predict import Prediction, PredictionRequest
from inferplan.rpc.server import PlanningServer, ServerOptions
from inferplan.rpc.startup import open_planner
from inferplan.settings import Settings
from inferplan.simulation import Cancellation
from inferplan.v1 import (
    performance_pb2,
    plan_pb2,
    plan_service_pb2,
    plan_service_pb2_grpc,
    sizing_service_pb2,
    sizing_service_pb2_grpc,
    workload_pb2,
)
from support.requests import chatbot_input, create_plan_request, detail, violations


@pytest.fixture(scope="module")
def sizing(channel: grpc.Channel) -> sizing_service_pb2_grpc.SizingServiceStub:
    return sizing_service_pb2_grpc.SizingServiceStub(channel)


def question(requests_per_second: float = 31.4) -> sizing_service_pb2.PredictPerformanceRequest:
    """The measured sweep's engine: Llama-3.1-8B on one H100, 128 slots, constant arrivals."""
    return sizing_service_pb2.PredictPerformanceRequest(
        model=workload_pb2.ModelSource(model="llama-3.1-8b"),
        accelerator="h100-sxm-80gb",
        engine=workload_pb2.EngineSettings(version="0.11.0", max_num_seqs=128, max_model_len_tokens=512),
        workload=workload_pb2.Workload(
            traffic_classes=[
                workload_pb2.TrafficClass(
                    requests_per_second=requests_per_second,
                    arrivals=workload_pb2.Arrivals(process=workload_pb2.Arrivals.PROCESS_CONSTANT),
                    input_tokens=workload_pb2.LengthDistribution(constant_tokens=204),
                    output_tokens=workload_pb2.LengthDistribution(constant_tokens=62),
                )
            ]
        ),
    )


def latency(performance: performance_pb2.Performance, metric: int) -> performance_pb2.LatencyPercentiles:
    (found,) = [item for item in performance.latencies if item.metric == metric and not item.traffic_class_id]
    return found


def test_a_measured_point(sizing: sizing_service_pb2_grpc.SizingServiceStub) -> None:
    """Measured at 31.4 requests/s: TPOT 8.42 ms, mean TTFT 29.8 ms."""
    answer = sizing.PredictPerformance(question())
    tpot = latency(answer.performance, workload_pb2.LATENCY_METRIC_TPOT)
    assert tpot.mean.ToNanoseconds() / 1e6 == pytest.approx(8.42, rel=0.15)
    ttft = latency(answer.performance, workload_pb2.LATENCY_METRIC_TTFT)
    assert ttft.mean.ToNanoseconds() / 1e6 == pytest.approx(29.8, rel=0.25)
    shown = [value.percentile for value in ttft.percentiles]
    assert shown == [50, 90, 95, 99]
    for value in ttft.percentiles:
        assert value.low.ToNanoseconds() <= value.value.ToNanoseconds() <= value.high.ToNanoseconds()
    assert not answer.performance.saturated
    assert answer.calibration == answer.calibration_use.calibration == "calibrations/builtin-vllm"
    assert answer.seed > 0
    assert sizing.PredictPerformance(question()) == answer


def test_overload_is_seen_and_replicas_cure_it(sizing: sizing_service_pb2_grpc.SizingServiceStub) -> None:
    """One such replica completed 101 to 103 requests/s at most."""
    request = question(150.0)
    alone = sizing.PredictPerformance(request)
    assert alone.performance.saturated
    assert alone.performance.queue_growth_requests_per_second == pytest.approx(150 - 102, rel=0.2)
    request.replicas = 2
    assert not sizing.PredictPerformance(request).performance.saturated


def test_a_closed_loop_keeps_its_clients_busy(sizing: sizing_service_pb2_grpc.SizingServiceStub) -> None:
    request = question()
    traffic = request.workload.traffic_classes[0]
    traffic.ClearField("arrivals")
    traffic.concurrency = 16
    request.requests = 320
    answer = sizing.PredictPerformance(request)
    assert answer.performance.simulated_requests == 320
    end_to_end = latency(answer.performance, workload_pb2.LATENCY_METRIC_END_TO_END).mean.ToNanoseconds() / 1e9
    # Little's law: clients = throughput x time in the system
    assert answer.performance.requests_per_second * end_to_end == pytest.approx(16, rel=0.05)
    assert not answer.performance.HasField("saturated")


def test_what_cannot_be_predicted(sizing: sizing_service_pb2_grpc.SizingServiceStub) -> None:
    request = question()
    request.calibration = "calibrations/mine"
    request.requests = 100
    request.objectives.add(metric=workload_pb2.LATENCY_METRIC_TTFT, percentile=99.9, maximum=Duration(seconds=1))
    request.workload.traffic_classes[0].output_tokens.constant_tokens = 400
    with pytest.raises(grpc.RpcError) as caught:
        sizing.PredictPerformance(request)
    found = violations(caught.value)
    assert set(found) == {"calibration", "objectives[0].percentile"}
    request.calibration = ""
    del request.objectives[:]
    with pytest.raises(grpc.RpcError) as caught:
        sizing.PredictPerformance(request)
    # a prompt of 204 and an output of 400 tokens beyond a context of 512
    assert "604" in violations(caught.value)["workload.traffic_classes"]


@pytest.mark.parametrize(("field", "value"), [("requests_per_second", 1e6), ("concurrency", 1_000_000)])
def test_a_load_that_would_be_simulated_for_ever(
    sizing: sizing_service_pb2_grpc.SizingServiceStub, channel: grpc.Channel, field: str, value: float
) -> None:
    request = question()
    traffic = request.workload.traffic_classes[0]
    traffic.ClearField("arrivals")
    setattr(traffic, field, value)
    with pytest.raises(grpc.RpcError) as caught:
        sizing.PredictPerformance(request)
    assert "divide the load" in violations(caught.value)["workload.traffic_classes"]
    plan_request = create_plan_request("too-large")
    plan_request.plan.input.method = plan_pb2.PLAN_METHOD_SIMULATED
    plan_request.plan.input.workload.CopyFrom(request.workload)
    with pytest.raises(grpc.RpcError) as caught:
        plan_service_pb2_grpc.PlanServiceStub(channel).CreatePlan(plan_request)
    assert "divide the load" in violations(caught.value)["plan.input.workload.traffic_classes"]


def test_a_configuration_that_does_not_start(sizing: sizing_service_pb2_grpc.SizingServiceStub) -> None:
    request = question()
    request.model.model = "llama-3.1-70b"
    with pytest.raises(grpc.RpcError) as caught:
        sizing.PredictPerformance(request)
    assert isinstance(caught.value, grpc.Call)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION


def test_a_stored_plan_is_played_with_other_replicas(channel: grpc.Channel) -> None:
    plans = plan_service_pb2_grpc.PlanServiceStub(channel)
    plan = plans.CreatePlan(create_plan_request("played", chatbot_input()))
    assert plan.fleet.active_replicas == 2
    request = plan_service_pb2.SimulatePlanRequest(name=plan.name)
    *_progress, last = plans.SimulatePlan(request)
    assert last.report.performance.saturated
    assert {verdict.outcome for verdict in last.report.verdicts} == {performance_pb2.ObjectiveVerdict.OUTCOME_FAILS}
    request.replicas = 8
    *_progress, last = plans.SimulatePlan(request)
    assert not last.report.performance.saturated
    assert {verdict.outcome for verdict in last.report.verdicts} == {performance_pb2.ObjectiveVerdict.OUTCOME_HOLDS}
    assert last.report.attainment == pytest.approx(1.0, abs=0.01)
    request.trace = "diurnal:peak=100"
    with pytest.raises(grpc.RpcError) as caught:
        list(plans.SimulatePlan(request))
    assert list(violations(caught.value)) == ["trace.trough"]


def test_a_full_gate_sheds_and_reads_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, released = threading.Event(), threading.Event()

    def blocked(_planner: Planner, _request: PredictionRequest, _cancellation: Cancellation) -> Prediction:
        inside.set()
        released.wait(timeout=60)
        raise AssertionError("released only after the assertions")

    monkeypatch.setattr(Planner, "predict", blocked)
    settings = Settings(database_url=SecretStr(f"sqlite:///{tmp_path / 'inferplan.db'}"))
    options = ServerOptions(listen="127.0.0.1:0", planning_slots=1, planning_queue=0, planning_wait_seconds=0.5)
    with (
        open_planner(settings) as planner,
        PlanningServer(planner, options) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        sizing = sizing_service_pb2_grpc.SizingServiceStub(channel)
        first = sizing.PredictPerformance.future(question())
        assert inside.wait(timeout=60)
        with pytest.raises(grpc.RpcError) as caught:
            sizing.PredictPerformance(question())
        plans = plan_service_pb2_grpc.PlanServiceStub(channel)
        assert plans.CreatePlan(create_plan_request("unhindered")).revision == 1
        released.set()
        assert first.code() is grpc.StatusCode.INTERNAL
    assert isinstance(caught.value, grpc.Call)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert detail(caught.value, RetryInfo) is not None


def test_a_call_that_its_client_gives_up_stops_the_simulation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, seen = threading.Event(), threading.Event()

    def waits_for_cancellation(
        _planner: Planner, _request: PredictionRequest, cancellation: Cancellation
    ) -> Prediction:
        inside.set()
        pause = threading.Event()
        for _ in range(6000):
            if cancellation.cancelled:
                seen.set()
                break
            pause.wait(0.01)
        raise AssertionError("nobody reads the answer")

    monkeypatch.setattr(Planner, "predict", waits_for_cancellation)
    settings = Settings(database_url=SecretStr(f"sqlite:///{tmp_path / 'inferplan.db'}"))
    with (
        open_planner(settings) as planner,
        PlanningServer(planner, ServerOptions(listen="127.0.0.1:0")) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        call = sizing_service_pb2_grpc.SizingServiceStub(channel).PredictPerformance.future(question())
        assert inside.wait(timeout=60)
        call.cancel()
        assert seen.wait(timeout=60)
