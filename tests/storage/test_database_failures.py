"""Databases that are missing, damaged, read-only, full of callers, or gone for a while."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Event
from urllib.parse import quote

import pytest
from psycopg import sql
from sqlalchemy import make_url, text

from inferplan.errors import OverloadedError, StorageStateError, StorageUnavailableError
from inferplan.storage import migrations
from inferplan.storage.database import Database
from inferplan.storage.deployments import DeploymentStore
from inferplan.storage.migrations import check, locate_migrations, upgrade
from inferplan.storage.plans import PlanStore
from support.databases import PATIENT, PostgresqlServer
from support.plans import plan_content

SECRET = "hunter2-planted"


def test_a_missing_file_is_not_created_by_reading(tmp_path: Path) -> None:
    database = Database.open(f"sqlite:///{tmp_path / 'missing.db'}")
    with pytest.raises(StorageStateError, match="does not exist; run `inferplan db upgrade`"):
        DeploymentStore(database).list_deployments()
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageStateError, match=r"folder of sqlite:///.*/nowhere/plans.db does not exist"):
        Database.open(f"sqlite:///{tmp_path}/nowhere/plans.db")


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(StorageStateError, match="is a folder"):
        Database.open(f"sqlite:///{tmp_path}")


@pytest.mark.parametrize("content", [b"This is a shopping list. " * 100, os.urandom(8192)])
def test_a_file_of_another_kind_is_no_database_and_stays_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "plans.db"
    path.write_bytes(content)
    database = Database.open(f"sqlite:///{path}")
    for use in (check, upgrade, lambda opened: DeploymentStore(opened).list_deployments()):
        with pytest.raises(StorageStateError, match="not an intact SQLite database"):
            use(database)
    assert path.read_bytes() == content


def test_strange_file_names_are_reached_by_quoting_them(tmp_path: Path) -> None:
    path = tmp_path / "a b%20c#d?mode=ro.db"
    database = Database.open(f"sqlite:///{quote(str(path))}")
    upgrade(database)
    database.close()
    assert path.is_file()


@pytest.fixture
def unprivileged_folder(sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a migrated database, and a user whom the file system's rights bind, which they do not bind root.

    That user may not be able to read the checkout or its environment either, so the migrations are copied to where he
    can, and what an upgrade imports on its way is imported before.
    """
    with tempfile.TemporaryDirectory(prefix="inferplan-read-only-") as folder:
        readable = Path(folder) / "migrations"
        shutil.copytree(locate_migrations(), readable)
        monkeypatch.setattr(migrations, "locate_migrations", lambda: readable)
        upgrade(Database.open(f"sqlite:///{tmp_path / 'warm-up.db'}"))
        target = Path(folder) / "inferplan.db"
        target.write_bytes(Path(str(make_url(sqlite_url).database)).read_bytes())
        Path(folder).chmod(0o755)
        is_root = os.geteuid() == 0
        if is_root:
            os.seteuid(65534)
        else:
            Path(folder).chmod(0o555)
            target.chmod(0o444)
        yield Path(folder)
        if is_root:
            os.seteuid(0)
        Path(folder).chmod(0o755)


def test_a_file_without_the_right_to_write_says_so(unprivileged_folder: Path) -> None:
    database = Database.open(f"sqlite:///{unprivileged_folder / 'inferplan.db'}")
    with pytest.raises(StorageStateError, match=r"read-only|who may read and write"):
        DeploymentStore(database).create_deployment("chat")
    database.close()


def test_a_folder_without_the_right_to_write_says_so(unprivileged_folder: Path) -> None:
    with pytest.raises(StorageStateError, match="as a user who may write its folder"):
        upgrade(Database.open(f"sqlite:///{unprivileged_folder / 'new.db'}"))


