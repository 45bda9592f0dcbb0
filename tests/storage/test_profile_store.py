"""Profiles on both databases: immutable but for their status, one set a file, never deleted."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text

from inferplan.errors import (
    AlreadyExistsError,
    InvalidInputError,
    NotFoundError,
    PreconditionError,
    StorageStateError,
)
from inferplan.profiles.profile import Profile, ProfileStatus
from inferplan.storage import profiles as profiles_module
from inferplan.storage.codec import PROFILE_CODEC
from inferplan.storage.database import Database
from inferplan.storage.pages import ListQuery
from inferplan.storage.profiles import ProfileStore, StoredProfiles
from support.clock import MovableClock
from support.profiles import profile, sha256_of


def id_of(stored: Profile) -> str:
    return stored.name.removeprefix("profiles/")


def file_profiles(content: str = "file", parts: int = 3) -> list[Profile]:
    return [profile(sha256_of(content), node=f"gpu-{part}") for part in range(parts)]


def imported(profiles: ProfileStore, parts: list[Profile], request_hash: str = "header") -> StoredProfiles:
    return profiles.import_profiles(parts, request_hash=request_hash)


def all_pages(profiles: ProfileStore, page_size: int) -> list[Profile]:
    found: list[Profile] = []
    page = profiles.list_profiles(ListQuery(page_size))
    while True:
        found += page.items
        if page.next_cursor is None:
            return found
        page = profiles.list_profiles(ListQuery(page_size, page.next_cursor))


def test_a_profile_is_read_as_it_was_created(profiles: ProfileStore, clock: MovableClock) -> None:
    given = profile(labels={"team": "größe ✓"})
    created, stored_before = profiles.create_profile(given, created_by="ada")
    assert not stored_before
    assert created == profiles.get_profile(id_of(created))
    assert created == replace(given, name=created.name, create_time=clock(), created_by="ada")
    assert created.status is ProfileStatus.ACTIVE


def test_the_projection_says_what_the_payload_says(profiles: ProfileStore, database: Database) -> None:
    given = profile(sha256_of("a"), labels={"team": "search"})
    created, _ = profiles.create_profile(given, created_by="ada")
    with database.read() as session:
        row: dict[str, Any] = dict(session.execute(text("SELECT * FROM profiles")).mappings().one())
    assert row["payload"] == PROFILE_CODEC.encode(given)
    assert (row["profile_id"], row["created_by"], row["status"]) == (id_of(created), "ada", "active")
    assert (row["accelerator_id"], row["engine_id"], row["engine_version"]) == ("h100-sxm-80gb", "vllm", "0.10.0")
    assert (row["tool"], row["raw_sha256"], row["part"]) == ("vllm-bench", sha256_of("a"), 0)
    assert str(row["measure_time"]).startswith("2026-02-03 04:05:06.000789")


def test_what_the_caller_says_of_status_and_name_is_not_stored(profiles: ProfileStore) -> None:
    lying = replace(
        profile(), name="profiles/mine", status=ProfileStatus.WITHDRAWN, status_reason="x", created_by="eve"
    )
    created, _ = profiles.create_profile(lying, created_by="ada")
    assert (created.status, created.status_reason, created.created_by) == (ProfileStatus.ACTIVE, "", "ada")
    assert created.name != "profiles/mine"


def test_the_same_bytes_twice_return_the_first(profiles: ProfileStore, clock: MovableClock) -> None:
    first = imported(profiles, file_profiles())
    clock.move(5)
    again = imported(profiles, file_profiles(), "another header")
    assert (first.stored_before, again.stored_before) == (False, True)
    assert first.profiles == again.profiles
    assert [each.provenance.node for each in first.profiles] == ["gpu-0", "gpu-1", "gpu-2"]
    assert len(profiles.list_profiles().items) == 3
    created, stored_before = profiles.create_profile(profile(sha256_of("file"), node="elsewhere"))
    assert (created, stored_before) == (first.profiles[0], True)


def test_profiles_without_a_file_are_never_taken_for_each_other(profiles: ProfileStore) -> None:
    names = {profiles.create_profile(profile())[0].name for _ in range(3)}
    assert len(names) == 3


def test_an_import_stores_all_parts_or_none(profiles: ProfileStore) -> None:
    parts = file_profiles()
    for broken in (
        replace(parts[2], labels={"a": "\0"}),
        replace(parts[2], provenance=replace(parts[2].provenance, tool="t" * 101)),
        replace(parts[2], provenance=replace(parts[2].provenance, visible_memory_bytes=float("nan"))),
    ):
        with pytest.raises(InvalidInputError) as caught:
            imported(profiles, [*parts[:2], broken])
        assert all(violation.field.startswith("profile.") for violation in caught.value.violations)
    assert profiles.list_profiles().items == ()


def test_repeating_an_import_does_not_bring_a_withdrawn_profile_back(profiles: ProfileStore) -> None:
    first = imported(profiles, file_profiles())
    for each in first.profiles:
        profiles.withdraw_profile(id_of(each), "wrong accelerator")
    again = imported(profiles, file_profiles())
    assert again.stored_before
    assert [each.name for each in again.profiles] == [each.name for each in first.profiles]
    assert {each.status for each in again.profiles} == {ProfileStatus.WITHDRAWN}


def test_a_withdrawn_file_can_come_again_with_another_header(profiles: ProfileStore) -> None:
    first = imported(profiles, file_profiles(), "wrong header")
    profiles.withdraw_profile(id_of(first.profiles[0]), "wrong accelerator")
    # Two of three are still in use, so the file still stands for them.
    assert imported(profiles, file_profiles(), "right header").stored_before
    for each in first.profiles[1:]:
        profiles.withdraw_profile(id_of(each), "wrong accelerator")
    corrected = imported(profiles, file_profiles(), "right header")
    assert not corrected.stored_before
    assert not {each.name for each in corrected.profiles} & {each.name for each in first.profiles}
    # Now the corrected ones stand for the file, whatever comes with it.
    for header in ("wrong header", "right header", "third header"):
        assert imported(profiles, file_profiles(), header) == replace(corrected, stored_before=True)
    assert len(profiles.list_profiles().items) == 6


def test_a_repeated_request_returns_the_first_profile(profiles: ProfileStore, clock: MovableClock) -> None:
    request_id = str(uuid4())
    first, _ = profiles.create_profile(profile(), request_id=request_id)
    clock.move(5)
    assert profiles.create_profile(profile(), request_id=request_id.upper()) == (first, True)
    with pytest.raises(AlreadyExistsError, match=request_id):
        profiles.create_profile(profile(node="gpu-2"), request_id=request_id)
    assert profiles.list_profiles().items == (first,)


def test_a_request_that_was_given_an_earlier_profile_is_remembered_too(profiles: ProfileStore) -> None:
    given = profile(sha256_of("a"))
    first, _ = profiles.create_profile(given)
    request_id = str(uuid4())
    assert profiles.create_profile(given, request_id=request_id) == (first, True)
    with pytest.raises(AlreadyExistsError):
        profiles.create_profile(profile(sha256_of("b")), request_id=request_id)


def test_a_request_id_that_is_no_uuid_is_refused(profiles: ProfileStore) -> None:
    with pytest.raises(InvalidInputError, match="request_id"):
        profiles.create_profile(profile(), request_id="1")


@pytest.mark.parametrize("superseded_by", ["", "nobody"])
def test_an_unknown_profile_is_not_found(profiles: ProfileStore, superseded_by: str) -> None:
    with pytest.raises(NotFoundError) as read:
        profiles.get_profile("nobody")
    with pytest.raises(NotFoundError) as withdrawn:
        profiles.withdraw_profile("nobody", "why", superseded_by)
    for error in (read.value, withdrawn.value):
        assert (error.resource_type, error.resource_name) == ("Profile", "profiles/nobody")


def test_a_withdrawn_profile_keeps_everything_but_its_status(profiles: ProfileStore) -> None:
    created, _ = profiles.create_profile(profile())
    withdrawn = profiles.withdraw_profile(id_of(created), "node throttled")
    assert withdrawn == replace(created, status=ProfileStatus.WITHDRAWN, status_reason="node throttled")
    assert profiles.get_profile(id_of(created)) == withdrawn
    assert profiles.list_profiles().items == (withdrawn,)


def test_withdrawing_again_is_the_same_or_refused(profiles: ProfileStore) -> None:
    created, _ = profiles.create_profile(profile())
    other, _ = profiles.create_profile(profile())
    withdrawn = profiles.withdraw_profile(id_of(created), "node throttled")
    assert profiles.withdraw_profile(id_of(created), "node throttled") == withdrawn
    for reason, superseded_by in (("other", ""), ("node throttled", id_of(other))):
        with pytest.raises(PreconditionError, match="node throttled") as caught:
            profiles.withdraw_profile(id_of(created), reason, superseded_by)
        assert caught.value.broken_rule.rule == "ALREADY_WITHDRAWN"
    assert profiles.get_profile(id_of(created)) == withdrawn


def test_a_profile_is_superseded_by_another_active_one(profiles: ProfileStore) -> None:
    old, new, gone = (profiles.create_profile(profile())[0] for _ in range(3))
    profiles.withdraw_profile(id_of(gone), "bad")
    for replacement, problem in ((id_of(old), "itself"), ("nobody", "does not exist"), (id_of(gone), "withdrawn")):
        with pytest.raises(InvalidInputError, match=problem) as caught:
            profiles.withdraw_profile(id_of(old), "newer driver", replacement)
        assert caught.value.violations[0].field == "superseded_by"
    superseded = profiles.withdraw_profile(id_of(old), "newer driver", id_of(new))
    assert (superseded.status, superseded.superseded_by) == (ProfileStatus.SUPERSEDED, new.name)
    assert profiles.withdraw_profile(id_of(old), "newer driver", id_of(new)) == superseded
    # What was replaced cannot replace.
    with pytest.raises(InvalidInputError, match="superseded"):
        profiles.withdraw_profile(id_of(new), "circle", id_of(old))


def test_a_reason_that_cannot_be_stored_is_refused(profiles: ProfileStore) -> None:
    created, _ = profiles.create_profile(profile())
    for reason in ("x" * 1001, "nul\0"):
        with pytest.raises(InvalidInputError, match="reason"):
            profiles.withdraw_profile(id_of(created), reason)
    assert profiles.get_profile(id_of(created)).status is ProfileStatus.ACTIVE


def test_active_profiles_are_those_of_the_engine_that_are_in_use(profiles: ProfileStore, clock: MovableClock) -> None:
    stored = []
    for engine in ("vllm", "sglang", "vllm", "vllm", ""):
        stored.append(profiles.create_profile(profile(engine=engine))[0])
        clock.move(1)
    profiles.withdraw_profile(id_of(stored[2]), "bad")
    assert profiles.active_profiles("vllm") == (stored[0], stored[3])
    assert profiles.active_profiles("tensorrt-llm") == ()
    asked = [id_of(each) for each in stored] + ["nobody"]
    profiles.withdraw_profile(id_of(stored[4]), "newer", id_of(stored[0]))
    assert profiles.withdrawn_profiles(asked) == {id_of(stored[2]), id_of(stored[4])}
    assert profiles.withdrawn_profiles([]) == set()


@pytest.mark.parametrize("page_size", [1, 3, 7, 0])
def test_pages_are_newest_first_and_hold_each_profile_once(
    profiles: ProfileStore, clock: MovableClock, page_size: int
) -> None:
    for number in range(7):
        profiles.create_profile(profile(node=str(number)))
        clock.move(number % 2)  # pairs share an instant, so that the id must order them
    assert [each.provenance.node for each in all_pages(profiles, page_size)] == list("6543210")


def test_a_page_ends_before_it_grows_too_large_for_a_reply(
    profiles: ProfileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        profiles.create_profile(profile(node=str(number)))
    size = len(PROFILE_CODEC.encode(profile(node="0")))
    for most_bytes, first_page in ((int(2.5 * size), 2), (1, 1)):
        monkeypatch.setattr(profiles_module.PROFILE_LIST, "maximum_page_bytes", most_bytes)
        assert len(profiles.list_profiles(ListQuery(1000)).items) == first_page
        assert [each.provenance.node for each in all_pages(profiles, 1000)] == list("3210")


def test_a_negative_page_size_is_refused(profiles: ProfileStore) -> None:
    with pytest.raises(InvalidInputError, match="page_size"):
        profiles.list_profiles(ListQuery(-1))


def test_an_instant_is_stored_in_utc_whatever_zone_it_came_in(profiles: ProfileStore) -> None:
    moment = datetime.fromisoformat("2026-02-03T04:05:06.000007+05:30")
    created, _ = profiles.create_profile(profile(measure_time=moment))
    read = profiles.get_profile(id_of(created)).provenance.measure_time
    assert read == moment
    assert read is not None
    assert read.tzinfo is UTC
    assert profiles.create_profile(profile(measure_time=None))[0].provenance.measure_time is None


def test_a_profile_of_a_newer_payload_schema_is_refused(profiles: ProfileStore, database: Database) -> None:
    created, _ = profiles.create_profile(profile())
    with database.write() as session:
        session.execute(text("UPDATE profiles SET payload_schema_version = payload_schema_version + 1"))
    with pytest.raises(StorageStateError, match="this profile was written by a newer release"):
        profiles.get_profile(id_of(created))


def test_two_ids_that_are_drawn_alike_make_two_profiles(database: Database) -> None:
    ids = iter(["same", "same", "other"])
    profiles = ProfileStore(database, draw_id=lambda: next(ids))
    assert [profiles.create_profile(profile())[0].name for _ in range(2)] == ["profiles/same", "profiles/other"]


@pytest.mark.parametrize("column", ["", "accelerator_id", "engine_id", "tool", "status"])
def test_lists_walk_an_index(profiles: ProfileStore, database: Database, column: str) -> None:
    for _ in range(3):
        profiles.create_profile(profile())
    condition = f"{column} = 'a' AND " if column else ""
    query = (
        f"SELECT id FROM profiles WHERE {condition}(create_time, id) < ('2027-01-01 00:00:00.000000', 5) "
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
    assert (f"ix_profiles_{column}_create_time_id" if column else "ix_profiles_create_time_id") in shown
    assert "TEMP B-TREE" not in shown
    assert "Sort" not in shown
