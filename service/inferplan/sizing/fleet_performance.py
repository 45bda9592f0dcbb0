"""The figures of one simulation: latencies by class, throughput, occupancy, and when an objective was first broken."""

from __future__ import annotations

import math
from collections.abc import Sequence

from inferplan.errors import InvalidInputError
from inferplan.simulation import LatencyReport, Metric, ReplicaTotals
from inferplan.sizing.fleet_run import FleetRun, RunConditions, clients_per_replica, latency_objective
from inferplan.sizing.performance import LatencyPercentiles, Outcome, PercentileValue, Performance
from inferplan.sizing.traffic_requests import clients_of
from inferplan.sizing.workload import LatencyMetric, Objective

REPORTED_PERCENTILES = (50.0, 90.0, 95.0, 99.0)


def performance_of(run: FleetRun, conditions: RunConditions) -> Performance:
    """The whole fleet's figures; latencies of all traffic, and of each class where there are several."""
    report, outcome, objectives = run.report, run.outcome, conditions.objectives
    classes = conditions.workload.traffic_classes
    names = ["", *(item.traffic_class_id for item in classes if len(classes) > 1)]
    latencies = [_latency(report, metric, name, objectives) for name in names for metric in LatencyMetric]
    totals = outcome.replicas
    busy = sum(total.busy_seconds for total in totals)
    scale = _scale(conditions)
    judged = [latency_objective(objective) for objective in objectives]
    growth = run.saturation.growth_requests_per_second if run.saturation else None
    return Performance(
        latencies=tuple(latency for latency in latencies if latency is not None),
        requests_per_second=scale * report.throughput_requests_per_second(),
        output_tokens_per_second=scale * report.throughput_output_tokens_per_second(),
        goodput_requests_per_second=scale * report.goodput_requests_per_second(judged) if judged else None,
        mean_kv_cache_occupancy=_weighted(totals, "kv_occupancy", busy),
        mean_running_sequences=sum(total.sequence_seconds for total in totals) / busy if busy else 0.0,
        preemptions_per_request=sum(total.preemptions for total in totals) / outcome.requests.count,
        saturated=run.saturated if outcome.open_loop else None,
        queue_growth_requests_per_second=None if growth is None else max(0.0, growth),
        simulated_requests=outcome.requests.count,
    )


def first_broken_seconds(run: FleetRun) -> float | None:
    """When the first of the objectives that fail was broken; None if none was, or if it cannot be told by request."""
    moments = [
        run.report.first_broken_seconds(latency_objective(verdict.objective))
        for verdict in run.verdicts
        if verdict.outcome is Outcome.FAILS and verdict.objective.metric is not LatencyMetric.INTER_TOKEN
    ]
    return min((moment for moment in moments if moment is not None), default=None)


def _scale(conditions: RunConditions) -> float:
    """Of a closed loop one replica is played, with its clients rounded up; all clients together send so much more."""
    clients = clients_of(conditions.workload)
    return clients / clients_per_replica(conditions) if clients else 1.0


def _latency(
    report: LatencyReport, metric: LatencyMetric, name: str, objectives: tuple[Objective, ...]
) -> LatencyPercentiles | None:
    own = Metric(metric.value)
    mean = report.mean(own, name)
    if mean is None or not math.isfinite(mean):
        return None
    wanted = {*REPORTED_PERCENTILES, *(item.percentile for item in objectives if item.metric is metric)}
    values = (_percentile_value(report, own, percentile, name) for percentile in sorted(wanted))
    return LatencyPercentiles(metric, mean, name, tuple(value for value in values if value is not None))


def _percentile_value(report: LatencyReport, metric: Metric, percentile: float, name: str) -> PercentileValue | None:
    """One percentile, without an interval where the requests are too few for it; None where they cannot resolve it."""
    try:
        value = report.percentile(metric, percentile, name)
    except InvalidInputError:
        return None
    if not math.isfinite(value):
        return None
    try:
        interval = report.interval(metric, percentile, name)
    except InvalidInputError:
        return PercentileValue(percentile, value)
    if not math.isfinite(interval.upper):
        return PercentileValue(percentile, value)
    return PercentileValue(percentile, value, max(0.0, interval.lower), interval.upper)


def _weighted(totals: Sequence[ReplicaTotals], name: str, busy_seconds: float) -> float:
    """Mean over the replicas, each by its busy time."""
    if busy_seconds <= 0:
        return 0.0
    return float(sum(getattr(total, name) * total.busy_seconds for total in totals) / busy_seconds)
