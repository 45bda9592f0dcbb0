"""A sample of a workload's requests, drawn as the simulation draws them, for closed-form figures."""

from __future__ import annotations

from inferplan.simulation import StepTimeCoefficients
from inferplan.sizing.bounds import RequestWork, work_of
from inferplan.sizing.traffic_requests import closed_loop_requests, is_closed_loop, open_loop_requests
from inferplan.sizing.workload import Workload

SAMPLED_REQUESTS = 2000
"""Means are within a few per cent for any length distribution in use, in a millisecond."""


def sampled_work(workload: Workload, window_tokens: int, seed: int) -> RequestWork:
    """The least work of the sample on a model whose layers look back over `window_tokens`, 0 for no window."""
    draw = closed_loop_requests if is_closed_loop(workload) else open_loop_requests
    return work_of(draw(workload, seed, SAMPLED_REQUESTS), window_tokens)


def offered_requests_per_second(workload: Workload) -> float:
    """Mean arrivals of all classes of an open loop; of a recorded trace, those recorded and not those stated."""
    total = 0.0
    for traffic in workload.traffic_classes:
        offsets = traffic.arrivals.trace_offsets_seconds
        recorded = bool(offsets) and offsets[-1] > 0
        total += len(offsets) / offsets[-1] if recorded else traffic.requests_per_second or 0.0
    return total


def window_of(coefficients: StepTimeCoefficients) -> int:
    """The window that the coefficients' layers have; 0 if none has one."""
    return coefficients.window_tokens if coefficients.windowed_fraction > 0 else 0
