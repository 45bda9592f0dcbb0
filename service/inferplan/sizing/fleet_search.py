"""The cheapest fleet that holds every objective, with the proof, the runners-up and why the others do not hold."""

from __future__ import annotations

import dataclasses

from inferplan.errors import NothingFitsError
from inferplan.sizing.evaluation import EvaluationSettings
from inferplan.sizing.fleet_size import fleet_evidence
from inferplan.sizing.performance import FleetEvidence
from inferplan.sizing.ranking import on_front
from inferplan.sizing.search_question import SearchQuestion
from inferplan.sizing.search_result import RankedCandidate, SearchResult
from inferplan.sizing.search_trial import SearchTrial


def search(question: SearchQuestion, settings: EvaluationSettings) -> SearchResult:
    """The cheapest configuration and fleet.

    Raises NothingFitsError with the rule that each candidate broke, CancelledError if the work was cancelled.
    """
    result = try_candidates(question, settings)
    if not result.candidates:
        raise NothingFitsError(
            "No configuration holds what is asked.", [ruled_out.rule for ruled_out in result.ruled_out]
        )
    return dataclasses.replace(result, evidence=_evidence(result.chosen, question.limits.failures_to_survive))


def try_candidates(question: SearchQuestion, settings: EvaluationSettings) -> SearchResult:
    """What `search` finds, with an empty list of candidates where nothing holds; no evidence is gathered."""
    trial = SearchTrial(question, settings)
    trial.run()
    ranked = sorted(trial.found, key=lambda candidate: (candidate.figures.rank, candidate.replica.label))
    front = on_front([candidate.figures for candidate in ranked])
    candidates = tuple(
        dataclasses.replace(candidate, on_pareto_front=is_on_front)
        for candidate, is_on_front in zip(ranked, front, strict=True)
    )
    return SearchResult(
        candidates=candidates,
        pareto_front=tuple(candidate for candidate in candidates if candidate.on_pareto_front),
        ruled_out=tuple(trial.ruled_out),
        evidence=(),
    )


def _evidence(chosen: RankedCandidate, spares: int) -> tuple[FleetEvidence, ...]:
    """The chosen fleet, one replica less, and with its spares while the failures to survive have happened."""
    proven = chosen.proven
    evidence = [fleet_evidence(proven.replicas, proven.holding)]
    if proven.below is not None:
        evidence.append(fleet_evidence(proven.replicas - 1, proven.below))
    if spares:
        # Spares do not serve until they are needed, so that this is the fleet that was played already.
        evidence.append(fleet_evidence(proven.replicas + spares, proven.holding, spares))
    return tuple(evidence)
