"""Percentiles, how many requests they need, and how sure they are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inferplan.errors import InvalidInputError

Values = npt.NDArray[np.float64]

TAIL_SAMPLES = 10
"""A percentile is resolved if at least so many values lie beyond it; with fewer, a few requests decide it."""
TAIL_SAMPLES_PER_BATCH = 5
BATCHES = 20
FEWEST_BATCHES = 10

# Two-sided 95 % points of Student's t for 1 to 30 degrees of freedom (Abramowitz and Stegun, table 26.10).
_STUDENT_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True, slots=True)
class Interval:
    """A two-sided 95 % confidence interval. `batches` is the number of batches it was drawn from."""

    lower: float
    upper: float
    batches: int


def student_95(degrees_of_freedom: int) -> float:
    """Two-sided 95 % point of Student's t."""
    return _STUDENT_95[min(degrees_of_freedom, len(_STUDENT_95)) - 1]


def _tail_share(percentile: float) -> float:
    if not (math.isfinite(percentile) and 0 < percentile < 100):
        raise InvalidInputError.single("percentile", f"is {percentile}; must be above 0 and below 100")
    return min(percentile, 100 - percentile) / 100


def requests_for_percentile(percentile: float) -> int:
    """Requests that a percentile needs to be resolved: 20 for the median, 200 for P95, 1,000 for P99.

    Raises InvalidInputError for a percentile outside (0, 100).
    """
    return math.ceil(round(TAIL_SAMPLES / _tail_share(percentile), 6))


def requests_for_interval(percentile: float) -> int:
    """Requests that a percentile's confidence interval needs: 1,000 for P95, 5,000 for P99."""
    return math.ceil(round(FEWEST_BATCHES * TAIL_SAMPLES_PER_BATCH / _tail_share(percentile), 6))


def percentile_of(values: Values, percentile: float) -> float:
    """The smallest value that at least `percentile` per cent of the values do not exceed (no interpolation).

    Values may be infinite: requests that were not answered. Raises InvalidInputError if there are too few.
    """
    needed = requests_for_percentile(percentile)
    if values.size < needed:
        raise InvalidInputError.single(
            "percentile",
            f"P{percentile:g} needs at least {needed} requests; there are {values.size}",
            "TOO_FEW_REQUESTS",
        )
    return _order_statistic(values, percentile)


def _order_statistic(values: Values, percentile: float) -> float:
    rank = math.ceil(round(percentile / 100 * values.size, 9)) - 1
    return float(np.partition(values, rank)[rank])


def interval_of(values: Values, percentile: float) -> Interval:
    """Confidence interval of a percentile by batch means, from values in order of arrival.

    Neighbouring requests wait in the same queue and are alike, so the values are cut into 20 batches (10 if there are
    few) that are long enough to be nearly independent. Their percentiles' spread around the percentile of all values,
    divided by the root of their number, is the standard error ("sectioning", Asmussen and Glynn, Stochastic Simulation,
    2007, III.5); the interval is Student's t times that. It covers the truth less often than stated where the queue's
    memory is as long as a batch, that is close to saturation.
    Raises InvalidInputError if there are too few values.
    """
    needed = requests_for_interval(percentile)
    if values.size < needed:
        raise InvalidInputError.single(
            "percentile",
            f"the confidence interval of P{percentile:g} needs at least {needed} requests; there are {values.size}",
            "TOO_FEW_REQUESTS",
        )
    batches = BATCHES if values.size >= needed * BATCHES / FEWEST_BATCHES else FEWEST_BATCHES
    parts = np.array([_order_statistic(part, percentile) for part in np.array_split(values, batches)])
    return interval_around(_order_statistic(values, percentile), parts)


def interval_around(centre: float, parts: Values) -> Interval:
    """The interval around an estimate from all values, given the estimates of its batches."""
    if not (math.isfinite(centre) and np.all(np.isfinite(parts))):
        finite_parts = parts[np.isfinite(parts)]
        lowest = float(finite_parts.min()) if finite_parts.size else math.inf
        return Interval(min(lowest, centre), math.inf, parts.size)
    variance = float(np.sum((parts - centre) ** 2)) / (parts.size - 1)
    half_width = student_95(parts.size - 1) * math.sqrt(variance / parts.size)
    return Interval(centre - half_width, centre + half_width, parts.size)
