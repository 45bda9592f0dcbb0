"""One search as it goes on: bounds first, short runs to find each candidate's fleet, long runs to prove it.

Short runs are cheap and now and then wrong at the edge, so nothing is promised on them. A candidate is proven, both its
N and its N - 1 by long runs, as long as one replica less of it would beat the cheapest that is proven; of the others,
which cannot be the cheapest, N alone is confirmed.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from inferplan.errors import BrokenRule
from inferplan.simulation.fleet import MAXIMUM_REPLICAS
from inferplan.sizing.bounds import RequestWork
from inferplan.sizing.candidates import CandidateReplica, enumerate_candidates
from inferplan.sizing.capacity import bounds_the_queue, overloaded_replica
from inferplan.sizing.evaluation import EvaluationSettings, FleetEvaluation, evaluate_fleet, first_run_requests
from inferplan.sizing.fleet import fleet_of
from inferplan.sizing.fleet_bounds import BoundedCandidate, bound_candidate, broken_bounds, limit_rule
from inferplan.sizing.fleet_size import NoFleet, ProvenFleet, counted, failures_text, smallest_fleet
from inferplan.sizing.ranking import CandidateFigures, dominated_by, figures_of
from inferplan.sizing.sample import offered_requests_per_second, sampled_work, window_of
from inferplan.sizing.search_question import SearchQuestion
from inferplan.sizing.search_result import RankedCandidate, RuledOut
from inferplan.sizing.traffic_requests import has_trace, is_closed_loop
from inferplan.sizing.variants import promising_variants

IDLE_FLEET_FACTOR = 64
"""An objective that breaks even on 64 times the replicas that the load needs, all but idle, breaks on any fleet."""


@dataclass(slots=True)
class _Entry:
    """A candidate with a fleet that holds. `proven` is whether that rests on long runs.

    A variant of another candidate's slots or budget is there only as long as it needs fewer replicas than that one.
    """

    bounded: BoundedCandidate
    ranked: RankedCandidate
    proven: bool = False
    is_variant: bool = False

    @property
    def cost(self) -> float:
        return self.ranked.figures.cost_usd_per_hour

    @property
    def cost_of_one_less(self) -> float:
        """What the fleet would cost with a replica less; infinite where there is none to take away."""
        if self.ranked.proven.replicas == 1:
            return math.inf
        return self.cost - self.ranked.replica.cost_usd_per_hour


class SearchTrial:
    """Runs one search. `found` are the candidates that hold, in no order, `ruled_out` the others."""

    def __init__(self, question: SearchQuestion, settings: EvaluationSettings) -> None:
        self._question = question
        self._settings = settings
        closed = is_closed_loop(question.workload)
        self._requests_per_second = None if closed else offered_requests_per_second(question.workload)
        self._work: dict[int, RequestWork] = {}
        self._sustained: dict[str, float] = {}
        self._simulated = 0
        self._entries: list[_Entry] = []
        self._failed: list[tuple[BoundedCandidate, NoFleet]] = []
        self._varied: set[str] = set()
        self.ruled_out: list[RuledOut] = []

    @property
    def found(self) -> list[RankedCandidate]:
        """The candidates that hold."""
        return [entry.ranked for entry in self._entries]

    def run(self) -> None:
        """Until nothing that is left could be the cheapest or join the Pareto front."""
        candidates = enumerate_candidates(self._question)
        self.ruled_out += [RuledOut(rule) for rule in candidates.broken_rules]
        pending = [self._bounded(replica) for replica in candidates.fitting]
        # Cheapest bound first, so that what is found early spares most of the rest.
        pending.sort(key=lambda candidate: (candidate.floor.rank, candidate.replica.label))
        pending = [candidate for candidate in pending if not self._is_out_of_reach(candidate)]
        while True:
            spared = []
            for candidate in pending:
                if self._reason_to_spare(candidate) is None:
                    self._explore(candidate)
                else:
                    spared.append(candidate)
            self._prove()
            added = self._explore_variants()
            pending = spared
            # Long runs may have made what spared a candidate look worse.
            if not added and all(self._reason_to_spare(candidate) is not None for candidate in pending):
                break
        reasons = [(self._reason_to_spare(candidate), candidate.replica) for candidate in pending]
        self.ruled_out += [RuledOut(rule, replica) for rule, replica in reasons if rule is not None]

    def _bounded(self, replica: CandidateReplica) -> BoundedCandidate:
        return bound_candidate(
            replica,
            self._work_on(replica),
            self._requests_per_second,
            self._question.objectives,
            self._question.limits,
        )

    def _work_on(self, replica: CandidateReplica) -> RequestWork:
        window = window_of(replica.model.coefficients)
        if window not in self._work:
            self._work[window] = sampled_work(self._question.workload, window, self._settings.seed)
        return self._work[window]

    def _is_out_of_reach(self, candidate: BoundedCandidate) -> bool:
        """Whether closed form alone shows that no fleet of it holds, or that none is allowed."""
        question, replica = self._question, candidate.replica
        rules = list(broken_bounds(candidate, self._work_on(replica), question.objectives, question.limits))
        self.ruled_out += [RuledOut(rule, replica) for rule in rules]
        return bool(rules)

    def _reason_to_spare(self, candidate: BoundedCandidate) -> BrokenRule | None:
        """Why a candidate need not be simulated; None if it must be."""
        better = dominated_by(candidate.floor, (found.figures for found in self.found))
        if better is not None:
            return _beaten_rule(candidate, better)
        enough = self._simulated >= self._question.maximum_simulated_candidates
        cheapest = min((entry.cost for entry in self._entries), default=math.inf)
        if not enough or candidate.floor.cost_usd_per_hour <= cheapest:
            return None
        return BrokenRule(
            "COSTS_MORE",
            candidate.replica.label,
            f"costs at least ${candidate.floor.cost_usd_per_hour:,.2f} an hour, more than ${cheapest:,.2f}; not "
            f"simulated after {self._simulated} others",
        )

    def _explore(self, candidate: BoundedCandidate) -> None:
        """Find a candidate's fleet by short runs, by long ones only where short ones would rule it out."""
        self._simulated += 1
        outcome = self._smallest_fleet(candidate, candidate.likely_replicas, thorough=False)
        if isinstance(outcome, NoFleet) and not outcome.evaluation.saturated:
            outcome = self._smallest_fleet(candidate, outcome.replicas, thorough=True)
        if isinstance(outcome, NoFleet):
            self._rule_out(candidate, outcome)
        else:
            self._entries.append(_Entry(candidate, self._ranked(candidate.replica, outcome)))

    def _rule_out(self, candidate: BoundedCandidate, outcome: NoFleet) -> None:
        self._failed.append((candidate, outcome))
        rule = _failed_rule(candidate, outcome, self._question)
        self.ruled_out.append(RuledOut(rule, candidate.replica, outcome.evaluation))

    def _smallest_fleet(
        self,
        candidate: BoundedCandidate,
        start: int,
        *,
        thorough: bool,
        known: dict[int, FleetEvaluation] | None = None,
    ) -> ProvenFleet | NoFleet:
        """The smallest fleet by simulation; sizes in `known` are not played again."""
        idle = min(MAXIMUM_REPLICAS, IDLE_FLEET_FACTOR * candidate.fewest_replicas)
        most = idle if candidate.most_replicas is None else min(idle, candidate.most_replicas)

        def evaluate(replicas: int) -> FleetEvaluation:
            if known and replicas in known:
                return known[replicas]
            return self._evaluate(candidate.replica, replicas, thorough=thorough)

        return smallest_fleet(evaluate, self._requests_per_second, start, most)

    def _evaluate(self, replica: CandidateReplica, replicas: int, *, thorough: bool) -> FleetEvaluation:
        question, settings = self._question, self._settings
        if not thorough:
            brief = first_run_requests(replica.model, question.workload, question.objectives)
            settings = dataclasses.replace(settings, brief_requests=min(brief, settings.maximum_requests or brief))
        evaluation = evaluate_fleet(replica.model, question.workload, question.objectives, replicas, settings)
        if evaluation.holds and (self._requests_per_second or 0.0) > replicas * self._most_sustained(replica):
            # The run was too short to see the queue grow.
            return dataclasses.replace(evaluation, holds=None)
        return evaluation

    def _most_sustained(self, replica: CandidateReplica) -> float:
        """Requests a second that a replica completes at most; infinite where an objective sees a growing queue."""
        question = self._question
        if self._requests_per_second is None or bounds_the_queue(question.objectives):
            return math.inf
        if replica.label not in self._sustained:
            work = self._work_on(replica)
            overloaded = overloaded_replica(replica.model, question.workload, work, self._settings)
            self._sustained[replica.label] = overloaded.performance.requests_per_second
        return self._sustained[replica.label]

    def _ranked(self, replica: CandidateReplica, proven: ProvenFleet) -> RankedCandidate:
        spares = self._question.limits.failures_to_survive
        performance = proven.holding.performance
        classes = self._question.workload.traffic_classes
        asked = sum((traffic.requests_per_second or 0.0) * traffic.mean_output_tokens for traffic in classes)
        if has_trace(self._question.workload):
            asked = 0.0  # what is recorded counts, not what is stated
        fleet = fleet_of(
            proven.replicas,
            spares,
            replica.gpus,
            replica.accelerator.cost_usd_per_gpu_hour,
            asked or performance.output_tokens_per_second,
        )
        return RankedCandidate(replica, fleet, proven, figures_of(performance, fleet.cost_usd_per_hour, fleet.gpus))

    def _prove(self) -> None:
        """Long runs for all that was found by short ones, those first that may turn out the cheapest."""
        while (contender := self._contender()) is not None:
            self._run_long(contender, both_sides=True)
        for entry in [entry for entry in self._entries if not entry.proven]:
            self._run_long(entry, both_sides=False)

    def _contender(self) -> _Entry | None:
        """The cheapest that is not proven yet and is, or with a replica less would be, the cheapest of all."""
        proven = min((entry.cost for entry in self._entries if entry.proven), default=math.inf)
        open_entries = [
            entry
            for entry in self._entries
            if not entry.proven and (entry.cost <= proven or entry.cost_of_one_less < proven)
        ]
        return min(open_entries, key=lambda entry: entry.ranked.figures.rank, default=None)

    def _run_long(self, entry: _Entry, *, both_sides: bool) -> None:
        fleet = entry.ranked.proven
        known = {} if both_sides or fleet.below is None else {fleet.replicas - 1: fleet.below}
        outcome = self._smallest_fleet(entry.bounded, fleet.replicas, thorough=True, known=known)
        if isinstance(outcome, NoFleet):
            self._entries.remove(entry)
            if entry.is_variant:
                self.ruled_out.append(_useless_variant(entry.bounded, outcome))
            else:
                self._rule_out(entry.bounded, outcome)
            return
        entry.ranked = self._ranked(entry.bounded.replica, outcome)
        entry.proven = True

    def _explore_variants(self) -> bool:
        """Other slots or budgets where they could save a replica and so become the cheapest; whether any was added."""
        before = len(self._entries)
        for entry in sorted(self._entries, key=lambda entry: entry.ranked.figures.rank):
            below = entry.ranked.proven.below
            if below is not None and entry.cost_of_one_less < self._cheapest():
                self._explore_variants_of(entry.bounded, below, entry.ranked.proven.replicas - 1)
        for candidate, outcome in list(self._failed):
            if candidate.floor.cost_usd_per_hour < self._cheapest():
                self._explore_variants_of(candidate, outcome.evaluation, outcome.replicas)
        return len(self._entries) > before

    def _explore_variants_of(self, parent: BoundedCandidate, failing: FleetEvaluation, replicas: int) -> None:
        """Variants of a candidate that hold with as few replicas as it does not; each parent once."""
        if parent.replica.label in self._varied:
            return
        self._varied.add(parent.replica.label)
        for variant in promising_variants(self._question, parent.replica, failing, replicas):
            bounded = self._bounded(variant)
            self._varied.add(variant.label)
            if bounded.fewest_replicas > replicas or any(
                broken_bounds(bounded, self._work_on(variant), self._question.objectives, self._question.limits)
            ):
                continue
            limited = dataclasses.replace(bounded, most_replicas=replicas)
            outcome = self._smallest_fleet(limited, replicas, thorough=False)
            if isinstance(outcome, NoFleet):
                self.ruled_out.append(_useless_variant(limited, outcome))
            else:
                self._entries.append(_Entry(limited, self._ranked(variant, outcome), is_variant=True))

    def _cheapest(self) -> float:
        return min((entry.cost for entry in self._entries), default=math.inf)


