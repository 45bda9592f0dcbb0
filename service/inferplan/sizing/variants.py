"""Other slots and token budgets than the engine's own, where what a fleet breaks gives a reason to try them."""

from __future__ import annotations

import math

from inferplan.sizing.candidates import CandidateReplica, variants_of
from inferplan.sizing.evaluation import FleetEvaluation
from inferplan.sizing.performance import Outcome
from inferplan.sizing.search_question import SearchQuestion
from inferplan.sizing.workload import LatencyMetric

_OF_STEP_TIME = {LatencyMetric.TPOT, LatencyMetric.INTER_TOKEN, LatencyMetric.END_TO_END}
_OF_QUEUE = {LatencyMetric.TTFT, LatencyMetric.QUEUE_WAIT, LatencyMetric.END_TO_END}

_NEAR_FULL = 0.5
"""Mean running sequences over slots from which bursts are taken to fill them."""


def promising_variants(
    question: SearchQuestion, candidate: CandidateReplica, failing: FleetEvaluation, replicas: int
) -> tuple[CandidateReplica, ...]:
    """Variants that may hold where `failing`, an evaluation of `replicas` replicas, did not.

    Where steps are too slow: fewer sequences at once than run now, and smaller chunks of prefill between decode steps.
    Where requests wait too long: more slots if they are what requests wait for, and larger chunks.
    """
    broken = {
        verdict.objective.metric
        for verdict in failing.verdicts
        if verdict.outcome in (Outcome.FAILS, Outcome.TOO_CLOSE_TO_CALL)
    }
    slots, budget = candidate.configuration.max_num_seqs, candidate.configuration.max_num_batched_tokens
    running = (failing.performance.mean_running_sequences or 0.0) / replicas
    sequences: list[int] = []
    budgets: list[int] = []
    if broken & _OF_STEP_TIME:
        # Half of the slots changes nothing where fewer sequences run anyway.
        filled = min(slots, 1 << math.ceil(math.log2(max(2.0, running))))
        sequences += [filled // 2, filled] if filled < slots else [filled // 2]
        budgets += [budget // 2, budget // 4]
    if broken & _OF_QUEUE:
        if running >= _NEAR_FULL * slots:
            sequences.append(2 * slots)
        budgets.append(2 * budget)
    return variants_of(question, candidate, tuple(sequences), tuple(budgets)).fitting
