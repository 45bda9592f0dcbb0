from __future__ import annotations

import signal
import subprocess
import sys

from inferplan.storage.database import Database
from inferplan.storage.pages import ListQuery
from inferplan.storage.plans import PlanStore
from support.databases import PATIENT

WRITER = """
import sys
from support.databases import PATIENT
from support.plans import plan_content
from inferplan.storage.database import Database
from inferplan.storage.pages import ListQuery
from inferplan.storage.plans import PlanStore
plans = PlanStore(Database.open(sys.argv[1], PATIENT))
first = int(sys.argv[2])
for seed in range(first, first + 100_000):
    plan = plans.create_plan("chat", plan_content(seed=seed), allow_missing_deployment=True)
    print(plan.content.seed, flush=True)
"""


def killed_writer(database_url: str, first: int, kill_after: int) -> list[int]:
    """The seeds that a writer acknowledged before it was killed with SIGKILL in the middle of its work."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, database_url, str(first)],
        env={"PYTHONPATH": ":".join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(kill_after)]
        writer.send_signal(signal.SIGKILL)
        # What it had printed before the signal came counts too; a line that was cut off does not.
        acknowledged += [int(line) for line in writer.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
    assert writer.returncode == -signal.SIGKILL
    return acknowledged


def test_every_acknowledged_plan_outlives_kill_9(database_url: str) -> None:
    acknowledged: list[int] = []
    for turn in range(3):
        acknowledged += killed_writer(database_url, turn * 1_000_000, kill_after=5 + 7 * turn)
    database = Database.open(database_url, PATIENT)
    plans = PlanStore(database)
    # A writer may have been killed between its commit and its word: at most one plan a turn is there unannounced.
    stored = {}
    page = plans.list_plans("chat", ListQuery(1000))
    while True:
        for plan in page.items:
            assert plan.content.seed not in stored
            stored[plan.content.seed] = plan.revision
        if page.next_cursor is None:
            break
        page = plans.list_plans("chat", ListQuery(1000, page.next_cursor))
    assert set(acknowledged) <= set(stored)
    assert len(stored) - len(acknowledged) <= 3
    assert sorted(stored.values()) == list(range(1, len(stored) + 1))
    assert plans.create_plan("chat", plans.get_plan("chat", 1).content).revision == len(stored) + 1
    database.close()
