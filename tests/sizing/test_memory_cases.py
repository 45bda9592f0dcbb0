"""Questions that engineers asked in public, with the outcome that they reported."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from inferplan.catalog import Accelerator, ModelArchitecture, Precision, load_catalog
from inferplan.sizing.configuration import EngineSettings
from inferplan.sizing.memory import MeasuredMemory, MemoryEstimate, MemoryQuestion, estimate_memory
from inferplan.sizing.parallelism import Parallelism

CATALOG = load_catalog()
GIBIBYTE = 2**30
NOTHING_MEASURED = MeasuredMemory()


def card(name: str, label_gib: float, visible_gib: float, architecture: str, has_fp8: bool) -> Accelerator:
    """A card that the catalogue does not have; only its memory and its matrix units matter here."""
    like = CATALOG.accelerator("l40s-48gb")
    flops = {key: value for key, value in like.dense_flops_per_second.items() if has_fp8 or key is not Precision.FP8}
    return dataclasses.replace(
        like, id=name, display_name=name, aliases=(), architecture=architecture, dense_flops_per_second=flops,
        label_memory_bytes=label_gib * GIBIBYTE, visible_memory_bytes=visible_gib * GIBIBYTE,
    )  # fmt: skip


# "total_gpu_memory" of start-up logs.
RTX_3090 = card("rtx-3090-24gb", 24, 23.58, "Ampere", has_fp8=False)
RTX_4090 = card("rtx-4090-24gb", 24, 23.65, "Ada Lovelace", has_fp8=True)
A6000 = card("rtx-a6000-48gb", 48, 47.54, "Ampere", has_fp8=False)


def estimate(
    model: str | ModelArchitecture,
    accelerator: str | Accelerator,
    tensor_parallel: int = 1,
    version: str = "0.11.0",
    measured: MeasuredMemory = NOTHING_MEASURED,
    pipeline_parallel: int = 1,
    expert_parallel: int = 1,
    **settings: Any,
) -> MemoryEstimate:
    return estimate_memory(
        MemoryQuestion(
            CATALOG.model(model).architecture if isinstance(model, str) else model,
            CATALOG.accelerator(accelerator) if isinstance(accelerator, str) else accelerator,
            CATALOG.engine("vllm"),
            EngineSettings(version=version, **settings),
            Parallelism(tensor_parallel, pipeline_parallel, expert_parallel),
            measured=measured,
        )
    )


def rules(found: MemoryEstimate) -> list[str]:
    return [rule.rule for rule in found.broken_rules]


def codes(found: MemoryEstimate) -> set[str]:
    return {warning.code for warning in found.warnings}


@pytest.mark.parametrize(
    ("context", "activation_gib", "kv_cache_gib", "blocks", "fits"),
    [(20_000, 2.07, 3.81, 1952, True), (29_000, 2.99, 2.89, 1478, False)],
)
def test_a01_whole_prompts_cost_what_they_leave_too_little_of(
    context: int, activation_gib: float, kv_cache_gib: float, blocks: int, fits: bool
) -> None:
    """Issue 10517 of vllm: Llama-3.1-8B on an RTX 3090. The log's non-torch memory is 0.35 GiB."""
    log = MeasuredMemory(weights_bytes=14.9888 * GIBIBYTE, non_torch_bytes=0.35 * GIBIBYTE)
    found = estimate("llama-3.1-8b", RTX_3090, version="0.6.4", max_model_len_tokens=context, measured=log)
    assert found.activation_bytes / GIBIBYTE == pytest.approx(activation_gib, abs=0.015)
    assert found.kv_cache_bytes / GIBIBYTE == pytest.approx(kv_cache_gib, rel=0.01)
    assert found.kv_blocks == pytest.approx(blocks, rel=0.01)
    assert found.fits is fits
    assert rules(found) == ([] if fits else ["CONTEXT_DOES_NOT_FIT"])


