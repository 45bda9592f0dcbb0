"""The kernel and the plain-Python scheduler agree to the request."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferplan.simulation.closed_loop import simulate_closed_loop, simulate_static_batches
from inferplan.simulation.fleet import Fleet, Router, simulate_fleet
from inferplan.simulation.outcome import Ending, SimulationOutcome
from support.reference_scheduler import (
    Job,
    ReferenceFleet,
    ReferenceReplica,
    play_closed_loop,
    play_static_batches,
)
from support.simulation_cases import Case, cases

RELATIVE = 1e-9
EXAMPLES = 150


def assert_same(outcome: SimulationOutcome, jobs: list[Job], replicas: list[ReferenceReplica]) -> None:
    assert outcome.ending is Ending.COMPLETED
    for index, job in enumerate(jobs):
        assert job.first_scheduled_seconds is not None
        assert job.first_token_seconds is not None
        assert job.finish_seconds is not None
        arrival = outcome.arrival_seconds[index]
        assert arrival == pytest.approx(job.arrival_seconds, rel=RELATIVE, abs=1e-15)
        absolute = (
            arrival + outcome.queue_wait_seconds[index],
            arrival + outcome.ttft_seconds[index],
            arrival + outcome.end_to_end_seconds[index],
        )
        expected = (job.first_scheduled_seconds, job.first_token_seconds, job.finish_seconds)
        assert absolute == pytest.approx(expected, rel=RELATIVE, abs=1e-15), index
        assert outcome.preemptions[index] == job.preemptions
    for totals, replica in zip(outcome.replicas, replicas, strict=True):
        assert totals.steps == replica.steps
        assert totals.prefill_tokens == replica.prefill_tokens
        assert totals.decode_tokens == replica.decode_tokens
        assert totals.sequence_seconds == pytest.approx(replica.sequence_seconds, rel=RELATIVE)
        occupied = totals.kv_occupancy * outcome.engine.kv_blocks * totals.busy_seconds
        assert occupied == pytest.approx(replica.block_seconds, rel=RELATIVE)
        assert replica.free_blocks == outcome.engine.kv_blocks
    assert_same_gaps(outcome, jobs)


def assert_same_gaps(outcome: SimulationOutcome, jobs: list[Job]) -> None:
    for traffic_class in range(2):
        gaps = [gap for job in jobs if job.traffic_class == traffic_class for gap in job.gaps_seconds]
        assert outcome.gap_counts[:, traffic_class].sum() == len(gaps)
        assert outcome.gap_counts.min() >= 0
        assert outcome.gap_seconds[:, traffic_class, 0].sum() == pytest.approx(sum(gaps), rel=1e-8)
        if gaps:
            assert outcome.gap_seconds[:, traffic_class, 1].max() == pytest.approx(max(gaps), rel=1e-8)


@settings(max_examples=EXAMPLES)
@given(cases())
def test_open_loop(case: Case) -> None:
    outcome = simulate_fleet(case.coefficients, case.engine, case.requests(True), Fleet(1))
    jobs, replica = case.jobs(True), case.replica()
    ReferenceFleet([replica], "round_robin").play(jobs)
    assert_same(outcome, jobs, [replica])


@settings(max_examples=EXAMPLES)
@given(cases(), st.integers(1, 20), st.sampled_from([0.0, 0.0317, 1.713]))
def test_closed_loop(case: Case, concurrency: int, ramp_seconds: float) -> None:
    outcome = simulate_closed_loop(
        case.coefficients, case.engine, case.requests(False), concurrency, ramp_seconds=ramp_seconds
    )
    jobs, replica = case.jobs(False), case.replica()
    play_closed_loop(replica, jobs, concurrency, ramp_seconds)
    assert_same(outcome, jobs, [replica])


@settings(max_examples=EXAMPLES)
@given(cases(), st.integers(1, 20))
def test_static_batches(case: Case, batch_size: int) -> None:
    outcome = simulate_static_batches(case.coefficients, case.engine, case.requests(False), batch_size)
    jobs, replica = case.jobs(False), case.replica()
    play_static_batches(replica, jobs, batch_size)
    assert_same(outcome, jobs, [replica])


@settings(max_examples=EXAMPLES)
@given(cases(), st.integers(1, 5), st.sampled_from(list(Router)), st.integers(0, 2**64 - 1))
def test_fleet(case: Case, replicas: int, router: Router, seed: int) -> None:
    outcome = simulate_fleet(case.coefficients, case.engine, case.requests(True), Fleet(replicas, router), seed=seed)
    jobs, references = case.jobs(True), [case.replica() for _ in range(replicas)]
    ReferenceFleet(references, router.value, seed).play(jobs)
    assert [int(where) for where in outcome.replica] == [job.replica for job in jobs]
    assert_same(outcome, jobs, references)


@settings(max_examples=EXAMPLES)
@given(cases(), st.integers(2, 4), st.sampled_from(list(Router)), st.sampled_from([0.0, 0.0213, 0.1711, 3.117]))
def test_fleet_that_loses_a_replica(case: Case, replicas: int, router: Router, failure_seconds: float) -> None:
    fleet = Fleet(replicas, router, failure_seconds)
    outcome = simulate_fleet(case.coefficients, case.engine, case.requests(True), fleet)
    jobs, references = case.jobs(True), [case.replica() for _ in range(replicas)]
    ReferenceFleet(references, router.value).play(jobs, failure_seconds)
    assert [int(where) for where in outcome.replica] == [job.replica for job in jobs]
    for index, job in enumerate(jobs):
        assert job.finish_seconds is not None
        finish = outcome.arrival_seconds[index] + outcome.end_to_end_seconds[index]
        assert finish == pytest.approx(job.finish_seconds, rel=RELATIVE)
    assert [totals.steps for totals in outcome.replicas] == [reference.steps for reference in references]
