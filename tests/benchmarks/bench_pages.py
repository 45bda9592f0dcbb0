"""Cost of the first and of the thousandth page of 100,000 plans, as a ratio: `make bench`. Printed, not asserted."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from sqlalchemy import insert, select

from inferplan.storage.database import Database
from inferplan.storage.migrations import upgrade
from inferplan.storage.pages import ListQuery, PageCursor
from inferplan.storage.plans import PlanStore
from inferplan.storage.tables import DeploymentRow, PlanRow
from support.databases import running_postgresql
from support.plans import plan_content

PLANS = 100_000
PAGE_SIZE = 50
THOUSANDTH = 1000
BATCH = 5000
RUNS = 15


def fill(database: Database) -> None:
    """Copies of one plan, a revision each, as quickly as the database takes them."""
    upgrade(database)
    PlanStore(database).create_plan("chat", plan_content(), allow_missing_deployment=True)
    with database.read() as session:
        row = session.scalars(select(PlanRow)).one()
        values = {column.key: getattr(row, column.key) for column in PlanRow.__table__.columns if column.key != "id"}
    for first in range(2, PLANS + 1, BATCH):
        with database.write() as session:
            rows = [{**values, "revision": revision} for revision in range(first, min(first + BATCH, PLANS + 1))]
            session.execute(insert(PlanRow), rows)
    with database.write() as session:
        session.scalars(select(DeploymentRow)).one().latest_revision = PLANS


def best_seconds(plans: PlanStore, cursor: PageCursor | None) -> float:
    taken = []
    for _ in range(RUNS):
        before = time.perf_counter()
        assert len(plans.list_plans("chat", ListQuery(PAGE_SIZE, cursor)).items) == PAGE_SIZE
        taken.append(time.perf_counter() - before)
    return min(taken)


def measure(name: str, database: Database) -> None:
    fill(database)
    plans = PlanStore(database)
    cursor = None
    for _ in range(THOUSANDTH - 1):
        cursor = plans.list_plans("chat", ListQuery(PAGE_SIZE, cursor)).next_cursor
    first, thousandth = best_seconds(plans, None), best_seconds(plans, cursor)
    sys.stdout.write(
        f"\n{name}, {PLANS:,} plans: first page {first * 1e3:.1f} ms, page {THOUSANDTH} {thousandth * 1e3:.1f} ms, "
        f"ratio {thousandth / first:.2f}\n"
    )
    database.close()


def test_pages_on_sqlite(tmp_path: Path) -> None:
    measure("SQLite", Database.open(f"sqlite:///{tmp_path / 'pages.db'}"))


def test_pages_on_postgresql() -> None:
    with running_postgresql() as server, server.database() as url:
        measure("PostgreSQL", Database.open(url))
