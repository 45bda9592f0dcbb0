"""The engine-neutral autoscaling policy. Absent differs from zero; every value says where it came from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from inferplan.sizing.textbook import TextbookAnswer, TextbookAssumptions


class WarmKind(StrEnum):
    """How replicas beyond the load's need are kept ready."""

    HOT_FLOOR = "hot_floor"
    HOT_AHEAD = "hot_ahead"
    NODE_PLACEHOLDER = "node_placeholder"
    CAPACITY_BUFFER = "capacity_buffer"


class MissingMetricBehavior(StrEnum):
    """What happens when a metric is missing."""

    HOLD = "hold"
    HOLD_OR_RAISE = "hold_or_raise"
    FIXED = "fixed"


class SignalKind(StrEnum):
    """What is watched: counts in requests or tokens, the KV ratio from 0 to 1, latency in seconds."""

    QUEUE_DEPTH = "queue_depth"
    RUNNING = "running"
    ONGOING = "ongoing"
    KV_CACHE_RATIO = "kv_cache_ratio"
    TTFT_P95 = "ttft_p95"
    QUEUED_TOKENS = "queued_tokens"


class SignalOrigin(StrEnum):
    """Who reports a signal."""

    ENGINE = "engine"
    GATEWAY = "gateway"


@dataclass(frozen=True, slots=True)
class AutoscalingSignal:
    """One thing that is watched; `per_replica` says whether the target is one replica's share or the fleet's."""

    kind: SignalKind
    target: float
    per_replica: bool
    origin: SignalOrigin = SignalOrigin.ENGINE


@dataclass(frozen=True, slots=True)
class ScalingRule:
    """How fast replicas are added or removed; None means no limit, or the target's own tolerance."""

    cooldown_seconds: float
    sustain_seconds: float | None = None
    maximum_step_replicas: int | None = None
    tolerance: float | None = None


@dataclass(frozen=True, slots=True)
class ColdStart:
    """What a new replica's start takes, by part where the parts are known, in seconds."""

    total_seconds: float
    node_boot_seconds: float | None = None
    image_pull_seconds: float | None = None
    weights_fetch_seconds: float | None = None
    weights_load_seconds: float | None = None
    compile_and_capture_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class PolicyDerivation:
    """Where one value came from: the policy's field and the rule with its inputs filled in."""

    field: str
    formula: str


@dataclass(frozen=True, slots=True)
class AutoscalingPolicy:
    """How the number of replicas follows the load."""

    minimum_replicas: int
    maximum_replicas: int
    allow_zero: bool
    warm_replicas: int
    warm_kind: WarmKind
    signals: tuple[AutoscalingSignal, ...]
    scale_up: ScalingRule
    scale_down: ScalingRule
    missing_metrics: MissingMetricBehavior
    derivations: tuple[PolicyDerivation, ...]
    cold_start: ColdStart | None = None
    maximum_concurrency_per_replica: int | None = None
    missing_metrics_replicas: int | None = None
    pre_stop_seconds: float | None = None
    drain_seconds: float | None = None


def textbook_policy(answer: TextbookAnswer, assumptions: TextbookAssumptions) -> AutoscalingPolicy:
    """Step 6 of the textbook as a policy: queue depth alone, the model's load time as the scale-up cooldown.

    It keeps the exercise's own rules, weak as they are (a queue signal without a running companion, a cooldown that
    ignores node boot and compilation), since TEXTBOOK shows what such an exercise would give.
    """
    threshold = answer.queue_threshold_requests
    return AutoscalingPolicy(
        minimum_replicas=answer.active_replicas,
        maximum_replicas=answer.maximum_replicas,
        allow_zero=False,
        warm_replicas=answer.spare_replicas,
        warm_kind=WarmKind.HOT_FLOOR,
        signals=(AutoscalingSignal(SignalKind.QUEUE_DEPTH, float(threshold), per_replica=True),),
        scale_up=ScalingRule(cooldown_seconds=assumptions.model_load_seconds),
        scale_down=ScalingRule(cooldown_seconds=assumptions.scale_down_cooldown_seconds),
        missing_metrics=MissingMetricBehavior.HOLD,
        cold_start=ColdStart(
            total_seconds=assumptions.model_load_seconds, weights_load_seconds=assumptions.model_load_seconds
        ),
        derivations=(
            PolicyDerivation(
                "signals[0].target",
                f"floor({assumptions.queue_threshold_ratio:g} x {assumptions.concurrent_sequences} concurrent "
                f"sequences) = {threshold} requests",
            ),
            PolicyDerivation("scale_up.cooldown", f"model load time = {assumptions.model_load_seconds:g} s"),
            PolicyDerivation("scale_down.cooldown", f"{assumptions.scale_down_cooldown_seconds:g} s, as assumed"),
            PolicyDerivation("warm_replicas", f"spare replicas = {answer.spare_replicas}"),
            PolicyDerivation("minimum_replicas", f"active replicas = {answer.active_replicas}"),
            PolicyDerivation(
                "maximum_replicas",
                f"floor({assumptions.maximum_replicas_factor:g} x {answer.active_replicas} active) = "
                f"{answer.maximum_replicas}",
            ),
        ),
    )


