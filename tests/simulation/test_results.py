from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferplan.errors import InvalidInputError
from inferplan.simulation import (
    Cancellation,
    ConstantLength,
    EngineParameters,
    Fleet,
    IndependentLengths,
    LatencyObjective,
    LatencyReport,
    Metric,
    RateArrivals,
    SimulationLimits,
    SimulationOutcome,
    StepTimeCoefficients,
    TrafficClass,
    UniformLength,
    Verdict,
    assess_saturation,
    draw_requests,
    make_requests,
    poisson_arrivals,
    requests_for_interval,
    requests_for_percentile,
    simulate_closed_loop,
    simulate_fleet,
    simulate_static_batches,
)
from inferplan.simulation.percentiles import interval_of, percentile_of
from support.reference_scheduler import Job, ReferenceReplica

SERVING = StepTimeCoefficients(4.5e-3, 2e-5, 1.7e-7, 3e-10, host_seconds_per_step=2e-3, host_seconds_per_sequence=2e-5)
ENGINE = EngineParameters(maximum_sequences=128, maximum_batched_tokens=2048, kv_blocks=7000)
SECOND_STEPS = StepTimeCoefficients(0.0, 0.0, 0.0, host_seconds_per_step=1.0)


def chat(
    rate_per_second: float, count: int, replicas: int = 1, variation: float = 1.0, seed: int = 1
) -> SimulationOutcome:
    lengths = IndependentLengths(ConstantLength(500), UniformLength(100, 300))
    requests = draw_requests([TrafficClass(lengths, RateArrivals(rate_per_second, variation))], seed, count)
    return simulate_fleet(SERVING, ENGINE, requests, Fleet(replicas))


@given(st.lists(st.floats(0, 1e6), min_size=200, max_size=400), st.sampled_from([5.0, 50.0, 90.0, 95.0]))
def test_a_percentile_is_the_smallest_value_that_enough_do_not_exceed(values: list[float], percentile: float) -> None:
    array = np.array(values)
    found = percentile_of(array, percentile)
    assert found in values
    assert np.mean(array <= found) >= percentile / 100 - 1e-12
    assert np.mean(array < found) < percentile / 100


@pytest.mark.parametrize(
    ("percentile", "needed"), [(50, 20), (90, 100), (95, 200), (99, 1000), (99.9, 10_000), (5, 200)]
)
def test_percentiles_need_requests(percentile: float, needed: int) -> None:
    assert requests_for_percentile(percentile) == needed
    assert requests_for_interval(percentile) == 5 * needed
    percentile_of(np.arange(needed, dtype=float), percentile)
    with pytest.raises(InvalidInputError, match=f"at least {needed} requests"):
        percentile_of(np.arange(needed - 1, dtype=float), percentile)
    with pytest.raises(InvalidInputError, match=f"at least {5 * needed} requests"):
        interval_of(np.arange(5 * needed - 1, dtype=float), percentile)


@pytest.mark.parametrize("percentile", [0.0, 100.0, -1.0, math.nan, math.inf])
def test_percentiles_outside_the_scale_are_refused(percentile: float) -> None:
    with pytest.raises(InvalidInputError):
        percentile_of(np.arange(1000.0), percentile)
    with pytest.raises(InvalidInputError):
        LatencyObjective(Metric.TTFT, percentile, 1.0)


def m_m_1_sojourn_times(random: np.random.Generator, utilization: float, count: int) -> np.ndarray:
    """Sojourn times of a queue with mean service 1, by Lindley's recursion; exponential with mean 1 / (1 - rho)."""
    service = random.exponential(1.0, count)
    walk = np.concatenate(([0.0], np.cumsum(service[:-1] - random.exponential(1 / utilization, count - 1))))
    return walk - np.minimum.accumulate(walk) + service


@pytest.mark.parametrize(
    ("utilization", "count", "percentile", "lowest"),
    [(0.01, 4_000, 95, 0.90), (0.5, 10_000, 95, 0.88), (0.8, 60_000, 95, 0.85), (0.5, 20_000, 99, 0.85)],
)
def test_intervals_cover_the_truth(utilization: float, count: int, percentile: float, lowest: float) -> None:
    """Nominally 95 %: met where requests are nearly independent, somewhat less in a queue with a long memory."""
    truth = -math.log(1 - percentile / 100) / (1 - utilization)
    random = np.random.default_rng(11)
    covered = 0
    for _ in range(200):
        values = m_m_1_sojourn_times(random, utilization, count + 2000)[2000:]
        interval = interval_of(values, percentile)
        covered += interval.lower <= truth <= interval.upper
    assert lowest <= covered / 200 <= 0.995


