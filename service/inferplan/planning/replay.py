"""Playing a stored plan over time: a load that changes, and a policy that follows it with a target's own algorithm."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from inferplan.autoscaling.policy import (
    AutoscalingPolicy,
    MissingMetricBehavior,
    ScalingRule,
    SignalKind,
    WarmKind,
)
from inferplan.autoscaling.policy_checks import policy_violations
from inferplan.autoscaling.replay.controllers import floor_of
from inferplan.autoscaling.replay.derive import MOST_POLICIES, forecast_of, policy_for, suggest
from inferplan.autoscaling.replay.replay import ReplayInput, replay
from inferplan.autoscaling.replay.report import ReplayReport, report_of
from inferplan.autoscaling.replay.traces import INTERVAL_SECONDS, LoadTrace, formula_trace, recorded_trace
from inferplan.errors import InvalidInputError, Violation
from inferplan.planning.simulate import PolicySuggestion, SimulationReport, check_load, replica_of_plan
from inferplan.resources.plan import PlanContent
from inferplan.simulation import Cancellation, Requests, make_requests
from inferplan.sizing.explanation import PlanWarning
from inferplan.sizing.fleet import replicas_for
from inferplan.sizing.replica import ReplicaModel
from inferplan.sizing.sample import offered_requests_per_second
from inferplan.sizing.search_question import FleetLimits
from inferplan.sizing.traffic_requests import is_closed_loop, requests_at
from inferplan.sizing.workload import ArrivalProcess, Workload

DEFAULT_DURATION_SECONDS = 3600.0
MOST_EVENTS = 10_000


class PolicySource(StrEnum):
    """Where the policy comes from when the request has none of its own."""

    PLAN = "plan"
    FORECAST = "forecast"


@dataclass(frozen=True, slots=True)
class ReplayQuestion:
    """What is to be played. Without a policy and a source, the number of replicas is constant.

    `trace` is a specification, `recorded` a trace that was given whole; with neither, the workload's own load is played
    for `duration_seconds`. `target` names the autoscaler whose algorithm decides, empty for the policy's own rules.
    """

    trace: str = ""
    recorded: LoadTrace | None = None
    policy: AutoscalingPolicy | None = None
    policy_source: PolicySource | None = None
    target: str = ""
    replicas: int | None = None
    workload: Workload | None = None
    duration_seconds: float | None = None
    seed: int | None = None
    suggest: bool = False

    @property
    def follows_policy(self) -> bool:
        """Whether the number of replicas changes."""
        return self.policy is not None or self.policy_source is not None


@dataclass(frozen=True, slots=True)
class _Load:
    """What all plays of one question share."""

    content: PlanContent
    workload: Workload
    replica: ReplicaModel
    trace: LoadTrace
    requests: Requests
    seed: int
    capacity_per_second: float
    static_replicas: int


def replay_plan(
    content: PlanContent,
    question: ReplayQuestion,
    cancellation: Cancellation | None = None,
    progress: Callable[[float], None] = lambda _share: None,
) -> SimulationReport:
    """Play the plan's replica, as it was resolved then, under a load over time.

    `progress` gets the share that is done, 0 to 1. Raises InvalidInputError for a trace, policy or target that cannot
    be played, CancelledError if the run was cancelled.
    """
    workload = question.workload or content.input.workload
    check_load(content, workload)
    _check_question(content, question, workload)
    seed = question.seed if question.seed is not None else content.seed or 1
    load = _load(content, question, workload, seed)
    policy = _policy(load, question)
    plays = MOST_POLICIES if question.suggest else 1
    played = 0

    def play(followed: AutoscalingPolicy) -> ReplayReport:
        nonlocal played
        report = _play(
            load, question, followed, cancellation, lambda share: progress(min(1.0, (played + share) / plays))
        )
        played += 1
        return report

    report = play(policy)
    suggestion = None
    if question.suggest:
        found = suggest(policy, play, report, content.configuration.max_num_seqs)
        if found is not None:
            suggestion = PolicySuggestion(
                found.policy,
                found.report.gpu_hours,
                found.report.attainment,
                found.report.verdicts,
                found.policies_played,
            )
    return SimulationReport(
        performance=report.performance,
        verdicts=report.verdicts,
        gpu_hours=report.gpu_hours,
        attainment=report.attainment,
        warnings=_warnings(policy, suggestion, question),
        seed=seed,
        intervals=report.intervals,
        static_peak_gpu_hours=report.static_peak_gpu_hours,
        static_peak_replicas=load.static_replicas,
        scale_events=len(report.events),
        flaps=report.flaps,
        policy=policy if question.follows_policy else None,
        worst_interval=report.worst_interval,
        events=report.events[:MOST_EVENTS],
        most_replicas=report.most_replicas,
        suggestion=suggestion,
    )


def _check_question(content: PlanContent, question: ReplayQuestion, workload: Workload) -> None:
    violations = []
    if question.trace and question.recorded is not None:
        violations.append(Violation("recorded_trace", "excludes trace; set one of the two"))
    if is_closed_loop(workload):
        violations.append(
            Violation(
                "workload.traffic_classes",
                "are clients that wait for their answers; a replay plays arrivals: state requests_per_second",
                "CLOSED_LOOP",
            )
        )
    if question.policy is not None:
        if question.policy_source is not None:
            violations.append(Violation("policy_source", "excludes policy; set one of the two"))
        violations += policy_violations(question.policy, content.configuration.max_num_seqs, "policy")
    elif question.policy_source is None:
        for name, wanted in (("target", bool(question.target)), ("suggest", question.suggest)):
            if wanted:
                violations.append(Violation(name, "needs a policy: set policy or policy_source", "REQUIRED"))
    if violations:
        raise InvalidInputError(violations)


def _load(content: PlanContent, question: ReplayQuestion, workload: Workload, seed: int) -> _Load:
    trace = _trace(question, workload, seed)
    own = content.input.workload
    fleet = content.fleet
    share = 0.0 if is_closed_loop(own) else offered_requests_per_second(own) / fleet.active_replicas
    # What one replica was shown to carry, alone or as one of the plan's fleet.
    capacity = max(content.replica_capacity.requests_per_second, share)
    return _Load(
        content=content,
        workload=workload,
        replica=replica_of_plan(content, workload),
        trace=trace,
        requests=_requests(trace, workload, seed),
        seed=seed,
        capacity_per_second=capacity,
        static_replicas=replicas_for(forecast_of(trace).peak_per_second, capacity) + fleet.spare_replicas,
    )


def _trace(question: ReplayQuestion, workload: Workload, seed: int) -> LoadTrace:
    if question.recorded is not None:
        trace = question.recorded
    elif question.trace:
        trace = formula_trace(question.trace, seed)
    else:
        trace = _own_trace(workload, question.duration_seconds or DEFAULT_DURATION_SECONDS, seed)
    return trace if question.duration_seconds is None else trace.first(question.duration_seconds)


def _own_trace(workload: Workload, duration_seconds: float, seed: int) -> LoadTrace:
    """The workload's own load: its recorded arrivals where it has one class of them, else its mean rate."""
    (first, *others) = workload.traffic_classes
    if not others and first.arrivals.process is ArrivalProcess.TRACE:
        return recorded_trace("the workload's own trace", np.asarray(first.arrivals.trace_offsets_seconds))
    hours = max(duration_seconds, 2 * INTERVAL_SECONDS) / 3600
    return formula_trace(f"constant:rate={offered_requests_per_second(workload):.6g},hours={hours:.6g}", seed)


