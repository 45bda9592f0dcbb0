"""Many writers at once. Every writer is a replica of its own: its own engine, its own connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar
from uuid import uuid4

import pytest

from inferplan.errors import AlreadyExistsError
from inferplan.resources.plan import Plan
from inferplan.storage.database import Database
from inferplan.storage.deployments import DeploymentStore
from inferplan.storage.pages import ListQuery
from inferplan.storage.plans import PlanStore
from support.databases import PATIENT
from support.plans import plan_content

WRITERS = 16

_Result = TypeVar("_Result")


@pytest.fixture
def replicas(database_url: str) -> Iterator[list[PlanStore]]:
    databases = [Database.open(database_url, PATIENT) for _ in range(WRITERS)]
    yield [PlanStore(database) for database in databases]
    for database in databases:
        database.close()


def at_once(replicas: list[PlanStore], work: Callable[[PlanStore, int], _Result]) -> list[_Result]:
    """Run `work` in one thread a replica, all begun together."""
    start = Barrier(len(replicas))

    def begin(number: int) -> _Result:
        start.wait()
        return work(replicas[number], number)

    with ThreadPoolExecutor(len(replicas)) as pool:
        return list(pool.map(begin, range(len(replicas))))


def test_sixteen_writers_leave_no_gap_and_no_duplicate(replicas: list[PlanStore], deployments: DeploymentStore) -> None:
    rounds = 4

    def write(plans: PlanStore, number: int) -> list[Plan]:
        return [
            plans.create_plan("chat", plan_content(seed=number * rounds + turn), allow_missing_deployment=True)
            for turn in range(rounds)
        ]

    written = [plan for part in at_once(replicas, write) for plan in part]
    assert sorted(plan.revision for plan in written) == list(range(1, WRITERS * rounds + 1))
    stored = replicas[0].list_plans("chat", ListQuery(1000)).items
    # Newest first by time is newest first by revision, although sixteen clocks were read.
    assert [plan.revision for plan in stored] == list(range(WRITERS * rounds, 0, -1))
    assert {plan.revision: plan for plan in stored} == {plan.revision: plan for plan in written}
    assert deployments.get_deployment("chat").latest_revision == WRITERS * rounds


def test_writers_of_different_deployments_do_not_disturb_each_other(replicas: list[PlanStore]) -> None:
    def write(plans: PlanStore, number: int) -> list[int]:
        name = f"chat-{number % 4}"
        return [plans.create_plan(name, plan_content(), allow_missing_deployment=True).revision for _ in range(2)]

    at_once(replicas, write)
    for number in range(4):
        stored = replicas[0].list_plans(f"chat-{number}", ListQuery(1000)).items
        assert [plan.revision for plan in stored] == list(range(8, 0, -1))


def test_concurrent_duplicates_of_a_request_make_one_plan(replicas: list[PlanStore]) -> None:
    request_id = str(uuid4())

    def write(plans: PlanStore, number: int) -> Plan:
        return plans.create_plan(
            "chat",
            plan_content(seed=number),
            request_id=request_id,
            request_hash="same",
            allow_missing_deployment=True,
        )

    answers = at_once(replicas, write)
    assert len({(plan.revision, plan.content.seed) for plan in answers}) == 1
    assert replicas[0].list_plans().items == (answers[0],)


def test_one_request_id_for_different_deployments_makes_one_plan(replicas: list[PlanStore]) -> None:
    request_id = str(uuid4())

    def write(plans: PlanStore, number: int) -> str:
        try:
            plan = plans.create_plan(
                f"chat-{number}",
                plan_content(),
                request_id=request_id,
                request_hash=f"hash of chat-{number}",
                allow_missing_deployment=True,
            )
        except AlreadyExistsError:
            return "refused"
        return plan.name

    answers = at_once(replicas, write)
    assert answers.count("refused") == WRITERS - 1
    assert [plan.name for plan in replicas[0].list_plans().items] == [name for name in answers if name != "refused"]


def test_one_deployment_is_created_once(replicas: list[PlanStore], database_url: str) -> None:
    def write(_: PlanStore, number: int) -> bool:
        database = Database.open(database_url, PATIENT)
        try:
            DeploymentStore(database).create_deployment("chat", display_name=str(number))
        except AlreadyExistsError:
            return False
        finally:
            database.close()
        return True

    assert at_once(replicas, write).count(True) == 1
