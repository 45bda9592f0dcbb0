"""Predicted performance and its evidence as a person reads them."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from inferplan.cli.figures import duration_text
from inferplan.v1 import performance_pb2, workload_pb2

SHOWN_PERCENTILES = (50.0, 90.0, 95.0, 99.0)

_OUTCOME_STYLES = {
    performance_pb2.ObjectiveVerdict.OUTCOME_HOLDS: "green",
    performance_pb2.ObjectiveVerdict.OUTCOME_FAILS: "red",
    performance_pb2.ObjectiveVerdict.OUTCOME_MEAN_FAILS: "red",
}


def print_performance(performance: performance_pb2.Performance, console: Console) -> None:
    """Latencies by percentile, then throughput and occupancy."""
    table = Table("latency", "mean", *(f"P{percentile:g}" for percentile in SHOWN_PERCENTILES))
    for latency in performance.latencies:
        values = {value.percentile: value for value in latency.percentiles}
        cells = [_interval_text(values[shown]) if shown in values else "" for shown in SHOWN_PERCENTILES]
        table.add_row(_latency_name(latency), duration_text(latency.mean), *cells)
    console.print(table)
    console.print(_throughput_sentence(performance))


def print_verdicts(verdicts: Iterable[performance_pb2.ObjectiveVerdict], console: Console) -> None:
    """One line an objective."""
    for verdict in verdicts:
        outcome = performance_pb2.ObjectiveVerdict.Outcome.Name(verdict.outcome).removeprefix("OUTCOME_")
        style = _OUTCOME_STYLES.get(verdict.outcome, "yellow")
        console.print(
            f"objective {objective_text(verdict.objective)}: predicted {duration_text(verdict.predicted)}, "
            f"[{style}]{outcome.lower().replace('_', ' ')}[/]"
        )


def print_evidence(evidence: Iterable[performance_pb2.FleetEvidence], console: Console) -> None:
    """One row a fleet size that was tried."""
    table = Table("replicas", "down", "holds", "what happens", title="Evidence", title_justify="left")
    for trial in evidence:
        holds = "[green]yes[/]" if trial.holds else "[red]no[/]"
        table.add_row(str(trial.replicas), str(trial.replicas_down), holds, escape(trial.summary))
    if table.row_count:
        console.print(table)


def objective_text(objective: workload_pb2.Objective) -> str:
    """`P95 ttft at most 500 ms`."""
    metric = workload_pb2.LatencyMetric.Name(objective.metric).removeprefix("LATENCY_METRIC_").lower()
    suffix = f" of {objective.traffic_class_id}" if objective.traffic_class_id else ""
    return f"P{objective.percentile:g} {metric}{suffix} at most {duration_text(objective.maximum)}"


def _latency_name(latency: performance_pb2.LatencyPercentiles) -> str:
    name = workload_pb2.LatencyMetric.Name(latency.metric).removeprefix("LATENCY_METRIC_").lower().replace("_", " ")
    return f"{name} ({latency.traffic_class_id})" if latency.traffic_class_id else name


def _interval_text(value: performance_pb2.PercentileValue) -> str:
    """The percentile with half of its confidence interval's width."""
    if not value.HasField("low"):
        return duration_text(value.value)
    middle, half = value.value.ToNanoseconds(), (value.high.ToNanoseconds() - value.low.ToNanoseconds()) / 2
    return f"{duration_text(value.value)} ± {half / middle:.1%}" if middle else duration_text(value.value)


def _throughput_sentence(performance: performance_pb2.Performance) -> str:
    parts = [
        f"{performance.requests_per_second:.4g} requests/s",
        f"{performance.output_tokens_per_second:,.0f} output tokens/s",
    ]
    if performance.HasField("goodput_requests_per_second"):
        parts.append(f"goodput {performance.goodput_requests_per_second:.4g} requests/s")
    if performance.HasField("mean_running_sequences"):
        parts.append(f"{performance.mean_running_sequences:.3g} sequences running on average")
    if performance.HasField("mean_kv_cache_occupancy"):
        parts.append(f"KV cache {performance.mean_kv_cache_occupancy:.0%} full")
    if performance.saturated:
        parts.append(
            f"[red]saturated, the queue grows by {performance.queue_growth_requests_per_second:.3g} requests/s[/]"
        )
    if performance.simulated_requests:
        parts.append(f"{performance.simulated_requests:,} requests played")
    return ", ".join(parts)
