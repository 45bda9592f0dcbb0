"""What a replica or fleet does under a load, and how that stands to the objectives."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from inferplan.sizing.workload import LatencyMetric, Objective


@dataclass(frozen=True, slots=True)
class PercentileValue:
    """A percentile (0 to 100) with its 95 % confidence interval where one was computed."""

    percentile: float
    value_seconds: float
    low_seconds: float | None = None
    high_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class LatencyPercentiles:
    """One latency's distribution; closed formulas give the mean only. An empty class means all traffic."""

    metric: LatencyMetric
    mean_seconds: float
    traffic_class_id: str = ""
    percentiles: tuple[PercentileValue, ...] = ()


@dataclass(frozen=True, slots=True)
class Performance:
    """Figures that a method has no notion of are None, never 0."""

    latencies: tuple[LatencyPercentiles, ...]
    requests_per_second: float
    output_tokens_per_second: float
    goodput_requests_per_second: float | None = None
    mean_kv_cache_occupancy: float | None = None
    mean_running_sequences: float | None = None
    preemptions_per_request: float | None = None
    saturated: bool | None = None
    queue_growth_requests_per_second: float | None = None
    simulated_requests: int = 0


class Outcome(StrEnum):
    """How a prediction stands to an objective."""

    HOLDS = "holds"
    FAILS = "fails"
    TOO_CLOSE_TO_CALL = "too_close_to_call"
    MEAN_ONLY_HOLDS = "mean_only_holds"
    MEAN_FAILS = "mean_fails"


@dataclass(frozen=True, slots=True)
class ObjectiveVerdict:
    """One objective's outcome; `predicted_seconds` is the percentile, or the mean where the method gives none."""

    objective: Objective
    predicted_seconds: float
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class FleetEvidence:
    """One fleet size that was tried. `first_broken_after_seconds` is None where no objective was broken."""

    replicas: int
    holds: bool
    verdicts: tuple[ObjectiveVerdict, ...]
    performance: Performance
    summary: str
    replicas_down: int = 0
    first_broken_after_seconds: float | None = None
