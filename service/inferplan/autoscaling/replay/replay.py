"""Playing a trace under a policy: the fleet simulator between two decisions, the target's controller at each."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from inferplan.autoscaling.policy import AutoscalingPolicy, SignalKind
from inferplan.autoscaling.replay.controllers import FleetMetrics, controller_for, floor_of
from inferplan.autoscaling.replay.traces import INTERVAL_SECONDS, LoadTrace
from inferplan.simulation import Cancellation, FleetSession, Requests, SimulationOutcome
from inferplan.sizing.replica import ReplicaModel

DEFAULT_COLD_START_SECONDS = 180.0
TTFT_SCRAPE_SECONDS = 60.0
"""A P95 over the last minute, as recording rules take it."""

MOST_PLACES = 4096
DRAINING_PLACES = 2.0
"""Places for replicas beyond the policy's maximum, since those that drain still hold theirs."""


@dataclass(frozen=True, slots=True)
class ReplayInput:
    """What is replayed. `requests` are the trace's arrivals with their lengths; `target` names the controller."""

    replica: ReplicaModel
    policy: AutoscalingPolicy
    trace: LoadTrace
    requests: Requests
    target: str = ""
    initial_replicas: int | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class ScaleEvent:
    """One change of the number of replicas that are wanted."""

    time_seconds: float
    replicas_before: int
    replicas_after: int


@dataclass(frozen=True, slots=True)
class FleetInterval:
    """The fleet during one minute, with its replicas at the end of it."""

    start_seconds: float
    length_seconds: float
    serving_replicas: int
    starting_replicas: int


@dataclass(frozen=True, slots=True, eq=False)
class ReplayOutcome:
    """What happened. `replica_seconds` counts replicas from the decision to start them until they are drained."""

    outcome: SimulationOutcome
    intervals: tuple[FleetInterval, ...]
    events: tuple[ScaleEvent, ...]
    flaps: int
    replica_seconds: float
    duration_seconds: float
    most_replicas: int


def replay(
    question: ReplayInput,
    cancellation: Cancellation | None = None,
    progress: Callable[[float], None] = lambda _share: None,
) -> ReplayOutcome:
    """Play the whole trace, then let what is left finish. Raises InvalidInputError and CancelledError."""
    run = _Run(question, cancellation)
    controller = controller_for(question.target, question.policy)
    duration = question.trace.duration_seconds
    now = 0.0
    while now < duration:
        following = min(duration, now + controller.period_seconds)
        run.play_until(now, following)
        now = following
        run.decide(now, controller.desired(now, run.wanted, run.metrics(now)))
        progress(min(1.0, now / duration))
    run.finish(duration)
    return run.result(duration)


