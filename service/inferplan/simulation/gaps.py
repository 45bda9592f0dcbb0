"""Inter-token latencies: every token's but each request's first, from the kernel's counts."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inferplan.errors import InvalidInputError
from inferplan.simulation.layout import GAP_BINS, GAP_BINS_PER_OCTAVE, GAP_LOWEST_EXPONENT
from inferplan.simulation.percentiles import Interval, interval_around, requests_for_percentile

RELATIVE_ERROR = 0.004
"""A bin is 1/128 of its octave's start wide; its middle is less than half of that from everything in it."""


def _bin_middles() -> npt.NDArray[np.float64]:
    octave, step = np.divmod(np.arange(GAP_BINS), GAP_BINS_PER_OCTAVE)
    middles: npt.NDArray[np.float64] = np.ldexp(1 + (step + 0.5) / GAP_BINS_PER_OCTAVE, GAP_LOWEST_EXPONENT + octave)
    return middles


_BIN_MIDDLES = _bin_middles()


@dataclass(frozen=True, slots=True, eq=False)
class TokenGaps:
    """Counts [period, bin] and sums [period] of inter-token latencies; mean and largest are exact."""

    counts: npt.NDArray[np.int64]
    sums_seconds: npt.NDArray[np.float64]
    largest_seconds: float

    @property
    def tokens(self) -> int:
        """Tokens that had one before them."""
        return int(self.counts.sum())

    @property
    def mean_seconds(self) -> float | None:
        """Mean gap; None without any."""
        return float(self.sums_seconds.sum()) / self.tokens if self.tokens else None

    def percentile(self, percentile: float) -> float:
        """Within 0.4 %. Raises InvalidInputError if there are too few tokens."""
        needed = requests_for_percentile(percentile)
        if self.tokens < needed:
            raise InvalidInputError.single(
                "percentile",
                f"P{percentile:g} needs at least {needed} tokens; there are {self.tokens}",
                "TOO_FEW_REQUESTS",
            )
        return _percentile_of_counts(self.counts.sum(axis=0), percentile)

    def interval(self, percentile: float) -> Interval:
        """As `percentiles.interval_of`, with the periods as batches. Raises InvalidInputError with fewer than ten."""
        periods = self.counts[self.counts.sum(axis=1) >= requests_for_percentile(percentile)]
        if len(periods) < min(10, len(self.counts)):
            raise InvalidInputError.single(
                "percentile",
                f"the confidence interval of P{percentile:g} needs {requests_for_percentile(percentile)} tokens "
                f"in ten periods of the run; {len(periods)} have them",
                "TOO_FEW_REQUESTS",
            )
        parts = np.array([_percentile_of_counts(counts, percentile) for counts in periods])
        return interval_around(self.percentile(percentile), parts)

    def share_within(self, limit_seconds: float) -> float | None:
        """Share of the tokens that came within the limit (to a bin's width); None without any."""
        if not self.tokens:
            return None
        return float(self.counts[:, limit_seconds >= _BIN_MIDDLES].sum()) / self.tokens


def _percentile_of_counts(counts: npt.NDArray[np.int64], percentile: float) -> float:
    cumulative = np.cumsum(counts)
    rank = max(1, math.ceil(round(percentile / 100 * int(cumulative[-1]), 9)))
    return float(_BIN_MIDDLES[int(np.searchsorted(cumulative, rank))])