@pytest.mark.parametrize("context", [35_000, 45_000])
def test_a01_long_contexts_are_chunked_and_fit_again(context: int) -> None:
    log = MeasuredMemory(weights_bytes=14.9888 * GIBIBYTE, non_torch_bytes=0.35 * GIBIBYTE)
    found = estimate("llama-3.1-8b", RTX_3090, version="0.6.4", max_model_len_tokens=context, measured=log)
    assert found.fits
    # Peak of 15.05 GiB with the weights.
    assert found.activation_bytes / GIBIBYTE == pytest.approx(0.06, abs=0.01)
    refused = estimate("llama-3.1-8b", RTX_3090, version="0.6.4", max_model_len_tokens=29_000, measured=log)
    assert refused.largest_context_tokens > 45_000


def test_a02_llama_2_7b_on_an_h100() -> None:
    """Pull request 550 of gateway-api-inference-extension. The seed example's hardware."""
    log = MeasuredMemory(79.19 * GIBIBYTE, 12.55 * GIBIBYTE, 2.38 * GIBIBYTE, 0.16 * GIBIBYTE)
    found = estimate("llama-2-7b", "h100", version="0.8.0", measured=log, gpu_memory_utilization=0.9)
    assert found.kv_cache_bytes / GIBIBYTE == pytest.approx(56.18, abs=0.005)
    assert (found.kv_blocks, found.kv_cache_tokens) == (7191, 115_056)


def test_a03_405b_in_fp8_on_eight_h100_does_not_hold_128k() -> None:
    """Issue 6746 of vllm, 0.5.3: 57.75 GiB of weights, KV cache of 79,392 tokens.

    The weights are more than FP8 throughout (48 GiB) since this checkpoint keeps attention at 16 bit. What
    0.5.3 counted beside them, 8.7 GiB, no constant of a later release gives, so it is taken from the log.
    """
    beside = 0.9 * 79.19 * GIBIBYTE - 57.752 * GIBIBYTE - 79_392 * 64_512
    log = MeasuredMemory(79.19 * GIBIBYTE, 57.752 * GIBIBYTE, beside, 0.0)
    asked: dict[str, Any] = {"version": "0.6.0", "measured": log, "weight_precision": Precision.FP8}
    found = estimate("llama-3.1-405b", "h100", 8, max_model_len_tokens=131_072, **asked)
    assert not found.fits
    assert rules(found) == ["CONTEXT_DOES_NOT_FIT"]
    assert found.largest_context_tokens == pytest.approx(79_392, abs=16)
    assert str(found.largest_context_tokens) in found.broken_rules[0].description
    # Ways out that the case names: FP8 cache, two nodes.
    assert estimate("llama-3.1-405b", "h100", 8, max_model_len_tokens=131_072, kv_precision=Precision.FP8, **asked).fits
    two_nodes = estimate(
        "llama-3.1-405b", "h100", 8, "0.11.0", pipeline_parallel=2, max_model_len_tokens=131_072,
        weight_precision=Precision.FP8,
    )  # fmt: skip
    assert two_nodes.fits


@pytest.mark.parametrize("weights_gib", [None, 57.752])
def test_a04_405b_in_fp8_on_eight_a100_serves_4096(weights_gib: float | None) -> None:
    """Issue 6689 of vllm. The A100 has no FP8 unit."""
    log = MeasuredMemory(weights_bytes=weights_gib * GIBIBYTE if weights_gib else None)
    found = estimate(
        "llama-3.1-405b", "a100-80gb", 8, "0.6.0", log, max_model_len_tokens=4096, weight_precision=Precision.FP8
    )
    assert found.fits
    assert "NO_FP8_MATRIX_UNIT" in codes(found)
    on_h100 = estimate("llama-3.1-405b", "h100", 8, max_model_len_tokens=4096, weight_precision=Precision.FP8)
    assert "NO_FP8_MATRIX_UNIT" not in codes(on_h100)


