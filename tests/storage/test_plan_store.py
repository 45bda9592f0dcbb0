from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text

from inferplan.errors import AlreadyExistsError, InvalidInputError, NotFoundError, StorageStateError
from inferplan.resources.plan import Plan, PlanContent
from inferplan.storage import plans as plans_module
from inferplan.storage.codec import PAYLOAD_SCHEMA_VERSION, encode_plan_content
from inferplan.storage.database import Database
from inferplan.storage.deployments import DeploymentStore
from inferplan.storage.pages import ListQuery
from inferplan.storage.plans import PlanStore
from support.clock import MovableClock
from support.plans import plan_content


def numbered(number: int) -> PlanContent:
    """A content that can be told from others."""
    return plan_content(seed=number)


def all_pages(plans: PlanStore, deployment_id: str | None, page_size: int) -> list[Plan]:
    found: list[Plan] = []
    page = plans.list_plans(deployment_id, ListQuery(page_size))
    while True:
        found += page.items
        if page.next_cursor is None:
            return found
        page = plans.list_plans(deployment_id, ListQuery(page_size, page.next_cursor))


def single_row(database: Database, table: str) -> dict[str, Any]:
    with database.read() as session:
        return dict(session.execute(text(f"SELECT * FROM {table}")).mappings().one())


def test_a_plan_is_read_as_it_was_created(plans: PlanStore, deployments: DeploymentStore, clock: MovableClock) -> None:
    deployments.create_deployment("chat")
    clock.move(60)
    created = plans.create_plan("chat", plan_content(), created_by="ada")
    assert created == plans.get_plan("chat", 1) == plans.get_plan("chat", "latest")
    assert created == Plan("chat", 1, plan_content(), "ada", clock.time)
    deployment = deployments.get_deployment("chat")
    assert (deployment.latest_plan, deployment.update_time) == (created.name, clock.time)


def test_revisions_count_from_one_in_each_deployment(plans: PlanStore, deployments: DeploymentStore) -> None:
    for deployment_id in ("chat", "search"):
        deployments.create_deployment(deployment_id)
    stored = [plans.create_plan(deployment_id, plan_content()) for deployment_id in ("chat", "search", "chat")]
    assert [plan.name for plan in stored] == [
        "deployments/chat/plans/1",
        "deployments/search/plans/1",
        "deployments/chat/plans/2",
    ]
    assert plans.get_plan("chat", "latest").revision == 2


def test_the_projection_says_what_the_payload_says(plans: PlanStore, database: Database) -> None:
    content = plan_content()
    plans.create_plan("chat", content, created_by="ada", allow_missing_deployment=True)
    row = single_row(database, "plans")
    assert row["payload"] == encode_plan_content(content)
    assert row["payload_schema_version"] == PAYLOAD_SCHEMA_VERSION
    # 20,000 tokens/s over 11,964 a replica: 2 active; with 1 spare 3 GPUs at 3.50 dollars.
    for name in ("id", "payload", "payload_schema_version", "create_time"):
        del row[name]
    assert row == {
        "deployment_id": "chat",
        "revision": 1,
        "created_by": "ada",
        "delete_time": None,
        "method": "textbook",
        "model_id": "llama-2-7b",
        "accelerator_id": "h100-sxm-80gb",
        "engine_id": "vllm",
        "active_replicas": 2,
        "spare_replicas": 1,
        "gpus": 3,
        "cost_usd_per_hour": 10.5,
    }


def test_a_missing_deployment_is_made_only_when_allowed(plans: PlanStore, deployments: DeploymentStore) -> None:
    with pytest.raises(NotFoundError) as caught:
        plans.create_plan("chat", plan_content())
    assert (caught.value.resource_type, caught.value.resource_name) == ("Deployment", "deployments/chat")
    plans.create_plan("chat", plan_content(), created_by="ada", allow_missing_deployment=True)
    plans.create_plan("chat", plan_content(), created_by="bob", allow_missing_deployment=True)
    assert deployments.get_deployment("chat").created_by == "ada"
    assert deployments.get_deployment("chat").latest_revision == 2


