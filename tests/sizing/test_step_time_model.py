"""Step time against arithmetic by hand, and what must hold whatever the model."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferplan.catalog import load_catalog
from inferplan.catalog.precision import Precision
from inferplan.simulation import StepTimeCoefficients, step_seconds
from inferplan.sizing.efficiency import DATASHEET_EFFICIENCY, EfficiencyCoefficients
from inferplan.sizing.parallelism import Parallelism, legal_tensor_parallel_values
from inferplan.sizing.step_time_model import step_time_coefficients

CATALOG = load_catalog()
SINGLE_GPU = Parallelism()
PERFECT = EfficiencyCoefficients(
    weight_bandwidth_ratio=1.0,
    attention_bandwidth_ratio=1.0,
    sixteen_bit_flops_ratio=1.0,
    eight_bit_flops_ratio=1.0,
    prefill_attention_flops_ratio=1.0,
    host_step_seconds=0.0,
    host_layer_seconds=0.0,
    host_sequence_seconds=0.0,
    allreduce_seconds=0.0,
    allreduce_bandwidth_ratio=1.0,
    elementwise_passes=0.0,
    roofline_sharpness=1000.0,
    front_end_seconds=0.0,
    expert_flops_ratio=1.0,
    expert_layer_seconds=0.0,
    gemm_padding_tokens=0.0,
)


def coefficients(
    model: str,
    parallelism: Parallelism = SINGLE_GPU,
    efficiency: EfficiencyCoefficients = DATASHEET_EFFICIENCY,
    accelerator: str = "h100-sxm-80gb",
) -> StepTimeCoefficients:
    architecture = CATALOG.model(model).architecture
    return step_time_coefficients(
        architecture, CATALOG.accelerator(accelerator), parallelism, Precision.BFLOAT16, efficiency
    )


def decode_step(found: StepTimeCoefficients, sequences: int, context_tokens: int) -> float:
    windowed = min(context_tokens, found.window_tokens) if found.window_tokens else context_tokens
    array = found.as_array()
    return float(step_seconds(array, sequences, sequences, sequences * context_tokens, sequences * windowed, 0.0, 0.0))


def test_llama_2_7b_at_peak_rates() -> None:
    """The worked example's corrected step: weights but for the embedding table, and 50 sequences of 600 tokens."""
    found = coefficients("llama-2-7b", efficiency=PERFECT)
    weights_bytes = 2 * (6_738_415_616 - 32_000 * 4096)
    kv_bytes = 50 * 600 * 524_288
    assert decode_step(found, 50, 600) == pytest.approx((weights_bytes + kv_bytes) / 3.35e12, rel=1e-6)


def test_prefill_is_two_operations_a_weight() -> None:
    """Without embedding and LM head, which is computed for sampled tokens only: 500 tokens through 6.476e9 weights."""
    found = coefficients("llama-2-7b", efficiency=PERFECT)
    linear_weights = 6_738_415_616 - 2 * 32_000 * 4096 - (2 * 32 + 1) * 4096
    expected = 2 * linear_weights / 989e12
    assert found.compute_seconds_per_token == pytest.approx(expected, rel=1e-3)
    assert found.prefill_attention_seconds_per_pair == pytest.approx(4 * 32 * 4096 / 989e12)


def test_grouped_queries_read_a_quarter_of_the_kv_cache() -> None:
    full, grouped = coefficients("llama-2-7b"), coefficients("llama-3.1-8b")
    assert full.kv_seconds_per_context_token == pytest.approx(4 * grouped.kv_seconds_per_context_token)


def test_tensor_parallel_divides_weights_and_adds_all_reduces() -> None:
    one, four = coefficients("llama-3.1-70b"), coefficients("llama-3.1-70b", Parallelism(4))
    assert four.dense_weight_seconds == pytest.approx(one.dense_weight_seconds / 4, rel=0.01)
    assert four.compute_seconds_per_token == pytest.approx(one.compute_seconds_per_token / 4)
    assert one.allreduce_seconds_per_step == one.allreduce_seconds_per_token == 0
    # two all-reduces a layer
    assert four.allreduce_seconds_per_step == pytest.approx(2 * 80 * DATASHEET_EFFICIENCY.allreduce_seconds)
    # each moves 2 (4 - 1) / 4 of 8192 x 2 B at 390 GB/s
    assert four.allreduce_seconds_per_token == pytest.approx(2 * 80 * 2 * 0.75 * 8192 * 2 / 390e9)


def test_experts_are_streamed_as_they_are_touched() -> None:
    found = coefficients("mixtral-8x7b", Parallelism(2))
    assert (found.expert_count, found.experts_per_token) == (8, 2)
    one_token, many_tokens = decode_step(found, 1, 100), decode_step(found, 64, 100)
    # one token streams a quarter of the experts, 64 tokens practically all
    assert many_tokens - one_token > 0.7 * found.expert_weight_seconds


