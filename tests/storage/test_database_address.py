from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from inferplan.errors import InferplanError, InvalidInputError, StorageStateError, StorageUnavailableError
from inferplan.storage.address import PostgresqlAddress, SqliteAddress, parse_address
from inferplan.storage.database import Database
from inferplan.storage.migrations import check, upgrade

SECRET = "hunter2-planted"


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_postgresql_urls_are_driven_by_psycopg_3(scheme: str) -> None:
    address = parse_address(f"{scheme}://ada:{SECRET}@db.example:5433/plans?sslmode=require")
    assert isinstance(address, PostgresqlAddress)
    assert address.url.drivername == "postgresql+psycopg"
    assert address.connection_parameters == {"sslmode": "require", "password": SECRET}
    assert address.display == "postgresql://ada@db.example:5433/plans"


def test_percent_signs_in_a_password_are_decoded() -> None:
    address = parse_address("postgresql://ada:p%40ss%2Fword@db/plans")
    assert isinstance(address, PostgresqlAddress)
    assert address.connection_parameters["password"] == "p@ss/word"


def test_a_relative_file_stays_the_same_file_when_the_process_moves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_address("sqlite:///plans.db") == SqliteAddress(tmp_path / "plans.db")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "plans.db",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///plans.db?cache=shared",
        "sqlite:///plans.db?mode=rwc",
        f"mysql://ada:{SECRET}@db/plans",
        f"postgresql+asyncpg://ada:{SECRET}@db/plans",
        f"postgresql://ada:{SECRET}@{SECRET}@db/plans",
        f"postgresql://ada:{SECRET}@db:port/plans",
        f"host=db password={SECRET}",
    ],
)
def test_a_url_that_is_none_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        Database.open(url)
    assert [violation.field for violation in caught.value.violations] == ["database_url"]
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ada:{SECRET}@127.0.0.1:1/plans",
        f"postgresql://127.0.0.1:1/plans?user=ada&password={SECRET}",
        f"postgresql://ada:{SECRET}@127.0.0.1:1/plans?sslmode=bogus",
        f"postgresql://ada:{SECRET}@127.0.0.1:1/plans?no_such_parameter={SECRET}",
        f"postgresql://ada:{SECRET}@127.0.0.1:1/plans?connect_timeout={SECRET}",
        f"postgresql://ada@127.0.0.1:1/plans?sslpassword={SECRET}",
    ],
)
def test_a_password_never_shows(url: str) -> None:
    database = Database.open(url)
    shown = [repr(database), str(database), repr(database.address), database.display]
    for use in (check, upgrade):
        with pytest.raises(InferplanError) as caught:
            use(database)
        assert isinstance(caught.value, StorageUnavailableError | StorageStateError)
        # What a log prints: the error with its causes, but not the values of local variables.
        shown += [str(caught.value), repr(caught.value), *traceback.format_exception(caught.value)]
        assert "127.0.0.1" in str(caught.value)
    assert SECRET not in "".join(shown)


def test_a_server_that_is_away_is_told_to_be_tried_again() -> None:
    with pytest.raises(StorageUnavailableError) as caught:
        check(Database.open("postgresql://127.0.0.1:1/plans"))
    assert caught.value.retry_after_seconds > 0
