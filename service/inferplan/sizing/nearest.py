"""Where nothing fits: the nearest question that has an answer, each found by a search of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from inferplan.catalog.accelerator import Accelerator
from inferplan.sizing.bounds import least_service_seconds
from inferplan.sizing.candidates import CandidateReplica, enumerate_candidates
from inferplan.sizing.capacity import scaled_workload
from inferplan.sizing.configuration import ParallelismChoice
from inferplan.sizing.evaluation import EvaluationSettings, evaluate_fleet
from inferplan.sizing.fleet_search import try_candidates
from inferplan.sizing.performance import ObjectiveVerdict, Outcome
from inferplan.sizing.sample import offered_requests_per_second, sampled_work, window_of
from inferplan.sizing.search_question import FleetLimits, SearchQuestion
from inferplan.sizing.search_result import RankedCandidate
from inferplan.sizing.traffic_requests import is_closed_loop

CANDIDATES_TRIED = 8
"""Of each relaxed question: a way out is wanted, not the best one."""

IDLE_UTILIZATION = 0.02
"""Load over capacity at which a replica shows what it can do at best."""


def nearest_that_fits(
    question: SearchQuestion, settings: EvaluationSettings, other_accelerators: tuple[Accelerator, ...] = ()
) -> str:
    """A sentence that names the smallest change after which something fits; empty if none was found.

    Tried in this order: another spread over GPUs, more GPUs or money, other accelerators, all of these, and last the
    objectives themselves.
    """
    for change, relaxed in _relaxations(question, other_accelerators):
        trial = try_candidates(dataclasses.replace(relaxed, maximum_simulated_candidates=CANDIDATES_TRIED), settings)
        if trial.candidates:
            return f"{change}: {_fleet_text(trial.chosen)}."
    return _objectives_within_reach(question, settings)


def _relaxations(
    question: SearchQuestion, other_accelerators: tuple[Accelerator, ...]
) -> Iterator[tuple[str, SearchQuestion]]:
    spread = dataclasses.replace(question, parallelism=ParallelismChoice())
    is_fixed = question.parallelism != ParallelismChoice()
    limits = question.limits
    is_limited = limits.maximum_gpus is not None or limits.maximum_cost_usd_per_hour is not None
    unlimited = FleetLimits(failures_to_survive=limits.failures_to_survive)
    if is_fixed:
        yield "with another parallelism", spread
    if is_limited:
        yield "with a larger quota or budget", dataclasses.replace(question, limits=unlimited)
        if is_fixed:
            yield "with another parallelism and a larger quota or budget", dataclasses.replace(spread, limits=unlimited)
    if other_accelerators:
        others = dataclasses.replace(spread, accelerators=other_accelerators)
        yield "with another accelerator", others
        if is_limited:
            yield (
                "with another accelerator and a larger quota or budget",
                dataclasses.replace(others, limits=unlimited),
            )


def _fleet_text(chosen: RankedCandidate) -> str:
    fleet = chosen.fleet
    spares = f" + {fleet.spare_replicas} spare" if fleet.spare_replicas else ""
    return (
        f"{chosen.replica.label}, replicas {fleet.active_replicas}{spares}, GPUs {fleet.gpus}, "
        f"${fleet.cost_usd_per_hour:,.2f} an hour"
    )


def _objectives_within_reach(question: SearchQuestion, settings: EvaluationSettings) -> str:
    """What the broken objectives would have to be, on the configuration that comes nearest to them while idle."""
    if is_closed_loop(question.workload) or not question.objectives:
        return ""
    best: tuple[float, CandidateReplica, tuple[ObjectiveVerdict, ...]] | None = None
    for replica in enumerate_candidates(question).fitting:
        verdicts = _idle_verdicts(question, replica, settings)
        excess = max(verdict.predicted_seconds / verdict.objective.maximum_seconds for verdict in verdicts)
        if best is None or excess < best[0]:
            best = excess, replica, verdicts
    if best is None:
        return ""
    needed = [
        f"{verdict.objective.label} of {verdict.predicted_seconds * 1e3:.4g} ms instead of "
        f"{verdict.objective.maximum_seconds * 1e3:.4g} ms"
        for verdict in best[2]
        if verdict.outcome is not Outcome.HOLDS
    ]
    return f"with {' and '.join(needed)}, which {best[1].label} reaches on an idle replica." if needed else ""


def _idle_verdicts(
    question: SearchQuestion, replica: CandidateReplica, settings: EvaluationSettings
) -> tuple[ObjectiveVerdict, ...]:
    model = replica.model
    work = sampled_work(question.workload, window_of(model.coefficients), settings.seed)
    most = 1.0 / least_service_seconds(model.coefficients, model.engine, work)
    factor = IDLE_UTILIZATION * most / offered_requests_per_second(question.workload)
    return evaluate_fleet(model, scaled_workload(question.workload, factor), question.objectives, 1, settings).verdicts
