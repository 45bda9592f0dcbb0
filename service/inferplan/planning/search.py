"""Ranked configurations for a plan's input; nothing is stored."""

from __future__ import annotations

from dataclasses import dataclass

from inferplan.catalog import Catalog
from inferplan.errors import BrokenRule
from inferplan.planning.resolve import resolve_input
from inferplan.planning.simulated_plan import candidate_of, evaluation_settings, search_question
from inferplan.planning.simulation_options import DATASHEET, DATASHEET_WARNING
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


def search_configurations(
    catalog: Catalog, plan_input: PlanInput, cancellation: Cancellation | None = None
) -> SearchAnswer:
    """Every configuration that holds what is asked. None at all is an answer too: `ruled_out` says why.

    Raises CancelledError if the work was cancelled.
    """
    resolved, engine = resolve_input(catalog, plan_input)
    settings = evaluation_settings(plan_input, cancellation)
    result = try_candidates(search_question(plan_input, resolved, engine), settings)
    return SearchAnswer(
        candidates=tuple(candidate_of(ranked) for ranked in result.candidates),
        pareto_front=tuple(candidate_of(ranked) for ranked in result.pareto_front),
        ruled_out=tuple(entry.rule for entry in result.ruled_out),
        warnings=(DATASHEET_WARNING,),
        calibration=DATASHEET,
        seed=settings.seed,
    )
