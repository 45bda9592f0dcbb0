"""Many importers at once. Every one is a replica of its own: its own engine, its own connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar
from uuid import uuid4

import pytest

from inferplan.errors import InferplanError, InvalidInputError
from inferplan.profiles.profile import ProfileStatus
from inferplan.storage.database import Database
from inferplan.storage.profiles import ProfileStore, StoredProfiles
from support.databases import PATIENT
from support.profiles import profile, sha256_of

IMPORTERS = 16

_Result = TypeVar("_Result")


@pytest.fixture
def replicas(database_url: str) -> Iterator[list[ProfileStore]]:
    databases = [Database.open(database_url, PATIENT) for _ in range(IMPORTERS)]
    yield [ProfileStore(database) for database in databases]
    for database in databases:
        database.close()


def at_once(replicas: list[ProfileStore], work: Callable[[ProfileStore, int], _Result]) -> list[_Result]:
    """Run `work` in one thread a replica, all begun together."""
    start = Barrier(len(replicas))

    def begin(number: int) -> _Result:
        start.wait()
        return work(replicas[number], number)

    with ThreadPoolExecutor(len(replicas)) as pool:
        return list(pool.map(begin, range(len(replicas))))


def test_sixteen_imports_of_the_same_bytes_make_one_set(replicas: list[ProfileStore]) -> None:
    def work(profiles: ProfileStore, number: int) -> StoredProfiles:
        parts = [profile(sha256_of("file"), node=f"{number}-{part}") for part in range(3)]
        return profiles.import_profiles(parts, request_hash=f"header {number}")

    answers = at_once(replicas, work)
    assert [answer.stored_before for answer in answers].count(False) == 1
    assert len({answer.profiles[0].name for answer in answers}) == 1
    assert all(answer.profiles == answers[0].profiles for answer in answers)
    assert len(replicas[0].list_profiles().items) == 3


def test_sixteen_corrections_of_a_withdrawn_import_make_one_set(replicas: list[ProfileStore]) -> None:
    parts = [profile(sha256_of("file"), node=str(part)) for part in range(2)]
    for each in replicas[0].import_profiles(parts, request_hash="wrong").profiles:
        replicas[0].withdraw_profile(each.name.removeprefix("profiles/"), "wrong header")
    answers = at_once(replicas, lambda profiles, number: profiles.import_profiles(parts, request_hash=f"{number}"))
    assert all(answer.profiles == answers[0].profiles for answer in answers)
    assert [answer.stored_before for answer in answers].count(False) == 1
    assert len(replicas[0].list_profiles().items) == 4


def test_concurrent_duplicates_of_a_request_make_one_profile(replicas: list[ProfileStore]) -> None:
    request_id = str(uuid4())
    answers = at_once(replicas, lambda profiles, _: profiles.create_profile(profile(), request_id=request_id))
    assert len({created.name for created, _ in answers}) == 1
    assert len(replicas[0].list_profiles().items) == 1


def test_profiles_that_supersede_each_other_leave_one_in_use(replicas: list[ProfileStore]) -> None:
    names = [replicas[0].create_profile(profile())[0].name.removeprefix("profiles/") for _ in range(2)]

    def work(profiles: ProfileStore, number: int) -> str:
        try:
            return profiles.withdraw_profile(names[number % 2], "newer", names[1 - number % 2]).status
        except InferplanError as error:
            assert isinstance(error, InvalidInputError)
            return "refused"

    answers = at_once(replicas, work)
    assert answers.count("superseded") == answers.count("refused") == IMPORTERS // 2
    statuses = [replicas[0].get_profile(name).status for name in names]
    assert sorted(statuses) == [ProfileStatus.ACTIVE, ProfileStatus.SUPERSEDED]
