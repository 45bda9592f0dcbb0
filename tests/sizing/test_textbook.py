"""The worked example's table, number by number, and what must hold for any question."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferplan.autoscaling.policy import textbook_policy
from inferplan.sizing.performance import Outcome
from inferplan.sizing.textbook import (
    TextbookAnswer,
    TextbookAssumptions,
    TextbookQuestion,
    solve_textbook,
    textbook_verdicts,
)
from inferplan.sizing.textbook_warnings import LeftOut, textbook_warnings
from inferplan.sizing.workload import LatencyMetric, Objective

CHATBOT = TextbookQuestion(
    parameters=7e9,
    bytes_per_parameter=2.0,
    input_tokens=500,
    output_tokens=200,
    requests_per_second=100,
    memory_bandwidth_bytes_per_second=3.35e12,
    peak_flops_per_second=989e12,
    assumptions=TextbookAssumptions(),
)
OBJECTIVES = (
    Objective(LatencyMetric.TTFT, 95, 0.5),
    Objective(LatencyMetric.END_TO_END, 95, 5.0),
)
# Llama-2-7B: 32 layers, 32 KV heads of 128, FP16, so 2 x 32 x 32 x 128 x 2 B a token; 500 + 200 / 2 tokens on average
LLAMA_2_7B = LeftOut(
    layers=32,
    attention_width=4096,
    kv_bytes_per_token=524_288,
    kv_bytes_per_sequence=524_288 * 600,
    mean_context_tokens=600,
)


@pytest.fixture(scope="module")
def answer() -> TextbookAnswer:
    return solve_textbook(CHATBOT)


@pytest.mark.parametrize(
    ("symbol", "expected", "decimals"),
    [
        ("W", 14e9, 0),
        ("t_step", 4.179e-3, 6),
        ("t_decode", 835.8e-3, 4),
        ("t_prefill", 14.16e-3, 5),
        ("X_tokens", 11_964, 0),
        ("X_requests", 59.8, 1),
        ("R/X", 1.67, 2),
        ("N", 2, 0),
        ("N_total", 3, 0),
        ("t_total", 850e-3, 3),
        ("TTFT", 18.3e-3, 4),
        ("queue_threshold", 20, 0),
        ("t_up", 90, 0),
        ("t_down", 300, 0),
        ("warm", 1, 0),
        ("N_min", 2, 0),
        ("N_max", 8, 0),
    ],
)
def test_worked_example(answer: TextbookAnswer, symbol: str, expected: float, decimals: int) -> None:
    values = {value.symbol: value.value for step in answer.steps for value in step.values}
    assert round(values[symbol], decimals) == expected


def test_six_numbered_steps_that_state_their_formulas(answer: TextbookAnswer) -> None:
    assert [step.number for step in answer.steps] == [1, 2, 3, 4, 5, 6]
    for step in answer.steps:
        for value in step.values:
            assert value.formula
            assert value.inputs


def test_verdicts_never_claim_a_percentile(answer: TextbookAnswer) -> None:
    verdicts = textbook_verdicts(answer, OBJECTIVES)
    assert [verdict.outcome for verdict in verdicts] == [Outcome.MEAN_ONLY_HOLDS, Outcome.MEAN_ONLY_HOLDS]
    tight = textbook_verdicts(answer, (Objective(LatencyMetric.TTFT, 95, 0.018),))
    assert tight[0].outcome is Outcome.MEAN_FAILS


def test_policy_keeps_the_exercise_rules(answer: TextbookAnswer) -> None:
    policy = textbook_policy(answer, CHATBOT.assumptions)
    assert policy.signals[0].target == 20
    assert policy.scale_up.cooldown_seconds == 90
    assert policy.scale_down.cooldown_seconds == 300
    assert (policy.warm_replicas, policy.minimum_replicas, policy.maximum_replicas) == (1, 2, 8)


def test_warnings_carry_the_corrected_numbers(answer: TextbookAnswer) -> None:
    warnings = {item.code: item for item in textbook_warnings(CHATBOT, answer, LLAMA_2_7B, OBJECTIVES)}
    assert set(warnings) == {
        "PREFILL_IS_NOT_ATTENTION_SCORES",
        "PREFILL_BOUND",
        "KV_CACHE_LEFT_OUT",
        "PREFILL_SHARES_THE_GPU",
        "FLEET_OVERLOADED",
        "MEAN_IS_NOT_A_PERCENTILE",
    }
    assert warnings["PREFILL_IS_NOT_ATTENTION_SCORES"].quantity("scores_one_layer") == pytest.approx(2.05e9, rel=1e-2)
    assert warnings["PREFILL_IS_NOT_ATTENTION_SCORES"].quantity("matrices") == 7e12
    assert warnings["PREFILL_BOUND"].quantity("prefill_at_peak_flops") == pytest.approx(7.08e-3, abs=5e-6)
    assert warnings["PREFILL_BOUND"].quantity("weights_at_peak_bandwidth") == pytest.approx(4.18e-3, abs=5e-6)
    assert warnings["PREFILL_BOUND"].quantity("weight_bytes_over_flops") == pytest.approx(14e-6, rel=2e-2)
    assert warnings["KV_CACHE_LEFT_OUT"].quantity("kv_bytes") == pytest.approx(15.7e9, rel=2e-3)
    assert warnings["KV_CACHE_LEFT_OUT"].quantity("t_step") == pytest.approx(8.87e-3, abs=5e-6)
    assert round(warnings["KV_CACHE_LEFT_OUT"].quantity("X_tokens")) == 5634
    assert warnings["PREFILL_SHARES_THE_GPU"].quantity("X_requests_at_peak") == pytest.approx(23.5, abs=0.05)
    assert int(warnings["PREFILL_SHARES_THE_GPU"].quantity("X_requests_reached")) == 17
    assert warnings["FLEET_OVERLOADED"].quantity("overload") > 2
    assert warnings["FLEET_OVERLOADED"].quantity("replicas_at_peak") == 5
    assert warnings["FLEET_OVERLOADED"].quantity("replicas_reached") == 6
    assert "8.87 ms" in warnings["KV_CACHE_LEFT_OUT"].message
    assert "23.5 requests/s" in warnings["PREFILL_SHARES_THE_GPU"].message


def test_grouped_query_attention_shrinks_the_kv_correction_four_fold(answer: TextbookAnswer) -> None:
    grouped = LeftOut(32, 4096, 131_072, 131_072 * 600, 600)
    full = {item.code: item for item in textbook_warnings(CHATBOT, answer, LLAMA_2_7B, ())}
    small = {item.code: item for item in textbook_warnings(CHATBOT, answer, grouped, ())}
    ratio = full["KV_CACHE_LEFT_OUT"].quantity("kv_bytes") / small["KV_CACHE_LEFT_OUT"].quantity("kv_bytes")
    assert ratio == 4
    assert "MEAN_IS_NOT_A_PERCENTILE" not in small


def test_a_fleet_that_carries_its_load_is_not_called_overloaded() -> None:
    question = TextbookQuestion(
        parameters=7e9,
        bytes_per_parameter=2.0,
        input_tokens=500,
        output_tokens=200,
        requests_per_second=10,
        memory_bandwidth_bytes_per_second=3.35e12,
        peak_flops_per_second=989e12,
        assumptions=TextbookAssumptions(),
    )
    warnings = textbook_warnings(question, solve_textbook(question), LLAMA_2_7B, OBJECTIVES)
    assert "FLEET_OVERLOADED" not in {item.code for item in warnings}


QUESTIONS = st.builds(
    TextbookQuestion,
    parameters=st.floats(1e8, 1e12),
    bytes_per_parameter=st.sampled_from([0.5, 1.0, 2.0]),
    input_tokens=st.floats(1, 1e5),
    output_tokens=st.floats(1, 1e5),
    requests_per_second=st.floats(1e-3, 1e4),
    memory_bandwidth_bytes_per_second=st.floats(1e11, 1e13),
    peak_flops_per_second=st.floats(1e13, 1e16),
    assumptions=st.builds(
        TextbookAssumptions,
        concurrent_sequences=st.integers(1, 1000),
        prefill_compute_efficiency=st.floats(0.05, 1.0),
    ),
    spare_replicas=st.integers(0, 5),
)


@given(QUESTIONS)
def test_capacity_covers_the_load_and_one_replica_less_does_not(question: TextbookQuestion) -> None:
    answer = solve_textbook(question)
    needed = question.requests_per_second / answer.replica_requests_per_second
    assert answer.active_replicas >= needed * (1 - 1e-6)
    assert answer.active_replicas == 1 or answer.active_replicas - 1 < needed
    assert answer.ttft_seconds > 0
    assert answer.total_seconds >= answer.prefill_seconds
    assert all(math.isfinite(value.value) for step in answer.steps for value in step.values)


@given(QUESTIONS)
def test_counting_the_kv_cache_never_raises_throughput(question: TextbookQuestion) -> None:
    answer = solve_textbook(question)
    corrected = {item.code: item for item in textbook_warnings(question, answer, LLAMA_2_7B, ())}
    assert corrected["KV_CACHE_LEFT_OUT"].quantity("X_tokens") <= answer.replica_output_tokens_per_second
    at_peak = corrected["PREFILL_SHARES_THE_GPU"].quantity("X_requests_at_peak")
    assert corrected["PREFILL_SHARES_THE_GPU"].quantity("X_requests_reached") <= at_peak
