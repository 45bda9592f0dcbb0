"""Whether a policy that somebody wrote makes sense: contradictions are refused before they are played."""

from __future__ import annotations

from collections import Counter

from inferplan.autoscaling.policy import AutoscalingPolicy, MissingMetricBehavior, SignalKind, WarmKind
from inferplan.errors import Violation


def policy_violations(policy: AutoscalingPolicy, maximum_sequences: int, path: str) -> list[Violation]:
    """Everything in a policy that contradicts the rest of it, or the replica's `maximum_sequences`."""
    violations = []
    if policy.minimum_replicas > policy.maximum_replicas:
        violations.append(
            Violation(
                f"{path}.minimum_replicas",
                f"is {policy.minimum_replicas}, above maximum_replicas {policy.maximum_replicas}",
            )
        )
    elif _hot(policy) and policy.minimum_replicas + policy.warm_replicas > policy.maximum_replicas:
        violations.append(
            Violation(
                f"{path}.warm_replicas",
                f"is {policy.warm_replicas}, which with minimum_replicas {policy.minimum_replicas} is above "
                f"maximum_replicas {policy.maximum_replicas}",
            )
        )
    if policy.missing_metrics is MissingMetricBehavior.FIXED and policy.missing_metrics_replicas is None:
        violations.append(
            Violation(f"{path}.missing_metrics_replicas", "must be set where missing metrics mean a fixed number")
        )
    return violations + _signal_violations(policy, maximum_sequences, path)


def _hot(policy: AutoscalingPolicy) -> bool:
    return policy.warm_kind in (WarmKind.HOT_FLOOR, WarmKind.HOT_AHEAD)


def _signal_violations(policy: AutoscalingPolicy, maximum_sequences: int, path: str) -> list[Violation]:
    if not policy.signals:
        return [Violation(f"{path}.signals", "must hold at least one signal, or nothing ever scales", "REQUIRED")]
    violations = [
        Violation(f"{path}.signals", f"hold {kind.value} from {origin.value} {count} times; one target each")
        for (kind, origin), count in Counter((signal.kind, signal.origin) for signal in policy.signals).items()
        if count > 1
    ]
    for index, signal in enumerate(policy.signals):
        where = f"{path}.signals[{index}].target"
        if signal.kind is SignalKind.KV_CACHE_RATIO and signal.target > 1.0:
            violations.append(Violation(where, f"is {signal.target:g}; a share of the KV cache is at most 1"))
        if signal.kind is SignalKind.RUNNING and signal.per_replica and signal.target > maximum_sequences:
            violations.append(
                Violation(
                    where,
                    f"is {signal.target:g} running requests, but a replica never runs more than max_num_seqs "
                    f"{maximum_sequences}: it would never fire",
                    "NEVER_FIRES",
                )
            )
    return violations
