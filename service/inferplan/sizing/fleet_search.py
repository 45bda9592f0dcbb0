"""The cheapest fleet that holds every objective: candidates pruned by closed-form bounds, decided by simulation."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from inferplan.errors import BrokenRule, NothingFitsError
from inferplan.simulation import StepTimeCoefficients
from inferplan.simulation.fleet import MAXIMUM_REPLICAS
from inferplan.sizing.bounds import RequestWork, work_of
from inferplan.sizing.candidates import CandidateReplica, enumerate_candidates
from inferplan.sizing.capacity import bounds_the_queue, overloaded_replica
from inferplan.sizing.evaluation import EvaluationSettings, FleetEvaluation, evaluate_fleet, first_run_requests
from inferplan.sizing.fleet import Fleet, fleet_of
from inferplan.sizing.fleet_bounds import BoundedCandidate, bound_candidate, broken_bounds, limit_rule
from inferplan.sizing.fleet_size import NoFleet, ProvenFleet, failures_text, fleet_evidence, smallest_fleet
from inferplan.sizing.performance import FleetEvidence
from inferplan.sizing.ranking import CandidateFigures, dominated_by, figures_of, on_front
from inferplan.sizing.search_question import SearchQuestion
from inferplan.sizing.traffic_requests import (
    closed_loop_requests,
    is_closed_loop,
    open_loop_requests,
    total_requests_per_second,
)
from inferplan.sizing.variants import promising_variants
from inferplan.sizing.workload import Workload

BRIEF_EXTENSION = 4
"""While candidates are compared, a run is extended to at most this many times its first length."""

SAMPLED_REQUESTS = 2000
"""Requests that the closed-form bounds are taken over."""

IDLE_FLEET_FACTOR = 64
"""An objective that breaks even on 64 times the replicas that the load needs, all but idle, breaks on any fleet."""


@dataclass(frozen=True, slots=True)
class RankedCandidate:
    """A configuration with the smallest fleet of it that holds; `proven` is what that rests on."""

    replica: CandidateReplica
    fleet: Fleet
    proven: ProvenFleet
    figures: CandidateFigures
    on_pareto_front: bool = False


@dataclass(frozen=True, slots=True)
class RuledOut:
    """A rule that a candidate broke. `replica` is None where it is not even a legal configuration that fits.

    `evaluation` is of the fleet that was simulated, None where closed form was enough.
    """

    rule: BrokenRule
    replica: CandidateReplica | None = None
    evaluation: FleetEvaluation | None = None


@dataclass(frozen=True, slots=True)
class SearchResult:
    """`candidates` are all that hold, cheapest first, then by P95 TTFT; the first is chosen.

    `evidence` is the chosen fleet's: N, N - 1, and N with spares while `failures_to_survive` are down. `pareto_front`
    holds the candidates that no other beats in cost, P95 TTFT, P95 TPOT and GPUs at once.
    """

    candidates: tuple[RankedCandidate, ...]
    pareto_front: tuple[RankedCandidate, ...]
    ruled_out: tuple[RuledOut, ...]
    evidence: tuple[FleetEvidence, ...]

    @property
    def chosen(self) -> RankedCandidate:
        """The cheapest."""
        return self.candidates[0]


def search(question: SearchQuestion, settings: EvaluationSettings) -> SearchResult:
    """The cheapest configuration and fleet. Raises NothingFitsError with the rule that each candidate broke."""
    trial = try_candidates(question, settings)
    if not trial.candidates:
        raise NothingFitsError(
            "No configuration holds what is asked.", [ruled_out.rule for ruled_out in trial.ruled_out]
        )
    return dataclasses.replace(trial, evidence=_evidence(trial.chosen, question.limits.failures_to_survive))


def try_candidates(question: SearchQuestion, settings: EvaluationSettings) -> SearchResult:
    """What `search` finds, with an empty list of candidates where nothing holds; no evidence is gathered."""
    trial = _Trial(question, settings)
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


class _Trial:
    """One search as it goes on."""

    def __init__(self, question: SearchQuestion, settings: EvaluationSettings) -> None:
        self._question = question
        self._settings = settings
        closed = is_closed_loop(question.workload)
        self._requests_per_second = None if closed else total_requests_per_second(question.workload)
        self._work: dict[int, RequestWork] = {}
        self._simulated = 0
        self.found: list[RankedCandidate] = []
        self.ruled_out: list[RuledOut] = []

    def run(self) -> None:
        """Cheapest bound first, so that what is found early rules out most of the rest."""
        candidates = enumerate_candidates(self._question)
        self.ruled_out += [RuledOut(rule) for rule in candidates.broken_rules]
        bounded = [self._bounded(replica) for replica in candidates.fitting]
        bounded.sort(key=lambda candidate: (candidate.floor.rank, candidate.replica.label))
        failed: list[tuple[BoundedCandidate, NoFleet]] = []
        for candidate in bounded:
            if self._is_ruled_out(candidate):
                continue
            outcome = self._smallest_fleet(candidate)
            if isinstance(outcome, NoFleet) and outcome.evaluation.holds is None:
                start_at_most = dataclasses.replace(candidate, likely_replicas=outcome.replicas)
                outcome = self._smallest_fleet(start_at_most, thorough=True)
            if isinstance(outcome, NoFleet):
                failed.append((candidate, outcome))
            else:
                self.found.append(self._ranked(candidate.replica, outcome))
        self._try_variants_of_found()
        self._try_variants_of_failed(failed)
        self._settle_close_calls()

    def _bounded(self, replica: CandidateReplica) -> BoundedCandidate:
        return bound_candidate(
            replica,
            self._work_on(replica),
            self._requests_per_second,
            self._question.objectives,
            self._question.limits,
        )

    def _work_on(self, replica: CandidateReplica) -> RequestWork:
        coefficients = replica.model.coefficients
        window = coefficients.window_tokens if coefficients.windowed_fraction > 0 else 0
        if window not in self._work:
            self._work[window] = sampled_work(self._question.workload, coefficients, self._settings.seed)
        return self._work[window]

    def _is_ruled_out(self, candidate: BoundedCandidate) -> bool:
        """By closed form alone: out of reach, beyond the limits, or beaten in everything by what was found."""
        question, replica = self._question, candidate.replica
        rules = list(broken_bounds(candidate, self._work_on(replica), question.objectives, question.limits))
        better = dominated_by(candidate.floor, (found.figures for found in self.found))
        if not rules and better is not None:
            rules.append(_dominated_rule(candidate, better))
        cheapest = min((found.figures.cost_usd_per_hour for found in self.found), default=math.inf)
        if (
            not rules
            and self._simulated >= question.maximum_simulated_candidates
            and candidate.floor.cost_usd_per_hour > cheapest
        ):
            rules.append(
                BrokenRule(
                    "COSTS_MORE",
                    replica.label,
                    f"costs at least ${candidate.floor.cost_usd_per_hour:,.2f} an hour, more than ${cheapest:,.2f}; "
                    f"not simulated after {self._simulated} others",
                )
            )
        self.ruled_out += [RuledOut(rule, replica) for rule in rules]
        return bool(rules)

    def _evaluate(self, replica: CandidateReplica, replicas: int, *, thorough: bool = False) -> FleetEvaluation:
        """A fleet's verdicts. Not thorough: close calls, of which most are of no consequence, are left open early."""
        question, settings = self._question, self._settings
        if not thorough:
            first = first_run_requests(replica.model, question.workload, question.objectives)
            brief = first * BRIEF_EXTENSION
            settings = dataclasses.replace(settings, maximum_requests=min(brief, settings.maximum_requests or brief))
        return evaluate_fleet(replica.model, question.workload, question.objectives, replicas, settings)

    def _smallest_fleet(self, candidate: BoundedCandidate, *, thorough: bool = False) -> ProvenFleet | NoFleet:
        self._simulated += 1
        idle = min(MAXIMUM_REPLICAS, IDLE_FLEET_FACTOR * candidate.fewest_replicas)
        most = idle if candidate.most_replicas is None else min(idle, candidate.most_replicas)
        sustained = self._sustained(candidate.replica)

        def evaluate(replicas: int) -> FleetEvaluation:
            evaluation = self._evaluate(candidate.replica, replicas, thorough=thorough)
            if evaluation.holds and (self._requests_per_second or 0.0) > replicas * sustained:
                # The run was too short to see the queue grow.
                return dataclasses.replace(evaluation, holds=None)
            return evaluation

        return smallest_fleet(evaluate, self._requests_per_second, candidate.likely_replicas, most)

    def _sustained(self, replica: CandidateReplica) -> float:
        """Requests a second that a replica completes at most; infinite where an objective sees a growing queue."""
        question = self._question
        if self._requests_per_second is None or bounds_the_queue(question.objectives):
            return math.inf
        work = self._work_on(replica)
        overloaded = overloaded_replica(replica.model, question.workload, work, self._settings)
        return overloaded.performance.requests_per_second

    def _ranked(self, replica: CandidateReplica, proven: ProvenFleet) -> RankedCandidate:
        spares = self._question.limits.failures_to_survive
        performance = proven.holding.performance
        asked = sum(
            (traffic.requests_per_second or 0.0) * traffic.mean_output_tokens
            for traffic in self._question.workload.traffic_classes
        )
        fleet = fleet_of(
            proven.replicas,
            spares,
            replica.gpus,
            replica.accelerator.cost_usd_per_gpu_hour,
            asked or performance.output_tokens_per_second,
        )
        return RankedCandidate(replica, fleet, proven, figures_of(performance, fleet.cost_usd_per_hour, fleet.gpus))

    def _try_variants_of_found(self) -> None:
        """Other slots or budgets are worth a candidate only where they save a replica, and so become the cheapest."""
        spares = self._question.limits.failures_to_survive
        for parent in sorted(self.found, key=lambda candidate: candidate.figures.rank):
            below = parent.proven.below
            fewer = parent.proven.replicas - 1
            if below is None or (fewer + spares) * parent.replica.cost_usd_per_hour >= self._cheapest():
                continue
            for variant in promising_variants(self._question, parent.replica, below, fewer):
                bounded = self._bounded(variant)
                if bounded.fewest_replicas > fewer:
                    continue
                only_fewer = dataclasses.replace(bounded, likely_replicas=fewer, most_replicas=fewer)
                outcome = self._smallest_fleet(only_fewer)
                if isinstance(outcome, ProvenFleet):
                    self.found.append(self._ranked(variant, outcome))

    def _try_variants_of_failed(self, failed: list[tuple[BoundedCandidate, NoFleet]]) -> None:
        """Where no fleet of the defaults holds, another choice may; the candidate is ruled out only if none does."""
        for parent, outcome in failed:
            rule = _failed_rule(parent, outcome, self._question)
            self.ruled_out.append(RuledOut(rule, parent.replica, outcome.evaluation))
            if parent.floor.cost_usd_per_hour >= self._cheapest():
                continue
            for variant in promising_variants(self._question, parent.replica, outcome.evaluation, outcome.replicas):
                bounded = self._bounded(variant)
                if self._is_ruled_out(bounded):
                    continue
                found = self._smallest_fleet(bounded)
                if isinstance(found, ProvenFleet):
                    self.found.append(self._ranked(variant, found))

    def _settle_close_calls(self) -> None:
        """Look thoroughly at the sizes that were too close to call and would be the cheapest if they held."""
        looked_at: set[tuple[str, int]] = set()
        while (index := self._close_call(looked_at)) is not None:
            candidate = self.found[index]
            fewer = candidate.proven.replicas - 1
            looked_at.add((candidate.replica.label, fewer))
            thorough = self._evaluate(candidate.replica, fewer, thorough=True)
            proven: ProvenFleet | NoFleet = dataclasses.replace(candidate.proven, below=thorough)
            if thorough.holds:
                bounded = dataclasses.replace(
                    self._bounded(candidate.replica), likely_replicas=fewer, most_replicas=fewer
                )
                proven = self._smallest_fleet(bounded, thorough=True)
            assert isinstance(proven, ProvenFleet), "that size was just seen to hold"
            self.found[index] = self._ranked(candidate.replica, proven)

    def _close_call(self, looked_at: set[tuple[str, int]]) -> int | None:
        """A candidate whose next smaller size is open and would cost less than anything found."""
        spares = self._question.limits.failures_to_survive
        for index, candidate in enumerate(self.found):
            below, fewer = candidate.proven.below, candidate.proven.replicas - 1
            is_open = below is not None and below.holds is None
            would_be_cheapest = (fewer + spares) * candidate.replica.cost_usd_per_hour < self._cheapest()
            if is_open and would_be_cheapest and (candidate.replica.label, fewer) not in looked_at:
                return index
        return None

    def _cheapest(self) -> float:
        return min((found.figures.cost_usd_per_hour for found in self.found), default=math.inf)


