"""What a simulation says about latencies and objectives: percentiles, intervals, verdicts, goodput, throughput."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from inferplan.errors import InvalidInputError, Violation
from inferplan.simulation.gaps import TokenGaps
from inferplan.simulation.layout import GAP_PERIODS
from inferplan.simulation.outcome import SimulationOutcome
from inferplan.simulation.percentiles import Interval, Values, interval_of, percentile_of


class Metric(StrEnum):
    """A latency in seconds.

    TTFT: queue + steps until the first token + the front end's constant. END_TO_END: until the last token, the constant
    included. TPOT: (END_TO_END - TTFT) / (output tokens - 1), absent for outputs of one token. INTER_TOKEN: the gap
    before each token but the first, over all tokens. QUEUE_WAIT: until the first step that works on the request.
    """

    TTFT = "ttft"
    TPOT = "tpot"
    INTER_TOKEN = "inter_token"
    END_TO_END = "end_to_end"
    QUEUE_WAIT = "queue_wait"


@dataclass(frozen=True, slots=True)
class LatencyObjective:
    """The `percentile` (0 to 100) of `metric` may not exceed `maximum_seconds`. An empty class means all traffic."""

    metric: Metric
    percentile: float
    maximum_seconds: float
    traffic_class: str = ""

    def __post_init__(self) -> None:
        violations = []
        if not 0 < self.percentile < 100:
            violations.append(Violation("percentile", f"is {self.percentile}; must be above 0 and below 100"))
        if not (math.isfinite(self.maximum_seconds) and self.maximum_seconds > 0):
            violations.append(Violation("maximum_seconds", f"is {self.maximum_seconds}; must be finite and above 0"))
        if violations:
            raise InvalidInputError(violations)


class Verdict(StrEnum):
    """Whether an objective is met, as far as the simulation can tell."""

    HOLDS = "holds"
    BREAKS = "breaks"
    UNCLEAR = "unclear"
    """The limit lies inside the percentile's confidence interval."""


@dataclass(frozen=True, slots=True)
class ObjectiveResult:
    """One objective against one simulation. attainment: share of requests (INTER_TOKEN: of tokens) within the limit."""

    objective: LatencyObjective
    measured_seconds: float
    interval: Interval
    attainment: float
    verdict: Verdict


