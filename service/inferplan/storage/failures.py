"""What a database's own errors mean to a caller. No message quotes SQL, data or a password."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from inferplan.errors import (
    ConflictError,
    InferplanError,
    OverloadedError,
    StorageStateError,
    StorageUnavailableError,
)
from inferplan.storage.address import PostgresqlAddress, SqliteAddress

UPGRADE_COMMAND = "inferplan db upgrade"


@contextmanager
def translated_failures(address: SqliteAddress | PostgresqlAddress) -> Iterator[None]:
    """Raise what the database reports as the project's own errors; unknown errors pass as they are.

    The driver's error is not chained: its text and its frames may hold connection parameters.
    """
    try:
        yield
    except PoolTimeoutError:
        raise OverloadedError("every database connection of this replica is in use; try again") from None
    except (DBAPIError, sqlite3.Error, psycopg.Error) as error:
        driver_error = error.orig if isinstance(error, DBAPIError) else error
        failure: InferplanError | None = None
        if isinstance(address, SqliteAddress) and isinstance(driver_error, sqlite3.Error):
            failure = _sqlite_failure(address, driver_error)
        elif isinstance(address, PostgresqlAddress) and isinstance(driver_error, psycopg.Error):
            failure = _postgresql_failure(address, driver_error)
        if failure is None:
            raise
        raise failure from None


def _sqlite_failure(address: SqliteAddress, error: sqlite3.Error) -> InferplanError | None:
    name = getattr(error, "sqlite_errorname", "") or ""
    where = address.display
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return OverloadedError("the database is busy with other writers; try again")
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return StorageUnavailableError(f"{where} cannot be written or read ({name}): disk full or failing")
    problem = ""
    if name.startswith("SQLITE_READONLY"):
        problem = f"{where} is read-only; give this user the right to write the file and its folder"
    elif name.startswith("SQLITE_CANTOPEN"):
        problem = _why_not_opened(address)
    elif name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        problem = f"{where} is not an intact SQLite database; restore it or name another file"
    elif name == "SQLITE_ERROR" and str(error).startswith(("no such table", "no such column")):
        problem = f"{where} lacks tables of this release; run `{UPGRADE_COMMAND}`"
    return StorageStateError(problem) if problem else None


def _why_not_opened(address: SqliteAddress) -> str:
    path = address.path
    if path.is_dir():
        return f"{address.display} is a folder; name a file in it"
    if not path.parent.is_dir():
        return f"the folder of {address.display} does not exist; create it, then run `{UPGRADE_COMMAND}`"
    if not path.exists():
        return f"{address.display} does not exist; run `{UPGRADE_COMMAND}` as a user who may write its folder"
    return f"{address.display} cannot be opened; check who may read and write the file and its folder"


_TABLES_MISSING = f"lacks tables of this release; run `{UPGRADE_COMMAND}`"

_POSTGRESQL_STATE_PROBLEMS = {
    "42P01": _TABLES_MISSING,  # undefined table
    "42703": _TABLES_MISSING,  # undefined column
    "25006": "is read-only: a standby, or default_transaction_read_only is on; name the primary",
    "42501": "refuses this user a privilege; grant the tables, or upgrade as their owner",
}

_POSTGRESQL_BUSY = ("53300", "55P03", "57014")  # too many connections, lock timeout, statement timeout
_POSTGRESQL_LOST_RACE = ("40001", "40P01")  # serialization failure, deadlock
_POSTGRESQL_AWAY_CLASSES = ("08", "53", "57", "58")  # connection, resources, operator intervention, system error


def _postgresql_failure(address: PostgresqlAddress, error: psycopg.Error) -> InferplanError | None:
    state = error.sqlstate
    where = address.display
    if state is None:
        return _connection_failure(address, error)
    if state in _POSTGRESQL_STATE_PROBLEMS:
        return StorageStateError(f"{where} {_POSTGRESQL_STATE_PROBLEMS[state]}")
    if state in _POSTGRESQL_BUSY:
        return OverloadedError("the database is too busy to answer in time; try again")
    if state in _POSTGRESQL_LOST_RACE:
        return ConflictError("a concurrent change won; read again and retry")
    if state[:2] in _POSTGRESQL_AWAY_CLASSES:
        return StorageUnavailableError(f"{where} broke off the connection or lacks resources; try again")
    return None


def _connection_failure(address: PostgresqlAddress, error: psycopg.Error) -> InferplanError | None:
    """Errors without SQLSTATE come from the client library: it never got in, or the connection broke.

    libpq hands on the server's refusal as text only, so lasting refusals are told from an absence by their words.
    """
    lines = [line.strip() for line in address.without_secrets(str(error)).splitlines() if line.strip()]
    detail = lines[0] if lines else type(error).__name__
    if isinstance(error, psycopg.ProgrammingError):
        return StorageStateError(f"{address.display}: the URL has a parameter that the driver refuses: {detail}")
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return None
    text = " ".join(lines)
    if "database" in text and "does not exist" in text:
        return StorageStateError(
            f"{address.display} does not exist; create it (createdb), then run `{UPGRADE_COMMAND}`"
        )
    if "authentication failed" in text or ("role" in text and "does not exist" in text):
        return StorageStateError(f"{address.display} refuses this user or password; correct the database URL")
    return StorageUnavailableError(f"{address.display} does not answer: {detail}")
