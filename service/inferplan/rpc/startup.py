"""Putting a process together: settings in, a planner over an open database out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from inferplan.catalog import load_catalog
from inferplan.errors import StorageStateError
from inferplan.planning.planner import Planner
from inferplan.settings import Settings
from inferplan.storage.address import SqliteAddress, parse_address
from inferplan.storage.database import Database
from inferplan.storage.engines import ConnectionSettings
from inferplan.storage.migrations import SchemaState, check, require_current, upgrade


def open_database(settings: Settings) -> Database:
    """The configured database, not yet connected. The folder of a SQLite file is created."""
    url = settings.database_url.get_secret_value()
    address = parse_address(url)
    if isinstance(address, SqliteAddress):
        create_folder(address)
    return Database.open(url, connection_settings(settings))


def connection_settings(settings: Settings) -> ConnectionSettings:
    """How the configured database is connected to."""
    return ConnectionSettings(
        pool_connections=settings.database_connections,
        statement_timeout_seconds=settings.database_statement_timeout_seconds,
        lock_timeout_seconds=settings.database_lock_timeout_seconds,
        through_pgbouncer=settings.database_through_pgbouncer,
    )


def create_folder(address: SqliteAddress) -> None:
    """Create the folder of a SQLite file if it is missing. Raises StorageStateError if that is refused."""
    try:
        address.path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageStateError(f"the folder of {address.display} cannot be created: {error.strerror}") from None


@contextmanager
def open_planner(settings: Settings, migrate: bool = False) -> Iterator[Planner]:
    """A planner that is ready to answer.

    A SQLite file that does not exist, or holds nothing yet, is created at this program's revision. Any other database
    that is not at it is refused with StorageStateError unless `migrate` is set.
    """
    catalog = load_catalog(settings.catalog_directory)
    with closing(open_database(settings)) as database:
        is_new = database.is_sqlite and check(database).state in (SchemaState.MISSING, SchemaState.EMPTY)
        if migrate or is_new:
            upgrade(database)
        require_current(database)
        yield Planner.over(catalog, database)
