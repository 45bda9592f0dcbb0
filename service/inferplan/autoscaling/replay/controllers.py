"""The control algorithms of autoscalers, as their documentation states them.

A controller sees what a metrics scrape would show and says how many replicas it wants. Times are in seconds since the
replay's start.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from inferplan.autoscaling.policy import AutoscalingPolicy, AutoscalingSignal, ScalingRule, SignalKind, WarmKind
from inferplan.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class FleetMetrics:
    """Sums over the replicas that serve; `kv_cache_ratio` is their mean. TTFT is None where nobody got a token."""

    serving_replicas: int
    waiting: int
    running: int
    queued_tokens: float
    kv_cache_ratio: float
    ttft_p95_seconds: float | None

    def value(self, kind: SignalKind) -> float | None:
        """The fleet's value of a signal: a sum of counts, a mean ratio, a latency."""
        values: dict[SignalKind, float | None] = {
            SignalKind.QUEUE_DEPTH: float(self.waiting),
            SignalKind.RUNNING: float(self.running),
            SignalKind.ONGOING: float(self.waiting + self.running),
            SignalKind.KV_CACHE_RATIO: self.kv_cache_ratio,
            SignalKind.TTFT_P95: self.ttft_p95_seconds,
            SignalKind.QUEUED_TOKENS: self.queued_tokens,
        }
        return values[kind]


COUNTS = frozenset({SignalKind.QUEUE_DEPTH, SignalKind.RUNNING, SignalKind.ONGOING, SignalKind.QUEUED_TOKENS})


class Controller(Protocol):
    """One autoscaler. `period_seconds` is how often it decides."""

    @property
    def period_seconds(self) -> float:
        """Time between two decisions."""
        ...

    def desired(self, now: float, current: int, metrics: FleetMetrics) -> int:
        """Replicas wanted; `current` counts those that are starting too. The bounds are the caller's."""
        ...


def floor_of(policy: AutoscalingPolicy) -> int:
    """Fewest replicas, warm ones included where they are hot, within the maximum; one at least."""
    hot = policy.warm_replicas if policy.warm_kind in (WarmKind.HOT_FLOOR, WarmKind.HOT_AHEAD) else 0
    return max(1, min(policy.minimum_replicas + hot, policy.maximum_replicas))


def signal_proposal(
    signal: AutoscalingSignal, current: int, metrics: FleetMetrics, tolerances: tuple[float, float]
) -> int:
    """Kubernetes' rule for one external metric; `tolerances` are those of scaling up and down.

    Counts are AverageValue: ceil(sum / target), unless sum / (target x current) is within the tolerance of 1. Ratios
    and latencies are Value: ceil(current x value / target), unless value / target is. An absolute target is divided
    among nobody: Value too.
    """
    value = metrics.value(signal.kind)
    if value is None:
        return current
    if signal.kind in COUNTS and signal.per_replica:
        ratio = value / (signal.target * max(current, 1))
        wanted = math.ceil(value / signal.target - 1e-9)
    else:
        ratio = value / signal.target
        wanted = math.ceil(current * ratio - 1e-9)
    up, down = tolerances
    return current if 1.0 - down <= ratio <= 1.0 + up else wanted


class _Rate:
    """How many replicas a rule lets be added or removed within its period."""

    def __init__(self, rule: ScalingRule) -> None:
        self._rule = rule
        self._changes: deque[tuple[float, int]] = deque()

    def allowed(self, now: float, current: int) -> int:
        """Replicas that may still be added or removed now; a hundred per cent a period without a step limit."""
        period = max(1.0, self._rule.cooldown_seconds)
        while self._changes and self._changes[0][0] <= now - period:
            self._changes.popleft()
        spent = sum(change for _time, change in self._changes)
        start = current - spent
        most = self._rule.maximum_step_replicas if self._rule.maximum_step_replicas is not None else max(start, 1)
        return max(0, most - spent)

    def note(self, now: float, change: int) -> None:
        """A change that was made."""
        self._changes.append((now, change))


DEFAULT_TOLERANCE = 0.1
HPA_SYNC_SECONDS = 15.0