def test_latencies_of_a_run_by_hand() -> None:
    """One at a time, 1 s a step: outputs 3, 1 and 5 all sent at 0."""
    engine = EngineParameters(1, 64, 100)
    requests = make_requests(8, [3, 1, 5], [0.0, 0.0, 0.0])
    report = LatencyReport(simulate_fleet(SECOND_STEPS, engine, requests, Fleet(1)), 0.25, warm_up_periods=0)
    assert report.values(Metric.QUEUE_WAIT).tolist() == [0, 3, 4]
    assert report.values(Metric.TTFT).tolist() == [1.25, 4.25, 5.25]
    assert report.values(Metric.END_TO_END).tolist() == [3.25, 4.25, 9.25]
    assert report.values(Metric.TPOT).tolist() == [1.0, 1.0]  # an output of one token has none
    assert report.mean(Metric.INTER_TOKEN) == pytest.approx(1.0)
    assert report.gaps().tokens == 2 + 4
    assert report.measured_seconds == (0.0, 9.0)
    assert report.throughput_requests_per_second() == pytest.approx(3 / 9)
    assert report.throughput_output_tokens_per_second() == pytest.approx(9 / 9)
    objectives = [LatencyObjective(Metric.TTFT, 95, 5.0), LatencyObjective(Metric.TPOT, 95, 1.5)]
    assert report.goodput_requests_per_second(objectives) == pytest.approx(2 / 9)


def test_inter_token_percentiles_are_those_of_every_single_token() -> None:
    """Against the gaps that the plain-Python scheduler collects one by one; 0.4 % for the bins."""
    random = np.random.default_rng(2)
    prompts, outputs = random.integers(1, 900, 300), random.integers(1, 60, 300)
    arrivals = np.cumsum(random.exponential(0.02, 300))
    outcome = simulate_fleet(SERVING, ENGINE, make_requests(prompts, outputs, arrivals), Fleet(1))
    replica = ReferenceReplica(SERVING, ENGINE)
    jobs = [Job(int(p), int(o), arrival_seconds=float(a)) for p, o, a in zip(prompts, outputs, arrivals, strict=True)]
    replica.waiting.extend(jobs)
    while replica.next_start() < math.inf:
        replica.step()
    gaps = np.sort([gap for job in jobs for gap in job.gaps_seconds])
    report = LatencyReport(outcome, warm_up_periods=0)
    for percentile in (1.0, 10.0, 50.0, 90.0, 95.0, 99.0):
        exact = gaps[math.ceil(percentile / 100 * gaps.size) - 1]
        assert report.percentile(Metric.INTER_TOKEN, percentile) == pytest.approx(exact, rel=0.004)
    assert report.mean(Metric.INTER_TOKEN) == pytest.approx(gaps.mean())
    assert report.gaps().largest_seconds == pytest.approx(gaps.max())
    limit = float(np.quantile(gaps, 0.7)) * 1.01
    assert report.gaps().share_within(limit) == pytest.approx(np.mean(gaps <= limit), abs=0.01)


def test_classes_are_measured_on_their_own() -> None:
    classes = [
        TrafficClass(IndependentLengths(ConstantLength(100), ConstantLength(50)), poisson_arrivals(5.0), "short"),
        TrafficClass(IndependentLengths(ConstantLength(3000), ConstantLength(5)), poisson_arrivals(1.0), "long"),
    ]
    outcome = simulate_fleet(SERVING, ENGINE, draw_requests(classes, 0, 6000), Fleet(1))
    report = LatencyReport(outcome)
    long_prompts = report.percentile(Metric.TTFT, 50, "long")
    assert long_prompts > 3 * report.percentile(Metric.TTFT, 50, "short")
    both = report.values(Metric.TTFT, "long").size + report.values(Metric.TTFT, "short").size
    assert both == report.values(Metric.TTFT).size == math.floor(0.9 * outcome.requests.count)
    tokens = report.gaps("long").tokens + report.gaps("short").tokens
    assert tokens == report.gaps().tokens
    limit = LatencyObjective(Metric.TTFT, 95, long_prompts / 2, "long")
    assert report.goodput_requests_per_second([limit]) < report.throughput_requests_per_second()
    assert report.goodput_requests_per_second([limit]) >= report.throughput_requests_per_second("short")
    with pytest.raises(InvalidInputError, match="short, long"):
        report.mean(Metric.TTFT, "other")


def test_warm_up_is_left_out() -> None:
    outcome = chat(5.0, 1000)
    assert LatencyReport(outcome, warm_up_periods=0).values(Metric.TTFT).size == 1000
    trimmed = LatencyReport(outcome, warm_up_periods=4, cool_down_periods=1)
    assert np.array_equal(trimmed.values(Metric.TTFT), outcome.ttft_seconds[200:950])
    for wrong in (-1, 20):
        with pytest.raises(InvalidInputError):
            LatencyReport(outcome, warm_up_periods=wrong)


