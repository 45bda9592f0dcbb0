"""The policy of a simulated plan: every value by a rule, with the rule and its inputs beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from inferplan.autoscaling.policy import (
    AutoscalingPolicy,
    AutoscalingSignal,
    ColdStart,
    MissingMetricBehavior,
    PolicyDerivation,
    ScalingRule,
    SignalKind,
    WarmKind,
)

SCALE_DOWN_SECONDS = 300.0
"""Stabilisation before a replica goes, Kubernetes' own default."""

LEAST_RATE_RATIO, MOST_RATE_RATIO = 0.7, 0.85
"""Bounds on the share of its capacity at which a replica gets company; published guides use 0.7 to 0.85."""

MAXIMUM_REPLICAS_FACTOR = 2.0
"""Most replicas over active ones where nothing is known of the load beyond its peak."""


PRE_STOP_SECONDS = 15.0
"""Until every router has dropped the replica: an assumption, one sync period of Kubernetes' controllers."""


@dataclass(frozen=True, slots=True)
class SimulatedLoad:
    """What the policy of a simulated plan is derived from.

    `completions_per_second` is one replica's at its capacity, `running_sequences` how many run on it at
    `target_rate_ratio` of that rate. `ttft_objective_seconds` is the
    tightest bound on TTFT, None where there is none; `unloaded_ttft_seconds` is what an idle replica takes.
    `longest_stream_seconds` is how long the longest answer is on its way. `allowed_replicas` is what quota and budget
    allow, None without either.
    """

    active_replicas: int
    spare_replicas: int
    completions_per_second: float
    running_sequences: float
    maximum_sequences: int
    unloaded_ttft_seconds: float
    longest_stream_seconds: float
    ttft_objective_seconds: float | None = None
    allowed_replicas: int | None = None


def simulated_policy(
    load: SimulatedLoad, cold_start: ColdStart, cold_start_derivation: PolicyDerivation
) -> AutoscalingPolicy:
    """Queue depth with a running companion: with the queue alone, an empty queue would drive full replicas down."""
    queue, queue_formula = _queue_target(load)
    running = min(float(load.maximum_sequences), max(1.0, load.running_sequences))
    ratio = target_rate_ratio(load.active_replicas)
    most, most_formula = _most_replicas(load)
    drain = float(math.ceil(load.longest_stream_seconds))
    stabilisation = max(SCALE_DOWN_SECONDS, drain)
    total = cold_start.total_seconds
    return AutoscalingPolicy(
        minimum_replicas=load.active_replicas,
        maximum_replicas=most,
        allow_zero=False,
        warm_replicas=load.spare_replicas,
        warm_kind=WarmKind.HOT_FLOOR,
        signals=(
            AutoscalingSignal(SignalKind.QUEUE_DEPTH, float(queue), per_replica=True),
            AutoscalingSignal(SignalKind.RUNNING, running, per_replica=True),
        ),
        scale_up=ScalingRule(cooldown_seconds=float(math.ceil(total))),
        scale_down=ScalingRule(cooldown_seconds=stabilisation),
        missing_metrics=MissingMetricBehavior.HOLD,
        cold_start=cold_start,
        pre_stop_seconds=PRE_STOP_SECONDS,
        drain_seconds=drain,
        derivations=(
            PolicyDerivation("signals[0].target", queue_formula),
            PolicyDerivation(
                "signals[1].target",
                f"min({load.running_sequences:.1f} running at {ratio:.2g} x {load.completions_per_second:.2f}/s, "
                f"max_num_seqs {load.maximum_sequences}) = {running:.1f} requests; {ratio:.2g} is (N - 1) / N of "
                f"{load.active_replicas} replicas, from {LEAST_RATE_RATIO:g} to {MOST_RATE_RATIO:g}, so that the "
                "others can carry the load when one goes",
            ),
            cold_start_derivation,
            PolicyDerivation(
                "scale_up.cooldown",
                f"cold start = {total:.0f} s: sooner, a second scale-up fires before the first replica serves",
            ),
            PolicyDerivation(
                "scale_down.cooldown",
                f"max({SCALE_DOWN_SECONDS:g} s, the default stabilisation; {drain:g} s, the longest stream) = "
                f"{stabilisation:g} s",
            ),
            PolicyDerivation("drain", f"longest stream = {load.longest_stream_seconds:.1f} s, rounded up"),
            PolicyDerivation("pre_stop", f"{PRE_STOP_SECONDS:g} s, assumed, until routers have dropped the replica"),
            PolicyDerivation("warm_replicas", f"failures to survive = {load.spare_replicas}"),
            PolicyDerivation(
                "minimum_replicas",
                f"active replicas at peak = {load.active_replicas}; nothing is known of the load between peaks",
            ),
            PolicyDerivation("maximum_replicas", most_formula),
        ),
    )


def target_rate_ratio(active_replicas: int) -> float:
    """Share of its capacity at which a replica is to get company.

    When one of N goes, the others carry N / (N - 1) of what they did, which is to stay within their capacity.
    """
    others = (active_replicas - 1) / active_replicas
    return min(MOST_RATE_RATIO, max(LEAST_RATE_RATIO, others))


def _queue_target(load: SimulatedLoad) -> tuple[int, str]:
    """Waiting requests a replica that it can still start on within the TTFT objective."""
    objective = load.ttft_objective_seconds
    if objective is None:
        return 1, "1 request: no objective bounds TTFT, so that any queue asks for a replica"
    slack = max(0.0, objective - load.unloaded_ttft_seconds)
    exact = math.floor(slack * load.completions_per_second + 1e-9)
    target = min(load.maximum_sequences, max(1, exact))
    formula = (
        f"floor(({objective:g} s TTFT objective - {load.unloaded_ttft_seconds:.3f} s unloaded) x "
        f"{load.completions_per_second:.2f} completions/s) = {exact}, from 1 to max_num_seqs {load.maximum_sequences}: "
        f"{target} requests"
    )
    return target, formula


def _most_replicas(load: SimulatedLoad) -> tuple[int, str]:
    needed = load.active_replicas + load.spare_replicas
    wanted = max(needed, math.ceil(MAXIMUM_REPLICAS_FACTOR * load.active_replicas))
    formula = f"max({needed} with spares, {MAXIMUM_REPLICAS_FACTOR:g} x {load.active_replicas} active) = {wanted}"
    if load.allowed_replicas is None or load.allowed_replicas >= wanted:
        return wanted, formula
    return load.allowed_replicas, f"{formula}, of which quota and budget allow {load.allowed_replicas}"
