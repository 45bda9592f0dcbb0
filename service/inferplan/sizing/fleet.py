"""Replicas, what they carry and what they cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

SECONDS_PER_HOUR = 3600.0
TOKENS_PER_MILLION = 1e6


@dataclass(frozen=True, slots=True)
class Fleet:
    """All replicas of a deployment. Costs cover the spares too, in US dollars."""

    active_replicas: int
    spare_replicas: int
    gpus: int
    cost_usd_per_hour: float
    cost_usd_per_million_output_tokens: float

    @property
    def replicas(self) -> int:
        """Active and spare ones."""
        return self.active_replicas + self.spare_replicas


class LimitingFactor(StrEnum):
    """What keeps a replica from carrying more."""

    MEMORY_BANDWIDTH = "memory_bandwidth"
    COMPUTE = "compute"
    KV_CAPACITY = "kv_capacity"
    SEQUENCE_SLOTS = "sequence_slots"
    OBJECTIVE = "objective"
    INTERCONNECT = "interconnect"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class ReplicaCapacity:
    """The largest load that one replica carries; `censored` means only a lower bound, since nothing saturated."""

    requests_per_second: float
    output_tokens_per_second: float
    limiting_factor: LimitingFactor
    limiting_detail: str
    censored: bool = False


def replicas_for(load_per_second: float, capacity_per_second: float) -> int:
    """The fewest replicas whose capacity covers the load, at least 1.

    The tolerance keeps a quotient such as 2.0000000000000004, a rounding of exactly 2, from costing a whole replica.
    """
    return max(1, math.ceil(load_per_second / capacity_per_second - 1e-9))


def fleet_of(
    active_replicas: int,
    spare_replicas: int,
    gpus_per_replica: int,
    cost_usd_per_gpu_hour: float,
    output_tokens_per_second: float,
) -> Fleet:
    """A fleet with its costs; `output_tokens_per_second` is what all of it generates at peak, not what it could."""
    gpus = (active_replicas + spare_replicas) * gpus_per_replica
    cost_per_hour = gpus * cost_usd_per_gpu_hour
    million_tokens_per_hour = output_tokens_per_second * SECONDS_PER_HOUR / TOKENS_PER_MILLION
    return Fleet(active_replicas, spare_replicas, gpus, cost_per_hour, cost_per_hour / million_tokens_per_hour)
