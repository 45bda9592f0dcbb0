"""`inferplan plan` and `inferplan plans`: ask for a plan, look at stored ones."""

from __future__ import annotations

import uuid
from pathlib import Path

import click
import grpc
from rich.table import Table

from inferplan.cli.connection import CALL_SECONDS, connect
from inferplan.cli.curves import latency_curve, plan_as_prediction
from inferplan.cli.failures import explained
from inferplan.cli.options import calibration_option, filter_option, format_option, server_option, settings_or_exit
from inferplan.cli.output import FORMATS, console, error_console, print_json, print_json_list, print_yaml
from inferplan.cli.plan_text import print_plan
from inferplan.cli.plots import plot_latency_curve, plot_path_option
from inferplan.cli.workload_file import fill_input, read_workload_file
from inferplan.settings import mask_password
from inferplan.v1 import plan_pb2, plan_service_pb2, plan_service_pb2_grpc

METHODS = ("textbook", "simulated")


@click.command("plan")
@click.option("-f", "--file", "path", required=True, type=click.Path(path_type=Path), help="Workload file (YAML).")
@click.option(
    "--method", type=click.Choice(METHODS), help="How to compute it; default: the file's, else the service's."
)
@click.option("--deployment", metavar="ID", help="Where to keep the plan; default: the file's `deployment`.")
@click.option("--dry-run", is_flag=True, help="Compute and print the plan, store nothing.")
@calibration_option
@click.option("--request-id", metavar="UUID", help="Repeat a request safely: the same id gives the same plan.")
@plot_path_option("latency percentiles of the planned fleet against rate, with the objectives and the knee")
@server_option
@format_option(*FORMATS)
def plan_command(
    path: Path,
    method: str | None,
    deployment: str | None,
    dry_run: bool,
    calibration: str | None,
    request_id: str | None,
    plot: Path | None,
    server: str | None,
    output_format: str,
) -> None:
    """Compute a plan for a workload file and store it as its deployment's next revision."""
    settings = settings_or_exit()
    with explained():
        workload_file = read_workload_file(path, plan_pb2.PlanInput.DESCRIPTOR)
        deployment_id = deployment or workload_file.deployment_id or path.stem.lower()
        request = plan_service_pb2.CreatePlanRequest(
            parent=f"deployments/{deployment_id}",
            request_id=request_id or str(uuid.uuid4()),
            validate_only=dry_run,
            allow_missing_deployment=True,
        )
        fill_input(workload_file, request.plan.input)
        if method is not None:
            request.plan.input.method = plan_pb2.PlanMethod.Value(f"PLAN_METHOD_{method.upper()}")
        if calibration is not None:
            request.plan.input.calibration = calibration
        with connect(server, settings) as channel:
            with error_console().status("planning"):
                plan = plan_service_pb2_grpc.PlanServiceStub(channel).CreatePlan(request, timeout=CALL_SECONDS)
            if plot is not None:
                plot_latency_curve(latency_curve(channel, plan_as_prediction(plan)), plan.input.objectives, plot)
    _print_plan(plan, output_format)
    if output_format == "text":
        where = server or mask_password(settings.database_url.get_secret_value())
        console().print(f"stored as [bold]{plan.name}[/] in {where}" if plan.name else "not stored (dry run)")


PAGE_SIZE = 200

SHOWN_PLAN_FIELDS = (
    "name",
    "create_time",
    "input.method",
    "resolved.model.display_name",
    "configuration.accelerator",
    "fleet",
)
"""What the table shows: with all its evidence a plan is a hundred times as long."""


@click.group("plans")
def plans_group() -> None:
    """Look at stored plans."""


@plans_group.command("list")
@click.option("--deployment", metavar="ID", default="-", help="Only this deployment's plans.")
@filter_option('model = "llama-3.1-8b" AND cost_per_hour < 20')
@click.option("--order-by", default="", metavar="FIELDS", help="Such as 'cost_per_hour desc, revision'.")
@click.option("--show-deleted", is_flag=True, help="Plans of deleted deployments too.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="Most plans to print.")
@server_option
@format_option("text", "json")
def plans_list(
    deployment: str,
    filter_text: str,
    order_by: str,
    show_deleted: bool,
    limit: int,
    server: str | None,
    output_format: str,
) -> None:
    """List plans, newest first."""
    settings = settings_or_exit()
    request = plan_service_pb2.ListPlansRequest(
        parent=f"deployments/{deployment.removeprefix('deployments/')}",
        filter=filter_text,
        order_by=order_by,
        show_deleted=show_deleted,
    )
    if output_format == "text":
        request.read_mask.paths.extend(SHOWN_PLAN_FIELDS)
    with explained(), connect(server, settings) as channel:
        plans = _collect_plans(channel, request, limit)
    if output_format == "json":
        print_json_list(list(plans))
        return
    table = Table("plan", "created", "method", "model", "accelerator", "replicas", "GPUs", "$/h")
    table.columns[0].no_wrap = True
    for plan in plans:
        table.add_row(
            plan.name,
            plan.create_time.ToDatetime().strftime("%Y-%m-%d %H:%M:%S") + "Z",
            plan_pb2.PlanMethod.Name(plan.input.method).removeprefix("PLAN_METHOD_").lower(),
            plan.resolved.model.display_name,
            plan.configuration.accelerator.removeprefix("accelerators/"),
            f"{plan.fleet.active_replicas} + {plan.fleet.spare_replicas}",
            str(plan.fleet.gpus),
            f"{plan.fleet.cost_usd_per_hour:,.2f}",
        )
    console().print(table)


@plans_group.command("show")
@click.argument("plan_name", metavar="PLAN")
@server_option
@format_option(*FORMATS)
def plans_show(plan_name: str, server: str | None, output_format: str) -> None:
    """Show one plan: `deployments/chatbot/plans/1`, `chatbot/1`, or `chatbot` for its newest."""
    settings = settings_or_exit()
    with explained(), connect(server, settings) as channel:
        request = plan_service_pb2.GetPlanRequest(name=full_plan_name(plan_name))
        plan = plan_service_pb2_grpc.PlanServiceStub(channel).GetPlan(request, timeout=CALL_SECONDS)
    _print_plan(plan, output_format)


def full_plan_name(text: str) -> str:
    """The resource name of `chatbot`, `chatbot/1` and `deployments/chatbot/plans/1` alike."""
    if text.startswith("deployments/"):
        return text
    deployment, _slash, revision = text.partition("/")
    return f"deployments/{deployment}/plans/{revision or 'latest'}"


def _collect_plans(
    channel: grpc.Channel, request: plan_service_pb2.ListPlansRequest, limit: int
) -> list[plan_pb2.Plan]:
    stub = plan_service_pb2_grpc.PlanServiceStub(channel)
    plans: list[plan_pb2.Plan] = []
    while len(plans) < limit:
        request.page_size = min(PAGE_SIZE, limit - len(plans))
        page = stub.ListPlans(request, timeout=CALL_SECONDS)
        plans.extend(page.plans)
        request.page_token = page.next_page_token
        if not request.page_token:
            break
    return plans


def _print_plan(plan: plan_pb2.Plan, output_format: str) -> None:
    if output_format == "json":
        print_json(plan)
    elif output_format == "yaml":
        print_yaml(plan)
    else:
        print_plan(plan, console())