def test_a_deleted_deployment_takes_no_plan_but_keeps_its_plans(plans: PlanStore, database: Database) -> None:
    stored = plans.create_plan("chat", plan_content(), allow_missing_deployment=True)
    with database.write() as session:
        session.execute(text("UPDATE deployments SET delete_time = create_time"))
        session.execute(text("UPDATE plans SET delete_time = create_time"))
    with pytest.raises(NotFoundError, match="was deleted"):
        plans.create_plan("chat", plan_content(), allow_missing_deployment=True)
    assert plans.get_plan("chat", 1) == replace(stored, delete_time=stored.create_time)
    assert plans.list_plans("chat").items == ()
    assert len(plans.list_plans("chat", ListQuery(show_deleted=True)).items) == 1


@pytest.mark.parametrize("revision", [0, -1, 2, 2**31, 2**63, 10**18])
def test_an_unknown_revision_is_not_found(plans: PlanStore, revision: int) -> None:
    plans.create_plan("chat", plan_content(), allow_missing_deployment=True)
    with pytest.raises(NotFoundError) as caught:
        plans.get_plan("chat", revision)
    assert (caught.value.resource_type, caught.value.resource_name) == ("Plan", f"deployments/chat/plans/{revision}")


def test_not_found_tells_a_missing_deployment_from_one_without_plans(
    plans: PlanStore, deployments: DeploymentStore
) -> None:
    deployments.create_deployment("empty")
    assert plans.list_plans("empty").items == ()
    for deployment_id, missing in (("empty", "Plan"), ("nobody", "Deployment")):
        with pytest.raises(NotFoundError) as caught:
            plans.get_plan(deployment_id, "latest")
        assert caught.value.resource_type == missing
    with pytest.raises(NotFoundError):
        plans.list_plans("nobody")


def test_a_repeated_request_returns_the_first_plan(plans: PlanStore, clock: MovableClock) -> None:
    request_id = str(uuid4())
    assert plans.find_request(request_id, "hash") is None
    first = plans.create_plan(
        "chat", numbered(1), request_id=request_id, request_hash="hash", allow_missing_deployment=True
    )
    clock.move(5)
    again = plans.create_plan("chat", numbered(2), request_id=request_id, request_hash="hash")
    assert first == again == plans.find_request(request_id, "hash")
    assert plans.find_request(request_id.upper(), "hash") == first
    assert plans.create_plan("chat", numbered(2)).revision == 2


def test_a_request_id_with_another_request_is_refused_and_stores_nothing(plans: PlanStore) -> None:
    request_id = str(uuid4())
    plans.create_plan("chat", plan_content(), request_id=request_id, request_hash="a", allow_missing_deployment=True)
    with pytest.raises(AlreadyExistsError, match=request_id):
        plans.create_plan("chat", plan_content(), request_id=request_id, request_hash="b")
    with pytest.raises(AlreadyExistsError):
        plans.create_plan("new", plan_content(), request_id=request_id, request_hash="b", allow_missing_deployment=True)
    with pytest.raises(AlreadyExistsError):
        plans.find_request(request_id, "b")
    assert [plan.name for plan in plans.list_plans().items] == ["deployments/chat/plans/1"]
    with pytest.raises(NotFoundError):
        plans.list_plans("new")


def test_a_request_id_that_is_no_uuid_is_refused(plans: PlanStore) -> None:
    for request_id in ("1", "x" * 1000, "\0" * 36):
        with pytest.raises(InvalidInputError, match="request_id"):
            plans.find_request(request_id, "hash")


def test_what_cannot_be_stored_is_refused_and_takes_no_revision(plans: PlanStore) -> None:
    content = plan_content()
    resolved = replace(content.resolved, model=replace(content.resolved.model, id="m" * 201))
    for refused, created_by in (
        (replace(content, resolved=resolved), ""),
        (replace(content, calibration="\0"), ""),
        (replace(content, fleet=replace(content.fleet, cost_usd_per_hour=float("nan"))), ""),
        (replace(content, input=replace(content.input, method=None)), ""),
        (content, "x" * 201),
        (content, "nul\0"),
    ):
        with pytest.raises(InvalidInputError):
            plans.create_plan("chat", refused, created_by=created_by, allow_missing_deployment=True)
    assert plans.list_plans().items == ()
    assert plans.create_plan("chat", content, allow_missing_deployment=True).revision == 1