class LatencyReport:
    """The latencies of one simulation, without its warm-up.

    Requests are numbered in order and cut into 20 equal periods; the first `warm_up_periods` and the last
    `cool_down_periods` are left out of everything. A request that was not answered (the simulation was stopped) counts
    as infinitely late, so that stopping early never makes a fleet look better.
    """

    def __init__(
        self,
        outcome: SimulationOutcome,
        front_end_seconds: float = 0.0,
        warm_up_periods: int = 2,
        cool_down_periods: int = 0,
    ) -> None:
        violations = []
        if not (math.isfinite(front_end_seconds) and front_end_seconds >= 0):
            violations.append(Violation("front_end_seconds", f"is {front_end_seconds}; must be finite, 0 or more"))
        if warm_up_periods < 0 or cool_down_periods < 0 or warm_up_periods + cool_down_periods >= GAP_PERIODS:
            violations.append(
                Violation("warm_up_periods", f"and cool_down_periods must be 0 or more, together below {GAP_PERIODS}")
            )
        if violations:
            raise InvalidInputError(violations)
        self.outcome = outcome
        self.front_end_seconds = front_end_seconds
        count = outcome.requests.count
        # Request i is of period i * 20 // count, as in the kernel.
        self._periods = slice(warm_up_periods, GAP_PERIODS - cool_down_periods)
        self._first = -(-warm_up_periods * count // GAP_PERIODS)
        self._end = -(-(GAP_PERIODS - cool_down_periods) * count // GAP_PERIODS)
        if self._first >= self._end:
            raise InvalidInputError.single("requests", "are too few: none is left without warm-up and cool-down")
        self._values: dict[tuple[Metric, str], Values] = {}

    def values(self, metric: Metric, traffic_class: str = "") -> Values:
        """One value a measured request, in order; infinite where there was no answer. Not for INTER_TOKEN."""
        key = (metric, traffic_class)
        if key not in self._values:
            values = self._all_values(metric)
            keep = self._of_class(traffic_class)
            if metric is Metric.TPOT:
                several_tokens = self.outcome.requests.output_tokens[self._first : self._end] > 1
                keep = several_tokens if keep is None else keep & several_tokens
            self._values[key] = values if keep is None else values[keep]
        return self._values[key]

    def gaps(self, traffic_class: str = "") -> TokenGaps:
        """Inter-token latencies of the measured periods."""
        counts, sums = self.outcome.gap_counts[self._periods], self.outcome.gap_seconds[self._periods]
        if traffic_class:
            index = self._class_index(traffic_class)
            counts, sums = counts[:, index : index + 1], sums[:, index : index + 1]
        return TokenGaps(counts.sum(axis=1), sums[:, :, 0].sum(axis=1), float(sums[:, :, 1].max()))

    def mean(self, metric: Metric, traffic_class: str = "") -> float | None:
        """The mean; None where no request has a value."""
        if metric is Metric.INTER_TOKEN:
            return self.gaps(traffic_class).mean_seconds
        values = self.values(metric, traffic_class)
        return float(values.mean()) if values.size else None

    def percentile(self, metric: Metric, percentile: float, traffic_class: str = "") -> float:
        """Raises InvalidInputError if the requests are too few for it."""
        if metric is Metric.INTER_TOKEN:
            return self.gaps(traffic_class).percentile(percentile)
        return percentile_of(self.values(metric, traffic_class), percentile)

    def interval(self, metric: Metric, percentile: float, traffic_class: str = "") -> Interval:
        """95 % confidence interval of a percentile. Raises InvalidInputError if the requests are too few for it."""
        if metric is Metric.INTER_TOKEN:
            return self.gaps(traffic_class).interval(percentile)
        return interval_of(self.values(metric, traffic_class), percentile)

    def judge(self, objective: LatencyObjective) -> ObjectiveResult:
        """Measure one objective. Raises InvalidInputError if the requests are too few for its percentile's interval."""
        metric, traffic_class = objective.metric, objective.traffic_class
        measured = self.percentile(metric, objective.percentile, traffic_class)
        interval = self.interval(metric, objective.percentile, traffic_class)
        verdict = Verdict.UNCLEAR
        if interval.upper <= objective.maximum_seconds:
            verdict = Verdict.HOLDS
        elif interval.lower > objective.maximum_seconds:
            verdict = Verdict.BREAKS
        return ObjectiveResult(objective, measured, interval, self._attainment(objective), verdict)

    def _attainment(self, objective: LatencyObjective) -> float:
        if objective.metric is Metric.INTER_TOKEN:
            share = self.gaps(objective.traffic_class).share_within(objective.maximum_seconds)
            return 1.0 if share is None else share
        values = self.values(objective.metric, objective.traffic_class)
        return float(np.count_nonzero(values <= objective.maximum_seconds)) / values.size if values.size else 1.0

    def throughput_requests_per_second(self, traffic_class: str = "") -> float:
        """Requests answered in the measured time (see `measured_seconds`), by its length."""
        return self._rate(self._answered_in_window(traffic_class).astype(np.float64))

    def throughput_output_tokens_per_second(self, traffic_class: str = "") -> float:
        """Output tokens of the requests answered in the measured time, by its length."""
        answered = self._answered_in_window(traffic_class)
        return self._rate(np.where(answered, self.outcome.requests.output_tokens, 0).astype(np.float64))

    def goodput_requests_per_second(self, objectives: Sequence[LatencyObjective]) -> float:
        """Requests answered in the measured time that kept every limit that applies to them, by its length.

        A limit on INTER_TOKEN is one on tokens and not on requests, so it is left out; a request of one token keeps any
        limit on TPOT.
        """
        good: npt.NDArray[np.bool_] = self._answered_in_window("")
        for objective in objectives:
            if objective.metric is Metric.INTER_TOKEN:
                continue
            kept = self._whole_run(objective.metric) <= objective.maximum_seconds
            if objective.traffic_class:
                kept |= self.outcome.requests.class_index != self._class_index(objective.traffic_class)
            good = good & kept
        return self._rate(good.astype(np.float64))

    @property
    def measured_seconds(self) -> tuple[float, float]:
        """Start and end of the measured time.

        From the arrival of the first measured request; to the arrival of the last one in an open loop (what follows is
        the fleet running empty), to the end of the run where all requests came at once or in a closed loop.
        """
        arrivals = self.outcome.arrival_seconds
        start, end = float(arrivals[self._first]), float(arrivals[self._end - 1])
        if self.outcome.open_loop and end > start:
            return start, min(end, self.outcome.ended_seconds)
        return start, self.outcome.ended_seconds

    def first_broken_seconds(self, objective: LatencyObjective) -> float | None:
        """Arrival time from which on the percentile is above the limit for a hundredth of the run; None if never.

        The whole run is looked at, warm-up included, in a hundred parts, or as many as resolve the percentile.
        Raises InvalidInputError for INTER_TOKEN, which is not known by request.
        """
        values = self._whole_run(objective.metric)
        arrivals = self.outcome.arrival_seconds
        if objective.traffic_class:
            mine = self.outcome.requests.class_index == self._class_index(objective.traffic_class)
            values, arrivals = values[mine], arrivals[mine]
        tail = min(objective.percentile, 100 - objective.percentile) / 100
        parts = max(1, min(100, int(values.size * tail / 10)))
        for part_values, part_arrivals in zip(
            np.array_split(values, parts), np.array_split(arrivals, parts), strict=True
        ):
            allowed = math.floor(part_values.size * (1 - objective.percentile / 100))
            if np.count_nonzero(part_values > objective.maximum_seconds) > allowed:
                return float(part_arrivals[0])
        return None

    def _rate(self, weights: Values) -> float:
        start, end = self.measured_seconds
        return float(weights.sum()) / (end - start) if end > start else 0.0

    def _answered_in_window(self, traffic_class: str) -> npt.NDArray[np.bool_]:
        start, end = self.measured_seconds
        finish = self.outcome.arrival_seconds + self.outcome.end_to_end_seconds
        answered = (finish > start) & (finish <= end)  # NaN compares as False
        if traffic_class:
            answered &= self.outcome.requests.class_index == self._class_index(traffic_class)
        return answered

    def _of_class(self, traffic_class: str) -> npt.NDArray[np.bool_] | None:
        if not traffic_class:
            return None
        labels = self.outcome.requests.class_index[self._first : self._end]
        return np.asarray(labels == self._class_index(traffic_class))

    def _class_index(self, traffic_class: str) -> int:
        names = self.outcome.requests.class_names
        if traffic_class not in names:
            legal = ", ".join(name for name in names if name) or "none, since the traffic has one class without a name"
            raise InvalidInputError.single("traffic_class", f"{traffic_class!r} is not known; legal: {legal}")
        return names.index(traffic_class)

    def _all_values(self, metric: Metric) -> Values:
        return self._compute(metric, slice(self._first, self._end))

    def _whole_run(self, metric: Metric) -> Values:
        return self._compute(metric, slice(None))

    def _compute(self, metric: Metric, part: slice) -> Values:
        outcome = self.outcome
        if metric is Metric.INTER_TOKEN:
            raise InvalidInputError.single("metric", "inter_token is a latency of tokens; use gaps()")
        if metric is Metric.QUEUE_WAIT:
            values = outcome.queue_wait_seconds[part].copy()
        elif metric is Metric.TTFT:
            values = outcome.ttft_seconds[part] + self.front_end_seconds
        elif metric is Metric.END_TO_END:
            values = outcome.end_to_end_seconds[part] + self.front_end_seconds
        else:
            gaps = outcome.requests.output_tokens[part] - 1
            values = outcome.end_to_end_seconds[part] - outcome.ttft_seconds[part]
            np.divide(values, gaps, out=values, where=gaps > 0)
        values[np.isnan(values)] = math.inf
        return values
