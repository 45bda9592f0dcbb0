"""Plots as PNG or SVG files, drawn by Matplotlib, which comes with the extra `inferplan[plot]`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from inferplan.cli.performance_text import objective_text
from inferplan.errors import InvalidInputError
from inferplan.profiles.calibration.scoring import ScoredFigure
from inferplan.v1 import performance_pb2, plan_pb2, plan_service_pb2, workload_pb2

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_SUFFIXES = (".png", ".svg")
_CURVES = (
    (workload_pb2.LATENCY_METRIC_TTFT, "time to first token"),
    (workload_pb2.LATENCY_METRIC_TPOT, "time per output token"),
    (workload_pb2.LATENCY_METRIC_END_TO_END, "end to end"),
)
_PERCENTILES = (50.0, 95.0, 99.0)
_COLORS = {50.0: "#4c9f70", 95.0: "#2b6cb0", 99.0: "#b04a2b"}


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """What a fleet does at one rate, in requests a second."""

    requests_per_second: float
    performance: performance_pb2.Performance


def plot_path_option(what: str) -> Callable[[CommandT], CommandT]:
    """`--plot FILE`, refused early if the file's kind is not one that can be written."""

    def check(_context: click.Context, _parameter: click.Parameter, value: Path | None) -> Path | None:
        if value is not None and value.suffix.lower() not in _SUFFIXES:
            raise click.BadParameter(f"{value} must end with one of {', '.join(_SUFFIXES)}")
        return value

    return click.option(
        "--plot", type=click.Path(path_type=Path), metavar="FILE.png|svg", callback=check, help=f"Draw {what}."
    )


def plot_latency_curve(points: Sequence[CurvePoint], objectives: Sequence[workload_pb2.Objective], path: Path) -> None:
    """Percentiles of each latency against rate, with the objectives as lines and the knee, where saturation begins."""
    figure = _figure(width_inches=14.0, height_inches=4.6)
    knee = next((point.requests_per_second for point in points if point.performance.saturated), None)
    for position, (metric, title) in enumerate(_CURVES):
        axes = figure.add_subplot(1, len(_CURVES), position + 1)
        for percentile in _PERCENTILES:
            drawn = [
                (point.requests_per_second, _milliseconds(point.performance, metric, percentile)) for point in points
            ]
            known = [(rate, value) for rate, value in drawn if value is not None]
            axes.plot(
                [rate for rate, _value in known],
                [value for _rate, value in known],
                marker="o",
                markersize=3,
                color=_COLORS[percentile],
                label=f"P{percentile:g}",
            )
        for objective in objectives:
            if objective.metric == metric:
                axes.axhline(
                    objective.maximum.ToMilliseconds(), color="black", linestyle="--", label=objective_text(objective)
                )
        if knee is not None:
            axes.axvline(knee, color="grey", linestyle=":", label=f"saturated from {knee:.3g} requests/s")
        _label(axes, title, "requests/s", "ms")
        axes.set_yscale("log")
        axes.legend(fontsize="small")
    _save(figure, path)


def plot_pareto_front(
    candidates: Sequence[plan_pb2.Candidate], front: Sequence[plan_pb2.Candidate], path: Path
) -> None:
    """Cost against P95 TTFT and P95 TPOT of every candidate that holds, those on the Pareto front marked and named."""
    figure = _figure(width_inches=12.0, height_inches=5.0)
    for position, (metric, title) in enumerate(_CURVES[:2]):
        axes = figure.add_subplot(1, 2, position + 1)
        for shown, style in ((candidates, _ORDINARY), (front, _ON_FRONT)):
            points = [
                (item.fleet.cost_usd_per_hour, value, item)
                for item in shown
                if (value := _milliseconds(item.performance, metric, 95.0)) is not None
            ]
            axes.scatter([cost for cost, _v, _i in points], [value for _c, value, _i in points], **style)
            if shown is front:
                for cost, value, item in points:
                    axes.annotate(
                        _candidate_label(item), (cost, value), fontsize=7, xytext=(4, 4), textcoords="offset points"
                    )
        _label(axes, f"P95 {title}", "US dollars an hour", "ms")
        axes.margins(x=0.2, y=0.15)  # room for the names
        axes.legend(fontsize="small")
    _save(figure, path)


