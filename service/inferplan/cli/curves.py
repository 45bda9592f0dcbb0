"""The points of a latency curve: the same question asked at several rates."""

from __future__ import annotations

import grpc

from inferplan.cli.connection import CALL_SECONDS
from inferplan.cli.plots import CurvePoint
from inferplan.errors import InvalidInputError
from inferplan.v1 import plan_pb2, sizing_service_pb2, sizing_service_pb2_grpc, workload_pb2

RATE_SHARES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.5)
"""Rates of a curve, as shares of the given one: finer where queues begin to build."""


def latency_curve(channel: grpc.Channel, request: sizing_service_pb2.PredictPerformanceRequest) -> list[CurvePoint]:
    """What the request's fleet does from a tenth to one and a half times its load.

    Raises InvalidInputError for a closed loop, which has no rate.
    """
    if any(traffic.HasField("concurrency") for traffic in request.workload.traffic_classes):
        raise InvalidInputError.single("--plot", "a curve against rate has no meaning for a closed loop")
    stub = sizing_service_pb2_grpc.SizingServiceStub(channel)
    points = []
    for share in RATE_SHARES:
        trial = sizing_service_pb2.PredictPerformanceRequest()
        trial.CopyFrom(request)
        for traffic in trial.workload.traffic_classes:
            traffic.requests_per_second *= share
        rate = sum(traffic.requests_per_second for traffic in trial.workload.traffic_classes)
        points.append(CurvePoint(rate, stub.PredictPerformance(trial, timeout=CALL_SECONDS).performance))
    return points


def plan_as_prediction(plan: plan_pb2.Plan) -> sizing_service_pb2.PredictPerformanceRequest:
    """The question whose answer at full load is the plan's own prediction."""
    configuration = plan.configuration
    settings = workload_pb2.EngineSettings(
        engine=configuration.engine,
        version=configuration.engine_version,
        weight_precision=configuration.weight_precision,
        kv_precision=configuration.kv_precision,
        gpu_memory_utilization=configuration.gpu_memory_utilization,
        max_num_seqs=configuration.max_num_seqs,
        max_num_batched_tokens=configuration.max_num_batched_tokens,
        max_model_len_tokens=configuration.max_model_len_tokens,
        enable_prefix_caching=configuration.enable_prefix_caching,
    )
    return sizing_service_pb2.PredictPerformanceRequest(
        model=plan.input.model,
        accelerator=configuration.accelerator,
        parallelism=configuration.parallelism,
        engine=settings,
        workload=plan.input.workload,
        objectives=plan.input.objectives,
        replicas=plan.fleet.active_replicas,
        simulation=plan_pb2.SimulationOptions(seed=plan.seed, router=plan.input.simulation.router),
        calibration=plan.calibration,
    )
