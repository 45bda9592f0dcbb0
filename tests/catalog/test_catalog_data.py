"""Every built-in entry loads, keeps the rules, and has the published dimensions and figures."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from inferplan.catalog import (
    Accelerator,
    AttentionScope,
    Catalog,
    GroupedAttention,
    LatentAttention,
    Model,
    Precision,
    accelerator_violations,
    load_catalog,
    model_violations,
    read_huggingface_config,
)
from inferplan.catalog.checks import ACCELERATOR_FIGURES

DATA = Path(__file__).parents[1] / "data"
CATALOG: Catalog = load_catalog()
GIBIBYTE = 2**30
with (DATA / "models.csv").open(encoding="utf-8", newline="") as published_models:
    PUBLISHED = list(csv.DictReader(published_models))


@pytest.mark.parametrize("model", CATALOG.models(), ids=lambda model: model.id)
def test_model_keeps_the_rules(model: Model) -> None:
    assert model_violations(model) == []
    assert model.source
    assert isinstance(model.architecture.checkpoint_precision, Precision)
    assert all(isinstance(group.scope, AttentionScope) for group in model.architecture.layer_groups)


@pytest.mark.parametrize("accelerator", CATALOG.accelerators(), ids=lambda accelerator: accelerator.id)
def test_accelerator_keeps_the_rules(accelerator: Accelerator) -> None:
    assert accelerator_violations(accelerator) == []
    assert set(accelerator.sources) == set(ACCELERATOR_FIGURES)
    assert accelerator.dense_flops_per_second[Precision.FLOAT16] == accelerator.sixteen_bit_flops_per_second
    assert all(isinstance(precision, Precision) for precision in accelerator.dense_flops_per_second)
    # Drivers keep up to 8 % for themselves and for ECC, never more.
    assert 0.91 < accelerator.visible_memory_bytes / accelerator.label_memory_bytes < 1
    assert "editable default" in accelerator.sources["cost_usd_per_gpu_hour"]


def test_there_are_enough_entries_of_every_kind() -> None:
    families = {model.architecture.family for model in CATALOG.models()}
    assert len(CATALOG.models()) >= 30
    assert families >= {"llama", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gpt_oss", "deepseek_v3", "gemma3", "llama4"}
    assert len(CATALOG.accelerators()) >= 14


def optional_number(row: dict[str, str], key: str) -> int | None:
    return int(float(row[key])) if row[key] else None


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: row["model"])
def test_model_has_the_published_dimensions(row: dict[str, str]) -> None:
    found = CATALOG.model(row["model"]).architecture
    assert found.layers == int(row["layers"])
    assert found.hidden_size == int(row["hidden"])
    assert found.vocabulary_size == int(row["vocab"])
    assert found.attention.query_heads == int(row["heads"])
    if row["tied_embeddings"]:
        assert found.tied_embeddings is (row["tied_embeddings"] == "True")
    if row["checkpoint_dtype"] in ("float16", "bfloat16"):
        assert found.checkpoint_precision.value == row["checkpoint_dtype"]
    windows = {group.window_tokens for group in found.layer_groups if group.scope is AttentionScope.SLIDING_WINDOW}
    assert windows == ({optional_number(row, "sliding_window")} if row["sliding_window"] else set())


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: row["model"])
def test_model_has_the_published_attention(row: dict[str, str]) -> None:
    attention = CATALOG.model(row["model"]).architecture.attention
    if row["kv_lora_rank"]:
        assert isinstance(attention, LatentAttention)
        assert attention.kv_lora_rank == optional_number(row, "kv_lora_rank")
        assert attention.qk_rope_head_dim == optional_number(row, "qk_rope_head_dim")
    else:
        assert isinstance(attention, GroupedAttention)
        assert attention.kv_heads == int(row["kv_heads"])
        assert attention.head_dim == optional_number(row, "head_dim")
        if row["qkv_bias"]:
            assert attention.qkv_bias is (row["qkv_bias"] == "True")


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: row["model"])
def test_model_has_the_published_feed_forward(row: dict[str, str]) -> None:
    found = CATALOG.model(row["model"]).architecture
    if not row["experts"]:
        assert found.experts is None
        assert found.feed_forward is not None
        assert found.feed_forward.intermediate_size == optional_number(row, "intermediate")
        return
    assert found.experts is not None
    assert found.experts.experts == optional_number(row, "experts")
    assert found.experts.experts_per_token == optional_number(row, "experts_per_token")
    assert found.experts.expert_intermediate_size == optional_number(row, "moe_intermediate")
    if row["first_dense_layers"]:
        assert found.feed_forward is not None
        assert found.feed_forward.layers == optional_number(row, "first_dense_layers")
        assert found.feed_forward.intermediate_size == optional_number(row, "intermediate")
    if row["shared_experts"]:
        shared = int(float(row["shared_experts"])) * found.experts.expert_intermediate_size
        assert found.experts.shared_intermediate_size == shared


@pytest.mark.parametrize(
    ("config", "model_id"),
    [
        ("llama-2-7b", "llama-2-7b"), ("llama-3.1-8b", "llama-3.1-8b"), ("llama-4-scout", "llama-4-scout"),
        ("mistral-7b-v0.1", "mistral-7b"), ("mistral-small-3.2-24b", "mistral-small-3.2-24b"),
        ("qwen3-235b-a22b-fp8", "qwen3-235b-a22b-fp8"), ("qwen3-next-80b-a3b", "qwen3-next-80b-a3b"),
        ("gemma-3-27b", "gemma-3-27b"), ("gpt-oss-20b", "gpt-oss-20b"), ("deepseek-v3.2", "deepseek-v3.2"),
        ("deepseek-v2-lite", "deepseek-v2-lite"), ("falcon-180b", "falcon-180b"), ("glm-5", "glm-5"),
    ],
)  # fmt: skip
def test_entry_equals_what_the_reader_makes_of_the_published_config(config: str, model_id: str) -> None:
    text = (DATA / "huggingface" / f"{config}.json").read_text(encoding="utf-8")
    assert CATALOG.model(model_id).architecture == read_huggingface_config(text)


@pytest.mark.parametrize(
    ("name", "visible_gibibytes"),
    [
        # vLLM and out-of-memory reports; see the sources in the data.
        ("h100-sxm-80gb", 79.19), ("h100-nvl-94gb", 93.02), ("a100-sxm-80gb", 79.15), ("a100-sxm-40gb", 39.5),
    ],
)  # fmt: skip
def test_visible_memory_is_what_runtimes_report(name: str, visible_gibibytes: float) -> None:
    assert math.isclose(CATALOG.accelerator(name).visible_memory_bytes / GIBIBYTE, visible_gibibytes, rel_tol=1e-6)


@pytest.mark.parametrize(
    ("name", "bandwidth", "sixteen_bit", "fp8"),
    [
        # Dense rates of the makers' datasheets; FP8 falls back to the 16-bit rate where no unit exists.
        ("h100-sxm-80gb", 3.35e12, 989e12, 1978e12),
        ("h100-pcie-80gb", 2.0e12, 756.5e12, 1513e12),
        ("h200-sxm-141gb", 4.8e12, 989e12, 1978e12),
        ("a100-sxm-80gb", 2.039e12, 312e12, 312e12),
        ("a100-sxm-40gb", 1.555e12, 312e12, 312e12),
        ("l40s-48gb", 864e9, 362.05e12, 733e12),
        ("l4-24gb", 300e9, 121e12, 242e12),
        ("b200-sxm-180gb", 7.7e12, 2250e12, 4500e12),
    ],
)
def test_rates_are_dense_datasheet_rates(name: str, bandwidth: float, sixteen_bit: float, fp8: float) -> None:
    found = CATALOG.accelerator(name)
    assert found.memory_bandwidth_bytes_per_second == bandwidth
    assert found.peak_flops_per_second(Precision.BFLOAT16) == sixteen_bit
    assert found.peak_flops_per_second(Precision.FP8) == fp8
