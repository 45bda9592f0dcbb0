"""What a replay says about the objectives, by minute and over all."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inferplan.autoscaling.replay.replay import ReplayOutcome, ScaleEvent
from inferplan.autoscaling.replay.traces import INTERVAL_SECONDS, LoadTrace
from inferplan.errors import InvalidInputError
from inferplan.simulation import LatencyReport, Metric
from inferplan.sizing.performance import (
    LatencyPercentiles,
    ObjectiveVerdict,
    Outcome,
    PercentileValue,
    Performance,
)
from inferplan.sizing.workload import LatencyMetric, Objective

SECONDS_PER_HOUR = 3600.0
MINUTE_PERCENTILE = 95.0
REPORTED_PERCENTILES = (50.0, 90.0, 95.0, 99.0)


@dataclass(frozen=True, slots=True)
class ReplayInterval:
    """One minute of a replay. `ttft_p95_seconds` is None where nobody arrived."""

    start_seconds: float
    length_seconds: float
    requests_per_second: float
    ready_replicas: int
    starting_replicas: int
    ttft_p95_seconds: float | None


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """Everything that a replay reports. `attainment` is the share of requests that kept every bound, None without."""

    performance: Performance
    verdicts: tuple[ObjectiveVerdict, ...]
    attainment: float | None
    intervals: tuple[ReplayInterval, ...]
    worst_interval: ReplayInterval | None
    events: tuple[ScaleEvent, ...]
    flaps: int
    gpu_hours: float
    static_peak_gpu_hours: float
    most_replicas: int

    @property
    def holds(self) -> bool:
        """Whether every objective holds over the whole trace."""
        return all(verdict.outcome is Outcome.HOLDS for verdict in self.verdicts)


def report_of(
    played: ReplayOutcome,
    trace: LoadTrace,
    objectives: tuple[Objective, ...],
    front_end_seconds: float,
    gpus_per_replica: int,
    static_replicas: int,
) -> ReplayReport:
    """Judge a replay. `static_replicas` is the fleet that is sized for the peak and runs all the time.

    The trace is what it is, so that a percentile over all of it holds or fails; nothing is left out as warm-up. Raises
    InvalidInputError if its requests are too few for an objective's percentile.
    """
    latencies = LatencyReport(played.outcome, front_end_seconds, warm_up_periods=0)
    intervals = _intervals(played, trace, latencies.values(Metric.TTFT))
    known = [interval for interval in intervals if interval.ttft_p95_seconds is not None]
    return ReplayReport(
        performance=_performance(played, latencies, objectives),
        verdicts=tuple(_verdict(latencies, objective) for objective in objectives),
        attainment=_attainment(latencies, objectives) if objectives else None,
        intervals=intervals,
        worst_interval=max(known, key=lambda interval: interval.ttft_p95_seconds or 0.0, default=None),
        events=played.events,
        flaps=played.flaps,
        gpu_hours=played.replica_seconds * gpus_per_replica / SECONDS_PER_HOUR,
        static_peak_gpu_hours=static_replicas * played.duration_seconds * gpus_per_replica / SECONDS_PER_HOUR,
        most_replicas=played.most_replicas,
    )


def _verdict(latencies: LatencyReport, objective: Objective) -> ObjectiveVerdict:
    metric = Metric(objective.metric.value)
    measured = latencies.percentile(metric, objective.percentile, objective.traffic_class_id)
    outcome = Outcome.HOLDS if measured <= objective.maximum_seconds else Outcome.FAILS
    return ObjectiveVerdict(objective, measured, outcome)


def _attainment(latencies: LatencyReport, objectives: tuple[Objective, ...]) -> float:
    """Share of the requests that kept every bound that applies to them; inter-token latency is one of tokens."""
    requests = latencies.outcome.requests
    kept = np.ones(requests.count, dtype=bool)
    for objective in objectives:
        if objective.metric is LatencyMetric.INTER_TOKEN:
            continue
        applies = np.ones(requests.count, dtype=bool)
        if objective.traffic_class_id:
            applies &= requests.class_index == requests.class_names.index(objective.traffic_class_id)
        if objective.metric is LatencyMetric.TPOT:
            applies &= requests.output_tokens > 1
        values = latencies.values(Metric(objective.metric.value), objective.traffic_class_id)
        kept[applies] &= values <= objective.maximum_seconds
    return float(kept.mean())


def _performance(played: ReplayOutcome, latencies: LatencyReport, objectives: tuple[Objective, ...]) -> Performance:
    outcome = played.outcome
    busy = sum(total.busy_seconds for total in outcome.replicas)
    occupied = sum(total.kv_occupancy * total.busy_seconds for total in outcome.replicas)
    classes = [name for name in outcome.requests.class_names if name]
    names = ["", *classes] if len(classes) > 1 else [""]
    found = [_latency(latencies, metric, name, objectives) for name in names for metric in LatencyMetric]
    return Performance(
        latencies=tuple(latency for latency in found if latency is not None),
        requests_per_second=latencies.throughput_requests_per_second(),
        output_tokens_per_second=latencies.throughput_output_tokens_per_second(),
        mean_kv_cache_occupancy=occupied / busy if busy else 0.0,
        mean_running_sequences=sum(total.sequence_seconds for total in outcome.replicas) / busy if busy else 0.0,
        preemptions_per_request=sum(total.preemptions for total in outcome.replicas) / outcome.requests.count,
        simulated_requests=outcome.requests.count,
    )


def _latency(
    latencies: LatencyReport, metric: LatencyMetric, name: str, objectives: tuple[Objective, ...]
) -> LatencyPercentiles | None:
    mean = latencies.mean(Metric(metric.value), name)
    if mean is None or not math.isfinite(mean):
        return None
    wanted = {*REPORTED_PERCENTILES, *(item.percentile for item in objectives if item.metric is metric)}
    values = []
    for percentile in sorted(wanted):
        try:
            values.append(PercentileValue(percentile, latencies.percentile(Metric(metric.value), percentile, name)))
        except InvalidInputError:
            continue  # too few requests for a percentile that is only reported
    return LatencyPercentiles(metric, mean, name, tuple(values))


def _intervals(played: ReplayOutcome, trace: LoadTrace, ttft: npt.NDArray[np.float64]) -> tuple[ReplayInterval, ...]:
    edges = [interval.start_seconds for interval in played.intervals]
    bounds = np.searchsorted(trace.arrival_seconds, [*edges, edges[-1] + 2 * INTERVAL_SECONDS])
    intervals = []
    for interval, first, last in zip(played.intervals, bounds[:-1], bounds[1:], strict=True):
        mine = ttft[first:last]
        intervals.append(
            ReplayInterval(
                start_seconds=interval.start_seconds,
                length_seconds=interval.length_seconds,
                requests_per_second=mine.size / interval.length_seconds,
                ready_replicas=interval.serving_replicas,
                starting_replicas=interval.starting_replicas,
                ttft_p95_seconds=float(np.percentile(mine, MINUTE_PERCENTILE)) if mine.size else None,
            )
        )
    return tuple(intervals)
