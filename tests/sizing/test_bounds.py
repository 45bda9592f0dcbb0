"""No simulation may ever beat a closed-form bound, and where a bound should be exact it must be near."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferplan.simulation import EngineParameters, Fleet, LatencyReport, Metric, StepTimeCoefficients, simulate_fleet
from inferplan.simulation.requests import make_requests
from inferplan.sizing.bounds import least_latency_seconds, least_service_seconds, value_at, work_of
from inferplan.sizing.candidates import enumerate_candidates
from inferplan.sizing.operating_point import operating_point
from inferplan.sizing.sample import sampled_work
from inferplan.sizing.step_terms import step_terms
from inferplan.sizing.workload import LatencyMetric, Objective
from support.searches import question


@st.composite
def replicas(draw: st.DrawFn) -> tuple[StepTimeCoefficients, EngineParameters]:
    small = st.floats(1e-7, 1e-4)
    experts = draw(st.sampled_from([0, 8]))
    coefficients = StepTimeCoefficients(
        dense_weight_seconds=draw(st.floats(1e-4, 1e-2)),
        compute_seconds_per_token=draw(small),
        kv_seconds_per_context_token=draw(st.floats(1e-9, 1e-6)),
        prefill_attention_seconds_per_pair=draw(st.floats(0, 1e-8)),
        allreduce_seconds_per_step=draw(st.floats(0, 1e-3)),
        elementwise_seconds_per_token=draw(st.floats(0, 1e-6)),
        host_seconds_per_step=draw(st.floats(0, 3e-3)),
        host_seconds_per_sequence=draw(st.floats(0, 1e-4)),
        roofline_sharpness=draw(st.floats(1, 8)),
        expert_weight_seconds=draw(st.floats(1e-3, 1e-2)) if experts else 0.0,
        expert_count=experts,
        experts_per_token=2 if experts else 0,
        window_tokens=draw(st.sampled_from([16, 128])),
        windowed_fraction=draw(st.sampled_from([0.0, 0.5, 1.0])),
    )
    engine = EngineParameters(
        maximum_sequences=draw(st.sampled_from([1, 4, 32])),
        maximum_batched_tokens=draw(st.sampled_from([64, 512])),
        kv_blocks=draw(st.sampled_from([40, 400])),
        chunked_prefill=draw(st.booleans()),
    )
    return coefficients, engine


@settings(max_examples=40)
@given(replicas(), st.integers(0, 2**32 - 1), st.sampled_from([0.001, 0.05, 2.0]))
def test_no_run_beats_the_bounds(
    replica: tuple[StepTimeCoefficients, EngineParameters], seed: int, gap_seconds: float
) -> None:
    coefficients, engine = replica
    generator = np.random.default_rng(seed)
    count = 400
    requests = make_requests(
        generator.integers(1, 300, count),
        generator.integers(1, 80, count),
        np.cumsum(generator.exponential(gap_seconds, count)),
        generator.integers(0, 200, count),
    )
    outcome = simulate_fleet(coefficients, engine, requests, Fleet(1))
    window = coefficients.window_tokens if coefficients.windowed_fraction > 0 else 0
    work = work_of(requests, window)
    assert count * least_service_seconds(coefficients, engine, work) <= outcome.replicas[0].busy_seconds * (1 + 1e-9)
    report = LatencyReport(outcome, front_end_seconds=0.01, warm_up_periods=0)
    for metric in (LatencyMetric.TTFT, LatencyMetric.TPOT, LatencyMetric.END_TO_END, LatencyMetric.QUEUE_WAIT):
        objective = Objective(metric, 90.0, 1.0)
        least = least_latency_seconds(objective, coefficients, engine, 0.01, work)
        assert least <= report.percentile(Metric(metric.value), 90.0) * (1 + 1e-9), metric
    inter_token = least_latency_seconds(Objective(LatencyMetric.INTER_TOKEN, 50.0, 1.0), coefficients, engine, 0, work)
    assert inter_token <= report.percentile(Metric.INTER_TOKEN, 50.0) * 1.004


def test_on_an_idle_replica_the_latency_bounds_are_near() -> None:
    replica = enumerate_candidates(question()).fitting[0].model
    count = 400
    requests = make_requests([500] * count, [200] * count, np.arange(count) * 10.0)
    outcome = simulate_fleet(replica.coefficients, replica.engine, requests, Fleet(1))
    report = LatencyReport(outcome, replica.front_end_seconds)
    for metric in (LatencyMetric.TTFT, LatencyMetric.TPOT, LatencyMetric.END_TO_END):
        least = least_latency_seconds(
            Objective(metric, 95.0, 1.0),
            replica.coefficients,
            replica.engine,
            replica.front_end_seconds,
            work_of(requests),
        )
        assert least == pytest.approx(report.percentile(Metric(metric.value), 95.0), rel=0.02)


def test_worked_example_at_peak_rates_is_the_documented_correction() -> None:
    """50 sequences at peak bandwidth and FLOPS give 23.5 requests/s (docs/textbook.md, PREFILL_SHARES_THE_GPU)."""
    bandwidth, flops = 3.35e12, 989e12
    coefficients = StepTimeCoefficients(
        dense_weight_seconds=14e9 / bandwidth,
        compute_seconds_per_token=14e9 / flops,
        kv_seconds_per_context_token=524_288 / bandwidth,
        roofline_sharpness=100.0,
    )
    engine = EngineParameters(maximum_sequences=50, maximum_batched_tokens=8192, kv_blocks=100_000)
    work = work_of(make_requests([500] * 10, [200] * 10))
    assert 1 / least_service_seconds(coefficients, engine, work) > 23.5
    point = operating_point(coefficients, engine, work, 23.5)
    assert point is not None
    assert point.decode_sequences < 50


def test_mean_values_come_within_a_fifth_of_the_simulation() -> None:
    asked = question()
    replica = enumerate_candidates(asked).fitting[0].model
    work = sampled_work(asked.workload, 0, seed=1)
    point = operating_point(replica.coefficients, replica.engine, work, 12.0)
    assert point is not None
    count = 4000
    arrivals = np.cumsum(np.random.default_rng(1).exponential(1 / 12, count))
    requests = make_requests([500] * count, [200] * count, arrivals)
    totals = simulate_fleet(replica.coefficients, replica.engine, requests, Fleet(1)).replicas[0]
    assert point.decode_sequences == pytest.approx(totals.sequence_seconds / totals.ended_seconds, rel=0.2)
    assert point.step_seconds == pytest.approx(totals.busy_seconds / totals.steps, rel=0.2)
    assert step_terms(replica.coefficients, point).total == pytest.approx(point.step_seconds, rel=0.02)


def test_a_load_beyond_the_replica_has_no_operating_point() -> None:
    asked = question()
    replica = enumerate_candidates(asked).fitting[0].model
    work = sampled_work(asked.workload, 0, seed=1)
    assert operating_point(replica.coefficients, replica.engine, work, 30.0) is None


def test_percentiles_are_counted_as_the_simulation_counts_them() -> None:
    values = np.arange(1.0, 101.0)
    assert value_at(values, 95.0) == 95.0
    assert value_at(values, 95.5) == 96.0
