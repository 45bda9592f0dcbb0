"""The search for the smallest fleet, over fleets whose answers are known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from inferplan.sizing.evaluation import FleetEvaluation
from inferplan.sizing.fleet_size import NoFleet, ProvenFleet, fleet_evidence, smallest_fleet
from inferplan.sizing.performance import ObjectiveVerdict, Outcome, Performance
from inferplan.sizing.workload import LatencyMetric, Objective

OBJECTIVE = Objective(LatencyMetric.TTFT, 95.0, 0.5)


def evaluation(holds: bool | None, completed: float = 10.0, saturated: bool = False) -> FleetEvaluation:
    outcome = {True: Outcome.HOLDS, False: Outcome.FAILS, None: Outcome.TOO_CLOSE_TO_CALL}[holds]
    seconds = 0.1 if holds else 61.2
    return FleetEvaluation(
        performance=Performance((), completed, completed, saturated=saturated, queue_growth_requests_per_second=4.0),
        verdicts=(ObjectiveVerdict(OBJECTIVE, seconds, outcome),),
        holds=holds,
        saturated=saturated,
        first_broken_after_seconds=None if holds else 14.0,
        simulated_requests=1000,
    )


@given(
    needed=st.integers(1, 300),
    start=st.integers(1, 500),
    most=st.integers(1, 400),
    completed_by_one=st.floats(0.3, 1.0),
    open_below=st.integers(0, 3),
)
def test_the_smallest_fleet_is_found_from_anywhere(
    needed: int, start: int, most: int, completed_by_one: float, open_below: int
) -> None:
    """`needed` replicas hold; just below, some sizes are too close to call, which is not holding."""
    tried: list[int] = []

    def evaluate(replicas: int) -> FleetEvaluation:
        tried.append(replicas)
        if replicas >= needed:
            return evaluation(True)
        if replicas >= needed - open_below:
            return evaluation(None)
        return evaluation(False, completed_by_one * replicas, saturated=replicas % 2 == 0)

    found = smallest_fleet(evaluate, float(needed), start, most)
    assert len(tried) == len(set(tried)) <= 30
    assert max(tried) <= most
    if needed > most:
        assert isinstance(found, NoFleet)
        assert (found.replicas, found.evaluation.holds is True) == (most, False)
        return
    assert isinstance(found, ProvenFleet)
    assert found.replicas == needed
    assert found.holding.holds is True
    if needed == 1:
        assert found.below is None
    else:
        assert found.below is not None
        assert found.below.holds is not True


def test_evidence_states_both_sides_in_words() -> None:
    holding = fleet_evidence(5, evaluation(True))
    assert holding.holds
    assert holding.summary == "5 replicas: every objective holds: P95 TTFT is 100 ms, at most 500 ms"
    failing = fleet_evidence(1, evaluation(False, saturated=True))
    assert not failing.holds
    assert failing.summary == (
        "1 replica: fails: P95 TTFT is 61.2 s, at most 500 ms; the queue grows by 4 requests/s; "
        "first broken 14 s after the start"
    )


def test_too_close_to_call_is_not_holding_and_says_so() -> None:
    evidence = fleet_evidence(4, evaluation(None), replicas_down=1)
    assert not evidence.holds
    assert evidence.replicas_down == 1
    assert "too close to call" in evidence.summary