def test_a_file_that_is_opened_read_only_can_be_read_and_not_written(sqlite_url: str) -> None:
    writer = Database.open(sqlite_url)
    DeploymentStore(writer).create_deployment("chat")
    reader = Database.open(f"{sqlite_url}?mode=ro")
    assert DeploymentStore(reader).get_deployment("chat").deployment_id == "chat"
    for use in (
        lambda: DeploymentStore(reader).create_deployment("search"),
        lambda: PlanStore(reader).create_plan("chat", plan_content()),
    ):
        with pytest.raises(StorageStateError, match="read-only"):
            use()
    reader.close()
    writer.close()


def test_a_read_only_postgresql_says_so(postgresql_url: str) -> None:
    url = make_url(postgresql_url).update_query_dict({"options": "-c default_transaction_read_only=on"})
    database = Database.open(url.render_as_string(hide_password=False))
    with pytest.raises(StorageStateError, match="read-only"):
        DeploymentStore(database).create_deployment("chat")
    database.close()


def test_tables_that_are_missing_say_what_to_run(unmigrated_url: str) -> None:
    database = Database.open(unmigrated_url, PATIENT)
    if database.is_sqlite:
        upgrade(database)
        with database.write() as session:
            session.execute(text("DROP TABLE plans"))
    with pytest.raises(StorageStateError, match="inferplan db upgrade"):
        PlanStore(database).list_plans()
    database.close()


def test_a_postgresql_database_that_does_not_exist_is_no_matter_of_waiting(postgresql: PostgresqlServer) -> None:
    url = make_url(postgresql.url_of("nowhere")).set(password=SECRET).render_as_string(hide_password=False)
    with pytest.raises(StorageStateError, match=r"nowhere.* does not exist") as caught:
        check(Database.open(url))
    assert SECRET not in str(caught.value)


def test_a_postgresql_user_that_does_not_exist_is_no_matter_of_waiting(postgresql: PostgresqlServer) -> None:
    url = make_url(postgresql.admin_url).set(username="nobody", password=SECRET).render_as_string(hide_password=False)
    with pytest.raises(StorageStateError, match="refuses this user") as caught:
        check(Database.open(url))
    assert SECRET not in str(caught.value)


def test_a_pool_of_one_sheds_twenty_callers_and_recovers(database_url: str) -> None:
    database = Database.open(database_url, replace(PATIENT, pool_connections=1, pool_timeout_seconds=0.05))
    deployments = DeploymentStore(database)
    deployments.create_deployment("chat")
    taken, all_refused = Event(), Event()
    together = Barrier(20)

    def hold() -> None:
        with database.read() as session:
            session.execute(text("SELECT 1"))
            taken.set()
            all_refused.wait()

    def call(_: int) -> str:
        taken.wait()
        together.wait()
        try:
            return deployments.get_deployment("chat").deployment_id
        except OverloadedError as error:
            assert error.retry_after_seconds > 0
            return "shed"

    with ThreadPoolExecutor(21) as pool:
        holder = pool.submit(hold)
        assert list(pool.map(call, range(20))) == ["shed"] * 20
        all_refused.set()
        holder.result()
    patient = Database.open(database_url, replace(PATIENT, pool_connections=1))
    with ThreadPoolExecutor(20) as pool:
        found = list(pool.map(lambda _: DeploymentStore(patient).get_deployment("chat").deployment_id, range(20)))
    assert found == ["chat"] * 20
    assert deployments.get_deployment("chat").deployment_id == "chat"
    patient.close()
    database.close()


def test_failing_transactions_leave_no_connection_out(database_url: str) -> None:
    database = Database.open(database_url, replace(PATIENT, pool_connections=1, pool_timeout_seconds=0.05))
    for _ in range(50):
        with pytest.raises(ZeroDivisionError), database.write() as session:
            session.execute(text("DELETE FROM plans"))
            raise ZeroDivisionError
    assert DeploymentStore(database).list_deployments().items == ()
    database.close()


def test_a_transaction_that_raises_stores_nothing(database: Database) -> None:
    with pytest.raises(ZeroDivisionError), database.write() as session:
        session.execute(text("INSERT INTO service_secrets VALUES ('left over', '')"))
        raise ZeroDivisionError
    with database.read() as session:
        assert session.scalar(text("SELECT count(*) FROM service_secrets")) == 1


