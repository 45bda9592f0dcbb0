"""The engine-neutral autoscaling policy. Absent differs from zero; every value says where it came from."""

from __future__ import annotations

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
class StatedColdStart:
    """What a site knows of its own cold start, in seconds; None takes the default of that part.

    A `total_seconds` stands for all parts.
    """

    total_seconds: float | None = None
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
