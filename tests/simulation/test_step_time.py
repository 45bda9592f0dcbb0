from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferplan.errors import InvalidInputError
from inferplan.simulation.step_time import (
    StepTimeCoefficients,
    prefill_pairs,
    soft_maximum,
    step_seconds,
    token_seconds,
    windowed_prefill_pairs,
)

# Llama-2-7B FP16 on one H100 at peak rates: 14 GB of weights, 524,288 B of KV a token, 3.35 TB/s, 989 TFLOP/s.
LLAMA_2_7B_H100 = StepTimeCoefficients(
    dense_weight_seconds=14e9 / 3.35e12,
    compute_seconds_per_token=2 * 7e9 / 989e12,
    kv_seconds_per_context_token=524_288 / 3.35e12,
    roofline_sharpness=60.0,
)


def test_worked_example_with_its_kv_cache() -> None:
    """50 sequences at a mean of 600 tokens: 8.87 ms, of which the weights are 4.18 ms."""
    seconds = step_seconds(LLAMA_2_7B_H100.as_array(), 50, 50, 50 * 600, 50 * 600, 0.0, 0.0)
    assert seconds == pytest.approx(8.87e-3, rel=2e-3)
    assert token_seconds(LLAMA_2_7B_H100.as_array(), 1) == pytest.approx(4.179e-3, rel=1e-3)


def test_prefill_of_the_worked_example_is_bound_by_compute() -> None:
    """500 tokens: 7.08 ms at peak FLOP/s."""
    assert token_seconds(LLAMA_2_7B_H100.as_array(), 500) == pytest.approx(7.08e-3, rel=2e-3)


def test_every_term_by_hand() -> None:
    coefficients = StepTimeCoefficients(
        dense_weight_seconds=3.0,
        compute_seconds_per_token=0.4,
        kv_seconds_per_context_token=0.01,
        prefill_attention_seconds_per_pair=0.001,
        allreduce_seconds_per_step=7.0,
        allreduce_seconds_per_token=0.3,
        elementwise_seconds_per_token=0.2,
        host_seconds_per_step=11.0,
        host_seconds_per_sequence=0.5,
        roofline_sharpness=2.0,
        window_tokens=100,
        windowed_fraction=0.25,
    )
    gemms = math.hypot(3.0, 10 * 0.4)
    attention = 0.01 * (0.75 * 600 + 0.25 * 180) + 0.001 * (0.75 * 1000 + 0.25 * 800)
    expected = gemms + attention + 7.0 + 10 * (0.3 + 0.2) + 11.0 + 2 * 0.5
    assert step_seconds(coefficients.as_array(), 10, 2, 600, 180, 1000.0, 800.0) == pytest.approx(expected)


@pytest.mark.parametrize(("tokens", "experts_touched"), [(1, 2.0), (2, 3.5), (3, 4.625), (500, 8.0)])
def test_a_step_streams_the_experts_that_its_tokens_touch(tokens: int, experts_touched: float) -> None:
    """8 experts, 2 a token: one token touches 2, two touch 8 (1 - (3/4)^2) = 3.5 in the mean, many touch all 8."""
    coefficients = StepTimeCoefficients(1.0, 0.0, 0.0, expert_weight_seconds=8.0, expert_count=8, experts_per_token=2)
    assert token_seconds(coefficients.as_array(), tokens) == pytest.approx(1.0 + experts_touched)


def test_pairs_of_chunks_add_up_to_those_of_the_prompt() -> None:
    assert prefill_pairs(0, 700) == pytest.approx(700 * 700 / 2)
    assert prefill_pairs(0, 300) + prefill_pairs(300, 400) == pytest.approx(prefill_pairs(0, 700))
    assert windowed_prefill_pairs(0, 300, 500) + windowed_prefill_pairs(300, 400, 500) == pytest.approx(
        500 * 500 / 2 + 200 * 500
    )


def test_the_roofline_lies_between_the_maximum_and_the_sum() -> None:
    assert soft_maximum(2.0, 3.0, 1.0) == pytest.approx(5.0)
    assert soft_maximum(2.0, 3.0, 1e6) == pytest.approx(3.0)
    assert soft_maximum(0.0, 3.0, 4.7) == 3.0
    assert soft_maximum(1e-80, 1e-80, 60.0) > 1e-80  # a plain power would underflow to 0


SECONDS_FIELDS = [
    field.name
    for field in fields(StepTimeCoefficients)
    if field.name.endswith("_seconds") or "_seconds_per_" in field.name
]


@given(st.sampled_from(SECONDS_FIELDS), st.integers(0, 256), st.integers(0, 2000), st.integers(1, 4000))
def test_halving_any_coefficient_never_slows_a_step(name: str, decoders: int, chunk: int, context: int) -> None:
    coefficients = StepTimeCoefficients(
        4e-3, 1.4e-5, 1.5e-7, 3e-10, 2e-4, 1e-7, 2e-7, 2e-3, 5e-5,
        expert_weight_seconds=1e-2, expert_count=64, experts_per_token=4,
    )  # fmt: skip
    value = getattr(coefficients, name)
    faster = replace(coefficients, **{name: value / 2})
    step = (
        decoders + chunk,
        decoders,
        decoders * context,
        decoders * context,
        chunk * chunk / 2.0,
        chunk * chunk / 2.0,
    )
    assert step_seconds(faster.as_array(), *step) <= step_seconds(coefficients.as_array(), *step)


def test_all_wrong_coefficients_are_named_at_once() -> None:
    with pytest.raises(InvalidInputError) as caught:
        StepTimeCoefficients(float("nan"), -1.0, math.inf)
    assert [violation.field for violation in caught.value.violations] == [
        "dense_weight_seconds",
        "compute_seconds_per_token",
        "kv_seconds_per_context_token",
    ]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"roofline_sharpness": 0.5}, "roofline_sharpness"),
        ({"windowed_fraction": 1.5, "window_tokens": 4}, "windowed_fraction"),
        ({"windowed_fraction": 0.5}, "window_tokens"),
        ({"expert_count": 4, "experts_per_token": 5}, "experts_per_token"),
        ({"expert_weight_seconds": 1.0}, "experts_per_token"),
        ({"dense_weight_seconds": 0.0, "compute_seconds_per_token": 0.0}, "dense_weight_seconds"),
    ],
)
def test_coefficients_that_do_not_go_together(changes: dict[str, float], field: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        replace(LLAMA_2_7B_H100, **changes)  # type: ignore[arg-type]
    assert [violation.field for violation in caught.value.violations] == [field]