def test_a05_llama_2_70b_on_two_a100_starts_and_is_not_worth_it() -> None:
    """Issue 734 of text-generation-inference: very barely; 4 are fine, or 4 bits on 2."""
    found = estimate("llama-2-70b", "a100-80gb", 2, "0.6.0", gpu_memory_utilization=0.9)
    # 128.5 GiB of weights in 142.5.
    assert 2 * found.weights_bytes / GIBIBYTE == pytest.approx(128.5, rel=0.005)
    assert 2 * found.budget_bytes / GIBIBYTE == pytest.approx(142.5, rel=0.001)
    warning = next(warning for warning in found.warnings if warning.code == "WEIGHTS_LEAVE_LITTLE_MEMORY")
    assert warning.quantity("kv_cache_tokens") == found.kv_cache_tokens < 45_000
    for spread in (
        estimate("llama-2-70b", "a100-80gb", 4, "0.6.0"),
        estimate("llama-2-70b", "a100-80gb", 2, "0.6.0", weight_precision=Precision.INT4),
    ):
        assert spread.fits
        assert "WEIGHTS_LEAVE_LITTLE_MEMORY" not in codes(spread)


def test_a06_qwen_72b_on_two_a100_does_not_hold_32k() -> None:
    """Issue 933 of Qwen3: about 7.1 GiB are left before activations, at most 23k tokens, likely below 8k."""
    asked: dict[str, Any] = {"version": "0.8.0", "max_model_len_tokens": 32_768}
    found = estimate("qwen2.5-72b", "a100-80gb", 2, **asked)
    before_activations = found.budget_bytes - found.weights_bytes
    assert 2 * before_activations / GIBIBYTE == pytest.approx(7.06, rel=0.02)
    assert not found.fits
    assert found.largest_context_tokens < 11_000
    assert estimate("qwen2.5-72b", "a100-80gb", 4, **asked).fits
    higher = estimate("qwen2.5-72b", "a100-80gb", 2, gpu_memory_utilization=0.95, kv_precision=Precision.FP8, **asked)
    assert higher.fits


def test_a07_llama_70b_on_l40s() -> None:
    """Issue 241 of optimum-benchmark: 141 GB of weights against 96 GB."""
    assert rules(estimate("llama-3.1-70b", "l40s", 2)) == ["WEIGHTS_DO_NOT_FIT"]
    assert estimate("llama-3.1-70b", "l40s", 4, weight_precision=Precision.FP8).fits
    assert estimate("llama-3.1-70b", "l40s", 2, weight_precision=Precision.INT4).fits


def test_a13_three_a100_hold_70b_as_stages() -> None:
    """Issue 5003 of vllm: offered are three stages, 8 bits on two, or four."""
    assert estimate("llama-3-70b", "a100-80gb", pipeline_parallel=3).fits
    assert estimate("llama-3-70b", "a100-80gb", 2, weight_precision=Precision.FP8).fits
    assert estimate("llama-3-70b", "a100-80gb", 4).fits


def test_a18_235b_in_fp8_on_eight_48_gb_cards_needs_expert_parallelism() -> None:
    """Issue 5858 of sglang: tensor parallel 4 is too small, 8 is refused (see test_parallelism)."""
    assert not estimate("qwen3-235b-a22b-fp8", A6000, 4).fits
    assert estimate("qwen3-235b-a22b-fp8", A6000, 8, expert_parallel=8, max_model_len_tokens=32_768).fits


@pytest.mark.parametrize(
    ("model", "gpus", "fits"),
    [
        ("qwen3-235b-a22b-fp8", 2, False), ("qwen3-235b-a22b-fp8", 4, True),
        ("qwen3-235b-a22b", 4, False), ("qwen3-235b-a22b", 8, True),
    ],
)  # fmt: skip
def test_a21_235b_takes_four_a100_in_fp8_and_eight_in_16_bit(model: str, gpus: int, fits: bool) -> None:
    """Issue 1624 of Qwen3-VL."""
    assert estimate(model, "a100-80gb", gpus, max_model_len_tokens=32_768).fits is fits


