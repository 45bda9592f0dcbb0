"""Databases for the storage tests: what takes `database` runs on SQLite and on PostgreSQL."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg import sql

from inferplan.storage.calibrations import CalibrationStore
from inferplan.storage.database import Database
from inferplan.storage.deployments import DeploymentStore
from inferplan.storage.migrations import upgrade
from inferplan.storage.plans import PlanStore
from inferplan.storage.profiles import ProfileStore
from support.clock import MovableClock
from support.databases import PATIENT, PostgresqlServer, running_postgresql

BACKENDS = ("sqlite", "postgresql")


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresqlServer]:
    with running_postgresql() as server:
        yield server


@pytest.fixture(scope="session")
def migrated_postgresql_name(postgresql: PostgresqlServer) -> Iterator[str]:
    """A migrated database, shared by all tests; each finds it without rows."""
    name = postgresql.create_database()
    database = Database.open(postgresql.url_of(name), PATIENT)
    upgrade(database)
    database.close()
    yield name
    postgresql.drop_database(name)


@pytest.fixture(scope="session")
def migrated_sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated file to copy."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    upgrade(Database.open(f"sqlite:///{path}", PATIENT))
    return path


@pytest.fixture
def sqlite_url(migrated_sqlite_file: Path, tmp_path: Path) -> str:
    """URL of a migrated SQLite file of the test's own."""
    shutil.copy(migrated_sqlite_file, tmp_path / "inferplan.db")
    return f"sqlite:///{tmp_path / 'inferplan.db'}"


@pytest.fixture
def postgresql_url(postgresql: PostgresqlServer, migrated_postgresql_name: str) -> Iterator[str]:
    """URL of the migrated PostgreSQL database, emptied afterwards."""
    yield postgresql.url_of(migrated_postgresql_name)
    empty = sql.SQL(
        "TRUNCATE deployments, plans, idempotent_requests, profiles, profile_requests, calibrations, "
        "calibration_requests RESTART IDENTITY"
    )
    postgresql.execute(empty, database_name=migrated_postgresql_name)


@pytest.fixture(params=BACKENDS)
def database_url(request: pytest.FixtureRequest) -> str:
    """URL of a migrated database without rows."""
    url = request.getfixturevalue(f"{request.param}_url")
    assert isinstance(url, str)
    return url


@pytest.fixture(params=BACKENDS)
def unmigrated_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URL of a database of the test's own that has no tables yet."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'unmigrated.db'}"
        return
    server = request.getfixturevalue("postgresql")
    with server.database() as url:
        yield url


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    opened = Database.open(database_url, PATIENT)
    yield opened
    opened.close()


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
def deployments(database: Database, clock: MovableClock) -> DeploymentStore:
    return DeploymentStore(database, clock)


@pytest.fixture
def plans(database: Database, clock: MovableClock) -> PlanStore:
    return PlanStore(database, clock)


@pytest.fixture
def profiles(database: Database, clock: MovableClock) -> ProfileStore:
    return ProfileStore(database, clock)


@pytest.fixture
def calibrations(database: Database, clock: MovableClock) -> CalibrationStore:
    return CalibrationStore(database, clock)