class HpaController:
    """HorizontalPodAutoscaler (autoscaling/v2), which KEDA's ScaledObject drives too, with the behaviour as rendered.

    Every 15 s the largest proposal of all metrics is taken; up, the lowest proposal of the last sustain window holds,
    down, the highest of the last max(sustain, cooldown); within one cooldown period the replicas at most double, or
    change by `maximum_step_replicas`.
    """

    period_seconds = HPA_SYNC_SECONDS

    def __init__(self, policy: AutoscalingPolicy) -> None:
        self._policy = policy
        self._proposals: deque[tuple[float, int]] = deque()
        up, down = policy.scale_up, policy.scale_down
        self._up_window = up.sustain_seconds or 0.0
        self._down_window = max(down.sustain_seconds or 0.0, down.cooldown_seconds)
        self._up_rate = _Rate(up)
        self._tolerances = (
            DEFAULT_TOLERANCE if up.tolerance is None else up.tolerance,
            DEFAULT_TOLERANCE if down.tolerance is None else down.tolerance,
        )

    def desired(self, now: float, current: int, metrics: FleetMetrics) -> int:
        """See the class."""
        proposal = _largest_proposal(self._policy, current, metrics, self._tolerances)
        if not self._proposals:
            self._proposals.append((now - self.period_seconds, current))  # as Kubernetes records what it finds
        self._proposals.append((now, proposal))
        while self._proposals[0][0] < now - max(self._up_window, self._down_window):
            self._proposals.popleft()
        lowest = min(value for time, value in self._proposals if time >= now - self._up_window)
        highest = max(value for time, value in self._proposals if time >= now - self._down_window)
        if lowest > current:
            added = min(lowest - current, self._up_rate.allowed(now, current))
            if added > 0:
                self._up_rate.note(now, added)
            return current + added
        if highest < current:
            step = self._policy.scale_down.maximum_step_replicas
            return max(highest, current - step) if step is not None else highest
        return current


class RuleController:
    """The policy's own rules, as a plain controller would apply them.

    Above its target, a signal asks for more replicas at once, or after the sustain time, and that direction then rests
    for its cooldown. Below, the highest number that was asked for within the scale-down rest is taken, so that no short
    lull removes what the minutes before needed.
    """

    period_seconds = HPA_SYNC_SECONDS

    def __init__(self, policy: AutoscalingPolicy) -> None:
        self._policy = policy
        down = policy.scale_down
        self._down_window = max(down.cooldown_seconds, down.sustain_seconds or 0.0)
        self._last_up = -math.inf
        self._last_down = -math.inf
        self._high_since: float | None = None
        self._wanted: deque[tuple[float, int]] = deque()

    def desired(self, now: float, current: int, metrics: FleetMetrics) -> int:
        """See the class."""
        up, down = self._policy.scale_up, self._policy.scale_down
        wanted = _largest_proposal(self._policy, current, metrics, (up.tolerance or 0.0, down.tolerance or 0.0))
        if not self._wanted:
            self._wanted.append((now - self.period_seconds, current))
        self._wanted.append((now, wanted))
        while self._wanted[0][0] < now - self._down_window:
            self._wanted.popleft()
        self._high_since = (self._high_since if self._high_since is not None else now) if wanted > current else None
        if self._high_since is not None:
            rested = now - self._last_up >= up.cooldown_seconds
            if rested and now - self._high_since >= (up.sustain_seconds or 0.0):
                self._last_up = now
                return _stepped(current, wanted, up)
            return current
        highest = max(value for _time, value in self._wanted)
        if highest < current and now - max(self._last_down, self._last_up) >= self._down_window:
            self._last_down = now
            return _stepped(current, highest, down)
        return current


def _largest_proposal(
    policy: AutoscalingPolicy, current: int, metrics: FleetMetrics, tolerances: tuple[float, float]
) -> int:
    """What the signal that asks for most asks for; `tolerances` are those of scaling up and down."""
    return max((signal_proposal(signal, current, metrics, tolerances) for signal in policy.signals), default=current)


def _stepped(current: int, wanted: int, rule: ScalingRule) -> int:
    step = rule.maximum_step_replicas
    if step is None:
        return wanted
    return min(wanted, current + step) if wanted > current else max(wanted, current - step)


def _concurrency_target(policy: AutoscalingPolicy, target: str) -> float:
    for kind in (SignalKind.ONGOING, SignalKind.RUNNING):
        for signal in policy.signals:
            if signal.kind is kind and signal.per_replica:
                return signal.target
    raise InvalidInputError.single(
        "target", f"{target} scales on requests in flight; the policy has no such signal per replica", "NO_SIGNAL"
    )