def test_a22_every_expert_of_mixtral_is_resident() -> None:
    """Issue 2363 of vllm: out of memory on 2 x 48 GB."""
    found = estimate("mixtral-8x7b", A6000, 2, "0.6.0", max_model_len_tokens=8000)
    assert not found.fits
    assert 2 * found.weights_bytes / GIBIBYTE == pytest.approx(87, rel=0.01)
    assert estimate("mixtral-8x7b", A6000, 4, "0.6.0", max_model_len_tokens=8000).fits


def test_a23_mixtral_on_four_4090() -> None:
    """Issue 3285 of vllm: bf16 runs out of memory, AWQ (about 25 GB) runs."""
    assert not estimate("mixtral-8x7b", RTX_4090, 4, "0.6.0", max_model_len_tokens=1000).fits
    awq = estimate("mixtral-8x7b", RTX_4090, 4, "0.6.0", max_model_len_tokens=1000, weight_precision=Precision.INT4)
    assert awq.fits
    assert 4 * awq.weights_bytes == pytest.approx(25e9, rel=0.05)


def test_a24_gpt_oss_120b_at_defaults_has_less_than_nothing_left() -> None:
    """Issue 23278 of vllm, 0.10: weights 65.97 GiB, 'Available KV cache memory: -2.14 GiB'."""
    found = estimate("gpt-oss-120b", "h100", version="0.10.1", max_model_len_tokens=131_072)
    assert found.weights_bytes / GIBIBYTE == pytest.approx(65.97, rel=0.005)
    assert found.kv_cache_bytes / GIBIBYTE == pytest.approx(-2.14, abs=0.15)
    assert rules(found) == ["NO_MEMORY_FOR_KV_CACHE"]
    assert f"{found.kv_cache_bytes / GIBIBYTE:.2f} GiB" in found.broken_rules[0].description
    assert estimate("gpt-oss-120b", "h100", 2, "0.10.1", max_model_len_tokens=131_072).fits
    # Activations are the sampler's, by max_num_seqs: fewer sequences are the cheapest way out.
    fewer = estimate("gpt-oss-120b", "h100", version="0.10.1", max_model_len_tokens=32_768, max_num_seqs=128)
    assert fewer.fits
    assert estimate("gpt-oss-20b", "h100", version="0.10.1", max_model_len_tokens=131_072).fits


def test_a25_recommended_flags_hold_less_than_the_full_context() -> None:
    """Issue 27508 of vllm: 0.95 and 1024 tokens leave 1.71 GiB, too little for 131k."""
    asked: dict[str, Any] = {
        "version": "0.10.2", "gpu_memory_utilization": 0.95, "max_num_batched_tokens": 1024,
    }  # fmt: skip
    log = MeasuredMemory(weights_bytes=65.9651 * GIBIBYTE)
    found = estimate("gpt-oss-120b", "h100", measured=log, max_model_len_tokens=131_072, **asked)
    assert found.kv_cache_bytes / GIBIBYTE == pytest.approx(1.71, abs=0.05)
    assert rules(found) == ["CONTEXT_DOES_NOT_FIT"]
    # 18 full layers of 2048 B a token, and windows of 128 with the chunk in flight.
    room = found.kv_cache_bytes - 18 * (72 + 1) * 16 * 2048
    assert found.largest_context_tokens == pytest.approx(room / (18 * 2048), abs=16)
    reduced = estimate("gpt-oss-120b", "h100", measured=log, max_model_len_tokens=found.largest_context_tokens, **asked)
    assert reduced.fits


def test_a26_a32_a52_the_engine_release_changes_the_answer_and_is_kept() -> None:
    """Issues 33155, 43308 and 7553 of vllm: the same flags give another KV cache after an upgrade."""
    asked: dict[str, Any] = {"max_model_len_tokens": 32_768, "gpu_memory_utilization": 0.9, "max_num_seqs": 64}
    old = estimate("gemma-3-27b", "a100-80gb", version="0.8.5", **asked)
    new = estimate("gemma-3-27b", "a100-80gb", version="0.21.0", **asked)
    assert (old.configuration.engine_release, new.configuration.engine_release) == ("0.8.0", "0.21.0")
    # Window layers, 52 of 62, no longer grow.
    assert new.concurrency_at_max_model_len > 3.5 * old.concurrency_at_max_model_len
    # CUDA graphs moved into the budget.
    assert not old.cuda_graphs_inside_budget
    assert new.cuda_graphs_inside_budget
    assert "MEMORY_BESIDE_THE_BUDGET" in codes(old)
    assert "MEMORY_BESIDE_THE_BUDGET" not in codes(new)