@dataclass(slots=True)
class _Run:
    """The fleet's places and what became of them."""

    question: ReplayInput
    cancellation: Cancellation | None
    session: FleetSession = field(init=False)
    serving: list[int] = field(default_factory=list)
    starting: list[tuple[float, int]] = field(default_factory=list)
    draining: list[int] = field(default_factory=list)
    free: list[int] = field(default_factory=list)
    events: list[ScaleEvent] = field(default_factory=list)
    samples: list[tuple[float, float, int, int]] = field(default_factory=list)
    replica_seconds: float = 0.0
    most: int = 0
    mean_prompt_tokens: float = 0.0

    def __post_init__(self) -> None:
        question = self.question
        self.mean_prompt_tokens = float(question.requests.prompt_tokens.mean())
        policy = question.policy
        places = min(MOST_PLACES, max(2, math.ceil(policy.maximum_replicas * DRAINING_PLACES)))
        self.session = FleetSession(
            question.replica.coefficients,
            question.replica.engine,
            question.requests,
            places,
            seed=question.seed,
            cancellation=self.cancellation,
        )
        self.free = list(range(places - 1, -1, -1))
        first = question.initial_replicas if question.initial_replicas is not None else floor_of(policy)
        for _ in range(max(1, min(first, policy.maximum_replicas))):
            place = self.free.pop()
            self.session.start(place, 0.0)
            self.serving.append(place)

    @property
    def wanted(self) -> int:
        """Replicas that serve or start."""
        return len(self.serving) + len(self.starting)

    @property
    def cold_start_seconds(self) -> float:
        """From the decision to the first request."""
        cold_start = self.question.policy.cold_start
        return cold_start.total_seconds if cold_start is not None else DEFAULT_COLD_START_SECONDS

    def play_until(self, now: float, until: float) -> None:
        """Play on, stopping where a replica becomes ready."""
        while now < until:
            step = min(until, self.starting[0][0]) if self.starting else until
            self.session.play_until(step)
            self._account(now, step)
            now = step
            while self.starting and self.starting[0][0] <= now:
                _ready, place = heapq.heappop(self.starting)
                self.session.start(place, now)
                self.serving.append(place)

    def _account(self, start: float, end: float) -> None:
        self.replica_seconds += (end - start) * (self.wanted + len(self.draining))
        self.samples.append((start, end, len(self.serving), len(self.starting)))
        self.most = max(self.most, self.wanted)
        done = [place for place in self.draining if self.session.is_idle(place)]
        for place in done:
            self.draining.remove(place)
            self.free.append(place)

    def metrics(self, now: float) -> FleetMetrics:
        """What a scrape of the serving replicas shows now."""
        states = [self.session.state(place) for place in self.serving]
        waiting = sum(state.waiting for state in states)
        ttft = None
        if any(signal.kind is SignalKind.TTFT_P95 for signal in self.question.policy.signals):
            recent = self.session.ttft_seconds_of_arrivals(now - TTFT_SCRAPE_SECONDS, now)
            if recent.size:
                ttft = float(np.percentile(recent, 95)) + self.question.replica.front_end_seconds
        return FleetMetrics(
            serving_replicas=len(states),
            waiting=waiting,
            running=sum(state.running for state in states),
            queued_tokens=waiting * self.mean_prompt_tokens,
            kv_cache_ratio=sum(state.kv_cache_ratio for state in states) / len(states),
            ttft_p95_seconds=ttft,
        )

    def decide(self, now: float, desired: int) -> None:
        """Bring the fleet to what is wanted, within the policy's bounds: start new ones, stop the newest first."""
        policy = self.question.policy
        target = max(floor_of(policy), min(desired, policy.maximum_replicas))
        before = self.wanted
        while self.wanted < target and self.free:
            heapq.heappush(self.starting, (now + self.cold_start_seconds, self.free.pop()))
        while self.wanted > target:
            if self.starting:
                latest = max(self.starting)
                self.starting.remove(latest)
                heapq.heapify(self.starting)
                self.free.append(latest[1])
            else:
                place = self.serving.pop()
                self.session.drain(place)
                self.draining.append(place)
        if self.wanted != before:
            self.events.append(ScaleEvent(now, before, self.wanted))
            self.most = max(self.most, self.wanted)

    def finish(self, duration: float) -> None:
        """Let every request get its tokens; replicas are no longer counted."""
        self.session.play_until(math.inf if self.session.requests_left == 0 else duration)
        self.session.play_until(math.inf)

    def result(self, duration: float) -> ReplayOutcome:
        """What came of it."""
        return ReplayOutcome(
            outcome=self.session.outcome(),
            intervals=_by_minute(self.samples, duration),
            events=tuple(self.events),
            flaps=_flaps(self.events, self.question.policy),
            replica_seconds=self.replica_seconds,
            duration_seconds=duration,
            most_replicas=self.most,
        )


def _by_minute(samples: list[tuple[float, float, int, int]], duration: float) -> tuple[FleetInterval, ...]:
    """Replicas that served and started at the end of each minute, the last one as long as the trace has it."""
    ends = np.array([end for _start, end, _serving, _starting in samples])
    intervals = []
    for index in range(max(1, math.ceil(duration / INTERVAL_SECONDS - 1e-9))):
        start = index * INTERVAL_SECONDS
        end = min(duration, start + INTERVAL_SECONDS)
        _start, _end, serving, starting = samples[min(len(samples) - 1, int(np.searchsorted(ends, end - 1e-9)))]
        intervals.append(FleetInterval(start, end - start, serving, starting))
    return tuple(intervals)


def _flaps(events: list[ScaleEvent], policy: AutoscalingPolicy) -> int:
    """Changes that the next one undid within the cooldown of their own direction."""
    flaps = 0
    for earlier, later in itertools.pairwise(events):
        went_up = earlier.replicas_after > earlier.replicas_before
        goes_up = later.replicas_after > later.replicas_before
        rule = policy.scale_up if went_up else policy.scale_down
        if went_up != goes_up and later.time_seconds - earlier.time_seconds < rule.cooldown_seconds:
            flaps += 1
    return flaps
