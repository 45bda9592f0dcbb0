from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from inferplan.errors import StorageStateError
from inferplan.storage import migrations
from inferplan.storage.database import Database
from inferplan.storage.migrations import VERSION_TABLE, SchemaState, check, downgrade, require_current, upgrade
from inferplan.storage.tables import Base
from support.databases import PATIENT

UPGRADE_PROGRAM = """
import sys
from inferplan.storage.database import Database
from inferplan.storage.migrations import upgrade
print(upgrade(Database.open(sys.argv[1])).state)
"""


def revisions() -> list[str]:
    """Oldest first."""
    scripts = ScriptDirectory(str(migrations.locate_migrations()))
    return [script.revision for script in reversed(list(scripts.walk_revisions()))]


def differences(database: Database) -> list[object]:
    """What `alembic check` would report."""
    with database.read() as session:
        context = MigrationContext.configure(
            session.connection(),
            opts={"compare_type": True, "compare_server_default": True, "version_table": VERSION_TABLE},
        )
        return list(compare_metadata(context, Base.metadata))


def set_revision(database: Database, revision: str) -> None:
    with database.write() as session:
        session.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = :revision"), {"revision": revision})


def test_every_revision_goes_up_down_and_up_again(unmigrated_url: str) -> None:
    database = Database.open(unmigrated_url, PATIENT)
    for before, revision in zip(["base", *revisions()], revisions(), strict=False):
        for target in (revision, before, revision):
            moved = migrations.downgrade if target == before else migrations.upgrade
            status = moved(database, target)
            assert status.revision == ("" if target == "base" else target)
    assert check(database).state is SchemaState.CURRENT
    assert differences(database) == []
    assert downgrade(database).state is SchemaState.EMPTY
    database.close()


def test_the_migrated_schema_is_the_one_that_the_tables_declare(database: Database) -> None:
    assert differences(database) == []


def test_a_difference_would_be_seen(unmigrated_url: str) -> None:
    database = Database.open(unmigrated_url, PATIENT)
    upgrade(database)
    with database.write() as session:
        session.execute(text("DROP INDEX ix_plans_create_time_id"))
    assert differences(database) != []
    database.close()


def test_an_upgrade_of_a_current_database_changes_nothing(database: Database) -> None:
    assert upgrade(database) == check(database)
    assert check(database).state is SchemaState.CURRENT
    require_current(database)


def test_a_database_without_tables_says_what_to_run(unmigrated_url: str) -> None:
    database = Database.open(unmigrated_url, PATIENT)
    assert check(database).state is (SchemaState.MISSING if database.is_sqlite else SchemaState.EMPTY)
    with pytest.raises(StorageStateError, match="inferplan db upgrade"):
        require_current(database)
    database.close()


def test_a_database_of_an_older_revision_says_what_to_run(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    add_revision(tmp_path, monkeypatch)
    assert check(database).state is SchemaState.BEHIND
    with pytest.raises(StorageStateError, match=r"needs 9999; run `inferplan db upgrade`"):
        require_current(database)


def test_a_database_of_a_newer_release_is_left_alone(unmigrated_url: str) -> None:
    database = Database.open(unmigrated_url, PATIENT)
    upgrade(database)
    set_revision(database, "ffff")
    assert check(database).state is SchemaState.AHEAD
    for refused in (require_current, upgrade, downgrade):
        with pytest.raises(StorageStateError, match=r"revision ffff.*newer release"):
            refused(database)
    assert check(database).revision == "ffff"
    database.close()


def test_a_migration_that_fails_changes_nothing(
    unmigrated_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    database = Database.open(unmigrated_url, PATIENT)
    add_revision(
        tmp_path, monkeypatch, statement="CREATE TABLE half (id INTEGER)", then="raise RuntimeError('out of paper')"
    )
    with pytest.raises(RuntimeError, match="out of paper"):
        upgrade(database)
    assert check(database).state is SchemaState.EMPTY
    monkeypatch.undo()
    assert upgrade(database).state is SchemaState.CURRENT
    assert differences(database) == []
    database.close()


def test_upgraders_that_race_in_threads_all_succeed(unmigrated_url: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        states = list(pool.map(lambda _: upgrade(Database.open(unmigrated_url, PATIENT)).state, range(8)))
    assert states == [SchemaState.CURRENT] * 8


def test_upgraders_that_race_in_processes_all_succeed(unmigrated_url: str) -> None:
    racers = [
        subprocess.Popen([sys.executable, "-c", UPGRADE_PROGRAM, unmigrated_url], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [racer.communicate()[0].strip() for racer in racers] == ["current"] * 3


def test_another_program_may_keep_its_own_revisions_in_the_same_database(unmigrated_url: str) -> None:
    database = Database.open(unmigrated_url, PATIENT)
    upgrade(database)
    with database.write() as session:
        session.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
        session.execute(text("INSERT INTO alembic_version VALUES ('theirs')"))
    require_current(database)
    database.close()


def test_every_database_gets_a_key_of_its_own(tmp_path: Path) -> None:
    keys = []
    for name in ("one", "two"):
        database = Database.open(f"sqlite:///{tmp_path / name}.db")
        upgrade(database)
        with database.read() as session:
            keys.append(session.scalar(text("SELECT value FROM service_secrets WHERE name = 'page_token_key'")))
        database.close()
    assert [len(key) for key in keys] == [32, 32]
    assert keys[0] != keys[1]


def test_the_migrations_are_found_in_the_package_before_the_checkout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    in_checkout = migrations.locate_migrations()
    assert in_checkout.name == "migrations"
    package = tmp_path / "site-packages" / "inferplan" / "storage"
    (package / "_migrations").mkdir(parents=True)
    monkeypatch.setattr(migrations, "__file__", str(package / "migrations.py"))
    with pytest.raises(StorageStateError, match="install inferplan again"):
        migrations.locate_migrations()
    (package / "_migrations" / "env.py").touch()
    assert migrations.locate_migrations() == package / "_migrations"


def add_revision(
    folder: Path, monkeypatch: pytest.MonkeyPatch, statement: str = "SELECT 1", then: str = "return"
) -> None:
    """Let the program know a revision 9999 beyond the newest."""
    copied = folder / "migrations"
    (copied / "versions").mkdir(parents=True)
    original = migrations.locate_migrations()
    for path in [original / "env.py", original / "script.py.mako", *(original / "versions").glob("*.py")]:
        (copied / path.relative_to(original)).write_bytes(path.read_bytes())
    (copied / "versions" / "9999_next.py").write_text(
        f"from alembic import op\n"
        f"revision = '9999'\n"
        f"down_revision = {revisions()[-1]!r}\n\n"
        f"def upgrade():\n"
        f"    op.execute({statement!r})\n"
        f"    {then}\n"
    )
    monkeypatch.setattr(migrations, "locate_migrations", lambda: copied)
