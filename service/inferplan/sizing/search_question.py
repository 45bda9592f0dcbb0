"""What is asked of the search: what may be chosen, and the limits that hold."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from inferplan.catalog.accelerator import Accelerator
from inferplan.catalog.architecture import ModelArchitecture
from inferplan.catalog.engine import Engine
from inferplan.sizing.configuration import EngineSettings, ParallelismChoice
from inferplan.sizing.efficiency import DATASHEET_EFFICIENCY, EfficiencyCoefficients
from inferplan.sizing.workload import Objective, Workload

MAXIMUM_SIMULATED_CANDIDATES = 40
"""Configurations whose fleet is searched by simulation; the rest are ruled out with their bounds."""


@dataclass(frozen=True, slots=True)
class FleetLimits:
    """What a fleet may take, spares included; None means no limit. Costs are in US dollars."""

    maximum_gpus: int | None = None
    maximum_cost_usd_per_hour: float | None = None
    failures_to_survive: int = 0

    def most_replicas(self, gpus_per_replica: int, cost_usd_per_gpu_hour: float) -> int | None:
        """Replicas, spares included, that the limits allow; None without a limit."""
        allowed = []
        if self.maximum_gpus is not None:
            allowed.append(self.maximum_gpus // gpus_per_replica)
        if self.maximum_cost_usd_per_hour is not None and cost_usd_per_gpu_hour > 0:
            replica_cost = gpus_per_replica * cost_usd_per_gpu_hour
            # The tolerance keeps a budget of exactly three replicas from losing one to rounding.
            allowed.append(math.floor(self.maximum_cost_usd_per_hour / replica_cost + 1e-9))
        return min(allowed) if allowed else None


@dataclass(frozen=True, slots=True)
class SearchQuestion:
    """A model, its traffic and objectives, and everything that may be chosen.

    `accelerators` carry the prices and node sizes that hold. What `settings` and `parallelism` leave open is searched.
    Weights are never quantised unasked: their precision is varied only with `search_precisions`, where the settings
    leave it open and the accelerator has a matrix unit for it; the KV cache's likewise.
    """

    architecture: ModelArchitecture
    accelerators: tuple[Accelerator, ...]
    engine: Engine
    workload: Workload
    objectives: tuple[Objective, ...] = ()
    settings: EngineSettings = field(default_factory=EngineSettings)
    parallelism: ParallelismChoice = field(default_factory=ParallelismChoice)
    limits: FleetLimits = field(default_factory=FleetLimits)
    efficiency: EfficiencyCoefficients = DATASHEET_EFFICIENCY
    search_precisions: bool = False
    maximum_simulated_candidates: int = MAXIMUM_SIMULATED_CANDIDATES

    @property
    def mean_context_tokens(self) -> int:
        """Mean context of the sequences that decode at a time, over all classes."""
        return max(1, round(self.workload.mean_context_tokens))

    @property
    def longest_context_tokens(self) -> int:
        """The longest prompt plus output that is to be expected."""
        return max(traffic.longest_context_tokens for traffic in self.workload.traffic_classes)
