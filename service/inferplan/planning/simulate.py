"""Playing a stored plan again: with another number of replicas, another load or another seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from inferplan.autoscaling.policy import AutoscalingPolicy
from inferplan.autoscaling.replay.replay import ScaleEvent
from inferplan.autoscaling.replay.report import ReplayInterval
from inferplan.errors import InvalidInputError, Violation
from inferplan.planning.coefficients import efficiency_of_use, use_warnings
from inferplan.planning.replica import ReplicaSetup, replica_memory
from inferplan.planning.resolve import ResolvedEngine
from inferplan.planning.simulation_options import load_violations, simulation_router
from inferplan.resources.plan import PlanContent, SimulationOptions
from inferplan.simulation import Cancellation
from inferplan.sizing.configuration import EngineSettings
from inferplan.sizing.evaluation import EvaluationSettings, ReplicaModel, evaluate_fleet, replica_model
from inferplan.sizing.explanation import PlanWarning
from inferplan.sizing.fleet import SECONDS_PER_HOUR
from inferplan.sizing.performance import ObjectiveVerdict, Performance
from inferplan.sizing.workload import Workload, objective_violations, workload_violations


@dataclass(frozen=True, slots=True)
class SimulationChanges:
    """What differs from the plan; None leaves it as it is."""

    replicas: int | None = None
    workload: Workload | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class PolicySuggestion:
    """The cheapest policy of a search that holds; `policies_played` is how many the search tried."""

    policy: AutoscalingPolicy
    gpu_hours: float
    attainment: float | None
    verdicts: tuple[ObjectiveVerdict, ...]
    policies_played: int


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """What came of it. `attainment` is the share of completed requests that met every objective, None without any.

    The fields from `intervals` on are of a replay: a load over time, with or without a policy.
    """

    performance: Performance
    verdicts: tuple[ObjectiveVerdict, ...]
    gpu_hours: float
    attainment: float | None
    warnings: tuple[PlanWarning, ...]
    seed: int
    intervals: tuple[ReplayInterval, ...] = ()
    static_peak_gpu_hours: float | None = None
    static_peak_replicas: int = 0
    scale_events: int = 0
    flaps: int = 0
    policy: AutoscalingPolicy | None = None
    worst_interval: ReplayInterval | None = None
    events: tuple[ScaleEvent, ...] = ()
    most_replicas: int = 0
    suggestion: PolicySuggestion | None = None


def simulate_plan(
    content: PlanContent,
    changes: SimulationChanges,
    cancellation: Cancellation | None = None,
    progress: Callable[[float], None] | None = None,
) -> SimulationReport:
    """Play the plan as it was resolved then, whatever the catalogue says today.

    Raises InvalidInputError for a load that the plan's engine cannot take, CancelledError if the run was cancelled.
    """
    workload = changes.workload or content.input.workload
    check_load(content, workload)
    model = replica_of_plan(content, workload)
    options = content.input.simulation or SimulationOptions()
    seed = changes.seed or content.seed or 1
    replicas = changes.replicas or content.fleet.active_replicas
    evaluation = evaluate_fleet(
        model,
        workload,
        content.input.objectives,
        replicas,
        EvaluationSettings(
            seed=seed,
            router=simulation_router(options.router),
            maximum_requests=options.maximum_requests,
            cancellation=cancellation,
            progress=progress,
        ),
    )
    performance = evaluation.performance
    played_seconds = (
        performance.simulated_requests / performance.requests_per_second if performance.requests_per_second else 0.0
    )
    goodput = performance.goodput_requests_per_second
    return SimulationReport(
        performance=performance,
        verdicts=evaluation.verdicts,
        gpu_hours=replicas * content.configuration.gpus_per_replica * played_seconds / SECONDS_PER_HOUR,
        attainment=goodput / performance.requests_per_second
        if goodput is not None and performance.requests_per_second
        else None,
        warnings=use_warnings(content.calibration_use) if content.calibration_use else (),
        seed=seed,
    )


def replica_of_plan(content: PlanContent, workload: Workload) -> ReplicaModel:
    """The plan's replica as the simulator takes it, every setting and coefficient as it was decided."""
    setup = _setup(content, workload)
    return replica_model(
        setup.served,
        setup.accelerator,
        setup.engine.release,
        replica_memory(setup),
        efficiency_of_use(content.calibration_use),
        setup.mean_context_tokens,
    )


def check_load(content: PlanContent, workload: Workload) -> None:
    """Raise InvalidInputError for a load that the plan's engine cannot take."""
    violations = [
        *workload_violations(workload, "workload"),
        *objective_violations(content.input.objectives, workload, "plan.input.objectives"),
        *load_violations(workload, "workload"),
    ]
    limit = content.configuration.max_model_len_tokens
    if not violations:
        longest = max(traffic.longest_context_tokens for traffic in workload.traffic_classes)
        if longest > limit:
            text = f"a prompt with its output has up to {longest} tokens, but the plan's max_model_len is {limit}"
            violations.append(Violation("workload.traffic_classes", text, "CONTEXT_TOO_LONG"))
    if violations:
        raise InvalidInputError(violations)


def _setup(content: PlanContent, workload: Workload) -> ReplicaSetup:
    """The plan's replica, every setting as it was decided."""
    configuration, resolved = content.configuration, content.resolved
    (accelerator,) = [item for item in resolved.accelerators if item.id == configuration.accelerator]
    engine = ResolvedEngine(resolved.engine, resolved.engine.releases[0], configuration.engine_version)
    return ReplicaSetup(
        model=resolved.model,
        accelerator=accelerator,
        engine=engine,
        settings=EngineSettings(
            engine=configuration.engine,
            version=configuration.engine_version,
            weight_precision=configuration.weight_precision,
            kv_precision=configuration.kv_precision,
            gpu_memory_utilization=configuration.gpu_memory_utilization,
            max_num_seqs=configuration.max_num_seqs,
            max_num_batched_tokens=configuration.max_num_batched_tokens,
            max_model_len_tokens=configuration.max_model_len_tokens,
            enable_prefix_caching=configuration.enable_prefix_caching,
        ),
        parallelism=configuration.parallelism,
        mean_context_tokens=workload.mean_context_tokens,
    )
