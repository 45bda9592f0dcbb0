from __future__ import annotations

import pytest
from sqlalchemy import text

from inferplan.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from inferplan.storage.database import Database
from inferplan.storage.deployments import DeploymentStore
from inferplan.storage.pages import ListQuery
from support.clock import MovableClock


def test_a_deployment_is_read_as_it_was_created(deployments: DeploymentStore, clock: MovableClock) -> None:
    labels = {"team": "search", "größe": "✓"}
    created = deployments.create_deployment("chat", display_name="Chat 🤖", labels=labels, created_by="ada")
    assert created == deployments.get_deployment("chat")
    assert (created.deployment_id, created.display_name, created.created_by) == ("chat", "Chat 🤖", "ada")
    assert created.labels == labels
    assert created.create_time == created.update_time == clock()
    assert (created.latest_revision, created.latest_plan, created.delete_time) == (0, "", None)


def test_a_second_deployment_of_the_same_id_is_refused_and_changes_nothing(deployments: DeploymentStore) -> None:
    first = deployments.create_deployment("chat", display_name="first")
    with pytest.raises(AlreadyExistsError) as caught:
        deployments.create_deployment("chat", display_name="second")
    assert (caught.value.resource_type, caught.value.resource_name) == ("Deployment", "deployments/chat")
    assert deployments.get_deployment("chat") == first


def test_an_unknown_deployment_is_not_found(deployments: DeploymentStore) -> None:
    with pytest.raises(NotFoundError) as caught:
        deployments.get_deployment("nobody")
    assert (caught.value.resource_type, caught.value.resource_name) == ("Deployment", "deployments/nobody")


def test_text_that_cannot_be_stored_is_refused_all_at_once(deployments: DeploymentStore) -> None:
    with pytest.raises(InvalidInputError) as caught:
        deployments.create_deployment(
            "d" * 64, display_name="x" * 201, labels={"a\0": "b", "c": "\udfff"}, created_by="y" * 201
        )
    assert [violation.field for violation in caught.value.violations] == [
        "deployment_id",
        "deployment.display_name",
        "deployment.created_by",
        "deployment.labels",
        "deployment.labels['c']",
    ]
    assert deployments.list_deployments().items == ()


def test_the_longest_legal_text_is_stored(deployments: DeploymentStore) -> None:
    stored = deployments.create_deployment("d" * 63, display_name="ß" * 200, created_by="😀" * 200)
    assert deployments.get_deployment("d" * 63) == stored


def test_pages_are_newest_first_and_hold_each_deployment_once(
    deployments: DeploymentStore, clock: MovableClock
) -> None:
    for number in range(7):
        deployments.create_deployment(f"chat-{number}")
        clock.move(number % 2)  # pairs share an instant, so that the id must order them
    seen: list[str] = []
    page = deployments.list_deployments(ListQuery(3))
    while True:
        seen += [deployment.deployment_id for deployment in page.items]
        if page.next_cursor is None:
            break
        page = deployments.list_deployments(ListQuery(3, page.next_cursor))
    assert seen == [f"chat-{number}" for number in (6, 5, 4, 3, 2, 1, 0)]


def test_a_full_last_page_has_no_next(deployments: DeploymentStore) -> None:
    for number in range(4):
        deployments.create_deployment(f"chat-{number}")
    second = deployments.list_deployments(ListQuery(2, deployments.list_deployments(ListQuery(2)).next_cursor))
    assert (len(second.items), second.next_cursor) == (2, None)


def test_what_comes_in_between_pages_neither_repeats_nor_hides_others(
    deployments: DeploymentStore, clock: MovableClock
) -> None:
    for number in range(4):
        deployments.create_deployment(f"old-{number}")
        clock.move(1)
    first = deployments.list_deployments(ListQuery(2))
    deployments.create_deployment("new")
    second = deployments.list_deployments(ListQuery(2, first.next_cursor))
    assert [deployment.deployment_id for deployment in (*first.items, *second.items)] == [
        "old-3",
        "old-2",
        "old-1",
        "old-0",
    ]


def test_deleted_deployments_are_listed_only_when_asked_for(deployments: DeploymentStore, database: Database) -> None:
    deployments.create_deployment("kept")
    gone = deployments.create_deployment("gone")
    with database.write() as session:
        session.execute(text("UPDATE deployments SET delete_time = create_time WHERE deployment_id = 'gone'"))
    assert [deployment.deployment_id for deployment in deployments.list_deployments().items] == ["kept"]
    assert len(deployments.list_deployments(ListQuery(show_deleted=True)).items) == 2
    assert deployments.get_deployment("gone").delete_time == gone.create_time


def test_labels_are_a_value_of_their_own(deployments: DeploymentStore) -> None:
    labels = {"team": "search"}
    created = deployments.create_deployment("chat", labels=labels)
    labels["team"] = "ads"
    assert created.labels == {"team": "search"}