def plot_accuracy(figures: Sequence[ScoredFigure], path: Path) -> None:
    """Predicted against measured, one panel a figure, with the line of no error and those of 10 % above and below."""
    names = list(dict.fromkeys(item.figure for item in figures))
    figure = _figure(width_inches=5.0 * len(names), height_inches=4.8)
    for position, name in enumerate(names):
        axes = figure.add_subplot(1, len(names), position + 1)
        for group in dict.fromkeys(item.group for item in figures if item.figure == name):
            mine = [item for item in figures if item.figure == name and item.group == group]
            axes.scatter([item.measured for item in mine], [item.predicted for item in mine], s=12, label=group)
        ends = [limit for item in figures if item.figure == name for limit in (item.measured, item.predicted)]
        for factor, style in ((1.0, "-"), (1.1, ":"), (1 / 1.1, ":")):
            axes.plot([min(ends), max(ends)], [min(ends) * factor, max(ends) * factor], style, color="grey", lw=0.8)
        axes.set_xscale("log")
        axes.set_yscale("log")
        unit = "requests/s" if name == "throughput" else "s"
        _label(axes, name, f"measured, {unit}", f"predicted, {unit}")
        axes.legend(fontsize="x-small")
    _save(figure, path)


def plot_replay(report: plan_service_pb2.SimulationReport, path: Path) -> None:
    """Load, replicas and P95 TTFT over time, one below the other, with the TTFT objectives as lines."""
    figure = _figure(width_inches=11.0, height_inches=7.5)
    hours = [interval.start.ToSeconds() / 3600 for interval in report.intervals]
    load, replicas, latency = figure.subplots(3, 1, sharex=True)
    load.plot(hours, [interval.requests_per_second for interval in report.intervals], color="#2b6cb0", lw=0.8)
    _label(load, "load", "", "requests/s")
    ready = [interval.ready_replicas for interval in report.intervals]
    starting = [interval.starting_replicas for interval in report.intervals]
    names, colors = ("serving", "starting"), ("#4c9f70", "#d9b26f")
    replicas.stackplot(hours, ready, starting, labels=names, colors=colors, step="post")
    replicas.axhline(report.static_peak_replicas, color="black", linestyle="--", label="sized for the peak")
    saved = f"{report.gpu_hours:.1f} GPU-hours, {report.static_peak_gpu_hours:.1f} if sized for the peak"
    _label(replicas, saved, "", "replicas")
    replicas.legend(fontsize="small")
    known = [interval for interval in report.intervals if interval.HasField("ttft_p95")]
    latency.plot(
        [interval.start.ToSeconds() / 3600 for interval in known],
        [interval.ttft_p95.ToNanoseconds() / 1e6 for interval in known],
        color="#b04a2b",
        lw=0.8,
    )
    for verdict in report.verdicts:
        if verdict.objective.metric == workload_pb2.LATENCY_METRIC_TTFT:
            limit = verdict.objective.maximum.ToNanoseconds() / 1e6
            latency.axhline(limit, color="black", linestyle="--", label=objective_text(verdict.objective))
            latency.legend(fontsize="small")
    latency.set_yscale("log")
    _label(latency, "P95 time to first token, by minute", "hours", "ms")
    _save(figure, path)


_ORDINARY: dict[str, Any] = {"color": "#9aa5b1", "s": 18, "label": "candidate"}
_ON_FRONT: dict[str, Any] = {"color": "#2b6cb0", "s": 36, "label": "Pareto front"}


def _candidate_label(candidate: plan_pb2.Candidate) -> str:
    configuration = candidate.configuration
    accelerator = configuration.accelerator.removeprefix("accelerators/")
    return f"{candidate.fleet.active_replicas} x {accelerator} tp{configuration.parallelism.tensor_parallel}"


def _milliseconds(
    performance: performance_pb2.Performance, metric: workload_pb2.LatencyMetric.ValueType, percentile: float
) -> float | None:
    for latency in performance.latencies:
        if latency.metric == metric and not latency.traffic_class_id:
            for value in latency.percentiles:
                if value.percentile == percentile:
                    return value.value.ToNanoseconds() / 1e6
    return None


def _figure(width_inches: float, height_inches: float) -> Figure:
    try:
        from matplotlib.figure import Figure as MatplotlibFigure  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        raise InvalidInputError.single(
            "--plot", "needs Matplotlib; install it with `pip install inferplan[plot]`"
        ) from None
    return MatplotlibFigure(figsize=(width_inches, height_inches), layout="constrained")


def _label(axes: Axes, title: str, horizontal: str, vertical: str) -> None:
    axes.set_title(title)
    axes.set_xlabel(horizontal)
    axes.set_ylabel(vertical)
    axes.grid(visible=True, alpha=0.3)


def _save(figure: Figure, path: Path) -> None:
    try:
        figure.savefig(path)
    except OSError as error:
        raise InvalidInputError.single("--plot", f"{path} cannot be written: {error.strerror or error}") from None
