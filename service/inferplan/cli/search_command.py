"""`inferplan search`: configurations that hold the objectives, ranked."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from inferplan.cli.connection import CALL_SECONDS, connect
from inferplan.cli.failures import explained
from inferplan.cli.figures import duration_text
from inferplan.cli.options import calibration_option, format_option, server_option, settings_or_exit
from inferplan.cli.output import console, print_json
from inferplan.cli.plan_text import print_warnings
from inferplan.cli.plots import plot_pareto_front, plot_path_option
from inferplan.cli.workload_file import fill_input, read_workload_file
from inferplan.v1 import (
    model_pb2,
    performance_pb2,
    plan_pb2,
    sizing_service_pb2,
    sizing_service_pb2_grpc,
    workload_pb2,
)


@click.command("search")
@click.option("-f", "--file", "path", required=True, type=click.Path(path_type=Path), help="Workload file (YAML).")
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="Most candidates to print.")
@calibration_option
@plot_path_option("cost against P95 TTFT and P95 TPOT, with the Pareto front")
@server_option
@format_option("text", "json")
def search_command(
    path: Path, limit: int, calibration: str | None, plot: Path | None, server: str | None, output_format: str
) -> None:
    """Rank the configurations that hold a workload file's objectives, cheapest first; nothing is stored."""
    settings = settings_or_exit()
    with explained():
        request = sizing_service_pb2.SearchConfigurationsRequest(maximum_candidates=limit)
        fill_input(read_workload_file(path, plan_pb2.PlanInput.DESCRIPTOR), request.input)
        if calibration is not None:
            request.input.calibration = calibration
        with connect(server, settings) as channel:
            stub = sizing_service_pb2_grpc.SizingServiceStub(channel)
            result = stub.SearchConfigurations(request, timeout=CALL_SECONDS)
        if plot is not None:
            plot_pareto_front(result.candidates, result.pareto_front, plot)
    if output_format == "json":
        print_json(result)
        return
    print_candidates(result.candidates, console())
    for rule in result.ruled_out:
        console().print(f"ruled out: {rule.rule} ({escape(rule.subject)}): {escape(rule.description)}")
    print_warnings(result.warnings, console())


def print_candidates(candidates: Iterable[plan_pb2.Candidate], console: Console) -> None:
    """One row a candidate."""
    table = Table(
        "accelerator", "tp", "precision", "seqs", "budget", "replicas", "GPUs", "$/h", "P95 TTFT", "P95 TPOT", "Pareto"
    )
    for candidate in candidates:
        configuration, fleet = candidate.configuration, candidate.fleet
        table.add_row(
            configuration.accelerator.removeprefix("accelerators/"),
            str(configuration.parallelism.tensor_parallel),
            _precision_text(configuration.weight_precision),
            str(configuration.max_num_seqs),
            str(configuration.max_num_batched_tokens),
            f"{fleet.active_replicas} + {fleet.spare_replicas}",
            str(fleet.gpus),
            f"{fleet.cost_usd_per_hour:,.2f}",
            _percentile_text(candidate.performance, workload_pb2.LATENCY_METRIC_TTFT),
            _percentile_text(candidate.performance, workload_pb2.LATENCY_METRIC_TPOT),
            "yes" if candidate.on_pareto_front else "",
        )
    console.print(table)


def _precision_text(precision: model_pb2.Precision.ValueType) -> str:
    return model_pb2.Precision.Name(precision).removeprefix("PRECISION_").lower()


def _percentile_text(performance: performance_pb2.Performance, metric: workload_pb2.LatencyMetric.ValueType) -> str:
    for latency in performance.latencies:
        if latency.metric == metric and not latency.traffic_class_id:
            for value in latency.percentiles:
                if value.percentile == 95.0:
                    return duration_text(value.value)
    return ""
