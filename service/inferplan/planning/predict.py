"""What a given configuration does under a given load: stateless, or for a stored plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from inferplan.catalog import Catalog
from inferplan.errors import InvalidInputError, NothingFitsError, Violation
from inferplan.planning.coefficients import (
    NO_STORED_CALIBRATIONS,
    CalibrationSource,
    ChosenCoefficients,
    calibration_violations,
    choose_coefficients,
    use_of,
    use_warnings,
)
from inferplan.planning.replica import ReplicaSetup, replica_memory, setup_violations
from inferplan.planning.resolve import (
    engine_violations,
    model_violations,
    resolve_accelerator,
    resolve_engine,
    resolve_model,
)
from inferplan.planning.simulation_options import (
    load_violations,
    percentile_violations,
    seed_from,
    simulation_router,
)
from inferplan.resources.calibration_use import CalibrationUse
from inferplan.resources.plan import ModelSource, SimulationOptions
from inferplan.simulation import Cancellation
from inferplan.sizing.configuration import Configuration, EngineSettings, ParallelismChoice
from inferplan.sizing.evaluation import EvaluationSettings, ReplicaModel, evaluate_fleet, replica_model
from inferplan.sizing.explanation import PlanWarning
from inferplan.sizing.memory import MemoryEstimate
from inferplan.sizing.performance import ObjectiveVerdict, Performance
from inferplan.sizing.workload import Objective, Workload, objective_violations, workload_violations


@dataclass(frozen=True, slots=True)
class PredictionRequest:
    """One configuration and one load, in a caller's terms. `requests` is how many to play; None: what is needed."""

    model: ModelSource
    accelerator: str
    workload: Workload
    parallelism: ParallelismChoice = field(default_factory=ParallelismChoice)
    engine: EngineSettings = field(default_factory=EngineSettings)
    objectives: tuple[Objective, ...] = ()
    replicas: int | None = None
    simulation: SimulationOptions | None = None
    requests: int | None = None
    calibration: str = ""


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the configuration does under the load."""

    configuration: Configuration
    performance: Performance
    verdicts: tuple[ObjectiveVerdict, ...]
    warnings: tuple[PlanWarning, ...]
    calibration: str
    seed: int
    calibration_use: CalibrationUse


def prediction_violations(
    catalog: Catalog,
    request: PredictionRequest,
    broken_parts: Collection[str] = (),
    calibrations: CalibrationSource = NO_STORED_CALIBRATIONS,
) -> list[Violation]:
    """Everything that is wrong with a request beyond its single fields; nothing is concluded from `broken_parts`."""
    checks: dict[str, Callable[[], list[Violation]]] = {
        "model": lambda: model_violations(catalog, request.model, "model"),
        "accelerator": lambda: _accelerator_violations(catalog, request.accelerator),
        "engine": lambda: engine_violations(catalog, request.engine, "engine"),
        "workload": lambda: workload_violations(request.workload, "workload"),
    }
    violations = [violation for part, check in checks.items() if part not in broken_parts for violation in check()]
    if not {"objectives", "workload"} & set(broken_parts):
        violations += objective_violations(request.objectives, request.workload, "objectives")
    if "engine" not in broken_parts and not engine_violations(catalog, request.engine, "engine"):
        engine = resolve_engine(catalog, request.engine).engine.id
        violations += calibration_violations(request.calibration, engine, calibrations, "calibration")
    violations += percentile_violations(request.objectives, request.requests, "objectives")
    violations += load_violations(request.workload, "workload")
    if violations or broken_parts:
        return violations
    found = setup_violations(_setup(catalog, request), "")
    return [dataclasses.replace(item, field=item.field.removeprefix(".").removeprefix("hardware.")) for item in found]


def predict(
    catalog: Catalog,
    request: PredictionRequest,
    cancellation: Cancellation | None = None,
    calibrations: CalibrationSource = NO_STORED_CALIBRATIONS,
) -> Prediction:
    """Play the load on the configuration.

    Raises NothingFitsError if the configuration does not fit the memory, CancelledError if the run was cancelled.
    """
    setup = _setup(catalog, request)
    memory = replica_memory(setup)
    if not memory.fits:
        raise NothingFitsError("The configuration does not start.", memory.broken_rules)
    options = request.simulation or SimulationOptions()
    seed = options.seed or seed_from(request)
    chosen = choose_coefficients(request.calibration, setup.engine.engine.id, request.engine.version, calibrations)
    evaluation = evaluate_fleet(
        _replica_model(setup, memory, chosen),
        request.workload,
        request.objectives,
        request.replicas or 1,
        EvaluationSettings(
            seed=seed,
            router=simulation_router(options.router),
            maximum_requests=options.maximum_requests,
            exact_requests=request.requests,
            cancellation=cancellation,
        ),
    )
    running = evaluation.performance.mean_running_sequences or 0.0
    use = use_of(chosen, memory.configuration, setup.model.architecture, request.workload, running)
    return Prediction(
        configuration=memory.configuration,
        performance=evaluation.performance,
        verdicts=evaluation.verdicts,
        warnings=(*use_warnings(use), *memory.warnings),
        calibration=chosen.name,
        seed=seed,
        calibration_use=use,
    )


def _setup(catalog: Catalog, request: PredictionRequest) -> ReplicaSetup:
    engine = resolve_engine(catalog, request.engine)
    contexts = [traffic.longest_context_tokens for traffic in request.workload.traffic_classes]
    return ReplicaSetup(
        model=resolve_model(catalog, request.model),
        accelerator=resolve_accelerator(catalog, request.accelerator),
        engine=engine,
        settings=request.engine,
        parallelism=request.parallelism.resolved(),
        longest_context_tokens=max(contexts),
        mean_context_tokens=request.workload.mean_context_tokens,
    )


def _replica_model(setup: ReplicaSetup, memory: MemoryEstimate, chosen: ChosenCoefficients) -> ReplicaModel:
    return replica_model(
        setup.served,
        setup.accelerator,
        setup.engine.release,
        memory,
        chosen.efficiency,
        setup.mean_context_tokens,
    )


def _accelerator_violations(catalog: Catalog, name: str) -> list[Violation]:
    if not name:
        return []
    try:
        resolve_accelerator(catalog, name)
    except InvalidInputError as error:
        return [violation.below("accelerator") for violation in error.violations]
    return []
