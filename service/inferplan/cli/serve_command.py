"""`inferplan serve` and `inferplan config`."""

from __future__ import annotations

import json
import signal
import threading
from types import FrameType

import click
from rich.table import Table

from inferplan.cli.failures import explained
from inferplan.cli.options import format_option, settings_or_exit
from inferplan.cli.output import console
from inferplan.rpc.logging import configure_logging, password_of
from inferplan.rpc.server import PlanningServer, ServerOptions
from inferplan.rpc.startup import open_planner


@click.command("serve")
@click.option("--listen", metavar="ADDRESS", help="HOST:PORT or unix:PATH; default: INFERPLAN_LISTEN.")
@click.option("--migrate", is_flag=True, help="Bring the database to this program's revision before serving.")
def serve_command(listen: str | None, migrate: bool) -> None:
    """Serve the planning service over gRPC until SIGTERM or SIGINT.

    A SQLite database that does not exist is created. Any other database must be at this program's revision: run
    `inferplan db upgrade`, or pass --migrate.
    """
    settings = settings_or_exit()
    configure_logging(settings.log_level, [password_of(settings.database_url.get_secret_value())])
    options = ServerOptions(
        listen=listen or settings.listen,
        handler_threads=settings.handler_threads,
        planning_slots=settings.planning_slots,
        planning_queue=settings.planning_queue,
        planning_wait_seconds=settings.planning_wait_seconds,
        maximum_concurrent_rpcs=settings.maximum_concurrent_rpcs,
        maximum_message_bytes=settings.maximum_message_bytes,
        reflection=settings.reflection,
    )
    stopping = threading.Event()

    def stop(_signal: int, _frame: FrameType | None) -> None:
        stopping.set()

    with explained(), open_planner(settings, migrate=migrate) as planner:
        server = PlanningServer(planner, options)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        server.start()
        click.echo(f"serving on {options.listen} (port {server.port})", err=True)
        stopping.wait()
        server.stop(settings.drain_seconds, settings.drain_notice_seconds)


@click.command("config")
@format_option("text", "json")
def config_command(output_format: str) -> None:
    """Print the settings in force, with passwords masked."""
    values = settings_or_exit().in_force()
    if output_format == "json":
        click.echo(json.dumps(values, indent=2))
        return
    table = Table("setting", "environment variable", "value")
    for name, value in values.items():
        table.add_row(name, f"INFERPLAN_{name.upper()}", value)
    console().print(table)