def _requests(trace: LoadTrace, workload: Workload, seed: int) -> Requests:
    if trace.input_tokens is None or trace.output_tokens is None:
        return requests_at(workload, seed, trace.arrival_seconds)
    return make_requests(trace.input_tokens, trace.output_tokens, trace.arrival_seconds)


def _policy(load: _Load, question: ReplayQuestion) -> AutoscalingPolicy:
    """What is followed; a constant number of replicas is a policy that never changes anything."""
    own = load.content.autoscaling_policy
    if question.policy is not None:
        return dataclasses.replace(question.policy, cold_start=question.policy.cold_start or own.cold_start)
    if question.policy_source is PolicySource.PLAN:
        return own
    if question.policy_source is PolicySource.FORECAST:
        return policy_for(
            own,
            forecast_of(load.trace),
            load.capacity_per_second,
            load.content.fleet.spare_replicas,
            _allowed_replicas(load.content),
        )
    replicas = question.replicas or load.content.fleet.active_replicas
    still = ScalingRule(cooldown_seconds=0.0)
    return AutoscalingPolicy(
        replicas, replicas, False, 0, WarmKind.HOT_FLOOR, (), still, still, MissingMetricBehavior.HOLD, ()
    )


def _allowed_replicas(content: PlanContent) -> int | None:
    hardware, configuration = content.input.hardware, content.configuration
    (accelerator,) = [item for item in content.resolved.accelerators if item.id == configuration.accelerator]
    limits = FleetLimits(hardware.maximum_gpus, hardware.maximum_cost_usd_per_hour)
    return limits.most_replicas(configuration.gpus_per_replica, accelerator.cost_usd_per_gpu_hour)


