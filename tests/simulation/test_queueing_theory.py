"""The simulator against results that have been known for a century."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferplan.simulation import (
    ConstantLength,
    Ending,
    EngineParameters,
    Fleet,
    IndependentLengths,
    ObservedLengths,
    Router,
    SimulationLimits,
    StepTimeCoefficients,
    TrafficClass,
    draw_requests,
    make_requests,
    poisson_arrivals,
    simulate_closed_loop,
    simulate_fleet,
)
from inferplan.simulation.percentiles import student_95
from support.simulation_cases import Case, cases

ONE_SECOND_STEPS = StepTimeCoefficients(0.0, 0.0, 0.0, host_seconds_per_step=1.0)
ONE_AT_A_TIME = EngineParameters(maximum_sequences=1, maximum_batched_tokens=64, kv_blocks=1000)
REPLICATIONS = 12


def mean_wait_with_half_width(
    lengths: ObservedLengths | IndependentLengths, rate_per_second: float
) -> tuple[float, float]:
    """Mean queue wait of independent runs and the half width of its 95 % interval."""
    means = []
    for seed in range(REPLICATIONS):
        requests = draw_requests([TrafficClass(lengths, poisson_arrivals(rate_per_second))], seed, request_count=40_000)
        outcome = simulate_fleet(ONE_SECOND_STEPS, ONE_AT_A_TIME, requests, Fleet(1))
        means.append(outcome.queue_wait_seconds[4_000:].mean())
    return float(np.mean(means)), student_95(REPLICATIONS - 1) * float(np.std(means, ddof=1)) / math.sqrt(REPLICATIONS)


@pytest.mark.parametrize("utilization", [0.3, 0.6, 0.8])
def test_m_d_1(utilization: float) -> None:
    """Constant service of 1 s (one step): W = rho / (2 (1 - rho))."""
    mean, half_width = mean_wait_with_half_width(IndependentLengths(ConstantLength(1), ConstantLength(1)), utilization)
    expected = utilization / (2 * (1 - utilization))
    # 1.5 half widths, about three standard errors: a right simulator fails one seed set in some hundred.
    assert abs(mean - expected) < 1.5 * half_width
    assert half_width < 0.05 * expected


@pytest.mark.parametrize("utilization", [0.4, 0.7])
def test_m_g_1(utilization: float) -> None:
    """Service of 1 s or 9 s (1 or 9 tokens, one step each): Pollaczek-Khinchine, W = rate E[S^2] / (2 (1 - rho))."""
    service_mean, service_square_mean = (3 * 1 + 9) / 4, (3 * 1 + 81) / 4
    rate = utilization / service_mean
    lengths = ObservedLengths(((1, 1), (1, 1), (1, 1), (1, 9)))
    mean, half_width = mean_wait_with_half_width(lengths, rate)
    assert abs(mean - rate * service_square_mean / (2 * (1 - utilization))) < 1.5 * half_width


@settings(max_examples=60)
@given(cases(), st.integers(1, 4), st.sampled_from(list(Router)))
def test_laws_that_hold_on_every_run(case: Case, replicas: int, router: Router) -> None:
    """Little: sequences integrated over time are times in service, summed. Nobody is lost; waits precede answers."""
    outcome = simulate_fleet(case.coefficients, case.engine, case.requests(True), Fleet(replicas, router))
    integral = sum(totals.sequence_seconds + totals.preempted_seconds for totals in outcome.replicas)
    in_service = outcome.end_to_end_seconds - outcome.queue_wait_seconds
    assert integral == pytest.approx(float(in_service.sum()), rel=1e-9)
    assert outcome.finished.all()
    assert sum(totals.requests for totals in outcome.replicas) == len(case.prompt_tokens)
    assert np.all(outcome.queue_wait_seconds >= 0)
    assert np.all(outcome.queue_wait_seconds < outcome.ttft_seconds)
    assert np.all(outcome.ttft_seconds <= outcome.end_to_end_seconds)
    assert sum(totals.preemptions for totals in outcome.replicas) == outcome.preemptions.sum()
    for totals in outcome.replicas:
        assert 0 <= totals.kv_occupancy <= totals.peak_kv_occupancy + 1e-12 <= 1 + 1e-12
        assert 0 <= totals.slot_occupancy <= 1 + 1e-12
    # Each output token is the first of its sequence, comes from a decode step, or ends a recomputed prompt.
    decode_tokens = sum(totals.decode_tokens for totals in outcome.replicas)
    assert sum(case.output_tokens) - len(case.prompt_tokens) - outcome.preemptions.sum() <= decode_tokens
    assert decode_tokens <= sum(case.output_tokens) - len(case.prompt_tokens)


@settings(max_examples=60)
@given(cases(), st.sampled_from([0.004, 0.1, 1.0]))
def test_a_run_that_is_cut_short_counts_who_is_left(case: Case, seconds: float) -> None:
    limits = SimulationLimits(maximum_seconds=seconds)
    outcome = simulate_fleet(case.coefficients, case.engine, case.requests(True), Fleet(1), limits=limits)
    whole = simulate_fleet(case.coefficients, case.engine, case.requests(True), Fleet(1))
    finish = whole.arrival_seconds + whole.end_to_end_seconds
    assert (outcome.ending is Ending.COMPLETED) == bool(outcome.finished.all())
    # No step starts after the limit, so what was finished by then is the same, and nothing starts later.
    assert np.all(outcome.finished[finish <= seconds])
    started = outcome.arrival_seconds + outcome.queue_wait_seconds
    assert np.all(started[~np.isnan(started)] < seconds)
    assert outcome.ended_seconds <= max(finish.max(), seconds)
    same = outcome.finished
    assert np.array_equal(outcome.end_to_end_seconds[same], whole.end_to_end_seconds[same])


SERVING = StepTimeCoefficients(4.5e-3, 2e-5, 1.7e-7, 3e-10, host_seconds_per_step=2e-3, host_seconds_per_sequence=2e-5)
REPLICA = EngineParameters(maximum_sequences=128, maximum_batched_tokens=2048, kv_blocks=7000)


def test_latencies_rise_with_the_rate() -> None:
    """The same traffic (common random numbers) played faster is never served sooner in the mean."""
    means = []
    for rate in (2.0, 5.0, 10.0, 15.0, 20.0, 25.0, 40.0):
        lengths = IndependentLengths(ConstantLength(500), ConstantLength(200))
        requests = draw_requests([TrafficClass(lengths, poisson_arrivals(rate))], 7, request_count=4000)
        outcome = simulate_fleet(SERVING, REPLICA, requests, Fleet(1))
        means.append((outcome.ttft_seconds.mean(), outcome.end_to_end_seconds.mean()))
    assert means == sorted(means)
    assert [mean[1] for mean in means] == sorted(mean[1] for mean in means)


def test_a_second_replica_never_hurts() -> None:
    requests = draw_requests(
        [TrafficClass(IndependentLengths(ConstantLength(500), ConstantLength(200)), poisson_arrivals(30.0))], 3, 6000
    )
    means = [simulate_fleet(SERVING, REPLICA, requests, Fleet(n)).end_to_end_seconds.mean() for n in (1, 2, 3, 4)]
    assert means == sorted(means, reverse=True)


@pytest.mark.parametrize("clients", [192, 256, 440])
def test_more_clients_than_slots_wait_for_the_service_rate(clients: int) -> None:
    """Closed loop in overload: TTFT = (clients - slots) / service rate, as on real hardware, plus the prefill itself.

    Measured on an H100 with Llama-3.1-8B (kubernetes-sigs/inference-perf, KubeCon NA 2025): 440 clients, 192 slots,
    113 requests/s: 2.06 to 2.20 s against 2.19 s.
    """
    requests = make_requests(np.full(8000, 204), np.full(8000, 62))
    outcome = simulate_closed_loop(SERVING, REPLICA, requests, clients)
    finish = outcome.arrival_seconds + outcome.end_to_end_seconds
    steady = slice(2000, 6000)
    service_rate = 4000 / (finish[5999] - finish[1999])
    expected = (clients - 128) / service_rate
    assert outcome.queue_wait_seconds[steady].mean() == pytest.approx(expected, rel=0.03)
    assert outcome.ttft_seconds[steady].mean() == pytest.approx(expected, rel=0.1)


def test_in_an_open_overload_the_wait_grows_with_every_request() -> None:
    """Arrivals at twice the service rate: the k-th request waits k (1 / service rate - 1 / arrival rate)."""
    rate = 2.0
    requests = make_requests(1, 1, np.arange(20_000) / rate)
    outcome = simulate_fleet(ONE_SECOND_STEPS, ONE_AT_A_TIME, requests, Fleet(1))
    assert outcome.queue_wait_seconds == pytest.approx(np.arange(20_000) * (1 - 1 / rate))
