"""Plans over a real channel: the right values, idempotency, lists, and every bad input at once."""

from __future__ import annotations

import math
import uuid

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo, PreconditionFailure, ResourceInfo

from inferplan.rpc.convert.plan import plan_input_from_wire
from inferplan.v1 import (
    performance_pb2,
    plan_pb2,
    plan_service_pb2,
    plan_service_pb2_grpc,
    workload_pb2,
)
from support.requests import chatbot_input, create_plan_request, detail, violations

Stub = plan_service_pb2_grpc.PlanServiceStub


@pytest.fixture(scope="module")
def plans(channel: grpc.Channel) -> Stub:
    return Stub(channel)


def step_values(plan: plan_pb2.Plan) -> dict[str, float]:
    return {value.symbol: value.value for step in plan.steps for value in step.values}


def test_the_worked_example_is_stored_and_read_back(plans: Stub, llama_config: str) -> None:
    plan_input = chatbot_input()
    plan_input.model.config_json = llama_config
    plan = plans.CreatePlan(create_plan_request("worked-example", plan_input))
    assert plan.name == "deployments/worked-example/plans/1"
    values = step_values(plan)
    assert round(values["t_step"], 6) == 4.179e-3
    assert round(values["X_requests"], 1) == 59.8
    assert (plan.fleet.active_replicas, plan.fleet.spare_replicas, plan.fleet.gpus) == (2, 1, 3)
    policy = plan.autoscaling_policy
    assert (policy.minimum_replicas, policy.maximum_replicas, policy.warm_replicas) == (2, 8, 1)
    assert policy.signals[0].target == 20
    assert policy.scale_up.cooldown.seconds == 90
    assert policy.scale_down.cooldown.seconds == 300
    codes = {warning.code: warning.message for warning in plan.warnings}
    assert "8.87 ms" in codes["KV_CACHE_LEFT_OUT"]
    assert "23.5 requests/s" in codes["PREFILL_SHARES_THE_GPU"]
    assert {verdict.outcome for verdict in plan.verdicts} == {performance_pb2.ObjectiveVerdict.OUTCOME_MEAN_ONLY_HOLDS}
    assert plan_input_from_wire(plan.input) == plan_input_from_wire(plan_input)
    assert plan.calibration == "datasheet"
    assert plan.memory.fits
    assert plans.GetPlan(plan_service_pb2.GetPlanRequest(name=plan.name)) == plan
    latest = plans.GetPlan(plan_service_pb2.GetPlanRequest(name="deployments/worked-example/plans/latest"))
    assert latest == plan


def test_revisions_count_up_and_the_deployment_names_the_newest(plans: Stub) -> None:
    for revision in (1, 2, 3):
        assert plans.CreatePlan(create_plan_request("counting")).revision == revision
    deployment = plans.GetDeployment(plan_service_pb2.GetDeploymentRequest(name="deployments/counting"))
    assert deployment.latest_plan == "deployments/counting/plans/3"


def test_a_repeated_request_gives_the_stored_plan(plans: Stub) -> None:
    request = create_plan_request("repeated", request_id=str(uuid.uuid4()))
    first = plans.CreatePlan(request)
    assert plans.CreatePlan(request) == first
    request.request_id = request.request_id.upper()
    assert plans.CreatePlan(request) == first
    request.plan.input.workload.traffic_classes[0].requests_per_second = 101
    with pytest.raises(grpc.RpcError) as caught:
        plans.CreatePlan(request)
    assert isinstance(caught.value, grpc.Call)
    assert caught.value.code() is grpc.StatusCode.ALREADY_EXISTS
    assert detail(caught.value, ResourceInfo) is not None


