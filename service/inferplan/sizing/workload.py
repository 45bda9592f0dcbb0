"""What is asked of a fleet: traffic and objectives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from inferplan.errors import Violation


@dataclass(frozen=True, slots=True)
class ConstantLength:
    """Every length the same."""

    constant_tokens: int

    @property
    def mean_tokens(self) -> float:
        """Mean length."""
        return float(self.constant_tokens)

    @property
    def longest_tokens(self) -> int:
        """Longest length."""
        return self.constant_tokens


@dataclass(frozen=True, slots=True)
class UniformLength:
    """Every whole length from `minimum_tokens` to `maximum_tokens` equally likely."""

    minimum_tokens: int
    maximum_tokens: int

    @property
    def mean_tokens(self) -> float:
        """Mean length."""
        return (self.minimum_tokens + self.maximum_tokens) / 2

    @property
    def longest_tokens(self) -> int:
        """Longest length."""
        return self.maximum_tokens


@dataclass(frozen=True, slots=True)
class LognormalLength:
    """Log-normal lengths with the given mean and coefficient of variation, cut at `maximum_tokens` if that is set."""

    mean_tokens: float
    coefficient_of_variation: float
    maximum_tokens: int | None = None

    @property
    def longest_tokens(self) -> int:
        """The cut, or the 99.9th percentile where nothing is cut (mean x exp(3.09 sigma - sigma^2 / 2))."""
        if self.maximum_tokens is not None:
            return self.maximum_tokens
        sigma = math.sqrt(math.log1p(self.coefficient_of_variation**2))
        return math.ceil(self.mean_tokens * math.exp(3.0902 * sigma - sigma * sigma / 2))


LengthDistribution = ConstantLength | UniformLength | LognormalLength


@dataclass(frozen=True, slots=True)
class LengthPair:
    """One observed request."""

    input_tokens: int
    output_tokens: int


class ArrivalProcess(StrEnum):
    """How arrivals vary around their mean rate."""

    POISSON = "poisson"
    CONSTANT = "constant"
    GAMMA = "gamma"
    TRACE = "trace"


@dataclass(frozen=True, slots=True)
class Arrivals:
    """`coefficient_of_variation` of the gaps is for gamma, `trace_offsets_seconds` (rising) for traces only."""

    process: ArrivalProcess = ArrivalProcess.POISSON
    coefficient_of_variation: float | None = None
    trace_offsets_seconds: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class TrafficClass:
    """Requests of one kind.

    Exactly one of `requests_per_second` (open loop) and `concurrency` (closed loop) is set. Lengths are two
    distributions or observed pairs. `prefix_cache_hit_ratio` is the share of prompt tokens that the prefix cache
    serves.
    """

    traffic_class_id: str = ""
    requests_per_second: float | None = None
    concurrency: int | None = None
    arrivals: Arrivals = Arrivals()
    input_tokens: LengthDistribution | None = None
    output_tokens: LengthDistribution | None = None
    length_pairs: tuple[LengthPair, ...] = ()
    prefix_cache_hit_ratio: float | None = None

    @property
    def mean_input_tokens(self) -> float:
        """Mean prompt length."""
        if self.length_pairs:
            return sum(pair.input_tokens for pair in self.length_pairs) / len(self.length_pairs)
        assert self.input_tokens is not None, "checked by workload_violations"
        return self.input_tokens.mean_tokens

    @property
    def mean_output_tokens(self) -> float:
        """Mean output length."""
        if self.length_pairs:
            return sum(pair.output_tokens for pair in self.length_pairs) / len(self.length_pairs)
        assert self.output_tokens is not None, "checked by workload_violations"
        return self.output_tokens.mean_tokens

    @property
    def longest_output_tokens(self) -> int:
        """The longest output that is to be expected."""
        if self.length_pairs:
            return max(pair.output_tokens for pair in self.length_pairs)
        assert self.output_tokens is not None, "checked by workload_violations"
        return self.output_tokens.longest_tokens

    @property
    def longest_context_tokens(self) -> int:
        """The longest prompt plus output that is to be expected."""
        if self.length_pairs:
            return max(pair.input_tokens + pair.output_tokens for pair in self.length_pairs)
        assert self.input_tokens is not None and self.output_tokens is not None, "checked by workload_violations"
        return self.input_tokens.longest_tokens + self.output_tokens.longest_tokens


@dataclass(frozen=True, slots=True)
class Workload:
    """Everything that is asked of the fleet at its peak."""

    traffic_classes: tuple[TrafficClass, ...]

    @property
    def mean_context_tokens(self) -> float:
        """Mean context of the sequences that decode at a time: the prompt and half of the output.

        A class counts with the tokens that it generates (its rate, or its clients, times its outputs), since that is
        how long its sequences are in decode.
        """
        generated = contexts = 0.0
        for traffic in self.traffic_classes:
            weight = (traffic.requests_per_second or traffic.concurrency or 1) * traffic.mean_output_tokens
            generated += weight
            contexts += weight * (traffic.mean_input_tokens + traffic.mean_output_tokens / 2)
        return contexts / generated


class LatencyMetric(StrEnum):
    """A latency that a client or operator can see. TPOT = (end to end - TTFT) / (output tokens - 1)."""

    TTFT = "ttft"
    TPOT = "tpot"
    INTER_TOKEN = "inter_token"
    END_TO_END = "end_to_end"
    QUEUE_WAIT = "queue_wait"


@dataclass(frozen=True, slots=True)
class Objective:
    """The `percentile` (0 to 100) of `metric` may not exceed `maximum_seconds`. An empty class means all traffic."""

    metric: LatencyMetric
    percentile: float
    maximum_seconds: float
    traffic_class_id: str = ""

    @property
    def label(self) -> str:
        """`P95 TTFT`, with the class where there is one."""
        name = {
            LatencyMetric.TTFT: "TTFT",
            LatencyMetric.TPOT: "TPOT",
            LatencyMetric.INTER_TOKEN: "inter-token latency",
            LatencyMetric.END_TO_END: "end-to-end latency",
            LatencyMetric.QUEUE_WAIT: "queue wait",
        }[self.metric]
        suffix = f" of {self.traffic_class_id}" if self.traffic_class_id else ""
        return f"P{self.percentile:g} {name}{suffix}"


def workload_violations(workload: Workload, path: str = "workload") -> list[Violation]:
    """What is wrong with a workload beyond its single fields: lengths, loads and arrivals that do not go together."""
    violations: list[Violation] = []
    seen: set[str] = set()
    several = len(workload.traffic_classes) > 1
    for index, traffic in enumerate(workload.traffic_classes):
        where = f"{path}.traffic_classes[{index}]"
        if several and not traffic.traffic_class_id:
            violations.append(
                Violation(f"{where}.traffic_class_id", "must be set where there are several traffic classes")
            )
        elif traffic.traffic_class_id in seen:
            violations.append(
                Violation(f"{where}.traffic_class_id", f"{traffic.traffic_class_id!r} is used twice; ids must differ")
            )
        seen.add(traffic.traffic_class_id)
        violations += traffic_violations(traffic, where)
    loops = {traffic.concurrency is not None for traffic in workload.traffic_classes}
    if len(loops) > 1:
        text = "mixes open loops (requests_per_second) and closed loops (concurrency); legal is one kind"
        violations.append(Violation(f"{path}.traffic_classes", text, "CONTRADICTION"))
    return violations


def traffic_violations(traffic: TrafficClass, where: str) -> list[Violation]:
    """What is wrong with one class of traffic beyond its single fields."""
    return _length_violations(traffic, where) + _arrival_violations(traffic, where)


def _length_violations(traffic: TrafficClass, where: str) -> list[Violation]:
    if traffic.length_pairs:
        if traffic.input_tokens is None and traffic.output_tokens is None:
            return []
        return [
            Violation(
                f"{where}.length_pairs",
                "lengths are given twice: use either length_pairs or input_tokens and output_tokens",
            )
        ]
    return [
        Violation(f"{where}.{name}", f"must be set, for example {{{name}: {{constant_tokens: 500}}}}", "REQUIRED")
        for name, value in (("input_tokens", traffic.input_tokens), ("output_tokens", traffic.output_tokens))
        if value is None
    ]


def _arrival_violations(traffic: TrafficClass, where: str) -> list[Violation]:
    arrivals = traffic.arrivals
    violations: list[Violation] = []
    is_gamma = arrivals.process is ArrivalProcess.GAMMA
    is_trace = arrivals.process is ArrivalProcess.TRACE
    path = f"{where}.arrivals"
    if is_gamma and arrivals.coefficient_of_variation is None:
        violations.append(Violation(f"{path}.coefficient_of_variation", "must be set for gamma arrivals", "REQUIRED"))
    if not is_gamma and arrivals.coefficient_of_variation is not None:
        violations.append(Violation(f"{path}.coefficient_of_variation", "has a meaning for gamma arrivals only"))
    if is_trace and not arrivals.trace_offsets_seconds:
        violations.append(Violation(f"{path}.trace_offsets", "must not be empty for a trace", "REQUIRED"))
    if not is_trace and arrivals.trace_offsets_seconds:
        violations.append(Violation(f"{path}.trace_offsets", "has a meaning for process trace only"))
    offsets = arrivals.trace_offsets_seconds
    if offsets and offsets[0] < 0:
        violations.append(Violation(f"{path}.trace_offsets[0]", "must not be negative"))
    for index in range(1, len(offsets)):
        if offsets[index] < offsets[index - 1]:
            violations.append(
                Violation(
                    f"{path}.trace_offsets[{index}]", f"{offsets[index]} s is earlier than the one before; must rise"
                )
            )
            break
    return violations


def objective_violations(
    objectives: Sequence[Objective], workload: Workload, path: str = "objectives"
) -> list[Violation]:
    """Objectives that name no traffic class, stand twice, or contradict one another.

    Two objectives contradict where the lower percentile is given less room than the higher one needs to bind: a bound
    on P50 that is looser than the bound on P95 of the same latency can never act, and a bound on TTFT above that on the
    end to end of the same percentile likewise. Both are slips that would silently plan for something else.
    """
    violations: list[Violation] = []
    known = {traffic.traffic_class_id for traffic in workload.traffic_classes}
    for index, objective in enumerate(objectives):
        where = f"{path}[{index}]"
        if objective.traffic_class_id and objective.traffic_class_id not in known:
            legal = ", ".join(sorted(name for name in known if name)) or "none, since the workload names none"
            violations.append(
                Violation(
                    f"{where}.traffic_class_id",
                    f"{objective.traffic_class_id!r} is not a traffic class; legal: {legal}",
                )
            )
        for earlier, other in enumerate(objectives[:index]):
            if other.traffic_class_id == objective.traffic_class_id:
                violations += _pair_violations(objective, other, where, f"{path}[{earlier}]")
    return violations


def _pair_violations(objective: Objective, other: Objective, where: str, other_path: str) -> list[Violation]:
    if objective.metric is other.metric:
        if objective.percentile == other.percentile:
            return [Violation(where, f"{objective.label} is bounded twice, here and in {other_path}", "CONTRADICTION")]
        low, high = sorted((objective, other), key=lambda item: item.percentile)
        if low.maximum_seconds > high.maximum_seconds:
            return [
                Violation(
                    where,
                    f"contradicts {other_path}: {low.label} may be {low.maximum_seconds:g} s but {high.label}, which "
                    f"is never smaller, only {high.maximum_seconds:g} s; the lower percentile needs the tighter bound",
                    "CONTRADICTION",
                )
            ]
        return []
    parts = {objective.metric: objective, other.metric: other}
    whole = parts.get(LatencyMetric.END_TO_END)
    part = parts.get(LatencyMetric.TTFT)
    if whole and part and part.percentile == whole.percentile and part.maximum_seconds > whole.maximum_seconds:
        return [
            Violation(
                where,
                f"contradicts {other_path}: {part.label} may be {part.maximum_seconds:g} s but {whole.label}, which "
                f"includes it, only {whole.maximum_seconds:g} s",
                "CONTRADICTION",
            )
        ]
    return []