def _beaten_rule(candidate: BoundedCandidate, better: CandidateFigures) -> BrokenRule:
    floor = candidate.floor
    return BrokenRule(
        "BEATEN",
        candidate.replica.label,
        f"takes at least ${floor.cost_usd_per_hour:,.2f} an hour and {floor.gpus} GPUs, with P95 TTFT of at least "
        f"{floor.ttft_seconds * 1e3:.4g} ms and P95 TPOT of {floor.tpot_seconds * 1e3:.4g} ms; another is better in "
        f"everything: ${better.cost_usd_per_hour:,.2f}, {better.gpus} GPUs, {better.ttft_seconds * 1e3:.4g} ms and "
        f"{better.tpot_seconds * 1e3:.4g} ms",
    )


def _useless_variant(candidate: BoundedCandidate, outcome: NoFleet) -> RuledOut:
    """Other slots or another budget than the engine's own that would not save a replica."""
    replica = candidate.replica
    found = failures_text(outcome.evaluation) or "the load is more than the replicas complete"
    rule = BrokenRule("SAVES_NO_REPLICA", replica.label, f"with {counted(outcome.replicas)}, {found}")
    return RuledOut(rule, replica, outcome.evaluation)


def _failed_rule(candidate: BoundedCandidate, outcome: NoFleet, question: SearchQuestion) -> BrokenRule:
    """The limit, where it is what kept the fleet small; else the objective that no number of replicas holds."""
    found = failures_text(outcome.evaluation) or "the load is more than the replicas complete"
    if outcome.replicas == candidate.most_replicas:
        rule = limit_rule(candidate, question.limits, outcome.replicas + 1, "more is needed than is allowed:")
        return dataclasses.replace(rule, description=f"{rule.description}; with {counted(outcome.replicas)}, {found}")
    return BrokenRule(
        "OBJECTIVE_BROKEN",
        candidate.replica.label,
        f"{found}, even with {counted(outcome.replicas)} all but idle",
    )
