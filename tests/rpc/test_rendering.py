"""Stored plans rendered over a real channel."""

from __future__ import annotations

import grpc
import pytest
from google.protobuf.json_format import MessageToDict
from ruamel.yaml import YAML

from inferplan.v1 import plan_pb2, plan_service_pb2, plan_service_pb2_grpc
from support.requests import chatbot_input, create_plan_request, violations


@pytest.fixture(scope="module")
def plans(channel: grpc.Channel) -> plan_service_pb2_grpc.PlanServiceStub:
    return plan_service_pb2_grpc.PlanServiceStub(channel)


@pytest.fixture(scope="module")
def plan(plans: plan_service_pb2_grpc.PlanServiceStub) -> plan_pb2.Plan:
    plan_input = chatbot_input()
    plan_input.method = plan_pb2.PLAN_METHOD_SIMULATED
    return plans.CreatePlan(create_plan_request("rendered", plan_input))


def test_a_keda_object_says_what_the_plan_says(
    plans: plan_service_pb2_grpc.PlanServiceStub, plan: plan_pb2.Plan
) -> None:
    request = plan_service_pb2.RenderPlanRequest(name=plan.name, target="keda", options={"namespace": "chat"})
    rendering = plans.RenderPlan(request)
    (file,) = rendering.files
    assert plan.name in file.content
    document = YAML(typ="safe").load(file.content)
    policy = plan.autoscaling_policy
    assert document["kind"] == "ScaledObject"
    assert document["metadata"] == {"name": "rendered", "namespace": "chat"}
    assert document["spec"]["maxReplicaCount"] == policy.maximum_replicas
    assert document["spec"]["minReplicaCount"] == policy.minimum_replicas + policy.warm_replicas
    (queue,) = [item for item in document["spec"]["triggers"] if "waiting" in item["metadata"]["query"]]
    assert queue["metricType"] == "AverageValue"
    assert float(queue["metadata"]["threshold"]) == policy.signals[0].target
    assert plans.RenderPlan(request) == rendering


def test_engine_flags_are_those_of_the_configuration(
    plans: plan_service_pb2_grpc.PlanServiceStub, plan: plan_pb2.Plan
) -> None:
    rendering = plans.RenderPlan(plan_service_pb2.RenderPlanRequest(name=plan.name, target="vllm"))
    text = "\n".join(file.content for file in rendering.files)
    assert f"--max-num-seqs {plan.configuration.max_num_seqs}" in text.replace("=", " ")
    assert f"--tensor-parallel-size {plan.configuration.parallelism.tensor_parallel}" in text.replace("=", " ")


def test_what_cannot_be_rendered(plans: plan_service_pb2_grpc.PlanServiceStub, plan: plan_pb2.Plan) -> None:
    for target, options, field in (
        ("kda", {}, "target"),
        ("keda", {"namespace": "Not_A_Name", "nmae": "x"}, "options[namespace]"),
        ("tensorrt-llm", {}, "target"),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            plans.RenderPlan(plan_service_pb2.RenderPlanRequest(name=plan.name, target=target, options=options))
        assert field in violations(caught.value), MessageToDict(plan_service_pb2.RenderPlanRequest(target=target))