def _play(
    load: _Load,
    question: ReplayQuestion,
    policy: AutoscalingPolicy,
    cancellation: Cancellation | None,
    progress: Callable[[float], None],
) -> ReplayReport:
    played = replay(
        ReplayInput(
            replica=load.replica,
            policy=policy,
            trace=load.trace,
            requests=load.requests,
            target=question.target,
            initial_replicas=question.replicas or _first_replicas(load, policy),
            seed=load.seed,
        ),
        cancellation,
        progress,
    )
    return report_of(
        played,
        load.trace,
        load.content.input.objectives,
        load.replica.front_end_seconds,
        load.content.configuration.gpus_per_replica,
        load.static_replicas,
    )


def _first_replicas(load: _Load, policy: AutoscalingPolicy) -> int:
    """A fleet that has been running: what the load's first minutes need, with the warm ones, within the policy."""
    rates = load.trace.rates_per_second()
    first = float(rates[: max(1, math.ceil(600 / INTERVAL_SECONDS))].mean())
    return max(floor_of(policy), replicas_for(first, load.capacity_per_second) + policy.warm_replicas)


def _warnings(
    policy: AutoscalingPolicy, suggestion: PolicySuggestion | None, question: ReplayQuestion
) -> tuple[PlanWarning, ...]:
    warnings = []
    if policy.allow_zero:
        text = "The policy allows zero replicas; the replay keeps at least one, since none shows no metric to rise on."
        warnings.append(PlanWarning("SCALE_TO_ZERO_NOT_PLAYED", text))
    kinds = {signal.kind for signal in policy.signals}
    if SignalKind.QUEUE_DEPTH in kinds and not kinds & {SignalKind.RUNNING, SignalKind.ONGOING}:
        text = (
            "The queue is watched alone: an empty queue removes replicas whose batches are full. Watch running "
            "requests beside it."
        )
        warnings.append(PlanWarning("QUEUE_WITHOUT_RUNNING", text))
    cold_start = policy.cold_start.total_seconds if policy.cold_start else 0.0
    if policy.signals and policy.scale_up.cooldown_seconds < cold_start:
        text = (
            f"The scale-up cooldown of {policy.scale_up.cooldown_seconds:g} s is shorter than the cold start of "
            f"{cold_start:g} s: a second scale-up can fire before the first replica serves."
        )
        warnings.append(PlanWarning("COOLDOWN_BELOW_COLD_START", text))
    if question.suggest and suggestion is None:
        text = "No policy that the search tried holds every objective on this trace."
        warnings.append(PlanWarning("NO_POLICY_HOLDS", text))
    return tuple(warnings)
