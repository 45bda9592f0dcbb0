"""The schema's revisions: finding them, applying them, and saying where a database stands."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

from inferplan.errors import StorageStateError
from inferplan.storage.address import SqliteAddress
from inferplan.storage.database import Database
from inferplan.storage.engines import WRITES, migration_engine
from inferplan.storage.failures import UPGRADE_COMMAND, translated_failures

VERSION_TABLE = "inferplan_alembic_version"
"""Our own, so that the database may be shared with another program that uses Alembic."""

WAIT_FOR_OTHERS_SECONDS = 120.0
"""How long an upgrade waits for another one that is running."""

STATEMENT_TIMEOUT_SECONDS = 5.0
LOCK_TIMEOUT_SECONDS = 4.0

_ADVISORY_LOCK = 0x696E666572706C6E  # "inferpln" in ASCII: one lock for all upgrades of a database


class SchemaState(StrEnum):
    """How a database's schema stands to this program."""

    MISSING = "missing"
    EMPTY = "empty"
    BEHIND = "behind"
    CURRENT = "current"
    AHEAD = "ahead"


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """`revision` is the database's, empty if it has none; `head` is the newest that this program knows."""

    state: SchemaState
    revision: str
    head: str


def locate_migrations() -> Path:
    """The folder of the migrations: inside an installed package, or at the top of a checkout."""
    storage = Path(__file__).resolve().parent
    for folder in (storage / "_migrations", storage.parents[2] / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise StorageStateError("this installation lacks its migrations folder; install inferplan again")


def check(database: Database) -> SchemaStatus:
    """Where the database stands. Raises StorageUnavailableError or StorageStateError if it cannot be read."""
    head = _scripts().get_current_head() or ""
    if isinstance(database.address, SqliteAddress) and not database.address.path.exists():
        return SchemaStatus(SchemaState.MISSING, "", head)
    with database.read() as session:
        connection = session.connection()
        has_table = inspect(connection).has_table(VERSION_TABLE)
        revisions = _revisions(connection) if has_table else []
    return _status(revisions, head)


def require_current(database: Database) -> None:
    """Raise StorageStateError, with what to run, unless the schema is the one that this program works with."""
    status = check(database)
    if status.state is not SchemaState.CURRENT:
        raise StorageStateError(_what_to_do(database, status))


def upgrade(database: Database, revision: str = "head") -> SchemaStatus:
    """Bring the schema to `revision`, by default this program's; creates a SQLite file. Any number of callers may race.

    Raises StorageStateError if the database was upgraded by a newer release.
    """
    return _migrate(database, "upgrade", revision)


def downgrade(database: Database, revision: str = "base") -> SchemaStatus:
    """Undo revisions down to `revision`. What the newer schema held beyond the older one is lost."""
    return _migrate(database, "downgrade", revision)


def alembic_config(connection: Connection) -> Config:
    """Alembic's configuration in code, so that no alembic.ini must be found."""
    config = Config()
    config.set_main_option("script_location", str(locate_migrations()).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _migrate(database: Database, direction: str, revision: str) -> SchemaStatus:
    """One transaction on a connection of its own: the lock, the look at where the database stands, all revisions."""
    head = _scripts().get_current_head() or ""
    engine = migration_engine(database.address, database.settings)
    try:
        with translated_failures(database.address), engine.connect() as plain_connection:
            if database.is_sqlite:
                _write_ahead_log(plain_connection)
            connection = plain_connection.execution_options(**{WRITES: True})
            with connection.begin():
                _keep_others_out(database, connection)
                status = _status(_existing_revisions(connection), head)
                if status.state is SchemaState.AHEAD:
                    raise StorageStateError(_what_to_do(database, status))
                if direction == "upgrade":
                    command.upgrade(alembic_config(connection), revision)
                else:
                    command.downgrade(alembic_config(connection), revision)
                _refuse_dangling_references(database, connection)
                return _status(_existing_revisions(connection), head)
    finally:
        engine.dispose()


def _keep_others_out(database: Database, connection: Connection) -> None:
    """Wait until no other upgrade runs, and hold the lock until this transaction ends, however it ends.

    On SQLite BEGIN IMMEDIATE has done so already. The lock of a transaction, unlike that of a session, holds behind a
    transaction pooler too, and cannot outlive a failed upgrade.
    """
    if database.is_sqlite:
        return
    connection.execute(text("SET LOCAL statement_timeout = 0"))
    connection.execute(text(f"SET LOCAL lock_timeout = {round(WAIT_FOR_OTHERS_SECONDS * 1000)}"))
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
    connection.execute(text(f"SET LOCAL statement_timeout = {round(STATEMENT_TIMEOUT_SECONDS * 1000)}"))
    connection.execute(text(f"SET LOCAL lock_timeout = {round(LOCK_TIMEOUT_SECONDS * 1000)}"))


def _write_ahead_log(connection: Connection) -> None:
    """Switch the file to WAL, once: the mode is kept in the file. The switch does not wait for a lock by itself."""
    driver_connection = connection.connection.driver_connection
    assert isinstance(driver_connection, sqlite3.Connection)
    deadline = time.monotonic() + WAIT_FOR_OTHERS_SECONDS
    while True:
        try:
            mode = driver_connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
            continue
        if mode != "wal":
            raise StorageStateError(
                "the database's file system does not support write-ahead logging; name a local folder"
            )
        return


def _refuse_dangling_references(database: Database, connection: Connection) -> None:
    if database.is_sqlite and connection.exec_driver_sql("PRAGMA foreign_key_check").first() is not None:
        raise StorageStateError("the migration would leave rows that refer to nothing; nothing was changed")


def _scripts() -> ScriptDirectory:
    return ScriptDirectory(str(locate_migrations()))


def _existing_revisions(connection: Connection) -> list[str]:
    return _revisions(connection) if inspect(connection).has_table(VERSION_TABLE) else []


def _revisions(connection: Connection) -> list[str]:
    return [row[0] for row in connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}"))]


def _status(revisions: list[str], head: str) -> SchemaStatus:
    if not revisions:
        return SchemaStatus(SchemaState.EMPTY, "", head)
    known = {script.revision for script in _scripts().walk_revisions()}
    shown = ", ".join(sorted(revisions))
    if revisions == [head]:
        return SchemaStatus(SchemaState.CURRENT, shown, head)
    behind = len(revisions) == 1 and revisions[0] in known
    return SchemaStatus(SchemaState.BEHIND if behind else SchemaState.AHEAD, shown, head)


def _what_to_do(database: Database, status: SchemaStatus) -> str:
    where = database.display
    match status.state:
        case SchemaState.MISSING:
            return f"{where} does not exist; run `{UPGRADE_COMMAND}` to create it"
        case SchemaState.EMPTY:
            return f"{where} has no tables of inferplan yet; run `{UPGRADE_COMMAND}`"
        case SchemaState.BEHIND:
            return (
                f"{where} is at revision {status.revision}, this program needs {status.head}; run `{UPGRADE_COMMAND}`"
            )
        case _:
            return (
                f"{where} is at revision {status.revision}, unknown to this program (its newest is {status.head}): "
                "a newer release upgraded it; run that release or a newer one"
            )
