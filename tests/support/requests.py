"""Requests that tests send, and what a status says."""

from __future__ import annotations

from typing import TypeVar

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from grpc_status import rpc_status

from inferplan.v1 import plan_pb2, plan_service_pb2, workload_pb2

MessageT = TypeVar("MessageT", bound=Message)


def chatbot_input(model: str = "llama-2-7b") -> plan_pb2.PlanInput:
    """The worked example by catalogue name."""
    return plan_pb2.PlanInput(
        method=plan_pb2.PLAN_METHOD_TEXTBOOK,
        model=workload_pb2.ModelSource(model=model, headline_parameters=7e9),
        hardware=workload_pb2.Hardware(accelerators=["h100-sxm-80gb"]),
        workload=workload_pb2.Workload(
            traffic_classes=[
                workload_pb2.TrafficClass(
                    requests_per_second=100,
                    input_tokens=workload_pb2.LengthDistribution(constant_tokens=500),
                    output_tokens=workload_pb2.LengthDistribution(constant_tokens=200),
                )
            ]
        ),
        objectives=[
            workload_pb2.Objective(
                metric=workload_pb2.LATENCY_METRIC_TTFT, percentile=95, maximum=Duration(nanos=500_000_000)
            ),
            workload_pb2.Objective(
                metric=workload_pb2.LATENCY_METRIC_END_TO_END, percentile=95, maximum=Duration(seconds=5)
            ),
        ],
    )


def create_plan_request(
    deployment_id: str = "chatbot", plan_input: plan_pb2.PlanInput | None = None, **fields: object
) -> plan_service_pb2.CreatePlanRequest:
    """A request that creates its deployment where needed."""
    request = plan_service_pb2.CreatePlanRequest(
        parent=f"deployments/{deployment_id}",
        allow_missing_deployment=True,
        **fields,  # type: ignore[arg-type]
    )
    request.plan.input.SetInParent()
    request.plan.input.CopyFrom(plan_input if plan_input is not None else chatbot_input())
    return request


def detail(error: grpc.RpcError, message_type: type[MessageT]) -> MessageT | None:
    """The one detail of that type that a failed call carries."""
    assert isinstance(error, grpc.Call)
    status = rpc_status.from_call(error)
    if status is None:
        return None
    found = [item for item in status.details if item.Is(message_type.DESCRIPTOR)]
    assert len(found) <= 1
    if not found:
        return None
    message = message_type()
    found[0].Unpack(message)
    return message


def violations(error: grpc.RpcError) -> dict[str, str]:
    """Descriptions by field of an INVALID_ARGUMENT."""
    assert isinstance(error, grpc.Call)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, error.details()
    info = detail(error, ErrorInfo)
    assert info is not None
    assert (info.domain, info.reason) == ("inferplan", "INVALID_INPUT")
    bad_request = detail(error, BadRequest)
    assert bad_request is not None
    return {item.field: item.description for item in bad_request.field_violations}
