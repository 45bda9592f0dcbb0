"""Which of several fleets is better: by cost, and in cost, P95 TTFT, P95 TPOT and GPUs at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass

from inferplan.sizing.performance import Performance
from inferplan.sizing.workload import LatencyMetric

RANKED_PERCENTILE = 95.0


@dataclass(frozen=True, slots=True)
class CandidateFigures:
    """What fleets are compared in; less is better in each. Cost in US dollars an hour, spares included.

    Outputs of one token have no TPOT, which counts as 0.
    """

    cost_usd_per_hour: float
    ttft_seconds: float
    tpot_seconds: float
    gpus: int

    @property
    def rank(self) -> tuple[float, float, float, int]:
        """Cost first, then P95 TTFT; the rest only makes the order definite."""
        return (self.cost_usd_per_hour, self.ttft_seconds, self.tpot_seconds, self.gpus)


def figures_of(performance: Performance, cost_usd_per_hour: float, gpus: int) -> CandidateFigures:
    """A simulated fleet's figures."""
    return CandidateFigures(
        cost_usd_per_hour,
        p95_seconds(performance, LatencyMetric.TTFT) or 0.0,
        p95_seconds(performance, LatencyMetric.TPOT) or 0.0,
        gpus,
    )


def p95_seconds(performance: Performance, metric: LatencyMetric) -> float | None:
    """P95 of a latency over all traffic; None where it was not measured."""
    for latency in performance.latencies:
        if latency.metric is metric and not latency.traffic_class_id:
            for value in latency.percentiles:
                if value.percentile == RANKED_PERCENTILE:
                    return value.value_seconds
    return None


def dominates(one: CandidateFigures, other: CandidateFigures) -> bool:
    """Whether `one` is nowhere worse and somewhere better."""
    pairs = list(zip(astuple(one), astuple(other), strict=True))
    return all(mine <= yours for mine, yours in pairs) and any(mine < yours for mine, yours in pairs)


def dominated_by(figures: CandidateFigures, others: Iterable[CandidateFigures]) -> CandidateFigures | None:
    """The first of `others` that dominates `figures`."""
    return next((other for other in others if dominates(other, figures)), None)


def on_front(figures: Sequence[CandidateFigures]) -> list[bool]:
    """For each, whether no other dominates it."""
    return [dominated_by(mine, figures) is None for mine in figures]
