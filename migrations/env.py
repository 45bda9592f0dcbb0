"""Alembic's environment. `inferplan.storage.migrations` calls it with a connection that is in a transaction."""

from __future__ import annotations

from alembic import context

from inferplan.storage.migrations import VERSION_TABLE
from inferplan.storage.tables import Base

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    # SQLite cannot alter most things in place: Alembic copies the table instead.
    render_as_batch=connection.dialect.name == "sqlite",
)
context.run_migrations()
