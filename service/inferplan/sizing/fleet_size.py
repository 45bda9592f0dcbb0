"""The smallest fleet of one configuration that holds every objective, proven from both sides by simulation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from inferplan.sizing.evaluation import FleetEvaluation
from inferplan.sizing.performance import FleetEvidence, ObjectiveVerdict, Outcome, Performance

EvaluateFleet = Callable[[int], FleetEvaluation]


@dataclass(frozen=True, slots=True)
class ProvenFleet:
    """`replicas` hold; one fewer do not (`below`, None where there is only one). Too close to call is not holding."""

    replicas: int
    holding: FleetEvaluation
    below: FleetEvaluation | None


@dataclass(frozen=True, slots=True)
class NoFleet:
    """Not even `replicas`, the most that were allowed, hold."""

    replicas: int
    evaluation: FleetEvaluation


def smallest_fleet(
    evaluate: EvaluateFleet, requests_per_second: float | None, start: int, most: int
) -> ProvenFleet | NoFleet:
    """Search from `start`, a guess, until neighbours are found of which one holds and the smaller one does not.

    A saturated fleet shows what its replicas complete, which leads to the next guess. The answer is
    right for any evaluation, and the smallest where more replicas never do worse.
    """
    trials: dict[int, FleetEvaluation] = {}
    failing, holding = 0, 0
    guess, stride = min(max(1, start), most), 1
    while holding == 0 or holding - failing > 1:
        trials[guess] = evaluate(guess)
        if trials[guess].holds:
            holding = guess
        else:
            failing = guess
        if failing == most:
            return NoFleet(most, trials[most])
        if holding == 0:
            guess = min(most, max(failing + stride, _carrying(trials[failing], failing, requests_per_second)))
            stride *= 2
        elif failing == 0:
            guess = max(1, holding - stride)
            stride *= 2
        else:
            guess = (failing + holding) // 2
    return ProvenFleet(holding, trials[holding], trials.get(holding - 1))


def _carrying(evaluation: FleetEvaluation, replicas: int, requests_per_second: float | None) -> int:
    """Replicas that complete the load at the rate that a saturated fleet was seen to complete; 0 if it was not."""
    completed = evaluation.performance.requests_per_second
    if not evaluation.saturated or requests_per_second is None or completed <= 0:
        return 0
    return math.ceil(requests_per_second * replicas / completed - 1e-9)


def fleet_evidence(replicas: int, evaluation: FleetEvaluation, replicas_down: int = 0) -> FleetEvidence:
    """What was found of one fleet size, with a sentence that states it."""
    return FleetEvidence(
        replicas=replicas,
        holds=evaluation.holds is True,
        verdicts=evaluation.verdicts,
        performance=evaluation.performance,
        summary=_summary(replicas, evaluation, replicas_down),
        replicas_down=replicas_down,
        first_broken_after_seconds=evaluation.first_broken_after_seconds,
    )


def failures_text(evaluation: FleetEvaluation) -> str:
    """What an evaluation breaks: `P95 TTFT is 61.2 s, at most 0.5 s`; empty if it breaks nothing."""
    shown = [
        _verdict_text(verdict)
        for verdict in evaluation.verdicts
        if verdict.outcome in (Outcome.FAILS, Outcome.TOO_CLOSE_TO_CALL)
    ]
    if evaluation.saturated:
        shown.append(_queue_text(evaluation.performance))
    return "; ".join(shown)


def counted(replicas: int) -> str:
    """`1 replica`, `2 replicas`."""
    return f"{replicas} replica{'' if replicas == 1 else 's'}"


def _summary(replicas: int, evaluation: FleetEvaluation, replicas_down: int) -> str:
    fleet = counted(replicas)
    if replicas_down:
        fleet += f" with {replicas_down} down"
    if evaluation.holds:
        held = "; ".join(_verdict_text(verdict) for verdict in evaluation.verdicts)
        return f"{fleet}: every objective holds: {held}" if held else f"{fleet}: the queue does not grow"
    open_question = evaluation.holds is None and not evaluation.saturated
    found = failures_text(evaluation) or "the load is more than its replicas complete, if only just"
    text = f"{fleet}: {'too close to call' if open_question else 'fails'}: {found}"
    if evaluation.first_broken_after_seconds is not None:
        text += f"; first broken {evaluation.first_broken_after_seconds:.3g} s after the start"
    return text


def _verdict_text(verdict: ObjectiveVerdict) -> str:
    close = " (too close to call)" if verdict.outcome is Outcome.TOO_CLOSE_TO_CALL else ""
    limit = verdict.objective.maximum_seconds
    return f"{verdict.objective.label} is {_seconds(verdict.predicted_seconds)}, at most {_seconds(limit)}{close}"


def _queue_text(performance: Performance) -> str:
    growth = performance.queue_growth_requests_per_second
    return "the queue grows" + (f" by {growth:.3g} requests/s" if growth is not None else "")


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