def test_verdicts_need_the_interval_on_one_side() -> None:
    report = LatencyReport(chat(10.0, 10_000))
    for metric in Metric:
        interval = report.interval(metric, 95)
        measured = report.percentile(metric, 95)
        assert interval.lower <= measured <= interval.upper
        for limit, verdict in (
            (interval.upper * 1.001, Verdict.HOLDS),
            (max(interval.lower * 0.999, 1e-12), Verdict.BREAKS if interval.lower > 0 else Verdict.UNCLEAR),
        ):
            assert report.judge(LatencyObjective(metric, 95, limit)).verdict is verdict
        if interval.lower < measured < interval.upper:
            result = report.judge(LatencyObjective(metric, 95, measured))
            assert result.verdict is Verdict.UNCLEAR
            assert result.attainment == pytest.approx(0.95, abs=0.02)


def test_unanswered_requests_are_infinitely_late() -> None:
    requests = make_requests(1, 1, np.arange(2000) * 0.5)  # twice what one a second can bear
    engine = EngineParameters(1, 64, 100)
    outcome = simulate_fleet(SECOND_STEPS, engine, requests, Fleet(1), limits=SimulationLimits(maximum_seconds=1000.0))
    report = LatencyReport(outcome, warm_up_periods=0)
    assert report.percentile(Metric.END_TO_END, 45) < math.inf
    assert report.percentile(Metric.END_TO_END, 95) == math.inf
    result = report.judge(LatencyObjective(Metric.END_TO_END, 95, 1e9))
    assert result.verdict is not Verdict.HOLDS
    assert result.attainment == pytest.approx(0.5, abs=0.01)


def test_an_overload_is_called_saturated_with_its_growth() -> None:
    outcome = chat(60.0, 20_000)
    verdict = assess_saturation(outcome)
    assert verdict is not None
    assert verdict.saturated
    assert verdict.arrival_rate_per_second == pytest.approx(60, rel=0.03)
    growth = verdict.arrival_rate_per_second - verdict.completion_rate_per_second
    assert verdict.growth_requests_per_second == pytest.approx(growth, rel=0.01)
    assert verdict.waiting_growth_requests_per_second == pytest.approx(growth, rel=0.05)
    report = LatencyReport(outcome)
    broken = report.first_broken_seconds(LatencyObjective(Metric.TTFT, 95, 1.0))
    assert broken is not None
    assert 0 <= broken < 60


def test_saturation_of_a_server_with_a_known_capacity() -> None:
    """Capacity 1 a second: called saturated at 1.1, not below 1, even where it is bursty and near."""
    engine = EngineParameters(1, 64, 100)

    def verdicts(rate: float, variation: float) -> list[bool | None]:
        found = []
        for seed in range(40):
            traffic = TrafficClass(
                IndependentLengths(ConstantLength(1), ConstantLength(1)), RateArrivals(rate, variation)
            )
            outcome = simulate_fleet(SECOND_STEPS, engine, draw_requests([traffic], seed, 20_000), Fleet(1))
            saturation = assess_saturation(outcome)
            assert saturation is not None
            found.append(saturation.saturated)
        return found

    assert all(verdicts(1.1, 1.0))
    assert all(verdicts(2.0, 3.0))
    assert not any(verdicts(0.95, 0.0))
    assert sum(map(bool, verdicts(0.5, 1.0))) <= 1
    assert sum(map(bool, verdicts(0.9, 2.0))) <= 3


def test_saturation_is_left_open_where_nothing_can_be_said() -> None:
    few = assess_saturation(chat(5.0, 50))
    assert few is not None
    assert few.saturated is None
    all_at_once = simulate_fleet(SERVING, ENGINE, make_requests(10, 5, np.zeros(500)), Fleet(1))
    verdict = assess_saturation(all_at_once)
    assert verdict is not None
    assert verdict.saturated is None
    assert assess_saturation(simulate_closed_loop(SERVING, ENGINE, make_requests([5] * 9, 5), 2)) is None
    assert assess_saturation(simulate_static_batches(SERVING, ENGINE, make_requests([5] * 9, 5), 2)) is None
    cancellation = Cancellation()
    cancellation.cancel()
    stopped = simulate_fleet(SERVING, ENGINE, make_requests(5, 5, [0.0, 1.0]), Fleet(1), cancellation=cancellation)
    assert assess_saturation(stopped) is not None


def test_an_objective_that_always_holds_is_never_broken() -> None:
    report = LatencyReport(chat(5.0, 2000))
    assert report.first_broken_seconds(LatencyObjective(Metric.END_TO_END, 95, 1e6)) is None
    assert report.goodput_requests_per_second([LatencyObjective(Metric.END_TO_END, 95, 1e6)]) == pytest.approx(
        report.throughput_requests_per_second()
    )
    with pytest.raises(InvalidInputError):
        LatencyObjective(Metric.TTFT, 95, 0.0)
