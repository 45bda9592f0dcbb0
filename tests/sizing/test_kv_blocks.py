"""How much context the simulated replica holds: as many sequences as the memory model says."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferplan.catalog import load_catalog
from inferplan.sizing.configuration import EngineSettings
from inferplan.sizing.kv_blocks import simulated_kv_blocks
from inferplan.sizing.memory import MemoryEstimate, MemoryQuestion, estimate_memory
from inferplan.sizing.parallelism import Parallelism

CATALOG = load_catalog()
ENGINE = CATALOG.engine("vllm")


def estimated(model: str, context_tokens: int, tensor_parallel: int = 1, version: str = "") -> MemoryEstimate:
    return estimate_memory(
        MemoryQuestion(
            CATALOG.model(model).architecture,
            CATALOG.accelerator("h100-sxm-80gb"),
            ENGINE,
            EngineSettings(version=version),
            parallelism=Parallelism(tensor_parallel),
            workload_context_tokens=context_tokens,
        )
    )


def blocks(model: str, memory: MemoryEstimate, context_tokens: float | None, version: str = "") -> int:
    return simulated_kv_blocks(CATALOG.model(model).architecture, ENGINE.release_for(version), memory, context_tokens)


@pytest.mark.parametrize("context_tokens", [None, 17, 600, 30_000])
def test_a_model_without_windows_has_the_blocks_of_its_start_up_log(context_tokens: int | None) -> None:
    memory = estimated("llama-3.1-8b", 600)
    assert blocks("llama-3.1-8b", memory, context_tokens) == pytest.approx(memory.kv_blocks, abs=1)


@pytest.mark.parametrize(
    ("model", "tensor_parallel", "context_tokens"),
    [
        pytest.param("gemma-3-27b", 1, 20_000, id="windows of 1,024 in five of six layers"),
        pytest.param("gpt-oss-120b", 2, 8_000, id="windows of 128 in every other layer"),
        pytest.param("qwen3-next-80b-a3b", 4, 2_000, id="linear layers with a state"),
    ],
)
def test_as_many_sequences_of_the_mean_context_fit_as_in_the_memory_model(
    model: str, tensor_parallel: int, context_tokens: int
) -> None:
    memory = estimated(model, context_tokens, tensor_parallel)
    assert memory.concurrency_at_workload is not None
    sequences = blocks(model, memory, context_tokens) / math.ceil(context_tokens / memory.kv_block_tokens)
    assert sequences == pytest.approx(memory.concurrency_at_workload, rel=0.01)


def test_windows_are_worth_nothing_to_an_engine_that_keeps_everything() -> None:
    old = "0.8.0"
    memory = estimated("gemma-3-27b", 20_000, version=old)
    assert blocks("gemma-3-27b", memory, 20_000, old) == pytest.approx(memory.kv_blocks, abs=1)


@given(
    st.sampled_from(["gemma-3-27b", "gpt-oss-20b", "qwen3-next-80b-a3b", "llama-3.1-8b"]),
    st.integers(1, 100_000),
)
def test_without_a_workload_no_more_is_counted_on_than_any_workload_would_get(model: str, context_tokens: int) -> None:
    memory = estimated(model, 1000, 4)
    unknown = blocks(model, memory, None)
    slots = memory.configuration.max_num_seqs
    # A state in every slot is more than sequences of this context would hold where they do not fill the slots.
    sequences = unknown * memory.kv_block_tokens / context_tokens
    if memory.state_bytes_per_sequence == 0 or sequences <= slots:
        assert unknown <= blocks(model, memory, context_tokens) + 1


def test_the_longest_context_that_may_be_sent_always_fits() -> None:
    memory = estimated("qwen3-next-80b-a3b", 1, 4)
    assert blocks("qwen3-next-80b-a3b", memory, 1) * memory.kv_block_tokens >= memory.max_model_len_tokens
