"""Bytes of the KV cache: known values of known models, and what must hold for every model."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferplan.catalog import LayerGroup, ModelArchitecture, Precision, load_catalog
from inferplan.sizing.kv_cache import (
    kv_bytes_for_sequence,
    nominal_kv_bytes_per_token,
    reserved_bytes_for_sequence,
    state_bytes_per_sequence,
)
from inferplan.sizing.parallelism import Parallelism

CATALOG = load_catalog()
BF16 = Precision.BFLOAT16
ONE = Parallelism()
GIBIBYTE = 2**30
MODELS = st.sampled_from([model.architecture for model in CATALOG.models()])
DEGREES = st.sampled_from([1, 2, 4, 8])


@pytest.mark.parametrize(
    ("name", "precision", "parallelism", "expected"),
    [
        # 2 x 32 layers x 32 heads x 128 x 2: the worked example's 524,288 B.
        ("llama-2-7b", BF16, ONE, 524_288),
        ("llama-3.1-8b", BF16, ONE, 131_072),
        ("llama-3.1-8b", Precision.FP8, ONE, 65_536),
        # vllm issue 6746: 516,096 B a token in the whole model, 64,512 a GPU.
        ("llama-3.1-405b", BF16, ONE, 516_096),
        ("llama-3.1-405b", BF16, Parallelism(8), 64_512),
        # 8 KV heads: 16 GPUs save no more than 8.
        ("llama-3.1-405b", BF16, Parallelism(16), 64_512),
        ("llama-3.1-405b", BF16, Parallelism(1, 3), 516_096 // 3),
        # A stage of 17 of 33 layers would fill first: 126 layers over 4 stages, 32 on the fullest.
        ("llama-3.1-405b", BF16, Parallelism(1, 4), 32 * 2 * 8 * 128 * 2),
        # vllm issue 16118: Llama-4-Scout at tensor parallel 8.
        ("llama-4-scout", BF16, Parallelism(8), 24_576),
        # 61 x (512 + 64) x 2, on one GPU as on eight.
        ("deepseek-v3", BF16, ONE, 70_272),
        ("deepseek-v3", BF16, Parallelism(8), 70_272),
        # The indexer's FP8 key of 128 and its scale of 4 bytes a layer.
        ("deepseek-v3.2", BF16, Parallelism(8), 70_272 + 61 * 132),
        # 12 of 48 layers keep tokens: 2 x 12 x 2 x 256 x 2.
        ("qwen3-next-80b-a3b", BF16, ONE, 24_576),
    ],
)  # fmt: skip
def test_bytes_of_one_token(name: str, precision: Precision, parallelism: Parallelism, expected: int) -> None:
    assert nominal_kv_bytes_per_token(CATALOG.model(name).architecture, precision, parallelism) == expected


def test_sliding_window_layers_stop_at_the_window() -> None:
    """Issue 2101 of gpustack: Gemma-3-27B at 85k was estimated at 139 GB where 32 GB were used."""
    gemma = CATALOG.model("gemma-3-27b").architecture
    aware = kv_bytes_for_sequence(gemma, BF16, ONE, 85_000)
    unaware = kv_bytes_for_sequence(gemma, BF16, ONE, 85_000, window_aware=False)
    layer = 2 * 16 * 128 * 2
    assert aware == layer * (10 * 85_000 + 52 * 1024)
    assert unaware == layer * 62 * 85_000
    # At 8 bits and with 16.5 GB of Q4_K_M weights, well inside the 32 GB that were used; unaware it is far outside.
    assert aware / 2 + 16.5e9 < 32e9 < unaware / 2 + 16.5e9


def test_chunked_layers_keep_one_chunk() -> None:
    scout = CATALOG.model("llama-4-scout").architecture
    layer = 2 * 1 * 128 * 2
    found = kv_bytes_for_sequence(scout, BF16, Parallelism(8), 1_000_000)
    assert found == layer * (12 * 1_000_000 + 36 * 8192)


def test_a_million_tokens_of_scout_take_24_gib_a_gpu() -> None:
    """Issue 16118 of vllm: 24.00 GiB for 1,048,576 tokens at tensor parallel 8, window-unaware."""
    scout = CATALOG.model("llama-4-scout").architecture
    found = reserved_bytes_for_sequence(
        scout, BF16, Parallelism(8), 1_048_576, window_aware=False, block_tokens=16, batched_tokens=8192
    )
    assert found == 24 * GIBIBYTE


def test_window_layers_reserve_the_chunk_in_flight() -> None:
    """Log of k0033: 1024 blocks for full layers and 137 for windows of 128 at a budget of 2048, 18 layers each."""
    gpt_oss = CATALOG.model("gpt-oss-120b").architecture
    found = reserved_bytes_for_sequence(
        gpt_oss, BF16, Parallelism(4), 16_384, window_aware=True, block_tokens=16, batched_tokens=2048
    )
    assert found == 18 * (1024 + 137) * 16 * (2 * 2 * 64 * 2)


def test_linear_layers_keep_a_constant_state() -> None:
    model = CATALOG.model("qwen3-next-80b-a3b").architecture
    state = state_bytes_per_sequence(model, ONE)
    # 36 layers: 32 heads x 128 x 128 in float32, and 3 inputs of 8192 channels at 16 bit.
    assert state == 36 * (32 * 128 * 128 * 4 + 8192 * 3 * 2)
    assert state_bytes_per_sequence(model, Parallelism(2)) == state // 2
    assert kv_bytes_for_sequence(model, BF16, ONE, 1000) == state + 1000 * 24_576
    assert state_bytes_per_sequence(CATALOG.model("llama-3.1-8b").architecture, ONE) == 0


@given(MODELS, DEGREES, st.integers(0, 300_000), st.integers(0, 300_000))
def test_bytes_never_fall_with_tokens(architecture: ModelArchitecture, degree: int, tokens: int, more: int) -> None:
    spread = Parallelism(degree)
    assert kv_bytes_for_sequence(architecture, BF16, spread, tokens) <= kv_bytes_for_sequence(
        architecture, BF16, spread, tokens + more
    )
    assert reserved(architecture, spread, tokens) <= reserved(architecture, spread, tokens + more)


def reserved(architecture: ModelArchitecture, parallelism: Parallelism, tokens: int) -> int:
    return reserved_bytes_for_sequence(
        architecture, BF16, parallelism, tokens, window_aware=True, block_tokens=16, batched_tokens=2048
    )


@given(MODELS, DEGREES, st.integers(1, 300_000))
def test_awareness_fp8_and_gpus_never_cost_bytes(architecture: ModelArchitecture, degree: int, tokens: int) -> None:
    spread = Parallelism(degree)
    aware = kv_bytes_for_sequence(architecture, BF16, spread, tokens)
    assert aware <= kv_bytes_for_sequence(architecture, BF16, spread, tokens, window_aware=False)
    assert aware >= kv_bytes_for_sequence(architecture, Precision.FP8, spread, tokens)
    assert aware >= kv_bytes_for_sequence(architecture, BF16, Parallelism(2 * degree), tokens)
    assert aware >= kv_bytes_for_sequence(architecture, BF16, Parallelism(degree, 2), tokens)
    assert aware <= nominal_kv_bytes_per_token(architecture, BF16, spread) * tokens + state_bytes_per_sequence(
        architecture, spread
    )


@given(MODELS, DEGREES, st.integers(1, 200_000))
def test_admission_reserves_at_least_what_the_sequence_keeps(
    architecture: ModelArchitecture, degree: int, tokens: int
) -> None:
    spread = Parallelism(degree)
    assert reserved(architecture, spread, tokens) >= kv_bytes_for_sequence(architecture, BF16, spread, tokens)


@given(MODELS, st.integers(1, 100_000), st.integers(1, 100_000), st.integers(0, 100_000))
def test_a_shorter_window_never_costs_bytes(
    architecture: ModelArchitecture, tokens: int, window: int, longer: int
) -> None:
    def with_window(length: int) -> int:
        groups = tuple(
            LayerGroup(group.layers, group.scope, length) if group.window_tokens else group
            for group in architecture.layer_groups
        )
        changed = dataclasses.replace(architecture, layer_groups=groups)
        return kv_bytes_for_sequence(changed, BF16, ONE, tokens)

    assert with_window(window) <= with_window(window + longer)
