"""The filter language: what it selects on both databases, against a second evaluator, and what it refuses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inferplan.errors import InvalidInputError
from inferplan.storage.database import Database
from inferplan.storage.deployments import DEPLOYMENT_FIELDS, DeploymentStore
from inferplan.storage.filters import matches, parse_filter, parse_order
from inferplan.storage.pages import ListQuery
from inferplan.storage.plans import PLAN_FIELDS, PlanStore
from inferplan.storage.profiles import PROFILE_FIELDS, ProfileStore
from support.clock import MovableClock
from support.plans import plan_content
from support.profiles import profile

START = datetime(2026, 1, 1, tzinfo=UTC)


def stored(database: Database) -> list[dict[str, Any]]:
    """Twelve deployments, and what a filter sees of each."""
    clock = MovableClock()
    store = DeploymentStore(database, clock)
    entries = []
    for number in range(12):
        clock.move(3600)
        labels = {"team": ("search", "chat", "50%_off")[number % 3]} if number % 4 else {}
        found = store.create_deployment(
            f"dep-{number}", display_name=f"Number {number % 5}", labels=labels, created_by=("ada", "bob")[number % 2]
        )
        entries.append(
            {
                "deployment": found.deployment_id,
                "display_name": found.display_name,
                "labels": dict(found.labels),
                "latest_revision": float(found.latest_revision),
                "create_time": found.create_time,
                "update_time": found.update_time,
                "created_by": found.created_by,
            }
        )
    return entries


def selected(database: Database, text: str) -> set[str]:
    page = DeploymentStore(database).list_deployments(ListQuery(100, filter=text))
    return {each.deployment_id for each in page.items}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('deployment = "dep-3"', {3}),
        ("deployment = deployments/dep-3", {3}),
        ("deployment != dep-3 AND deployment:dep-1", {1, 10, 11}),
        ('display_name = "Number 2"', {2, 7}),
        ("display_name:NUMBER", set(range(12))),
        ("display_name = 'number*'", set(range(12))),
        ('deployment = "*-1*"', {1, 10, 11}),
        ("labels.team = search", {3, 6, 9}),
        ("labels.team != search", {0, 1, 2, 4, 5, 7, 8, 10, 11}),
        ("labels:team", {1, 2, 3, 5, 6, 7, 9, 10, 11}),
        ("NOT labels:team", {0, 4, 8}),
        ("-labels:team", {0, 4, 8}),
        ('labels.team = "50%_off"', {2, 5, 11}),
        ('labels.team:"%_"', {2, 5, 11}),
        ('labels."team" = "%"', set()),
        ("created_by = ada OR deployment = dep-1", {0, 1, 2, 4, 6, 8, 10}),
        # OR binds tighter than AND.
        ("created_by = ada AND deployment = dep-2 OR deployment = dep-3", {2}),
        ("(created_by = ada AND deployment = dep-2) OR deployment = dep-3", {2, 3}),
        ("created_by = ada deployment = dep-2", {2}),
        ("latest_revision < 1 AND latest_revision >= 0", set(range(12))),
        ("latest_revision = 1e0", set()),
        ("create_time >= create_time_of_5", {5, 6, 7, 8, 9, 10, 11}),
        ("create_time:*", set(range(12))),
        ('display_name = "a\\"b"', set()),
    ],
)
def test_what_a_filter_selects(database: Database, text: str, expected: set[int]) -> None:
    entries = stored(database)
    text = text.replace("create_time_of_5", entries[5]["create_time"].isoformat())
    assert selected(database, text) == {f"dep-{number}" for number in expected}


VALUES = {
    "deployment": st.sampled_from(["dep-1", "dep-11", "dep-*", "nobody", "DEP-2"]),
    "display_name": st.sampled_from(["Number 1", "number*", "%", "_umber 2"]),
    "created_by": st.sampled_from(["ada", "bob", "a*", ""]),
}
LEAVES = st.one_of(
    *(
        st.builds(
            lambda name, operator, value: f'{name} {operator} "{value}"',
            st.just(name),
            st.sampled_from(["=", "!=", ":"]),
            values,
        )
        for name, values in VALUES.items()
    ),
    st.builds(
        lambda operator, value: f'labels.team {operator} "{value}"',
        st.sampled_from(["=", "!=", ":"]),
        st.sampled_from(["search", "chat", "50%_off", "%", "s*"]),
    ),
    st.sampled_from(["labels:team", "labels:other"]),
    st.builds(
        lambda operator, hours: f"create_time {operator} {(START + timedelta(hours=hours)).isoformat()}",
        st.sampled_from(["=", "!=", "<", "<=", ">", ">="]),
        st.integers(-5, 20),
    ),
    st.builds(
        lambda operator, value: f"latest_revision {operator} {value}", st.sampled_from(["=", "<="]), st.integers(-1, 2)
    ),
)
FILTERS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda left, right: f"{left} AND {right}", inner, inner),
        st.builds(lambda left, right: f"({left}) OR ({right})", inner, inner),
        st.builds(lambda term: f"NOT ({term})", inner),
    ),
    max_leaves=6,
)


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(FILTERS, min_size=10, max_size=10))
@pytest.mark.usefixtures("database")
def test_the_databases_agree_with_a_plain_evaluator(database: Database, texts: list[str]) -> None:
    entries = _ENTRIES.setdefault(database.display, []) or stored(database)
    _ENTRIES[database.display] = entries
    for text in texts:
        tree = parse_filter(text, DEPLOYMENT_FIELDS)
        expected = {entry["deployment"] for entry in entries if matches(tree, entry)}
        assert selected(database, text) == expected, text


_ENTRIES: dict[str, list[dict[str, Any]]] = {}


def problems(text: str, fields: Any = PLAN_FIELDS) -> list[str]:
    with pytest.raises(InvalidInputError) as caught:
        parse_filter(text, fields)
    assert {violation.field for violation in caught.value.violations} == {"filter"}
    return [violation.description for violation in caught.value.violations]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("modle = x", "did you mean 'model'?"),
        ("model", "ends too early"),
        ("model =", "ends too early"),
        ("= x", "from character 1"),
        ("model = x AND", "ends too early"),
        ("(model = x", "ends too early"),
        ("model = x)", "from character 10"),
        ("model == x", "from character 8"),
        ('model = "x', "from character 9"),
        ("model < x", "legal for text: = != :"),
        ("replicas = many", "legal is a number"),
        ("replicas = nan", "legal is a number"),
        ("replicas:3", "legal for number"),
        ("create_time > yesterday", "2026-03-01T12:00:00Z"),
        ("create_time > 0001-01-01T00:00:00+09:00", "a time such as"),
        ("method = guessing", "textbook, simulated"),
        ("labels = x", "needs a key"),
        ("model.team = x", "only labels have"),
        ('labels."a b" = x', "has the key 'a b'"),
        ("model = x OR " * 150 + "model = x", "at most 100"),
        ("(" * 40 + "model = x" + ")" * 40, "deeper than 30"),
        ("a" * 10_001, "at most 10000"),
        ('model = "a\0b"', "NUL"),
    ],
)
def test_a_filter_that_cannot_be_is_refused(text: str, part: str) -> None:
    assert any(part in problem for problem in problems(text)), problems(text)


def test_everything_wrong_with_a_filter_is_told_at_once() -> None:
    found = problems("modle = x AND replicas = many OR create_time > soon")
    assert len(found) == 3


@given(st.text(max_size=200))
def test_no_text_is_more_than_refused(text: str) -> None:
    try:
        parse_filter(text, PLAN_FIELDS)
    except InvalidInputError:
        return


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("cost_per_hours", "did you mean 'cost_per_hour'?"),
        ("model up", "asc or FIELD desc"),
        ("model,,gpus", "cannot be read"),
        ("model, model desc", "twice"),
        ("model, gpus, revision, engine", "at most 3"),
        ("labels", "is no field"),
    ],
)
def test_an_order_that_cannot_be_is_refused(text: str, part: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_order(text, PLAN_FIELDS)
    assert any(part in violation.description for violation in caught.value.violations)


def all_plans(plans: PlanStore, order_by: str, text: str = "", page_size: int = 3) -> list[tuple[str, int, int]]:
    found = []
    request = ListQuery(page_size, filter=text, order_by=order_by)
    while True:
        page = plans.list_plans(None, request)
        found += [(plan.deployment_id, plan.revision, plan.content.fleet.gpus) for plan in page.items]
        if page.next_cursor is None:
            return found
        request = ListQuery(page_size, page.next_cursor, text, order_by)


@pytest.mark.parametrize(
    ("order_by", "key"),
    [
        ("gpus", lambda plan: (plan[2], -plan[3])),
        ("gpus desc, revision", lambda plan: (-plan[2], plan[1], -plan[3])),
        ("deployment, revision desc", lambda plan: (plan[0], -plan[1], -plan[3])),
        ("create_time", lambda plan: plan[3]),
        ("create_time desc", lambda plan: -plan[3]),
        ("deployment desc, create_time", lambda plan: (-ord(plan[0]), plan[3])),
        ("", lambda plan: -plan[3]),
    ],
)
def test_pages_of_every_order_join_into_the_whole(
    plans: PlanStore, clock: MovableClock, order_by: str, key: Any
) -> None:
    made = []
    fleet = plan_content().fleet
    for number in range(17):
        clock.move(0 if number % 3 else 60)
        content = plan_content(fleet=type(fleet)(2, 1, (number * 7) % 5, 1.0, 1.0))
        plan = plans.create_plan("ab"[number % 2], content, allow_missing_deployment=True)
        made.append((plan.deployment_id, plan.revision, content.fleet.gpus, number))
    expected = [entry[:3] for entry in sorted(made, key=key)]
    assert all_plans(plans, order_by) == expected
    assert all_plans(plans, order_by, "gpus > 1") == [entry for entry in expected if entry[2] > 1]


def test_plans_are_found_by_their_deployments_labels(plans: PlanStore, deployments: DeploymentStore) -> None:
    deployments.create_deployment("chat", labels={"team": "search"})
    deployments.create_deployment("code")
    for name in ("chat", "code"):
        plans.create_plan(name, plan_content())
    page = plans.list_plans(None, ListQuery(filter="labels.team = search AND model = models/llama-2-7b"))
    assert [plan.deployment_id for plan in page.items] == ["chat"]


def test_profiles_without_a_time_of_measurement_match_no_time(profiles: ProfileStore) -> None:
    with_time = profiles.create_profile(profile())[0]
    assert with_time.provenance.measure_time is not None
    found = profiles.list_profiles(ListQuery(filter="measure_time > 2000-01-01 AND status = active"))
    assert [each.name for each in found.items] == [with_time.name]
    assert not profiles.list_profiles(ListQuery(filter="NOT measure_time:*")).items
    assert not PROFILE_FIELDS["measure_time"].orders
