"""`inferplan db`: migrations."""

from __future__ import annotations

import sys
from contextlib import closing

import click

from inferplan.cli.failures import EXIT_BAD_INPUT, explained
from inferplan.cli.options import settings_or_exit
from inferplan.rpc.startup import open_database
from inferplan.storage.migrations import SchemaState, check, upgrade


@click.group("db")
def database_group() -> None:
    """Look after the database."""


@database_group.command("upgrade")
def database_upgrade() -> None:
    """Bring the database to this program's revision, creating it if needed. Any number may run at once."""
    settings = settings_or_exit()
    with explained(), closing(open_database(settings)) as database:
        status = upgrade(database)
        click.echo(f"{database.display}: at revision {status.revision}")


@database_group.command("check")
def database_check() -> None:
    """Say how the database stands to this program; exits with 0 only if it is current."""
    settings = settings_or_exit()
    with explained(), closing(open_database(settings)) as database:
        status = check(database)
        click.echo(
            f"{database.display}: {status.state}, at revision {status.revision or 'none'}; "
            f"this program is at {status.head}"
        )
    if status.state is not SchemaState.CURRENT:
        click.echo(
            "run `inferplan db upgrade`" if status.state is not SchemaState.AHEAD else "install the newer release",
            err=True,
        )
        sys.exit(EXIT_BAD_INPUT)