class KnativeController:
    """Knative's KPA on concurrency: a stable window of 60 s, a panic window of 6 s, panic from twice the target on.

    In panic replicas only rise, until the stable window has passed without another. Removing waits scale-down-delay.
    """

    period_seconds = 2.0
    stable_seconds = 60.0
    panic_seconds = 6.0
    panic_threshold = 2.0

    def __init__(self, policy: AutoscalingPolicy) -> None:
        self._target = _concurrency_target(policy, "knative")
        self._delay = policy.scale_down.cooldown_seconds
        self._samples: deque[tuple[float, float]] = deque()
        self._wanted: deque[tuple[float, int]] = deque()
        self._panic_since: float | None = None

    def desired(self, now: float, current: int, metrics: FleetMetrics) -> int:
        """See the class."""
        self._samples.append((now, float(metrics.waiting + metrics.running)))
        while self._samples[0][0] <= now - self.stable_seconds:
            self._samples.popleft()
        stable = math.ceil(self._mean(now, self.stable_seconds) / self._target - 1e-9)
        panic = math.ceil(self._mean(now, self.panic_seconds) / self._target - 1e-9)
        if panic >= self.panic_threshold * max(metrics.serving_replicas, 1):
            self._panic_since = now
        elif self._panic_since is not None and now - self._panic_since > self.stable_seconds:
            self._panic_since = None
        wanted = max(current, panic) if self._panic_since is not None else stable
        self._wanted.append((now, wanted))
        while self._wanted[0][0] < now - self._delay:
            self._wanted.popleft()
        return max(value for _time, value in self._wanted)

    def _mean(self, now: float, window: float) -> float:
        values = [value for time, value in self._samples if time > now - window]
        return sum(values) / len(values)


class RayServeController:
    """Ray Serve: requests in flight averaged over 30 s by the target, held for upscale_delay_s or downscale_delay_s."""

    period_seconds = 10.0
    look_back_seconds = 30.0

    def __init__(self, policy: AutoscalingPolicy) -> None:
        self._target = _concurrency_target(policy, "ray-serve")
        self._up_delay = policy.scale_up.cooldown_seconds
        self._down_delay = policy.scale_down.cooldown_seconds
        self._samples: deque[tuple[float, float]] = deque()
        self._since: tuple[int, float] | None = None

    def desired(self, now: float, current: int, metrics: FleetMetrics) -> int:
        """See the class."""
        self._samples.append((now, float(metrics.waiting + metrics.running)))
        while self._samples[0][0] <= now - self.look_back_seconds:
            self._samples.popleft()
        mean = sum(value for _time, value in self._samples) / len(self._samples)
        wanted = math.ceil(mean / self._target - 1e-9)
        direction = (wanted > current) - (wanted < current)
        if direction == 0:
            self._since = None
            return current
        if self._since is None or self._since[0] != direction:
            self._since = (direction, now)
        delay = self._up_delay if direction > 0 else self._down_delay
        if now - self._since[1] < delay:
            return current
        self._since = None
        return wanted


class SageMakerController:
    """Application Auto Scaling's target tracking, with a cooldown each way.

    Out after three one-minute periods above the target, in after fifteen below nine tenths of it.
    """

    period_seconds = 60.0
    periods_out = 3
    periods_in = 15
    in_ratio = 0.9

    def __init__(self, policy: AutoscalingPolicy) -> None:
        self._target = _concurrency_target(policy, "sagemaker")
        self._up, self._down = policy.scale_up.cooldown_seconds, policy.scale_down.cooldown_seconds
        self._history: deque[float] = deque(maxlen=self.periods_in)
        self._last_out = self._last_in = -math.inf

    def desired(self, now: float, current: int, metrics: FleetMetrics) -> int:
        """See the class."""
        each = (metrics.waiting + metrics.running) / max(metrics.serving_replicas, 1)
        self._history.append(each)
        recent = list(self._history)
        wanted = math.ceil(current * each / self._target - 1e-9)
        above = len(recent) >= self.periods_out and min(recent[-self.periods_out :]) > self._target
        if above and now - self._last_out >= self._up and wanted > current:
            self._last_out = now
            return wanted
        below = len(recent) == self.periods_in and max(recent) < self.in_ratio * self._target
        if below and now - max(self._last_in, self._last_out) >= self._down and wanted < current:
            self._last_in = now
            return wanted
        return current


CONTROLLERS: dict[str, Callable[[AutoscalingPolicy], Controller]] = {
    "policy": RuleController,
    "hpa": HpaController,
    "keda": HpaController,
    "kserve-llm": HpaController,
    "knative": KnativeController,
    "ray-serve": RayServeController,
    "sagemaker": SageMakerController,
}
"""Targets whose algorithm can be played."""


def controller_for(target: str, policy: AutoscalingPolicy) -> Controller:
    """The controller of a target; an empty name means the policy's own rules. Raises InvalidInputError."""
    name = target or "policy"
    if name not in CONTROLLERS:
        raise InvalidInputError.single(
            "target",
            f"the algorithm of {name[:60]!r} is not played; legal: {', '.join(CONTROLLERS)}",
            "TARGET_NOT_PLAYED",
        )
    return CONTROLLERS[name](policy)
