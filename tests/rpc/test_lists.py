"""Lists over a real channel: filters, orders, masks, tokens, and deployments that are deleted."""

from __future__ import annotations

import grpc
import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from inferplan.v1 import deployment_pb2, plan_pb2, plan_service_pb2, plan_service_pb2_grpc
from support.requests import create_plan_request, violations

Stub = plan_service_pb2_grpc.PlanServiceStub
ListPlans = plan_service_pb2.ListPlansRequest


@pytest.fixture(scope="module")
def plans(channel: grpc.Channel) -> Stub:
    stub = Stub(channel)
    for name, labels in (("listed-a", {"team": "search"}), ("listed-b", {})):
        stub.CreateDeployment(
            plan_service_pb2.CreateDeploymentRequest(
                deployment_id=name, deployment=deployment_pb2.Deployment(labels=labels)
            )
        )
        for _ in range(4):
            stub.CreatePlan(create_plan_request(name))
    return stub


def names(plans: Stub, request: ListPlans) -> list[str]:
    found = []
    while True:
        page = plans.ListPlans(request)
        found += [plan.name for plan in page.plans]
        request.page_token = page.next_page_token
        if not request.page_token:
            return found


def test_a_filter_an_order_and_pages_together(plans: Stub) -> None:
    request = ListPlans(
        parent="deployments/-",
        filter='model = "llama-2-7b" AND cost_per_hour < 100 AND labels.team = search',
        order_by="revision",
        page_size=3,
    )
    assert names(plans, request) == [f"deployments/listed-a/plans/{revision}" for revision in (1, 2, 3, 4)]


def test_a_mask_keeps_lists_light(plans: Stub) -> None:
    whole = plans.ListPlans(ListPlans(parent="deployments/listed-a"))
    mask = FieldMask(paths=["name", "fleet.active_replicas", "steps"])
    short = plans.ListPlans(ListPlans(parent="deployments/listed-a", read_mask=mask))
    assert [plan.name for plan in short.plans] == [plan.name for plan in whole.plans]
    (first, *_rest), (full, *_others) = short.plans, whole.plans
    expected = plan_pb2.Plan(name=full.name, steps=full.steps)
    expected.fleet.active_replicas = full.fleet.active_replicas
    assert first == expected
    everything = plans.ListPlans(ListPlans(parent="deployments/listed-a", read_mask=FieldMask(paths=["*"])))
    assert everything == whole
    assert short.ByteSize() < whole.ByteSize() / 2


def with_mask(*paths: str) -> ListPlans:
    return ListPlans(parent="deployments/-", read_mask=FieldMask(paths=paths))


@pytest.mark.parametrize(
    ("request_", "field", "part"),
    [
        (ListPlans(parent="deployments/-", filter="modle = x"), "filter", "'model'"),
        (ListPlans(parent="deployments/-", filter="x" * 1_000_000), "filter", "10000"),
        (ListPlans(parent="deployments/-", order_by="cost"), "order_by", "cost_per_hour"),
        (ListPlans(parent="deployments/-", read_mask=FieldMask(paths=["name", "flet"])), "read_mask.paths[1]", "fleet"),
        (
            ListPlans(parent="deployments/-", read_mask=FieldMask(paths=["name.x"])),
            "read_mask.paths[0]",
            "without parts",
        ),
        (
            ListPlans(parent="deployments/-", read_mask=FieldMask(paths=["name"] * 101)),
            "read_mask.paths",
            "at most 100",
        ),
        (ListPlans(parent="deployments/-", page_size=-1), "page_size", ""),
        (ListPlans(parent="deployments/-", page_token="forged"), "page_token", "begin with an empty token"),
    ],
)
def test_a_list_that_cannot_be_is_refused(plans: Stub, request_: ListPlans, field: str, part: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        plans.ListPlans(request_)
    assert part in violations(caught.value)[field]


@pytest.mark.parametrize(
    "other",
    [
        {"filter": "gpus > 0"},
        {"order_by": "gpus"},
        {"parent": "deployments/listed-b"},
        {"show_deleted": True},
    ],
)
def test_a_token_is_bound_to_its_list(plans: Stub, other: dict[str, object]) -> None:
    first = plans.ListPlans(ListPlans(parent="deployments/listed-a", page_size=1))
    request = ListPlans(parent="deployments/listed-a", page_token=first.next_page_token)
    request.MergeFrom(ListPlans(**other))  # type: ignore[arg-type]
    with pytest.raises(grpc.RpcError) as caught:
        plans.ListPlans(request)
    assert list(violations(caught.value)) == ["page_token"]


def test_any_large_page_size_is_taken_as_the_largest(plans: Stub) -> None:
    assert len(plans.ListPlans(ListPlans(parent="deployments/listed-a", page_size=10**9)).plans) == 4


def test_deployments_are_filtered_by_label(plans: Stub) -> None:
    listed = plans.ListDeployments(plan_service_pb2.ListDeploymentsRequest(filter="labels:team AND deployment:listed"))
    assert [each.name for each in listed.deployments] == ["deployments/listed-a"]


def test_a_deleted_deployment_is_kept_for_audit(plans: Stub) -> None:
    plan = plans.CreatePlan(create_plan_request("doomed"))
    delete = plan_service_pb2.DeleteDeploymentRequest(name="deployments/doomed")
    with pytest.raises(grpc.RpcError) as caught:
        plans.DeleteDeployment(delete)
    assert isinstance(caught.value, grpc.Call)
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    delete.force = True
    assert plans.DeleteDeployment(delete).HasField("delete_time")
    for again in (delete, create_plan_request("doomed")):
        with pytest.raises(grpc.RpcError) as caught:
            call = plans.DeleteDeployment if again is delete else plans.CreatePlan
            call(again)
        assert isinstance(caught.value, grpc.Call)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    kept = plans.GetPlan(plan_service_pb2.GetPlanRequest(name=plan.name))
    assert kept.HasField("delete_time")
    kept.ClearField("delete_time")
    assert kept == plan
    parent = "deployments/doomed"
    assert not plans.ListPlans(ListPlans(parent=parent)).plans
    assert len(plans.ListPlans(ListPlans(parent=parent, show_deleted=True)).plans) == 1
