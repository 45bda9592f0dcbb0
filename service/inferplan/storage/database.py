"""The database: one engine, transactions that read and transactions that write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.orm import Session

from inferplan.errors import StorageStateError
from inferplan.storage.address import PostgresqlAddress, SqliteAddress, parse_address
from inferplan.storage.engines import WRITES, ConnectionSettings, pooled_engine
from inferplan.storage.failures import UPGRADE_COMMAND, translated_failures

_DEFAULT_SETTINGS = ConnectionSettings()


class Database:
    """Access to one database. Threads may share it; a process that forks opens its own after the fork.

    Transactions raise OverloadedError when no connection or lock came free in time, StorageUnavailableError when the
    database does not answer, StorageStateError when it is missing, read-only or lacks tables, and ConflictError when a
    race was lost.
    """

    def __init__(
        self, address: SqliteAddress | PostgresqlAddress, settings: ConnectionSettings = _DEFAULT_SETTINGS
    ) -> None:
        self.address = address
        self.settings = settings
        self._engine = pooled_engine(address, settings)
        self._write_engine = self._engine.execution_options(**{WRITES: True})

    @classmethod
    def open(cls, url: str, settings: ConnectionSettings = _DEFAULT_SETTINGS) -> Database:
        """Open `sqlite:///file` or `postgresql://…`.

        Nothing is connected yet, so a database that is away is no error here. Raises InvalidInputError for what is
        no URL, and StorageStateError for a SQLite path that can never be a database.
        """
        address = parse_address(url)
        if isinstance(address, SqliteAddress):
            if address.path.is_dir():
                raise StorageStateError(f"{address.display} is a folder; name a file in it")
            if not address.path.parent.is_dir():
                raise StorageStateError(
                    f"the folder of {address.display} does not exist; create it, then run `{UPGRADE_COMMAND}`"
                )
        return cls(address, settings)

    def __repr__(self) -> str:
        return f"Database({self.display!r})"

    @property
    def display(self) -> str:
        """The address as it may be shown: without password."""
        return self.address.display

    @property
    def is_sqlite(self) -> bool:
        """True for the embedded database, False for PostgreSQL."""
        return isinstance(self.address, SqliteAddress)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A transaction that only reads."""
        with translated_failures(self.address), Session(self._engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A transaction that writes: committed at the end of the block, rolled back if the block raises."""
        with (
            translated_failures(self.address),
            Session(self._write_engine, expire_on_commit=False) as session,
            session.begin(),
        ):
            yield session

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()
