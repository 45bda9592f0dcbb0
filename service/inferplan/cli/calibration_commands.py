"""`inferplan calibrations`: fit coefficients from stored profiles, look at what was fitted."""

from __future__ import annotations

import uuid

import click
import grpc
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from inferplan.cli.connection import connect
from inferplan.cli.failures import explained
from inferplan.cli.figures import quantity_text
from inferplan.cli.options import filter_option, format_option, server_option, settings_or_exit
from inferplan.cli.output import FORMATS, console, error_console, print_json, print_json_list, print_yaml
from inferplan.cli.profile_commands import full_profile_name
from inferplan.v1 import calibration_pb2, profile_service_pb2, profile_service_pb2_grpc

CALIBRATIONS = "calibrations/"

FIT_SECONDS = 600.0
"""A fit plays every point many times: a minute for a whole engine, several on a busy machine."""


@click.group("calibrations")
def calibrations_group() -> None:
    """Coefficients that were fitted from profiles."""


@calibrations_group.command("fit")
@click.option("--engine", required=True, metavar="ID", help="Engine to fit, such as vllm.")
@click.option("--profile", "profiles", multiple=True, metavar="PROFILE", help="Only these; default: every active one.")
@click.option("--id", "calibration_id", default="", metavar="ID", help="Name of the calibration; default: drawn.")
@click.option("--dry-run", is_flag=True, help="Fit and print, store nothing.")
@click.option("--request-id", metavar="UUID", help="Repeat a request safely: the same id gives the same calibration.")
@server_option
@format_option(*FORMATS)
def calibrations_fit(
    engine: str,
    profiles: tuple[str, ...],
    calibration_id: str,
    dry_run: bool,
    request_id: str | None,
    server: str | None,
    output_format: str,
) -> None:
    """Fit an engine's coefficients to the measurements of its profiles, and store them."""
    settings = settings_or_exit()
    request = profile_service_pb2.FitCalibrationRequest(
        engine=engine,
        profiles=[full_profile_name(name) for name in profiles],
        calibration_id=calibration_id,
        request_id=request_id or str(uuid.uuid4()),
        validate_only=dry_run,
    )
    with explained(), connect(server, settings) as channel, error_console().status("fitting"):
        calibration = profile_service_pb2_grpc.ProfileServiceStub(channel).FitCalibration(request, timeout=FIT_SECONDS)
    _print(calibration, output_format)


@calibrations_group.command("list")
@filter_option("engine = vllm AND points > 100")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="Most to print.")
@server_option
@format_option("text", "json")
def calibrations_list(filter_text: str, limit: int, server: str | None, output_format: str) -> None:
    """List calibrations, newest first; those that ship with the service come last."""
    settings = settings_or_exit()
    with explained(), connect(server, settings) as channel:
        calibrations = _collect(channel, filter_text, limit)
    if output_format == "json":
        print_json_list(list(calibrations))
        return
    table = Table("calibration", "created", "engine", "accelerators", "points", "profiles", "TPOT band")
    for calibration in calibrations:
        bands = {band.figure: band.relative for band in calibration.error_bands}
        table.add_row(
            calibration.name.removeprefix(CALIBRATIONS),
            "built in" if calibration.built_in else f"{calibration.create_time.ToDatetime():%Y-%m-%d %H:%M:%S}Z",
            f"{calibration.engine.removeprefix('engines/')} {' to '.join(calibration.engine_versions)}".strip(),
            ", ".join(name.removeprefix("accelerators/") for name in calibration.accelerators),
            str(calibration.points),
            str(len(calibration.profiles)),
            f"{bands['tpot']:.0%}" if "tpot" in bands else "",
        )
    console().print(table)


@calibrations_group.command("show")
@click.argument("name", metavar="CALIBRATION")
@server_option
@format_option(*FORMATS)
def calibrations_show(name: str, server: str | None, output_format: str) -> None:
    """Show one calibration, by its resource name or its id."""
    settings = settings_or_exit()
    request = profile_service_pb2.GetCalibrationRequest(name=f"{CALIBRATIONS}{name.removeprefix(CALIBRATIONS)}")
    with explained(), connect(server, settings) as channel:
        calibration = profile_service_pb2_grpc.ProfileServiceStub(channel).GetCalibration(request, timeout=FIT_SECONDS)
    _print(calibration, output_format)


def _collect(channel: grpc.Channel, filter_text: str, limit: int) -> list[calibration_pb2.Calibration]:
    stub = profile_service_pb2_grpc.ProfileServiceStub(channel)
    calibrations: list[calibration_pb2.Calibration] = []
    token = ""
    while len(calibrations) < limit:
        size = min(50, limit - len(calibrations))
        request = profile_service_pb2.ListCalibrationsRequest(page_size=size, page_token=token, filter=filter_text)
        page = stub.ListCalibrations(request, timeout=FIT_SECONDS)
        calibrations.extend(page.calibrations)
        token = page.next_page_token
        if not token:
            break
    return calibrations


def _print(calibration: calibration_pb2.Calibration, output_format: str) -> None:
    if output_format == "json":
        print_json(calibration)
    elif output_format == "yaml":
        print_yaml(calibration)
    else:
        _print_text(calibration, console())


def _print_text(calibration: calibration_pb2.Calibration, target: Console) -> None:
    engine = f"{calibration.engine.removeprefix('engines/')} {' to '.join(calibration.engine_versions)}".strip()
    accelerators = ", ".join(name.removeprefix("accelerators/") for name in calibration.accelerators)
    name = calibration.name or "calibration (dry run, not stored)"
    target.print(f"[bold]{name}[/]: {escape(engine)} on {escape(accelerators)}, {calibration.points} points")
    coefficients = Table("coefficient", "for", "value", "standard error", "moved")
    for item in calibration.coefficients:
        coefficients.add_row(
            item.symbol,
            escape(item.scope or "the engine"),
            quantity_text(item.value, item.unit),
            quantity_text(item.standard_error, item.unit),
            "no" if item.is_default else "yes",
        )
    target.print(coefficients)
    errors = Table("group", "figure", "points", "median error", "mean error", "bias", "in band")
    for summary in calibration.errors:
        errors.add_row(
            escape(summary.group),
            summary.figure,
            str(summary.points),
            f"{summary.median_absolute_relative_error:.1%}",
            f"{summary.mean_absolute_relative_error:.1%}",
            f"{summary.bias:+.1%}",
            f"{summary.band_coverage:.0%}",
        )
    target.print("errors on points that were left out of the fit:")
    target.print(errors)
    for outlier in calibration.outliers:
        target.print(f"[yellow]set aside[/] {escape(outlier)}")
