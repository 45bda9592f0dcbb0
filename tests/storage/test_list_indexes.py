"""GetPlan and ListPlans use indexes: what the databases' own planners say."""

from __future__ import annotations

import re

from sqlalchemy import event, text
from sqlalchemy.engine import Engine

from inferplan.storage.database import Database
from inferplan.storage.deployments import DeploymentStore
from inferplan.storage.pages import ListQuery
from inferplan.storage.plans import PlanStore
from support.plans import plan_content


def statements(work: object) -> list[tuple[str, object]]:
    """Every SELECT on plans that `work` sends, with its parameters."""
    sent: list[tuple[str, object]] = []

    def note(_c: object, _cursor: object, statement: str, parameters: object, _x: object, _m: object) -> None:
        if statement.startswith("SELECT") and "FROM plans" in statement:
            sent.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        assert callable(work)
        work()
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    return sent


def explained(database: Database, statement: str, parameters: object) -> str:
    prefix = "EXPLAIN QUERY PLAN " if database.is_sqlite else "EXPLAIN "
    with database.read() as session:
        connection = session.connection()
        if not database.is_sqlite:
            # With few rows a scan is cheapest; this asks whether an index can answer.
            connection.execute(text("SET LOCAL enable_seqscan = off"))
        rows = connection.exec_driver_sql(prefix + statement, parameters).all()  # type: ignore[arg-type]
    return "\n".join(str(row) for row in rows)


def test_plans_are_found_by_index(database: Database, plans: PlanStore, deployments: DeploymentStore) -> None:
    for name in ("chat", "code"):
        deployments.create_deployment(name)
        for seed in range(5):
            plans.create_plan(name, plan_content(seed=seed))
    first = plans.list_plans(None, ListQuery(2))

    def work() -> None:
        plans.get_plan("chat", 3)
        plans.get_plan("chat", "latest")
        plans.list_plans(None, ListQuery(2))
        plans.list_plans(None, ListQuery(2, first.next_cursor))
        plans.list_plans("chat", ListQuery(2, first.next_cursor))

    sent = statements(work)
    assert len(sent) >= 5
    for statement, parameters in sent:
        found = explained(database, statement, parameters)
        assert re.search(r"USING (COVERING )?INDEX|INTEGER PRIMARY KEY|Index", found), f"{statement}\n{found}"
        assert "Seq Scan" not in found
        assert not re.search(r"SCAN plans(?! USING)", found), f"{statement}\n{found}"
