"""Floor and ceiling with warm replicas, as an autoscaler with a fixed floor can hold them."""

from __future__ import annotations

from dataclasses import dataclass

from inferplan.autoscaling.policy import AutoscalingPolicy, WarmKind
from inferplan.autoscaling.rendering.documents import formula
from inferplan.autoscaling.rendering.request import RenderingLoss


@dataclass(frozen=True, slots=True)
class ReplicaBounds:
    """`floor` holds warm replicas where they are hot; `ahead` is added to what the load needs, where a target can."""

    floor: int
    most: int
    ahead: int
    floor_comment: str
    most_comment: str
    losses: tuple[RenderingLoss, ...]


def replica_bounds(policy: AutoscalingPolicy, *, can_run_ahead: bool) -> ReplicaBounds:
    """The bounds, with a loss for every warm replica that they cannot hold."""
    losses: list[RenderingLoss] = []
    floor, ahead = policy.minimum_replicas, 0
    comment = _commented(f"{policy.minimum_replicas} at least", formula(policy, "minimum_replicas"))
    if policy.warm_kind is WarmKind.HOT_AHEAD and can_run_ahead:
        ahead = policy.warm_replicas
    elif policy.warm_kind in (WarmKind.HOT_FLOOR, WarmKind.HOT_AHEAD):
        floor += policy.warm_replicas
        comment = _commented(
            f"{policy.minimum_replicas} at least + {policy.warm_replicas} warm",
            formula(policy, "minimum_replicas", "warm_replicas"),
        )
        if policy.warm_kind is WarmKind.HOT_AHEAD and policy.warm_replicas:
            losses.append(
                RenderingLoss(
                    "warm_kind",
                    f"{policy.warm_replicas} replicas ahead of the load cannot be asked for; they are added to the "
                    f"floor, which helps only near it",
                )
            )
    elif policy.warm_replicas:
        losses.append(
            RenderingLoss(
                "warm_replicas",
                f"{policy.warm_replicas} as {policy.warm_kind.value} are not part of this target; render `warm-spares` "
                "beside it",
            )
        )
    if floor > policy.maximum_replicas:
        losses.append(
            RenderingLoss(
                "warm_replicas",
                f"floor and warm replicas make {floor}, more than maximum_replicas; the floor is "
                f"{policy.maximum_replicas}",
            )
        )
        floor = policy.maximum_replicas
    most_comment = _commented(f"{policy.maximum_replicas} at most", formula(policy, "maximum_replicas"))
    return ReplicaBounds(floor, policy.maximum_replicas, ahead, comment, most_comment, tuple(losses))


def never_zero(policy: AutoscalingPolicy, bounds: ReplicaBounds, reason: str) -> tuple[int, tuple[RenderingLoss, ...]]:
    """The floor of a target that cannot come back from zero, and the loss if zero was allowed."""
    if not policy.allow_zero:
        return bounds.floor, ()
    floor = max(1, bounds.floor)
    return floor, (RenderingLoss("allow_zero", f"{reason}; at least {floor} stay"),)


def _commented(what: str, why: str) -> str:
    return f"{what}: {why}" if why else what