DEFAULT_COLD_START_SECONDS = 180.0
"""From the decision to the first answer. Published cold starts are 1 to 8 minutes, most of it node boot, image pull and
graph capture and not the weights; a site's own figure is better than this one."""

SCALE_DOWN_SECONDS = 300.0
"""Stabilisation before a replica goes, Kubernetes' own default."""

RUNNING_TARGET_RATIO = 0.8
"""Share of the running sequences at capacity at which a replica is added: published guides use 0.7 to 0.85."""

MAXIMUM_REPLICAS_FACTOR = 2.0
"""Most replicas over active ones where nothing is known of the load beyond its peak."""


@dataclass(frozen=True, slots=True)
class SimulatedLoad:
    """What the policy of a simulated plan is derived from.

    `completions_per_second` and `running_sequences` are of one replica at its capacity. `ttft_objective_seconds` is the
    tightest bound on TTFT, None where there is none; `unloaded_ttft_seconds` is what an idle replica takes.
    `allowed_replicas` is what quota and budget allow, None without either.
    """

    active_replicas: int
    spare_replicas: int
    completions_per_second: float
    running_sequences: float
    maximum_sequences: int
    unloaded_ttft_seconds: float
    ttft_objective_seconds: float | None = None
    allowed_replicas: int | None = None


def simulated_policy(load: SimulatedLoad, cold_start_seconds: float = DEFAULT_COLD_START_SECONDS) -> AutoscalingPolicy:
    """Queue depth with a running companion: with the queue alone, an empty queue would drive full replicas down."""
    queue, queue_formula = _queue_target(load)
    running = min(float(load.maximum_sequences), max(1.0, RUNNING_TARGET_RATIO * load.running_sequences))
    most, most_formula = _most_replicas(load)
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
        scale_up=ScalingRule(cooldown_seconds=cold_start_seconds),
        scale_down=ScalingRule(cooldown_seconds=SCALE_DOWN_SECONDS),
        missing_metrics=MissingMetricBehavior.HOLD,
        cold_start=ColdStart(total_seconds=cold_start_seconds),
        derivations=(
            PolicyDerivation("signals[0].target", queue_formula),
            PolicyDerivation(
                "signals[1].target",
                f"min({RUNNING_TARGET_RATIO:g} x {load.running_sequences:.1f} running at capacity, max_num_seqs "
                f"{load.maximum_sequences}) = {running:.1f} requests",
            ),
            PolicyDerivation(
                "scale_up.cooldown",
                f"cold start = {cold_start_seconds:g} s, a default: sooner, a second scale-up fires before the first "
                "replica serves",
            ),
            PolicyDerivation("scale_down.cooldown", f"{SCALE_DOWN_SECONDS:g} s, the default stabilisation"),
            PolicyDerivation("warm_replicas", f"failures to survive = {load.spare_replicas}"),
            PolicyDerivation(
                "minimum_replicas",
                f"active replicas at peak = {load.active_replicas}; nothing is known of the load between peaks",
            ),
            PolicyDerivation("maximum_replicas", most_formula),
        ),
    )


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
