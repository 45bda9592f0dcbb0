"""The memory estimate: what must hold for every question, choices, warnings and bad input."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferplan.catalog import Precision, load_catalog
from inferplan.errors import InvalidInputError
from inferplan.sizing.configuration import EngineSettings
from inferplan.sizing.memory import MeasuredMemory, MemoryEstimate, MemoryQuestion, estimate_memory
from inferplan.sizing.parallelism import Parallelism, legal_tensor_parallel_values

CATALOG = load_catalog()
GIBIBYTE = 2**30
ONE_GPU = Parallelism()
NOTHING_MEASURED = MeasuredMemory()


def question(
    model: str = "llama-3.1-8b",
    accelerator: str = "h100-sxm-80gb",
    engine: str = "vllm",
    parallelism: Parallelism = ONE_GPU,
    workload_context_tokens: int | None = None,
    measured: MeasuredMemory = NOTHING_MEASURED,
    **settings: Any,
) -> MemoryQuestion:
    return MemoryQuestion(
        CATALOG.model(model).architecture,
        CATALOG.accelerator(accelerator),
        CATALOG.engine(engine),
        EngineSettings(**settings),
        parallelism,
        workload_context_tokens,
        measured,
    )


def codes(estimate: MemoryEstimate) -> set[str]:
    return {warning.code for warning in estimate.warnings}


@st.composite
def questions(draw: st.DrawFn) -> MemoryQuestion:
    model = draw(st.sampled_from(CATALOG.models())).architecture
    accelerator = draw(st.sampled_from(CATALOG.accelerators()))
    engine = draw(st.sampled_from(CATALOG.engines()))
    degree = draw(st.sampled_from(legal_tensor_parallel_values(model, accelerator.gpus_per_node)))
    settings = EngineSettings(
        version=draw(st.sampled_from([release.since for release in engine.releases])),
        kv_precision=draw(st.sampled_from([None, Precision.FP8])),
        gpu_memory_utilization=draw(st.floats(0.3, 1.0)),
        max_model_len_tokens=draw(st.none() | st.integers(1, 200_000)),
        max_num_batched_tokens=draw(st.none() | st.integers(2048, 32_768)),
        max_num_seqs=draw(st.none() | st.integers(1, 2048)),
    )
    stages = draw(st.sampled_from([1, 2, 3]))
    return MemoryQuestion(
        model, accelerator, engine, settings, Parallelism(degree, stages), draw(st.none() | st.just(600))
    )


@given(questions())
def test_components_add_up_to_the_budget(asked: MemoryQuestion) -> None:
    found = estimate_memory(asked)
    memory = asked.release.memory
    parts = found.weights_bytes + found.non_torch_bytes + found.kv_cache_bytes
    parts += found.activation_bytes if memory.activations_inside_budget else 0
    parts += found.cuda_graph_bytes if memory.cuda_graphs_inside_budget else 0
    assert parts == pytest.approx(found.budget_bytes, rel=1e-9)
    if not memory.utilization_of_free_memory:
        assert found.budget_bytes == pytest.approx(asked.gpu_memory_utilization * found.visible_bytes, rel=1e-12)


@given(questions())
def test_blocks_and_verdict_agree(asked: MemoryQuestion) -> None:
    found = estimate_memory(asked)
    assert found.kv_cache_tokens == found.kv_blocks * found.kv_block_tokens
    assert found.kv_blocks * found.kv_block_tokens * found.kv_bytes_per_token <= max(0.0, found.kv_cache_bytes)
    assert found.fits == (found.missing_bytes == 0) == (not found.broken_rules)
    assert found.max_model_len_tokens == found.configuration.max_model_len_tokens
    if found.fits:
        assert found.concurrency_at_max_model_len >= 1
    assert (found.concurrency_at_workload is None) == (asked.workload_context_tokens is None)


@given(questions())
def test_the_largest_context_fits_and_one_token_more_does_not(asked: MemoryQuestion) -> None:
    largest = estimate_memory(asked).largest_context_tokens
    longest = max(asked.architecture.maximum_context_tokens, asked.settings.max_model_len_tokens or 0)

    def has_room(tokens: int) -> bool:
        settings = dataclasses.replace(asked.settings, max_model_len_tokens=tokens)
        found = estimate_memory(dataclasses.replace(asked, settings=settings))
        return not {rule.rule for rule in found.broken_rules} - {"MORE_THAN_VISIBLE_MEMORY"}

    assert 0 <= largest <= longest
    if largest:
        assert has_room(largest)
    if largest < longest:
        assert not has_room(largest + 1)


@given(questions(), st.floats(0.0, 0.3))
def test_a_higher_utilization_never_costs_tokens(asked: MemoryQuestion, more: float) -> None:
    utilization = min(1.0, asked.gpu_memory_utilization + more)
    # The chosen context, and with it V0's token budget, may change: fix it.
    fixed = dataclasses.replace(asked.settings, max_model_len_tokens=4096)
    low = estimate_memory(dataclasses.replace(asked, settings=fixed))
    raised = dataclasses.replace(fixed, gpu_memory_utilization=utilization)
    high = estimate_memory(dataclasses.replace(asked, settings=raised))
    assert high.kv_cache_tokens >= low.kv_cache_tokens
    assert high.largest_context_tokens >= low.largest_context_tokens


@given(questions(), st.integers(0, 50_000))
def test_a_larger_token_budget_never_gives_tokens(asked: MemoryQuestion, more: int) -> None:
    budget = asked.settings.max_num_batched_tokens or 2048
    estimates = []
    for tokens in (budget, budget + more):
        settings = dataclasses.replace(asked.settings, max_num_batched_tokens=tokens, max_model_len_tokens=4096)
        estimates.append(estimate_memory(dataclasses.replace(asked, settings=settings)))
    assert estimates[1].kv_cache_tokens <= estimates[0].kv_cache_tokens


def test_a_choice_of_context_is_told_and_never_the_model_s_maximum() -> None:
    """Issue 5755 of sglang: Llama-4-Scout at its default of 10M tokens on what was called an H200 and had 79.10 GiB."""
    found = estimate_memory(
        question(
            "llama-4-scout", "h200-sxm-141gb", "sglang", Parallelism(8),
            measured=MeasuredMemory(visible_bytes=79.10 * GIBIBYTE),
        )
    )  # fmt: skip
    assert found.max_model_len_tokens == 32_768
    chosen = next(warning for warning in found.warnings if warning.code == "CONTEXT_CHOSEN")
    assert chosen.quantity("model_maximum") == 10_485_760
    assert chosen.quantity("max_model_len") == 32_768
    differs = next(warning for warning in found.warnings if warning.code == "MEASURED_MEMORY_DIFFERS")
    assert differs.quantity("measured") == 79.10 * GIBIBYTE


def test_a_chosen_context_covers_the_workload_and_fits() -> None:
    assert estimate_memory(question(workload_context_tokens=60_000)).max_model_len_tokens == 60_000
    tight = estimate_memory(question("qwen2.5-72b", "a100-sxm-80gb", parallelism=Parallelism(2), version="0.8.0"))
    assert tight.max_model_len_tokens == tight.largest_context_tokens < 32_768
    assert tight.fits


def test_an_asked_context_is_never_changed() -> None:
    found = estimate_memory(question("llama-2-7b", max_model_len_tokens=8192))
    assert found.max_model_len_tokens == 8192
    assert "CONTEXT_ABOVE_MODEL_MAXIMUM" in codes(found)
    assert "CONTEXT_CHOSEN" not in codes(found)


def test_utilization_of_one_is_warned_of() -> None:
    """Issue 2348 of vllm: 70B on eight 32 GB cards with utilization 1.0 runs out of memory though the sum fits."""
    found = estimate_memory(question(gpu_memory_utilization=1.0, version="0.11.0"))
    assert "UTILIZATION_IS_ONE" in codes(found)
    assert "MEMORY_BESIDE_THE_BUDGET" in codes(found)
    assert found.budget_bytes == found.visible_bytes


def test_replicated_kv_heads_are_warned_of() -> None:
    found = estimate_memory(question("qwen3-235b-a22b", "h200-sxm-141gb", parallelism=Parallelism(8)))
    warning = next(warning for warning in found.warnings if warning.code == "KV_HEADS_REPLICATED")
    assert warning.quantity("kv_heads") == 4
    latent = estimate_memory(question("deepseek-v3", "h200-sxm-141gb", parallelism=Parallelism(8)))
    assert "LATENT_KV_CACHE_REPLICATED" in codes(latent)
    assert codes(estimate_memory(question())) == {"CONTEXT_CHOSEN"}


def test_the_label_is_told_of_where_it_decides() -> None:
    # 62.2 GiB of Yi-34B and 15 GiB of cache: the label's 80 GiB would hold them at 0.98, the visible 79.19 do not.
    fitting = question("yi-34b", gpu_memory_utilization=0.98, max_model_len_tokens=4096)
    kv_cache = estimate_memory(fitting).kv_cache_bytes
    tokens = int(kv_cache / estimate_memory(fitting).kv_bytes_per_token) + 500
    found = estimate_memory(question("yi-34b", gpu_memory_utilization=0.98, max_model_len_tokens=tokens))
    assert not found.fits
    assert "LABEL_MEMORY_IS_NOT_VISIBLE" in codes(found)
    assert found.missing_bytes == pytest.approx(500 * found.kv_bytes_per_token, rel=0.05)


def test_engines_take_the_fraction_of_different_things() -> None:
    fraction: dict[str, Any] = {"gpu_memory_utilization": 0.9, "max_model_len_tokens": 8192}
    vllm = estimate_memory(question(version="0.11.0", **fraction))
    sglang = estimate_memory(question(engine="sglang", **fraction))
    tensorrt = estimate_memory(question(engine="tensorrt-llm", **fraction))
    visible = vllm.visible_bytes
    assert vllm.kv_cache_bytes == pytest.approx(
        0.9 * visible - vllm.weights_bytes - vllm.activation_bytes - vllm.non_torch_bytes
    )
    assert sglang.kv_cache_bytes == pytest.approx(0.9 * visible - sglang.weights_bytes - sglang.non_torch_bytes)
    rest = tensorrt.weights_bytes + tensorrt.activation_bytes + tensorrt.non_torch_bytes + tensorrt.cuda_graph_bytes
    assert tensorrt.kv_cache_bytes == pytest.approx(0.9 * (visible - rest))


def test_the_configuration_has_no_gaps() -> None:
    found = estimate_memory(question(version="0.14.2", max_num_seqs=64)).configuration
    assert (found.engine, found.engine_version, found.engine_release) == ("vllm", "0.14.2", "0.14.0")
    assert found.accelerator == "h100-sxm-80gb"
    assert (found.max_num_seqs, found.max_num_batched_tokens) == (64, 8192)
    assert (found.weight_precision, found.kv_precision) == (Precision.BFLOAT16, Precision.BFLOAT16)
    assert found.gpu_memory_utilization == 0.9
    assert found.enable_prefix_caching


def test_fp8_cache_doubles_tokens() -> None:
    plain = estimate_memory(question(max_model_len_tokens=8192))
    halved = estimate_memory(question(max_model_len_tokens=8192, kv_precision=Precision.FP8))
    assert halved.kv_cache_tokens == pytest.approx(2 * plain.kv_cache_tokens, abs=32)


def test_the_stage_with_most_layers_limits() -> None:
    # 80 layers over 3 stages: 27 on the fullest.
    found = estimate_memory(question("llama-3-70b", "a100-sxm-80gb", parallelism=Parallelism(1, 3)))
    assert found.kv_bytes_per_token == 27 * 2 * 8 * 128 * 2


def test_everything_that_is_wrong_is_told_at_once() -> None:
    asked = question(
        "qwen2.5-7b", parallelism=Parallelism(8), workload_context_tokens=0,
        measured=MeasuredMemory(weights_bytes=float("nan"), non_torch_bytes=-1.0),
        gpu_memory_utilization=1.5, max_num_seqs=512, max_num_batched_tokens=256, kv_precision=Precision.INT4,
        max_model_len_tokens=0,
    )  # fmt: skip
    with pytest.raises(InvalidInputError) as caught:
        estimate_memory(asked)
    assert [violation.field for violation in caught.value.violations] == [
        "settings.gpu_memory_utilization",
        "settings.max_model_len_tokens",
        "workload_context_tokens",
        "settings.max_num_batched_tokens",
        "settings.kv_precision",
        "measured.weights_bytes",
        "measured.non_torch_bytes",
        "parallelism.tensor_parallel",
    ]