def test_a28_scout_on_two_h100_nvl() -> None:
    """Issue 16712 of vllm: 203 GiB in 186; one card is for 4 bits, two are for FP8."""
    asked: dict[str, Any] = {"version": "0.8.3", "max_model_len_tokens": 1000, "kv_precision": Precision.FP8}
    found = estimate("llama-4-scout", "h100-nvl-94gb", 2, gpu_memory_utilization=0.99, **asked)
    assert rules(found) == ["WEIGHTS_DO_NOT_FIT"]
    assert 2 * found.weights_bytes / GIBIBYTE == pytest.approx(203, rel=0.01)
    assert estimate("llama-4-scout", "h100-nvl-94gb", 2, weight_precision=Precision.FP8, **asked).fits
    assert estimate("llama-4-scout", "h100-nvl-94gb", 1, weight_precision=Precision.INT4, **asked).fits


def test_a30_the_largest_context_of_scout() -> None:
    """Issue 16118 of vllm: 9.97 GiB are left, 1,048,576 tokens need 24.00; the largest is about 435,600."""
    rest = 0.9 * 79.19 * GIBIBYTE - 9.97 * GIBIBYTE
    log = MeasuredMemory(79.19 * GIBIBYTE, rest, 0.0, 0.0)
    found = estimate("llama-4-scout", "h100", 8, "0.8.3", log, max_model_len_tokens=1_048_576)
    assert found.kv_cache_bytes / GIBIBYTE == pytest.approx(9.97)
    assert found.kv_bytes_per_token == 24_576
    assert found.missing_bytes / GIBIBYTE == pytest.approx(24.00 - 9.97)
    # Whole blocks of 16 tokens.
    assert found.largest_context_tokens == int(9.97 * GIBIBYTE / 24_576) // 16 * 16 == 435_584
    assert "24.00 GiB" in found.broken_rules[0].description


def test_a31_a_token_budget_as_long_as_the_context_costs_the_cache() -> None:
    """Issue 539 of ROCm/vllm: Scout at 1M tokens crashes when the token budget is the context; 8192 works."""
    asked: dict[str, Any] = {"version": "0.8.3", "max_model_len_tokens": 1_000_000}
    large = estimate("llama-4-scout", "mi300x", 8, max_num_batched_tokens=1_000_000, **asked)
    usual = estimate("llama-4-scout", "mi300x", 8, max_num_batched_tokens=8192, **asked)
    assert large.activation_bytes > 5 * usual.activation_bytes
    warning = next(warning for warning in large.warnings if warning.code == "LARGE_TOKEN_BUDGET")
    assert warning.quantity("default_max_num_batched_tokens") == 8192
    assert warning.quantity("activations_with_default") == usual.activation_bytes
    assert "LARGE_TOKEN_BUDGET" not in codes(usual)


def test_a52_cuda_graphs_push_use_above_the_fraction() -> None:
    """Issue 7553 of vllm: Yi-34B on four 4090, 0.9 asked, 97 % used; graphs took 2464 MiB beside the budget."""
    found = estimate("yi-34b", RTX_4090, 4, "0.6.0", max_model_len_tokens=4096, gpu_memory_utilization=0.9)
    assert found.cuda_graph_bytes / 2**20 == pytest.approx(2464, rel=0.01)
    warning = next(warning for warning in found.warnings if warning.code == "MEMORY_BESIDE_THE_BUDGET")
    assert warning.quantity("used_share") > 0.97
    assert warning.quantity("gpu_memory_utilization") == 0.9