def test_a_writer_that_holds_sqlite_too_long_sheds_others_while_reads_go_on(sqlite_url: str) -> None:
    database = Database.open(sqlite_url, replace(PATIENT, lock_timeout_seconds=0.05))
    deployments = DeploymentStore(database)
    with database.write() as session:
        session.execute(text("DELETE FROM plans"))
        with pytest.raises(OverloadedError, match="busy"):
            deployments.create_deployment("chat")
        assert deployments.list_deployments().items == ()
    assert deployments.create_deployment("chat").deployment_id == "chat"
    database.close()


def test_a_deployment_that_is_locked_too_long_sheds_others_on_postgresql(postgresql_url: str) -> None:
    database = Database.open(postgresql_url, replace(PATIENT, lock_timeout_seconds=0.05))
    plans = PlanStore(database)
    plans.create_plan("chat", plan_content(), allow_missing_deployment=True)
    with database.write() as session:
        session.execute(text("SELECT * FROM deployments FOR UPDATE"))
        with pytest.raises(OverloadedError):
            plans.create_plan("chat", plan_content())
        assert plans.get_plan("chat", "latest").revision == 1
    assert plans.create_plan("chat", plan_content()).revision == 2
    database.close()


def test_a_statement_that_takes_too_long_is_ended_on_postgresql(postgresql_url: str) -> None:
    database = Database.open(postgresql_url, replace(PATIENT, statement_timeout_seconds=0.05))
    with pytest.raises(OverloadedError), database.read() as session:
        session.execute(text("SELECT pg_sleep(60)"))
    database.close()


def test_the_next_call_works_after_the_server_ended_every_connection(
    postgresql: PostgresqlServer, postgresql_url: str
) -> None:
    database = Database.open(postgresql_url, PATIENT)
    deployments = DeploymentStore(database)
    deployments.create_deployment("chat")
    end_all = sql.SQL("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = {}").format(
        sql.Literal(make_url(postgresql_url).database)
    )
    postgresql.execute(end_all)
    assert deployments.get_deployment("chat").deployment_id == "chat"
    with pytest.raises(StorageUnavailableError), database.read() as session:
        session.execute(text("SELECT 1"))
        postgresql.execute(end_all)
        session.execute(text("SELECT 1"))
    assert deployments.get_deployment("chat").deployment_id == "chat"
    database.close()


def test_a_pooler_gets_neither_prepared_statements_nor_start_up_options(postgresql_url: str) -> None:
    database = Database.open(postgresql_url, replace(PATIENT, through_pgbouncer=True, pool_connections=1))
    for _ in range(10):
        DeploymentStore(database).list_deployments()
    with database.read() as session:
        assert session.scalar(text("SELECT count(*) FROM pg_prepared_statements")) == 0
        # As the server has it when no start-up option said otherwise; each transaction sets its own.
        assert session.scalar(text("SELECT reset_val FROM pg_settings WHERE name = 'statement_timeout'")) == "0"
    database.close()


def test_sqlite_connections_sync_every_commit_and_check_references(sqlite_url: str) -> None:
    database = Database.open(sqlite_url)
    with database.write() as session:
        pragmas = [session.scalar(text(f"PRAGMA {name}")) for name in ("journal_mode", "synchronous", "foreign_keys")]
    assert pragmas == ["wal", 2, 1]  # 2 is FULL
    database.close()


def test_sqlite_reads_do_not_wait_for_a_writer_and_take_no_lock(sqlite_url: str) -> None:
    database = Database.open(sqlite_url, PATIENT)
    outside = sqlite3.connect(str(make_url(sqlite_url).database), timeout=0, isolation_level=None)
    with database.read() as session:
        session.execute(text("SELECT * FROM plans"))
        outside.execute("BEGIN IMMEDIATE")  # a read that had begun IMMEDIATE would refuse this
        outside.execute("ROLLBACK")
    with database.write() as session:
        session.execute(text("SELECT * FROM plans"))  # a write may begin with a read: the lock is taken at once
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            outside.execute("BEGIN IMMEDIATE")
    outside.close()
    database.close()
