"""`inferplan simulate`: play a stored plan with another number of replicas."""

from __future__ import annotations

from collections.abc import Iterator

import click
from rich.progress import Progress

from inferplan.cli.configuration_options import COUNT
from inferplan.cli.connection import CALL_SECONDS, connect
from inferplan.cli.failures import explained
from inferplan.cli.options import format_option, server_option, settings_or_exit
from inferplan.cli.output import console, error_console, print_json
from inferplan.cli.performance_text import print_performance, print_verdicts
from inferplan.cli.plan_commands import full_plan_name
from inferplan.cli.plan_text import print_warnings
from inferplan.v1 import plan_service_pb2, plan_service_pb2_grpc


@click.command("simulate")
@click.argument("plan_name", metavar="PLAN")
@click.option("--replicas", type=COUNT, help="Replicas that serve; default: the plan's active ones.")
@click.option("--seed", type=click.IntRange(0), help="Seed of every random draw; default: the plan's.")
@server_option
@format_option("text", "json")
def simulate_command(
    plan_name: str, replicas: int | None, seed: int | None, server: str | None, output_format: str
) -> None:
    """Play a stored plan's load: `chatbot/1`, or `chatbot` for its newest plan."""
    settings = settings_or_exit()
    with explained(), connect(server, settings) as channel:
        request = plan_service_pb2.SimulatePlanRequest(name=full_plan_name(plan_name), replicas=replicas, seed=seed)
        stub = plan_service_pb2_grpc.PlanServiceStub(channel)
        report = follow_simulation(stub.SimulatePlan(request, timeout=CALL_SECONDS))
    if output_format == "json":
        print_json(report)
        return
    print_performance(report.performance, console())
    print_verdicts(report.verdicts, console())
    print_warnings(report.warnings, console())
    console().print(f"{report.gpu_hours:.3g} GPU-hours played, seed {report.seed}")


def follow_simulation(stream: Iterator[plan_service_pb2.SimulatePlanResponse]) -> plan_service_pb2.SimulationReport:
    """Show progress on a terminal until the report comes."""
    with Progress(console=error_console(), transient=True) as progress:
        task = progress.add_task("simulating", total=1.0)
        for event in stream:
            if event.HasField("report"):
                return event.report
            progress.update(task, completed=event.progress.done_ratio)
    raise click.ClickException("the server ended the stream without a report")
