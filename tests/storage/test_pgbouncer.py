"""The stores behind PgBouncer in transaction mode, where consecutive transactions run on different connections."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import text

from inferplan.errors import OverloadedError
from inferplan.storage.database import Database
from inferplan.storage.deployments import DeploymentStore
from inferplan.storage.migrations import SchemaState, check, upgrade
from inferplan.storage.plans import PlanStore
from support.databases import PATIENT, PostgresqlServer
from support.plans import plan_content
from support.poolers import PROGRAM, SERVER_CONNECTIONS, pooled

BEHIND_POOLER = replace(PATIENT, through_pgbouncer=True)

pytestmark = pytest.mark.skipif(
    PROGRAM is None and "REQUIRE_PGBOUNCER" not in os.environ, reason="pgbouncer (Debian: pgbouncer) is not installed"
)


@pytest.fixture
def pooled_url(postgresql_url: str) -> Iterator[str]:
    with pooled(postgresql_url) as url:
        yield url


def test_many_writers_share_few_connections_and_leave_no_gap(pooled_url: str) -> None:
    writers = SERVER_CONNECTIONS * 4
    databases = [Database.open(pooled_url, replace(BEHIND_POOLER, pool_connections=2)) for _ in range(writers)]

    def write(database: Database) -> list[int]:
        plans = PlanStore(database)
        return [plans.create_plan("chat", plan_content(), allow_missing_deployment=True).revision for _ in range(5)]

    with ThreadPoolExecutor(writers) as pool:
        written = [revision for part in pool.map(write, databases) for revision in part]
    assert sorted(written) == list(range(1, writers * 5 + 1))
    assert DeploymentStore(databases[0]).get_deployment("chat").latest_revision == writers * 5
    for database in databases:
        database.close()


def test_time_limits_hold_in_every_transaction(pooled_url: str) -> None:
    limits = replace(BEHIND_POOLER, statement_timeout_seconds=0.2, lock_timeout_seconds=0.1)
    database = Database.open(pooled_url, limits)
    for _ in range(SERVER_CONNECTIONS + 1):
        with database.read() as session:
            assert session.scalar(text("SHOW statement_timeout")) == "200ms"
            assert session.scalar(text("SHOW lock_timeout")) == "100ms"
    with pytest.raises(OverloadedError), database.read() as session:
        session.execute(text("SELECT pg_sleep(30)"))
    database.close()
    outsider = Database.open(pooled_url, BEHIND_POOLER)
    with outsider.read() as session:
        # The limits ended with their transaction: the next client of the same connection has its own.
        assert session.scalar(text("SHOW statement_timeout")) == "1min"
    outsider.close()


def test_racing_upgrades_through_the_pooler_leave_one_schema(postgresql: PostgresqlServer) -> None:
    with postgresql.database() as url, pooled(url) as pooled_url:
        databases = [Database.open(pooled_url, BEHIND_POOLER) for _ in range(8)]
        with ThreadPoolExecutor(len(databases)) as pool:
            statuses = list(pool.map(upgrade, databases))
        assert {status.state for status in statuses} == {SchemaState.CURRENT}
        assert check(databases[0]).state is SchemaState.CURRENT
        for database in databases:
            database.close()