def test_window_layers_stop_reading_at_the_window() -> None:
    found = coefficients("gpt-oss-120b")
    assert (found.window_tokens, found.windowed_fraction) == (128, 0.5)
    long, longer = decode_step(found, 1, 10_000), decode_step(found, 1, 20_000)
    # half of the layers read 10,000 tokens more, the others none
    assert longer - long == pytest.approx(10_000 * found.kv_seconds_per_context_token / 2)


def test_weight_only_quantisation_streams_less_and_computes_no_faster() -> None:
    architecture = CATALOG.model("llama-3.1-70b").architecture
    a100 = CATALOG.accelerator("a100-sxm-80gb")
    fp8 = CATALOG.model("llama-3.1-70b-fp8").architecture
    plain, quantised = (
        step_time_coefficients(item, a100, Parallelism(4), Precision.BFLOAT16, DATASHEET_EFFICIENCY)
        for item in (architecture, fp8)
    )
    assert quantised.dense_weight_seconds < 0.6 * plain.dense_weight_seconds
    assert quantised.compute_seconds_per_token == pytest.approx(plain.compute_seconds_per_token, rel=0.01)


def test_a_tied_embedding_is_streamed_once_as_the_lm_head() -> None:
    """494,032,768 weights with the table of 151,936 x 896 counted once: every one of them is read in a step."""
    found = coefficients("qwen2.5-0.5b", efficiency=PERFECT)
    assert found.dense_weight_seconds == pytest.approx(2 * 494_032_768 / 3.35e12, rel=1e-3)
    # but looking up a row takes no multiplication, and the head is computed for sampled tokens only
    assert found.compute_seconds_per_token == pytest.approx(2 * (494_032_768 - 151_936 * 896) / 989e12, rel=1e-3)


def test_latent_attention_reads_the_same_cache_on_every_gpu() -> None:
    """512 + 64 elements of 2 B a token in each of 61 layers, however many GPUs share the heads."""
    for degree in (1, 8):
        found = coefficients("deepseek-v3", Parallelism(degree), efficiency=PERFECT)
        assert found.kv_seconds_per_context_token == pytest.approx(61 * 576 * 2 / 3.35e12)


def test_pipeline_stages_follow_one_another() -> None:
    """Two stages of four GPUs take as long as the four alone, and one exchange of the hidden state."""
    four, stages = (coefficients("llama-3.1-70b", item) for item in (Parallelism(4), Parallelism(4, 2)))
    latency = DATASHEET_EFFICIENCY.allreduce_seconds
    for batch in (1, 64):
        # 8192 x 2 B a token at 390 GB/s
        exchange = latency + batch * 8192 * 2 / 390e9
        longer = decode_step(stages, batch, 1000) - decode_step(four, batch, 1000)
        assert longer == pytest.approx(exchange, rel=1e-6)


def test_llama_2_7b_with_what_an_engine_reaches() -> None:
    """50 sequences of 600 tokens: 12.95 GB of weights and 15.73 GB of KV cache at 0.95 of 3.35 TB/s is 9.01 ms.

    The soft corner adds little to the GEMMs. The host takes 1.1 ms + 32 x 41 us + 50 x 40 us = 4.41 ms.
    """
    step = decode_step(coefficients("llama-2-7b"), 50, 600)
    assert step == pytest.approx(9.01e-3 + 4.41e-3, rel=0.01)


MODELS = st.sampled_from([model.id for model in CATALOG.models()])


@given(MODELS, st.integers(1, 256), st.integers(1, 4000))
def test_twice_the_bandwidth_never_slows_a_step(model: str, sequences: int, context_tokens: int) -> None:
    architecture = CATALOG.model(model).architecture
    slow = CATALOG.accelerator("h100-sxm-80gb")
    fast = dataclasses.replace(slow, memory_bandwidth_bytes_per_second=2 * slow.memory_bandwidth_bytes_per_second)
    one, other = (
        step_time_coefficients(architecture, item, Parallelism(), Precision.BFLOAT16, DATASHEET_EFFICIENCY)
        for item in (slow, fast)
    )
    assert decode_step(other, sequences, context_tokens) <= decode_step(one, sequences, context_tokens)


@given(MODELS, st.integers(1, 512), st.integers(1, 8000))
def test_more_work_never_takes_less_time(model: str, sequences: int, context_tokens: int) -> None:
    found = coefficients(model)
    step = decode_step(found, sequences, context_tokens)
    assert step > 0
    assert decode_step(found, sequences + 1, context_tokens) >= step
    assert decode_step(found, sequences, context_tokens + 1) >= step


@given(MODELS)
def test_every_legal_degree_has_finite_coefficients(model: str) -> None:
    architecture = CATALOG.model(model).architecture
    for degree in legal_tensor_parallel_values(architecture, 8):
        assert decode_step(coefficients(model, Parallelism(degree)), 8, 1000) > 0