def test_validate_only_stores_nothing(plans: Stub) -> None:
    plan = plans.CreatePlan(create_plan_request("dry", validate_only=True))
    assert (plan.name, plan.revision, plan.fleet.active_replicas) == ("", 0, 2)
    with pytest.raises(grpc.RpcError) as caught:
        plans.GetDeployment(plan_service_pb2.GetDeploymentRequest(name="deployments/dry"))
    assert isinstance(caught.value, grpc.Call)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_a_missing_deployment_is_not_found_unless_it_may_be_created(plans: Stub) -> None:
    request = create_plan_request("nowhere")
    request.allow_missing_deployment = False
    with pytest.raises(grpc.RpcError) as caught:
        plans.CreatePlan(request)
    assert isinstance(caught.value, grpc.Call)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    resource = detail(caught.value, ResourceInfo)
    assert resource is not None
    assert resource.resource_name == "deployments/nowhere"


def test_lists_page_newest_first_and_tokens_belong_to_their_list(plans: Stub) -> None:
    for _ in range(5):
        plans.CreatePlan(create_plan_request("paged"))
    revisions: list[int] = []
    token = ""
    while True:
        page = plans.ListPlans(
            plan_service_pb2.ListPlansRequest(parent="deployments/paged", page_size=2, page_token=token)
        )
        assert len(page.plans) <= 2
        revisions += [plan.revision for plan in page.plans]
        token = page.next_page_token
        if not token:
            break
        last_token = token
    assert revisions == [5, 4, 3, 2, 1]
    everywhere = plans.ListPlans(plan_service_pb2.ListPlansRequest(parent="deployments/-", page_size=1000))
    assert {plan.name for plan in everywhere.plans} >= {f"deployments/paged/plans/{n}" for n in range(1, 6)}
    for parent, bad_token in (
        ("deployments/-", last_token),
        ("deployments/paged", last_token[:-3]),
        ("deployments/paged", "A" * 40),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            plans.ListPlans(plan_service_pb2.ListPlansRequest(parent=parent, page_token=bad_token))
        assert list(violations(caught.value)) == ["page_token"]
    with pytest.raises(grpc.RpcError) as caught:
        plans.ListPlans(plan_service_pb2.ListPlansRequest(parent="deployments/-", page_size=-1))
    assert list(violations(caught.value)) == ["page_size"]


def test_deployments_are_created_once_and_listed(plans: Stub) -> None:
    request = plan_service_pb2.CreateDeploymentRequest(deployment_id="labelled")
    request.deployment.display_name = "A chatbot"
    request.deployment.labels["team"] = "search"
    created = plans.CreateDeployment(request)
    assert (created.name, created.latest_plan, dict(created.labels)) == ("deployments/labelled", "", {"team": "search"})
    assert plans.GetDeployment(plan_service_pb2.GetDeploymentRequest(name=created.name)) == created
    listed = plans.ListDeployments(plan_service_pb2.ListDeploymentsRequest(page_size=1000)).deployments
    assert created in listed
    with pytest.raises(grpc.RpcError) as caught:
        plans.CreateDeployment(request)
    assert isinstance(caught.value, grpc.Call)
    assert caught.value.code() is grpc.StatusCode.ALREADY_EXISTS


def test_all_that_is_wrong_is_told_at_once(plans: Stub) -> None:
    request = create_plan_request("Bad_Name", request_id="not-a-uuid")
    plan_input = request.plan.input
    plan_input.model.model = "lama-2-7b"
    plan_input.hardware.accelerators[:] = ["h100-smx"]
    plan_input.hardware.cost_usd_per_gpu_hour["l4"] = -1
    plan_input.engine.engine = "vlm"
    plan_input.engine.gpu_memory_utilization = 1.5
    traffic = plan_input.workload.traffic_classes[0]
    traffic.requests_per_second = math.nan
    traffic.ClearField("input_tokens")
    plan_input.objectives[0].percentile = 100
    plan_input.objectives[1].maximum.CopyFrom(Duration(seconds=-1))
    with pytest.raises(grpc.RpcError) as caught:
        plans.CreatePlan(request)
    found = violations(caught.value)
    assert set(found) >= {
        "parent",
        "request_id",
        "plan.input.model.model",
        "plan.input.hardware.cost_usd_per_gpu_hour['l4']",
        "plan.input.engine.gpu_memory_utilization",
        "plan.input.workload.traffic_classes[0].requests_per_second",
        "plan.input.objectives[0].percentile",
        "plan.input.objectives[1].maximum",
    }
    assert "llama-2-7b" in found["plan.input.model.model"]


def test_an_empty_request_names_every_part_that_must_be_there(plans: Stub) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        plans.CreatePlan(plan_service_pb2.CreatePlanRequest())
    assert {"parent", "plan"} <= set(violations(caught.value))
    with pytest.raises(grpc.RpcError) as caught:
        plans.CreatePlan(create_plan_request(plan_input=plan_pb2.PlanInput()))
    assert {"plan.input.model", "plan.input.hardware", "plan.input.workload"} <= set(violations(caught.value))


def test_names_that_are_not_known_come_with_the_nearest(plans: Stub) -> None:
    plan_input = chatbot_input()
    plan_input.model.model = "lama-2-7b"
    plan_input.hardware.accelerators[:] = ["h100-smx"]
    plan_input.engine.engine = "vlm"
    with pytest.raises(grpc.RpcError) as caught:
        plans.CreatePlan(create_plan_request(plan_input=plan_input))
    found = violations(caught.value)
    assert "llama-2-7b" in found["plan.input.model.model"]
    assert "h100-sxm-80gb" in found["plan.input.hardware.accelerators[0]"]
    assert "vllm" in found["plan.input.engine.engine"]


def test_objectives_that_contradict(plans: Stub) -> None:
    plan_input = chatbot_input()
    plan_input.objectives.add(metric=workload_pb2.LATENCY_METRIC_TTFT, percentile=50, maximum=Duration(seconds=1))
    with pytest.raises(grpc.RpcError) as caught:
        plans.CreatePlan(create_plan_request(plan_input=plan_input))
    assert "contradicts plan.input.objectives[0]" in violations(caught.value)["plan.input.objectives[2]"]


def test_a_thousand_violations_stay_invalid_argument(plans: Stub) -> None:
    plan_input = chatbot_input()
    del plan_input.workload.traffic_classes[:]
    traffic = plan_input.workload.traffic_classes.add(requests_per_second=1)
    for _ in range(1000):
        traffic.length_pairs.add(input_tokens=0, output_tokens=0)
    with pytest.raises(grpc.RpcError) as caught:
        plans.CreatePlan(create_plan_request(plan_input=plan_input))
    assert 10 <= len(violations(caught.value)) <= 50
    assert isinstance(caught.value, grpc.Call)
    assert "2000 violations" in (caught.value.details() or "")


def test_tensor_parallel_that_does_not_divide_lists_what_would(plans: Stub) -> None:
    plan_input = chatbot_input()
    plan_input.hardware.parallelism.tensor_parallel = 3
    with pytest.raises(grpc.RpcError) as caught:
        plans.CreatePlan(create_plan_request(plan_input=plan_input))
    found = violations(caught.value)
    (description,) = [text for field, text in found.items() if field.startswith("plan.input.hardware.parallelism")][:1]
    assert "32" in description
    assert "1, 2, 4, 8" in description


def test_nothing_fits_is_an_answer_with_the_rule_and_what_would(plans: Stub) -> None:
    plan_input = chatbot_input("llama-3.1-70b")
    plan_input.model.ClearField("headline_parameters")
    with pytest.raises(grpc.RpcError) as caught:
        plans.CreatePlan(create_plan_request(plan_input=plan_input))
    assert isinstance(caught.value, grpc.Call)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    failure = detail(caught.value, PreconditionFailure)
    assert failure is not None
    assert failure.violations[0].subject.startswith("h100-sxm-80gb")
    info = detail(caught.value, ErrorInfo)
    assert info is not None
    assert info.reason == "NOTHING_FITS"
    assert "tensor parallel" in info.metadata["nearest"]


def test_an_objective_that_even_the_mean_breaks(plans: Stub) -> None:
    plan_input = chatbot_input()
    plan_input.objectives[0].maximum.CopyFrom(Duration(nanos=15_000_000))
    with pytest.raises(grpc.RpcError) as caught:
        plans.CreatePlan(create_plan_request(plan_input=plan_input))
    failure = detail(caught.value, PreconditionFailure)
    assert failure is not None
    assert failure.violations[0].type == "OBJECTIVE_BROKEN"
    assert "18.3" in failure.violations[0].description


@pytest.mark.parametrize(
    ("field", "value", "rule"), [("maximum_gpus", 2, "GPU_QUOTA"), ("maximum_cost_usd_per_hour", 1.0, "COST_BUDGET")]
)
def test_quota_and_budget(plans: Stub, field: str, value: float, rule: str) -> None:
    plan_input = chatbot_input()
    setattr(plan_input.hardware, field, value)
    with pytest.raises(grpc.RpcError) as caught:
        plans.CreatePlan(create_plan_request(plan_input=plan_input))
    failure = detail(caught.value, PreconditionFailure)
    assert failure is not None
    assert [item.type for item in failure.violations] == [rule]


def test_simulated_is_the_default_and_proves_its_fleet(plans: Stub) -> None:
    """Two replicas saturate; of the fleet that is chosen, one replica less fails."""
    plan_input = chatbot_input()
    plan_input.method = plan_pb2.PLAN_METHOD_UNSPECIFIED
    plan = plans.CreatePlan(create_plan_request("simulated", plan_input))
    assert plan.input.method == plan_pb2.PLAN_METHOD_SIMULATED
    assert 4 <= plan.fleet.active_replicas <= 7
    trials = {(trial.replicas, trial.replicas_down): trial for trial in plan.evidence}
    active = plan.fleet.active_replicas
    assert trials[active, 0].holds
    assert not trials[active - 1, 0].holds
    assert trials[2, 0].performance.saturated
    assert {verdict.outcome for verdict in plan.verdicts} == {performance_pb2.ObjectiveVerdict.OUTCOME_HOLDS}
    codes = {warning.code for warning in plan.warnings}
    assert {"TEXTBOOK_UNDERPROVISIONS", "CALIBRATION_EXTRAPOLATES"} <= codes
    assert plan.seed > 0
    again = plans.CreatePlan(create_plan_request("simulated", plan_input, validate_only=True))
    assert (again.seed, again.fleet, again.performance) == (plan.seed, plan.fleet, plan.performance)


def test_what_is_not_there_yet_says_so(plans: Stub) -> None:
    request = plan_service_pb2.ComparePlansRequest(base="deployments/a/plans/1", target="deployments/a/plans/2")
    with pytest.raises(grpc.RpcError) as caught:
        plans.ComparePlans(request)
    assert isinstance(caught.value, grpc.Call)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert detail(caught.value, ErrorInfo) is not None


@pytest.mark.parametrize("field", ["filter", "order_by"])
def test_parts_of_lists_that_do_nothing_yet_are_refused(plans: Stub, field: str) -> None:
    request = plan_service_pb2.ListPlansRequest(parent="deployments/-")
    setattr(request, field, "x")
    with pytest.raises(grpc.RpcError) as caught:
        plans.ListPlans(request)
    assert list(violations(caught.value)) == [field]


def test_the_caller_prices_are_used(plans: Stub) -> None:
    plan_input = chatbot_input()
    plan_input.hardware.cost_usd_per_gpu_hour["h100-sxm-80gb"] = 2.0
    plan = plans.CreatePlan(create_plan_request(plan_input=plan_input, validate_only=True))
    assert plan.fleet.cost_usd_per_hour == 6.0
    # 3 GPUs at $2; 100 requests/s of 200 tokens are 72 million tokens an hour
    assert plan.fleet.cost_usd_per_million_output_tokens == pytest.approx(6 / 72)
    assert plan.resolved.accelerators[0].sources["cost_usd_per_gpu_hour"] == "the request"