@pytest.mark.parametrize("page_size", [1, 3, 11, 12, 0])
def test_pages_are_newest_first_and_hold_each_plan_once(plans: PlanStore, clock: MovableClock, page_size: int) -> None:
    for number in range(11):
        plans.create_plan("chat" if number % 3 else "search", numbered(number), allow_missing_deployment=True)
        clock.move(number % 2)  # pairs share an instant, so that the id must order them
    assert [plan.content.seed for plan in all_pages(plans, None, page_size)] == list(range(10, -1, -1))
    assert [plan.content.seed for plan in all_pages(plans, "search", page_size)] == [9, 6, 3, 0]


def test_a_clock_that_goes_back_does_not_reorder_a_deployment(plans: PlanStore, clock: MovableClock) -> None:
    plans.create_plan("chat", numbered(1), allow_missing_deployment=True)
    clock.move(3600)
    latest = plans.create_plan("chat", numbered(2))
    first_page = plans.list_plans("chat", ListQuery(1))
    clock.move(-7200)
    held_back = plans.create_plan("chat", numbered(3))
    assert held_back.create_time == latest.create_time
    assert [plan.revision for plan in all_pages(plans, "chat", 1)] == [3, 2, 1]
    # What was read before stays where it was.
    assert [plan.revision for plan in plans.list_plans("chat", ListQuery(5, first_page.next_cursor)).items] == [1]


def test_a_page_ends_before_it_grows_too_large_for_a_reply(plans: PlanStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        plans.create_plan("chat", numbered(number), allow_missing_deployment=True)
    monkeypatch.setattr(plans_module.PLAN_LIST, "maximum_page_bytes", int(2.5 * len(encode_plan_content(numbered(0)))))
    assert len(plans.list_plans("chat", ListQuery(1000)).items) == 2
    assert [plan.content.seed for plan in all_pages(plans, "chat", 1000)] == [4, 3, 2, 1, 0]
    monkeypatch.setattr(plans_module.PLAN_LIST, "maximum_page_bytes", 1)
    assert [plan.content.seed for plan in all_pages(plans, "chat", 1000)] == [4, 3, 2, 1, 0]


def test_a_plan_of_a_newer_payload_schema_is_refused(plans: PlanStore, database: Database) -> None:
    plans.create_plan("chat", plan_content(), allow_missing_deployment=True)
    with database.write() as session:
        session.execute(text("UPDATE plans SET payload_schema_version = payload_schema_version + 1"))
    with pytest.raises(StorageStateError, match="newer release"):
        plans.get_plan("chat", 1)


def test_a_deployment_that_has_plans_cannot_be_removed_under_them(plans: PlanStore, database: Database) -> None:
    plans.create_plan("chat", plan_content(), allow_missing_deployment=True)
    with pytest.raises(Exception, match=r"(?i)foreign key"), database.write() as session:
        session.execute(text("DELETE FROM deployments"))
    assert plans.get_plan("chat", 1).revision == 1


@pytest.mark.parametrize(
    ("parent", "index"), [(None, "ix_plans_create_time_id"), ("chat", "ix_plans_deployment_id_create_time_id")]
)
def test_lists_walk_an_index(plans: PlanStore, database: Database, parent: str | None, index: str) -> None:
    for number in range(3):
        plans.create_plan("chat", numbered(number), allow_missing_deployment=True)
    condition = f"deployment_id = '{parent}' AND" if parent else ""
    query = (
        f"SELECT id FROM plans WHERE {condition} (create_time, id) < ('2027-01-01 00:00:00.000000', 5) "
        "ORDER BY create_time DESC, id DESC LIMIT 2"
    )
    with database.read() as session:
        if database.is_sqlite:
            plan = session.execute(text(f"EXPLAIN QUERY PLAN {query}")).all()
        else:
            # Three rows are cheaper to scan: ask whether the index could serve the query at all.
            session.execute(text("SET LOCAL enable_seqscan = off"))
            session.execute(text("SET LOCAL enable_sort = off"))
            plan = session.execute(text(f"EXPLAIN {query}")).all()
    shown = "\n".join(str(tuple(row)) for row in plan)
    assert index in shown
    assert "TEMP B-TREE" not in shown
    assert "Sort" not in shown
