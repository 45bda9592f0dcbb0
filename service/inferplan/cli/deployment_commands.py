"""`inferplan deployments`: what is planned for, and taking it out of the lists."""

from __future__ import annotations

import click
import grpc
from rich.table import Table

from inferplan.cli.connection import CALL_SECONDS, connect
from inferplan.cli.failures import explained
from inferplan.cli.options import filter_option, format_option, labels_of, server_option, settings_or_exit
from inferplan.cli.output import console, print_json, print_json_list
from inferplan.v1 import deployment_pb2, plan_service_pb2, plan_service_pb2_grpc

DEPLOYMENTS = "deployments/"
PAGE_SIZE = 200


@click.group("deployments")
def deployments_group() -> None:
    """Look at deployments, create and delete them."""


@deployments_group.command("create")
@click.argument("deployment_id", metavar="ID")
@click.option("--display-name", default="", help="A name for people.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="The site's own; may be repeated.")
@server_option
def deployments_create(deployment_id: str, display_name: str, labels: tuple[str, ...], server: str | None) -> None:
    """Create a deployment without plans. Plans of the label `keep` are never pruned."""
    settings = settings_or_exit()
    with explained():
        request = plan_service_pb2.CreateDeploymentRequest(deployment_id=deployment_id)
        request.deployment.display_name = display_name
        request.deployment.labels.update(labels_of(labels))
        with connect(server, settings) as channel:
            stub = plan_service_pb2_grpc.PlanServiceStub(channel)
            deployment = stub.CreateDeployment(request, timeout=CALL_SECONDS)
    print_json(deployment)


@deployments_group.command("list")
@filter_option("labels.team = search AND latest_revision > 1")
@click.option("--show-deleted", is_flag=True, help="Deleted ones too.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="Most to print.")
@server_option
@format_option("text", "json")
def deployments_list(filter_text: str, show_deleted: bool, limit: int, server: str | None, output_format: str) -> None:
    """List deployments, newest first."""
    settings = settings_or_exit()
    request = plan_service_pb2.ListDeploymentsRequest(filter=filter_text, show_deleted=show_deleted)
    with explained(), connect(server, settings) as channel:
        deployments = _collect(channel, request, limit)
    if output_format == "json":
        print_json_list(list(deployments))
        return
    table = Table("deployment", "created", "plans", "labels", "by", "deleted")
    for deployment in deployments:
        table.add_row(
            deployment.name.removeprefix(DEPLOYMENTS),
            f"{deployment.create_time.ToDatetime():%Y-%m-%d %H:%M:%S}Z",
            str(deployment.latest_revision),
            ", ".join(f"{key}={value}" for key, value in sorted(deployment.labels.items())),
            deployment.created_by,
            f"{deployment.delete_time.ToDatetime():%Y-%m-%d %H:%M:%S}Z" if deployment.HasField("delete_time") else "",
        )
    console().print(table)


@deployments_group.command("delete")
@click.argument("deployment_id", metavar="ID")
@click.option("--force", is_flag=True, help="Also if it has plans; they stay readable, for audit.")
@server_option
def deployments_delete(deployment_id: str, force: bool, server: str | None) -> None:
    """Delete a deployment: it leaves the lists, and takes no more plans. Its id is never used again."""
    settings = settings_or_exit()
    name = f"{DEPLOYMENTS}{deployment_id.removeprefix(DEPLOYMENTS)}"
    with explained(), connect(server, settings) as channel:
        request = plan_service_pb2.DeleteDeploymentRequest(name=name, force=force)
        deployment = plan_service_pb2_grpc.PlanServiceStub(channel).DeleteDeployment(request, timeout=CALL_SECONDS)
    print_json(deployment)


def _collect(
    channel: grpc.Channel, request: plan_service_pb2.ListDeploymentsRequest, limit: int
) -> list[deployment_pb2.Deployment]:
    stub = plan_service_pb2_grpc.PlanServiceStub(channel)
    deployments: list[deployment_pb2.Deployment] = []
    while len(deployments) < limit:
        request.page_size = min(PAGE_SIZE, limit - len(deployments))
        page = stub.ListDeployments(request, timeout=CALL_SECONDS)
        deployments.extend(page.deployments)
        request.page_token = page.next_page_token
        if not request.page_token:
            break
    return deployments
