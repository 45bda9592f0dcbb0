"""What a renderer is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from inferplan.autoscaling.policy import AutoscalingPolicy, SignalKind, SignalOrigin
from inferplan.catalog.precision import Precision
from inferplan.errors import Violation
from inferplan.sizing.configuration import Configuration
from inferplan.sizing.workload import Objective

GPUS_OF_A_USUAL_NODE = 8
"""Most GPUs in one node where the plan does not say: HGX boards carry 8."""

MAXIMUM_MODEL_NAME_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class RenderingRequest:
    """A plan's policy and configuration, and how they are to be rendered.

    `metric_dialect` is the one of the catalogue's engine release. `model_name` is the name under which the model is
    served, which engines put into their metrics' labels. `plan_name` (`deployments/{deployment}/plans/{revision}`) is
    empty for a plan that was not stored. `checkpoint_precision` is what the checkpoint holds, None where that is not
    known. `gpus_per_node` None is taken as 8. `options` are the target's own, as strings.
    """

    policy: AutoscalingPolicy
    configuration: Configuration
    metric_dialect: str
    model_name: str
    plan_name: str = ""
    revision: int = 0
    checkpoint_precision: Precision | None = None
    gpus_per_node: int | None = None
    objectives: tuple[Objective, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def nodes_per_replica(self) -> int:
        """Nodes over which one replica is spread."""
        return -(-self.configuration.gpus_per_replica // (self.gpus_per_node or GPUS_OF_A_USUAL_NODE))

    @property
    def deployment_id(self) -> str:
        """The deployment's id from the plan's name, or `inferplan` for a plan that was not stored."""
        parts = self.plan_name.split("/")
        return parts[1] if len(parts) > 1 and parts[1] else "inferplan"


@dataclass(frozen=True, slots=True)
class RenderedFile:
    """One rendered file; `filename` has no folder."""

    filename: str
    media_type: str
    content: str


@dataclass(frozen=True, slots=True)
class RenderingLoss:
    """Something that the target cannot express: the plan's field, and what happens instead."""

    field: str
    description: str


@dataclass(frozen=True, slots=True)
class Rendering:
    """Files to apply as they are, and what they leave out."""

    files: tuple[RenderedFile, ...]
    losses: tuple[RenderingLoss, ...]


def request_violations(request: RenderingRequest) -> list[Violation]:
    """What no target could render: contradictions within the policy, and a model name that no label could hold."""
    return [
        *_model_name_violations(request.model_name),
        *_replica_violations(request.policy),
        *_signal_violations(request),
    ]


def _model_name_violations(name: str) -> list[Violation]:
    if not name or len(name) > MAXIMUM_MODEL_NAME_CHARACTERS or not name.isprintable():
        return [
            Violation(
                "model_name",
                f"{name[:80]!r} cannot be a model's name; legal are 1 to {MAXIMUM_MODEL_NAME_CHARACTERS} printable "
                "characters",
            )
        ]
    return []


def _replica_violations(policy: AutoscalingPolicy) -> list[Violation]:
    violations = []
    if policy.minimum_replicas > policy.maximum_replicas:
        violations.append(
            Violation(
                "policy.minimum_replicas",
                f"{policy.minimum_replicas} is more than maximum_replicas {policy.maximum_replicas}",
                "CONTRADICTION",
            )
        )
    if policy.minimum_replicas == 0 and not policy.allow_zero:
        violations.append(
            Violation("policy.minimum_replicas", "is 0, but allow_zero is false; legal is 1 or more", "CONTRADICTION")
        )
    for name, rule in (("scale_up", policy.scale_up), ("scale_down", policy.scale_down)):
        if rule.cooldown_seconds < 0 or (rule.sustain_seconds or 0) < 0:
            violations.append(Violation(f"policy.{name}", "has a negative time; legal is 0 or more"))
    return violations


def _signal_violations(request: RenderingRequest) -> list[Violation]:
    violations = []
    slots = request.configuration.max_num_seqs
    for index, signal in enumerate(request.policy.signals):
        where = f"policy.signals[{index}].target"
        if not signal.target > 0:
            violations.append(Violation(where, f"is {signal.target:g}; legal is more than 0"))
        if signal.kind is SignalKind.KV_CACHE_RATIO and signal.target > 1:
            violations.append(Violation(where, f"is {signal.target:g}; a share of the KV cache is at most 1"))
        # The gateway counts requests that queue at the engine as running, so that only the engine's count is bounded.
        is_engine_running = signal.kind is SignalKind.RUNNING and signal.origin is SignalOrigin.ENGINE
        if is_engine_running and signal.per_replica and signal.target > slots:
            violations.append(
                Violation(
                    where,
                    f"{signal.target:g} running requests a replica are more than max_num_seqs {slots}, so that the "
                    f"signal would never fire; legal is at most {slots}",
                    "CONTRADICTION",
                )
            )
    violations += _concurrency_violations(request)
    return violations


def _concurrency_violations(request: RenderingRequest) -> list[Violation]:
    most = request.policy.maximum_concurrency_per_replica
    if most is None:
        return []
    return [
        Violation(
            f"policy.signals[{index}].target",
            f"{signal.target:g} is more than maximum_concurrency_per_replica {most}, so that the signal would never "
            f"fire; legal is at most {most}",
            "CONTRADICTION",
        )
        for index, signal in enumerate(request.policy.signals)
        if signal.per_replica and signal.kind in (SignalKind.RUNNING, SignalKind.ONGOING) and signal.target > most
    ]
