"""Ranked configurations for a plan's input; nothing is stored."""

from __future__ import annotations

from dataclasses import dataclass

from inferplan.catalog import Catalog
from inferplan.errors import BrokenRule
from inferplan.planning.coefficients import (
    NO_STORED_CALIBRATIONS,
    CalibrationSource,
    choose_coefficients,
    use_of,
    use_warnings,
)
from inferplan.planning.resolve import resolve_input
from inferplan.planning.simulated_plan import candidate_of, evaluation_settings, search_question
from inferplan.resources.calibration_use import CalibrationUse
from inferplan.resources.plan import Candidate, PlanInput
from inferplan.simulation import Cancellation
from inferplan.sizing.explanation import PlanWarning
from inferplan.sizing.fleet_search import try_candidates


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """Candidates that hold, best first, those on the Pareto front, and the rule that each of the others broke."""

    candidates: tuple[Candidate, ...]
    pareto_front: tuple[Candidate, ...]
    ruled_out: tuple[BrokenRule, ...]
    warnings: tuple[PlanWarning, ...]
    calibration: str
    seed: int
    calibration_use: CalibrationUse | None = None


def search_configurations(
    catalog: Catalog,
    plan_input: PlanInput,
    cancellation: Cancellation | None = None,
    calibrations: CalibrationSource = NO_STORED_CALIBRATIONS,
) -> SearchAnswer:
    """Every configuration that holds what is asked. None at all is an answer too: `ruled_out` says why.

    Raises CancelledError if the work was cancelled.
    """
    resolved, engine = resolve_input(catalog, plan_input)
    settings = evaluation_settings(plan_input, cancellation)
    chosen = choose_coefficients(plan_input.calibration, engine.engine.id, plan_input.engine.version, calibrations)
    result = try_candidates(search_question(plan_input, resolved, engine, chosen.efficiency), settings)
    uses = [
        use_of(chosen, item.replica.configuration, resolved.model.architecture, plan_input.workload, 0.0)
        for item in result.candidates[:1]
    ]
    return SearchAnswer(
        candidates=tuple(candidate_of(ranked) for ranked in result.candidates),
        pareto_front=tuple(candidate_of(ranked) for ranked in result.pareto_front),
        ruled_out=tuple(entry.rule for entry in result.ruled_out),
        warnings=use_warnings(uses[0]) if uses else (),
        calibration=chosen.name,
        seed=settings.seed,
        calibration_use=uses[0] if uses else None,
    )
