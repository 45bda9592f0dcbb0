"""When requests arrive: Poisson, gamma, constant, at a rate that varies over the day, or as a trace says.

All rate processes draw gaps of mean 1 and stretch them by the rate. With the same seed, two rates therefore see the
same randomness (common random numbers): a higher rate is the same traffic played faster, and a comparison of two rates,
or a bisection over them, is not blurred by chance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from inferplan.errors import InvalidInputError, Violation
from inferplan.simulation.requests import MAXIMUM_REQUESTS, arrival_violations

Seconds = npt.NDArray[np.float64]


class ArrivalProcess(Protocol):
    """Arrival times, rising, from 0 on."""

    @property
    def mean_rate_per_second(self) -> float:
        """Requests a second in the long run."""

    def first(self, count: int, generator: np.random.Generator) -> Seconds:
        """The first `count` arrivals (fewer where the process ends before)."""

    def until(self, end_seconds: float, generator: np.random.Generator) -> Seconds:
        """All arrivals up to and including `end_seconds`."""


def _rate_violations(name: str, rate: float) -> list[Violation]:
    if math.isfinite(rate) and rate > 0:
        return []
    return [Violation(name, f"is {rate}; must be finite and above 0")]


def _unit_gaps(count: int, coefficient_of_variation: float, generator: np.random.Generator) -> Seconds:
    """Gaps of mean 1: gamma with shape 1 / cv^2, which is exponential at 1 and constant at 0."""
    if coefficient_of_variation == 0:
        return np.ones(count)
    if coefficient_of_variation == 1:
        return generator.standard_exponential(count)
    shape = coefficient_of_variation**-2
    return generator.standard_gamma(shape, count) / shape


def _unit_arrivals_until(end: float, coefficient_of_variation: float, generator: np.random.Generator) -> Seconds:
    """Arrivals up to `end` of a process of rate 1."""
    if end > MAXIMUM_REQUESTS:
        raise InvalidInputError.single(
            "requests", f"would be about {end:.3g}; at most {MAXIMUM_REQUESTS}: shorten the time or lower the rate"
        )
    pieces: list[Seconds] = []
    reached = 0.0
    while reached <= end:
        expected = end - reached
        count = math.ceil(expected + 6 * coefficient_of_variation * math.sqrt(expected) + 20)
        piece = np.cumsum(_unit_gaps(count, coefficient_of_variation, generator)) + reached
        pieces.append(piece)
        reached = float(piece[-1])
    arrivals = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    # An even spacing may put an arrival at the very end; rounding, which differs from rate to rate, must not decide.
    return arrivals[: int(np.searchsorted(arrivals, end * (1 + 1e-12), side="right"))]


@dataclass(frozen=True, slots=True)
class RateArrivals:
    """Independent gaps at a constant mean rate.

    coefficient_of_variation: of the gaps; 1 is Poisson, 0 evenly spaced, more than 1 bursts (gamma distributed gaps).
    """

    rate_per_second: float
    coefficient_of_variation: float = 1.0

    def __post_init__(self) -> None:
        violations = _rate_violations("rate_per_second", self.rate_per_second)
        if not 0 <= self.coefficient_of_variation <= 100:
            violations.append(
                Violation("coefficient_of_variation", f"is {self.coefficient_of_variation}; must be from 0 to 100")
            )
        if violations:
            raise InvalidInputError(violations)

    @property
    def mean_rate_per_second(self) -> float:
        """The rate."""
        return self.rate_per_second

    def first(self, count: int, generator: np.random.Generator) -> Seconds:
        """The first `count` arrivals."""
        gaps = _unit_gaps(count, self.coefficient_of_variation, generator)
        np.cumsum(gaps, out=gaps)
        gaps /= self.rate_per_second
        return gaps

    def until(self, end_seconds: float, generator: np.random.Generator) -> Seconds:
        """All arrivals up to `end_seconds`."""
        units = _unit_arrivals_until(end_seconds * self.rate_per_second, self.coefficient_of_variation, generator)
        return units / self.rate_per_second


def poisson_arrivals(rate_per_second: float) -> RateArrivals:
    """Arrivals that know nothing of each other."""
    return RateArrivals(rate_per_second, 1.0)


def constant_arrivals(rate_per_second: float) -> RateArrivals:
    """Evenly spaced arrivals."""
    return RateArrivals(rate_per_second, 0.0)


def gamma_arrivals(rate_per_second: float, coefficient_of_variation: float) -> RateArrivals:
    """Arrivals in bursts (above 1) or more even than chance (below 1)."""
    return RateArrivals(rate_per_second, coefficient_of_variation)


@dataclass(frozen=True, slots=True)
class VaryingArrivals:
    """A rate that changes in steps, for example over a day; it ends with the last step.

    interval_seconds: length of each step. rates_per_second: one a step, 0 allowed. The gaps are those of RateArrivals,
    stretched by the rate of the moment (time change by the cumulative rate).
    """

    interval_seconds: float
    rates_per_second: tuple[float, ...]
    coefficient_of_variation: float = 1.0

    def __post_init__(self) -> None:
        violations = _rate_violations("interval_seconds", self.interval_seconds)
        if not 0 <= self.coefficient_of_variation <= 100:
            violations.append(
                Violation("coefficient_of_variation", f"is {self.coefficient_of_variation}; must be from 0 to 100")
            )
        violations += [
            Violation(f"rates_per_second[{index}]", f"is {rate}; must be finite and not negative")
            for index, rate in enumerate(self.rates_per_second)
            if not (math.isfinite(rate) and rate >= 0)
        ]
        if not violations and sum(self.rates_per_second) <= 0:
            violations.append(Violation("rates_per_second", "must hold at least one rate above 0", "REQUIRED"))
        if violations:
            raise InvalidInputError(violations)

    @property
    def mean_rate_per_second(self) -> float:
        """Mean over all steps."""
        return sum(self.rates_per_second) / len(self.rates_per_second)

    def first(self, count: int, generator: np.random.Generator) -> Seconds:
        """The first `count` arrivals, or all if there are fewer."""
        return self.until(self.interval_seconds * len(self.rates_per_second), generator)[:count]

    def until(self, end_seconds: float, generator: np.random.Generator) -> Seconds:
        """All arrivals up to `end_seconds`, or to the end of the last step."""
        edges = np.arange(len(self.rates_per_second) + 1) * self.interval_seconds
        expected = np.concatenate(([0.0], np.cumsum(self.rates_per_second) * self.interval_seconds))
        end = float(np.interp(end_seconds, edges, expected))
        units = _unit_arrivals_until(end, self.coefficient_of_variation, generator)
        arrivals: Seconds = np.interp(units, expected, edges)
        return arrivals


@dataclass(frozen=True, slots=True, eq=False)
class TraceArrivals:
    """Recorded arrival times, in seconds after the trace's start, rising."""

    arrival_seconds: Seconds

    def __post_init__(self) -> None:
        arrivals = np.ascontiguousarray(self.arrival_seconds, dtype=np.float64)
        if violations := arrival_violations(arrivals):
            raise InvalidInputError(violations)
        object.__setattr__(self, "arrival_seconds", arrivals)

    @property
    def mean_rate_per_second(self) -> float:
        """Arrivals by the time of the last one; the trace's count where all arrive at 0."""
        last = float(self.arrival_seconds[-1])
        return self.arrival_seconds.size / last if last > 0 else float(self.arrival_seconds.size)

    def first(self, count: int, generator: np.random.Generator) -> Seconds:  # noqa: ARG002 - nothing is random
        """The first `count` arrivals, or all if there are fewer."""
        return self.arrival_seconds[:count]

    def until(self, end_seconds: float, generator: np.random.Generator) -> Seconds:  # noqa: ARG002 - nothing is random
        """All arrivals up to `end_seconds`."""
        return self.arrival_seconds[: int(np.searchsorted(self.arrival_seconds, end_seconds, side="right"))]
