"""Calibrations on both databases: stored once, never changed, found by name, engine and request."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid4

import pytest
from hypothesis import given, settings
from sqlalchemy import text

from inferplan.errors import AlreadyExistsError, InvalidInputError, NotFoundError, StorageStateError
from inferplan.profiles.calibration import Calibration, Coefficient, ErrorBand, ErrorSummary, MeasuredRange
from inferplan.storage import calibrations as calibrations_module
from inferplan.storage.calibrations import CalibrationStore
from inferplan.storage.codec import CALIBRATION_CODEC
from inferplan.storage.database import Database
from inferplan.storage.pages import ListQuery
from support.clock import MovableClock
from support.databases import PATIENT
from support.strategies import values_of

WRITERS = 16


def calibration(name: str = "", engine: str = "vllm", points: int = 12) -> Calibration:
    return Calibration(
        name=name,
        engine=engine,
        engine_versions=("0.10.0", "0.12.0"),
        accelerators=("h100-sxm-80gb",),
        coefficients=(
            Coefficient("weight_bandwidth_ratio", 0.83, 0.01),
            Coefficient("host_step_seconds", 2e-3, 1e-4, "s"),
        ),
        error_bands=(ErrorBand("tpot", 0.05),),
        measured=MeasuredRange(("dense",), ("fp8",), (1, 2), 1024, 1024, 64),
        errors=(ErrorSummary("h100 / vllm / llama", "tpot", 12, 0.02, 0.03, -0.01, 0.9),),
        outliers=("profiles/a point 3: tpot was measured as 1",),
        profiles=("profiles/a", "profiles/b"),
        points=points,
    )


def test_a_calibration_is_read_as_it_was_created(calibrations: CalibrationStore, clock: MovableClock) -> None:
    created = calibrations.create_calibration(calibration("mine"), created_by="ada")
    assert created == replace(calibration("mine"), create_time=clock(), created_by="ada")
    assert calibrations.get_calibration("mine") == created


def test_one_without_a_name_is_given_one_of_its_engine(calibrations: CalibrationStore) -> None:
    names = {calibrations.create_calibration(calibration()).name for _ in range(2)}
    assert len(names) == 2
    assert all(name.startswith("vllm-") for name in names)


def test_a_name_is_taken_once(calibrations: CalibrationStore) -> None:
    first = calibrations.create_calibration(calibration("mine"))
    with pytest.raises(AlreadyExistsError) as caught:
        calibrations.create_calibration(calibration("mine", points=99))
    assert (caught.value.resource_type, caught.value.resource_name) == ("Calibration", "calibrations/mine")
    assert calibrations.list_calibrations().items == (first,)


def test_a_repeated_request_returns_the_first_calibration(calibrations: CalibrationStore) -> None:
    request_id = str(uuid4())
    assert calibrations.find_request(request_id, "hash") is None
    first = calibrations.create_calibration(calibration(), request_id=request_id, request_hash="hash")
    again = calibrations.create_calibration(calibration(points=99), request_id=request_id, request_hash="hash")
    assert again == first == calibrations.find_request(request_id, "hash")
    for act in (calibrations.find_request, None):
        with pytest.raises(AlreadyExistsError, match=request_id):
            if act:
                act(request_id, "other")
            else:
                calibrations.create_calibration(calibration(), request_id=request_id, request_hash="other")
    assert calibrations.list_calibrations().items == (first,)


def test_sixteen_duplicates_of_a_request_make_one_calibration(database_url: str) -> None:
    databases = [Database.open(database_url, PATIENT) for _ in range(WRITERS)]
    request_id = str(uuid4())

    def write(database: Database) -> Calibration:
        return CalibrationStore(database).create_calibration(
            calibration("mine"), request_id=request_id, request_hash="hash"
        )

    with ThreadPoolExecutor(WRITERS) as pool:
        answers = list(pool.map(write, databases))
    assert all(answer == answers[0] for answer in answers)
    assert CalibrationStore(databases[0]).list_calibrations().items == (answers[0],)
    for database in databases:
        database.close()


def test_what_is_unknown_is_not_found(calibrations: CalibrationStore) -> None:
    with pytest.raises(NotFoundError) as caught:
        calibrations.get_calibration("nobody")
    assert (caught.value.resource_type, caught.value.resource_name) == ("Calibration", "calibrations/nobody")
    assert calibrations.newest_calibration("vllm") is None


def test_the_newest_is_the_newest_of_its_engine(calibrations: CalibrationStore, clock: MovableClock) -> None:
    for name, engine in (("a", "vllm"), ("b", "vllm"), ("c", "sglang")):
        calibrations.create_calibration(calibration(name, engine))
        clock.move(1)
    newest = calibrations.newest_calibration("vllm")
    assert newest is not None
    assert newest.name == "b"
    assert calibrations.newest_calibration("tensorrt-llm") is None


@pytest.mark.parametrize("most_bytes", [1, 10**6])
@pytest.mark.parametrize("page_size", [1, 3, 0])
def test_pages_are_newest_first_and_hold_each_calibration_once(
    calibrations: CalibrationStore,
    clock: MovableClock,
    monkeypatch: pytest.MonkeyPatch,
    page_size: int,
    most_bytes: int,
) -> None:
    monkeypatch.setattr(calibrations_module.CALIBRATION_LIST, "maximum_page_bytes", most_bytes)
    for number in range(5):
        calibrations.create_calibration(calibration(f"c{number}"))
        clock.move(number % 2)  # pairs share an instant, so that the id must order them
    names: list[str] = []
    page = calibrations.list_calibrations(ListQuery(page_size))
    while page.next_cursor is not None:
        names += [each.name for each in page.items]
        page = calibrations.list_calibrations(ListQuery(page_size, page.next_cursor))
    assert [*names, *(each.name for each in page.items)] == ["c4", "c3", "c2", "c1", "c0"]
    with pytest.raises(InvalidInputError, match="page_size"):
        calibrations.list_calibrations(ListQuery(-1))


def test_what_cannot_be_stored_is_refused(calibrations: CalibrationStore) -> None:
    for refused in (
        calibration("x" * 64),
        calibration(engine="e" * 101),
        replace(calibration(), outliers=("nul\0",)),
        replace(calibration(), error_bands=(ErrorBand("tpot", float("nan")),)),
    ):
        with pytest.raises(InvalidInputError):
            calibrations.create_calibration(refused)
    assert calibrations.list_calibrations().items == ()


def test_a_calibration_of_a_newer_payload_schema_is_refused(calibrations: CalibrationStore, database: Database) -> None:
    calibrations.create_calibration(calibration("mine"))
    with database.write() as session:
        session.execute(text("UPDATE calibrations SET payload_schema_version = payload_schema_version + 1"))
    with pytest.raises(StorageStateError, match="this calibration was written by a newer release"):
        calibrations.get_calibration("mine")


@given(values_of(Calibration))
@settings(max_examples=30)
def test_a_payload_comes_back_exactly(given_calibration: Calibration) -> None:
    read = CALIBRATION_CODEC.decode(CALIBRATION_CODEC.encode(given_calibration), CALIBRATION_CODEC.schema_version)
    assert repr(read) == repr(replace(given_calibration, create_time=None, created_by=""))
