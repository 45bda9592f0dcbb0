"""SQLAlchemy engines for the two databases."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, NullPool, QueuePool, create_engine, event

from inferplan.storage.address import PostgresqlAddress, SqliteAddress

WRITES = "inferplan_writes"
"""Execution option that marks connections whose transactions write."""


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """How connections are pooled and how long anything may take.

    The pool never grows past `pool_connections`: a caller waits `pool_timeout_seconds`, which must stay below the RPC
    deadline, and is then told to come back. `through_pgbouncer` switches off what a transaction pooler cannot carry,
    prepared statements and start-up parameters: the time limits are then set at the start of every transaction, at the
    price of a round trip.
    """

    pool_connections: int = 10
    pool_timeout_seconds: float = 2.0
    connect_timeout_seconds: int = 5
    statement_timeout_seconds: float = 5.0
    lock_timeout_seconds: float = 4.0
    through_pgbouncer: bool = False


def pooled_engine(address: SqliteAddress | PostgresqlAddress, settings: ConnectionSettings) -> Engine:
    """The engine that serves requests. Nothing is connected until it is used."""
    pool: dict[str, Any] = {
        "poolclass": QueuePool,
        "pool_size": settings.pool_connections,
        "max_overflow": 0,
        "pool_timeout": settings.pool_timeout_seconds,
        "pool_use_lifo": True,
    }
    if isinstance(address, SqliteAddress):
        return _sqlite_engine(address, settings, create=False, foreign_keys=True, pool=pool)
    return _postgresql_engine(address, settings, pool={**pool, "pool_pre_ping": True})


def migration_engine(address: SqliteAddress | PostgresqlAddress, settings: ConnectionSettings) -> Engine:
    """An engine without a pool for migrations; it may create the SQLite file.

    Foreign keys are not enforced on SQLite while tables are rebuilt: dropping the old copy of a parent would delete its
    children. The upgrade checks them before it commits.
    """
    pool = {"poolclass": NullPool}
    if isinstance(address, SqliteAddress):
        return _sqlite_engine(address, settings, create=not address.read_only, foreign_keys=False, pool=pool)
    return _postgresql_engine(address, settings, pool=pool)


def _sqlite_engine(
    address: SqliteAddress, settings: ConnectionSettings, *, create: bool, foreign_keys: bool, pool: dict[str, Any]
) -> Engine:
    mode = "ro" if address.read_only else "rwc" if create else "rw"
    file_uri = f"file:{quote(str(address.path))}?mode={mode}"

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            file_uri,
            uri=True,
            timeout=settings.lock_timeout_seconds,
            isolation_level=None,  # no hidden BEGIN of the driver: _begin below states which kind is meant
            check_same_thread=False,  # the pool lends a connection to one thread at a time
        )
        connection.execute(f"PRAGMA foreign_keys = {'ON' if foreign_keys else 'OFF'}")
        # In WAL mode FULL syncs the log at every commit: an acknowledged write outlives kill -9 and, on a disk that
        # keeps its word, a power cut. NORMAL would lose the last commits in a power cut.
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    engine = create_engine(
        URL.create("sqlite", database=str(address.path)), creator=connect, hide_parameters=True, **pool
    )
    event.listen(engine, "begin", _begin)
    return engine


def _begin(connection: Connection) -> None:
    """BEGIN IMMEDIATE for writers: a transaction that reads first and writes then cannot wait for the lock any more."""
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _postgresql_engine(address: PostgresqlAddress, settings: ConnectionSettings, *, pool: dict[str, Any]) -> Engine:
    parameters: dict[str, Any] = {
        "application_name": "inferplan",
        "connect_timeout": settings.connect_timeout_seconds,
        **address.connection_parameters,
    }
    statement_timeout_milliseconds = round(settings.statement_timeout_seconds * 1000)
    lock_timeout_milliseconds = round(settings.lock_timeout_seconds * 1000)
    if settings.through_pgbouncer:
        parameters["prepare_threshold"] = None
        engine = create_engine(address.url, connect_args=parameters, hide_parameters=True, **pool)
        limits = (
            f"SET LOCAL statement_timeout = {statement_timeout_milliseconds}; "
            f"SET LOCAL lock_timeout = {lock_timeout_milliseconds}"
        )
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(limits))
        return engine
    limits = f"-c statement_timeout={statement_timeout_milliseconds} -c lock_timeout={lock_timeout_milliseconds}"
    parameters["options"] = f"{limits} {parameters.get('options', '')}".strip()
    return create_engine(address.url, connect_args=parameters, hide_parameters=True, **pool)
