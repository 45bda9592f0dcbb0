"""The plan store against a dictionary: whatever is done in whatever order, both say the same."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from inferplan.errors import AlreadyExistsError, NotFoundError, PreconditionError
from inferplan.storage.database import Database
from inferplan.storage.deployments import DeploymentStore
from inferplan.storage.pages import ListQuery
from inferplan.storage.plans import PlanStore
from support.clock import MovableClock
from support.plans import plan_content

NAMES = st.sampled_from(["a", "b", "c"])


class PlanStoreMachine(RuleBasedStateMachine):
    """`model` holds, by deployment, the seeds of its plans in order; `gone` the deleted ones."""

    database: Database

    def __init__(self) -> None:
        super().__init__()
        self.clock = MovableClock()
        self.plans = PlanStore(self.database, self.clock)
        self.deployments = DeploymentStore(self.database, self.clock)
        self.run = uuid.uuid4().hex[:8]
        self.model: dict[str, list[int]] = {}
        self.gone: set[str] = set()
        self.requests: dict[str, tuple[str, int, int]] = {}
        self.order: list[tuple[str, int]] = []

    used = Bundle("used")

    def _id(self, name: str) -> str:
        return f"{name}-{self.run}"

    @initialize()
    def begin(self) -> None:
        self.clock.move(1)

    @rule(seconds=st.integers(-100, 100))
    def clock_jumps(self, seconds: int) -> None:
        self.clock.move(seconds)

    @rule(name=NAMES)
    def create_deployment(self, name: str) -> None:
        if name in self.model:
            with pytest.raises(AlreadyExistsError):
                self.deployments.create_deployment(self._id(name))
            return
        self.deployments.create_deployment(self._id(name))
        self.model[name] = []

    @rule(name=NAMES, seed=st.integers(0, 5), allow=st.booleans())
    def create_plan(self, name: str, seed: int, allow: bool) -> None:
        def create() -> Any:
            return self.plans.create_plan(self._id(name), plan_content(seed=seed), allow_missing_deployment=allow)

        if name in self.gone or (name not in self.model and not allow):
            with pytest.raises(NotFoundError):
                create()
            return
        plan = create()
        self._note(name, seed, plan.revision)

    @rule(target=used, name=NAMES, seed=st.integers(0, 5))
    def create_plan_once(self, name: str, seed: int) -> str:
        request_id = str(uuid.uuid4())
        if name in self.model and name not in self.gone:
            plan = self.plans.create_plan(
                self._id(name), plan_content(seed=seed), request_id=request_id, request_hash=f"{name}{seed}"
            )
            self._note(name, seed, plan.revision)
            self.requests[request_id] = (name, seed, plan.revision)
        return request_id

    @rule(request_id=used, changed=st.booleans())
    def repeat_a_request(self, request_id: str, changed: bool) -> None:
        if request_id not in self.requests:
            return
        name, seed, revision = self.requests[request_id]
        digest = "other" if changed else f"{name}{seed}"
        if changed:
            with pytest.raises(AlreadyExistsError):
                self.plans.find_request(request_id, digest)
            return
        found = self.plans.find_request(request_id, digest)
        assert found is not None
        assert (found.revision, found.content.seed) == (revision, seed)

    @rule(request_id=consumes(used))
    def forget(self, request_id: str) -> None:
        self.requests.pop(request_id, None)

    @rule(name=NAMES, force=st.booleans())
    def delete(self, name: str, force: bool) -> None:
        if name not in self.model or name in self.gone:
            with pytest.raises(NotFoundError):
                self.deployments.delete_deployment(self._id(name), force=force)
        elif self.model[name] and not force:
            with pytest.raises(PreconditionError):
                self.deployments.delete_deployment(self._id(name))
        else:
            self.deployments.delete_deployment(self._id(name), force=force)
            self.gone.add(name)

    def _note(self, name: str, seed: int, revision: int) -> None:
        seeds = self.model.setdefault(name, [])
        seeds.append(seed)
        assert revision == len(seeds)
        self.order.append((name, revision))

    @invariant()
    def every_plan_is_there_once(self) -> None:
        for name, seeds in self.model.items():
            shown = self.plans.list_plans(self._id(name), ListQuery(1000)).items
            expected = [] if name in self.gone else list(range(len(seeds), 0, -1))
            assert [plan.revision for plan in shown] == expected
            kept = self.plans.list_plans(self._id(name), ListQuery(1000, show_deleted=True)).items
            assert [plan.content.seed for plan in kept] == seeds[::-1]
            deployment = self.deployments.get_deployment(self._id(name))
            assert deployment.latest_revision == len(seeds)
            assert (deployment.delete_time is not None) == (name in self.gone)


def test_the_store_behaves_like_a_dictionary(database: Database) -> None:
    class Machine(PlanStoreMachine):
        pass

    Machine.database = database
    run_state_machine_as_test(Machine, settings=settings(max_examples=25, stateful_step_count=25, deadline=None))