def sampled_work(workload: Workload, coefficients: StepTimeCoefficients, seed: int) -> RequestWork:
    """The least work of a sample of requests, drawn as the simulation draws them, for the closed-form bounds."""
    draw = closed_loop_requests if is_closed_loop(workload) else open_loop_requests
    window = coefficients.window_tokens if coefficients.windowed_fraction > 0 else 0
    return work_of(draw(workload, seed, SAMPLED_REQUESTS), window)


def _dominated_rule(candidate: BoundedCandidate, better: CandidateFigures) -> BrokenRule:
    floor = candidate.floor
    return BrokenRule(
        "BEATEN",
        candidate.replica.label,
        f"takes at least ${floor.cost_usd_per_hour:,.2f} an hour and {floor.gpus} GPUs, with P95 TTFT of at least "
        f"{floor.ttft_seconds * 1e3:.4g} ms and P95 TPOT of {floor.tpot_seconds * 1e3:.4g} ms; another is better in "
        f"everything: ${better.cost_usd_per_hour:,.2f}, {better.gpus} GPUs, {better.ttft_seconds * 1e3:.4g} ms and "
        f"{better.tpot_seconds * 1e3:.4g} ms",
    )


def _failed_rule(candidate: BoundedCandidate, outcome: NoFleet, question: SearchQuestion) -> BrokenRule:
    """The limit, where it is what kept the fleet small; else the objective that no number of replicas holds."""
    found = failures_text(outcome.evaluation)
    if outcome.replicas == candidate.most_replicas:
        rule = limit_rule(candidate, question.limits, outcome.replicas + 1, "more is needed than is allowed:")
        return dataclasses.replace(
            rule, description=f"{rule.description}; with {outcome.replicas} active replicas, {found}"
        )
    return BrokenRule(
        "OBJECTIVE_BROKEN",
        candidate.replica.label,
        f"{found}, even with {outcome.replicas} replicas that are all but idle",
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
