"""`inferplan render`: a stored plan's configuration for a provisioning system."""

from __future__ import annotations

from pathlib import Path

import click

from inferplan.cli.connection import CALL_SECONDS, connect
from inferplan.cli.failures import explained
from inferplan.cli.options import format_option, server_option, settings_or_exit
from inferplan.cli.output import print_json
from inferplan.cli.plan_commands import full_plan_name
from inferplan.errors import InvalidInputError, Violation
from inferplan.v1 import plan_service_pb2, plan_service_pb2_grpc


@click.command("render")
@click.argument("plan_name", metavar="PLAN")
@click.option("--target", required=True, metavar="NAME", help="Such as keda, hpa, vllm; a wrong name lists them all.")
@click.option("--option", "options", multiple=True, metavar="KEY=VALUE", help="The target's own; may be repeated.")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="Write the files there; default: print them."
)
@server_option
@format_option("text", "json")
def render_command(
    plan_name: str, target: str, options: tuple[str, ...], out: Path | None, server: str | None, output_format: str
) -> None:
    """Render a plan for a target, ready to apply: `chatbot/1`, or `chatbot` for its newest plan.

    What the target cannot express is listed on standard error.
    """
    settings = settings_or_exit()
    with explained(), connect(server, settings) as channel:
        request = plan_service_pb2.RenderPlanRequest(
            name=full_plan_name(plan_name), target=target, options=_parsed_options(options)
        )
        rendering = plan_service_pb2_grpc.PlanServiceStub(channel).RenderPlan(request, timeout=CALL_SECONDS)
        if out is not None:
            _write(rendering, out)
    if output_format == "json":
        print_json(rendering)
    elif out is None:
        for file in rendering.files:
            click.echo(f"# {file.filename}" if len(rendering.files) > 1 else "", nl=len(rendering.files) > 1)
            click.echo(file.content, nl=not file.content.endswith("\n"))
    for loss in rendering.losses:
        click.echo(f"lost: {loss.field}: {loss.description}", err=True)


def _parsed_options(options: tuple[str, ...]) -> dict[str, str]:
    parsed: dict[str, str] = {}
    violations = []
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or not key:
            violations.append(Violation("--option", f"{option!r} is not KEY=VALUE"))
        elif key in parsed:
            violations.append(Violation("--option", f"{key!r} is given twice"))
        parsed[key] = value
    if violations:
        raise InvalidInputError(violations)
    return parsed


def _write(rendering: plan_service_pb2.RenderPlanResponse, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in rendering.files:
            path = folder / Path(file.filename).name
            path.write_text(file.content, encoding="utf-8")
            click.echo(f"wrote {path}", err=True)
    except OSError as error:
        raise InvalidInputError.single("--out", f"{folder}: {error.strerror or error}") from None
