"""How a pod stops: out of the load balancer, then the stop signal, then the drain, then the kill."""

from __future__ import annotations

import math
from dataclasses import dataclass

from inferplan.autoscaling.policy import AutoscalingPolicy

GRACE_MARGIN_SECONDS = 15
"""From the drained engine to the exit of its processes: GPU memory is freed and the last metrics are scraped."""


@dataclass(frozen=True, slots=True)
class StopSequence:
    """Times in whole seconds; `grace_seconds` is more than the other two together, or the kill cuts the drain short."""

    pre_stop_seconds: int
    drain_seconds: int

    @property
    def grace_seconds(self) -> int:
        """terminationGracePeriodSeconds, which counts from the start of the pre-stop hook."""
        return self.pre_stop_seconds + self.drain_seconds + GRACE_MARGIN_SECONDS


def stop_sequence(policy: AutoscalingPolicy) -> StopSequence | None:
    """The policy's own; None where it states no time."""
    if policy.pre_stop_seconds is None and policy.drain_seconds is None:
        return None
    return StopSequence(math.ceil(policy.pre_stop_seconds or 0), math.ceil(policy.drain_seconds or 0))
