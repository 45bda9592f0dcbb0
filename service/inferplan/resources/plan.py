"""A plan and what it was asked: immutable once stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from inferplan.autoscaling.policy import AutoscalingPolicy, StatedColdStart
from inferplan.catalog.accelerator import Accelerator
from inferplan.catalog.architecture import Model, ModelArchitecture
from inferplan.catalog.engine import Engine
from inferplan.errors import BrokenRule
from inferplan.resources.calibration_use import CalibrationUse
from inferplan.sizing.configuration import Configuration, EngineSettings, ParallelismChoice
from inferplan.sizing.explanation import CalculationStep, PlanWarning
from inferplan.sizing.fleet import Fleet, ReplicaCapacity
from inferplan.sizing.memory import MemoryEstimate
from inferplan.sizing.performance import FleetEvidence, ObjectiveVerdict, Performance
from inferplan.sizing.textbook import TextbookAssumptions
from inferplan.sizing.workload import Objective, Workload


class PlanMethod(StrEnum):
    """How a plan's figures are computed."""

    TEXTBOOK = "textbook"
    SIMULATED = "simulated"


class Router(StrEnum):
    """How requests reach replicas."""

    ROUND_ROBIN = "round_robin"
    LEAST_OUTSTANDING = "least_outstanding"
    RANDOM_OF_TWO = "random_of_two"


@dataclass(frozen=True, slots=True)
class ModelSource:
    """The model to serve: exactly one of a catalogue name, the text of a config.json, and the dimensions themselves."""

    model: str | None = None
    config_json: str | None = None
    architecture: ModelArchitecture | None = None
    headline_parameters: float | None = None


@dataclass(frozen=True, slots=True)
class Hardware:
    """The GPUs that a plan may use, and their limits. Costs are in US dollars."""

    accelerators: tuple[str, ...]
    parallelism: ParallelismChoice = field(default_factory=ParallelismChoice)
    gpus_per_node: int | None = None
    maximum_gpus: int | None = None
    maximum_cost_usd_per_hour: float | None = None
    cost_usd_per_gpu_hour: Mapping[str, float] = field(default_factory=dict)
    failures_to_survive: int | None = None


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """How a simulation is run; None means chosen by the service, seed 0 means derived from the input."""

    seed: int = 0
    router: Router | None = None
    maximum_requests: int | None = None


@dataclass(frozen=True, slots=True)
class PlanInput:
    """What is asked of the planner."""

    method: PlanMethod | None
    model: ModelSource
    hardware: Hardware
    workload: Workload
    engine: EngineSettings = field(default_factory=EngineSettings)
    objectives: tuple[Objective, ...] = ()
    textbook: TextbookAssumptions | None = None
    simulation: SimulationOptions | None = None
    calibration: str = ""
    cold_start: StatedColdStart | None = None


@dataclass(frozen=True, slots=True)
class ResolvedInput:
    """What the names in a plan's input stood for when it was made, so that it can be recomputed years later.

    `engine` holds the one release whose constants were used; accelerators carry the price that was used.
    """

    model: Model
    accelerators: tuple[Accelerator, ...]
    engine: Engine


@dataclass(frozen=True, slots=True)
class Candidate:
    """One configuration and fleet that was considered; `broken_rules` is empty if it is feasible."""

    configuration: Configuration
    feasible: bool
    fleet: Fleet | None = None
    performance: Performance | None = None
    replica_capacity: ReplicaCapacity | None = None
    broken_rules: tuple[BrokenRule, ...] = ()
    on_pareto_front: bool = False


@dataclass(frozen=True, slots=True)
class PlanContent:
    """Everything that a plan computes: a pure function of the input, the catalogue and the service version."""

    input: PlanInput
    resolved: ResolvedInput
    configuration: Configuration
    memory: MemoryEstimate
    fleet: Fleet
    replica_capacity: ReplicaCapacity
    performance: Performance
    verdicts: tuple[ObjectiveVerdict, ...]
    steps: tuple[CalculationStep, ...]
    autoscaling_policy: AutoscalingPolicy
    warnings: tuple[PlanWarning, ...]
    calibration: str
    seed: int
    service_version: str
    evidence: tuple[FleetEvidence, ...] = ()
    alternatives: tuple[Candidate, ...] = ()
    pareto_front: tuple[Candidate, ...] = ()
    profiles: tuple[str, ...] = ()
    calibration_use: CalibrationUse | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan in a deployment. `revision` is 0 and `create_time` None for a plan that was not stored."""

    deployment_id: str
    revision: int
    content: PlanContent
    created_by: str = ""
    create_time: datetime | None = None
    delete_time: datetime | None = None

    @property
    def name(self) -> str:
        """`deployments/{deployment}/plans/{revision}`; empty for a plan that was not stored."""
        return plan_name(self.deployment_id, self.revision) if self.revision else ""


def plan_name(deployment_id: str, revision: int | str) -> str:
    """The resource name of a plan."""
    return f"deployments/{deployment_id}/plans/{revision}"
