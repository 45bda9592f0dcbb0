"""Parameter counts against published and independently computed totals."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from inferplan.catalog import Model, load_catalog
from inferplan.sizing.parameters import ModelPart, count_parameters

CATALOG = load_catalog()
with (Path(__file__).parents[1] / "data" / "models.csv").open(encoding="utf-8", newline="") as lines:
    ROWS = [row for row in csv.DictReader(lines) if row["params_total_b"]]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["model"])
def test_total_and_active_are_the_published_ones(row: dict[str, str]) -> None:
    architecture = CATALOG.model(row["model"]).architecture
    count = count_parameters(architecture)
    total, active = count.total, count.active
    if "computed" in row["params_source"]:
        total -= architecture.vision_parameters
    if row["model"] == "tiiuae/falcon-180B":
        # The files hold the LM head beside the embedding that it is tied to, engines load it once.
        total += count.of(ModelPart.EMBEDDING)
        active += count.of(ModelPart.EMBEDDING)
    assert total / 1e9 == pytest.approx(float(row["params_total_b"]), rel=_tolerance(row))
    if "headline" not in row["params_source"]:
        assert active / 1e9 == pytest.approx(float(row["params_active_b"]), rel=0.005)


def _tolerance(row: dict[str, str]) -> float:
    """Headline figures are rounded, that of Kimi-K2 (1,026 billion, called 1T) more than the others."""
    if row["model"] == "moonshotai/Kimi-K2-Instruct":
        return 0.03
    return 0.01 if "headline" in row["params_source"] else 0.005


@pytest.mark.parametrize(
    ("name", "active_billions", "tolerance"),
    [
        # Model cards: what one token passes through, in whole billions.
        ("deepseek-v3", 37, 0.6), ("kimi-k2", 32, 1.0), ("qwen3-235b-a22b", 22, 0.5), ("qwen3-30b-a3b", 3.3, 0.1),
        ("mixtral-8x7b", 12.9, 0.1), ("gpt-oss-120b", 5.1, 0.7), ("gpt-oss-20b", 3.6, 0.7), ("llama-4-scout", 17, 0.5),
        ("llama-4-maverick", 17, 0.5), ("qwen3-next-80b-a3b", 3, 1.0),
    ],
)  # fmt: skip
def test_active_parameters_of_experts_are_the_card_s(name: str, active_billions: float, tolerance: float) -> None:
    active = count_parameters(CATALOG.model(name).architecture).active / 1e9
    assert active == pytest.approx(active_billions, abs=tolerance)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # Safetensors totals of the published checkpoints.
        ("llama-2-7b", 6_738_415_616), ("llama-3.1-8b", 8_030_261_248), ("llama-3.1-70b", 70_553_706_496),
        ("qwen2.5-14b", 14_770_033_664), ("qwen2.5-0.5b", 494_032_768), ("mistral-7b", 7_241_732_096),
        ("mixtral-8x7b", 46_702_792_704), ("mistral-small-3.2-24b", 24_011_361_280),
    ],
)  # fmt: skip
def test_dense_counts_are_exact(name: str, parameters: int) -> None:
    assert count_parameters(CATALOG.model(name).architecture).total == parameters


@pytest.mark.parametrize("model", CATALOG.models(), ids=lambda model: model.id)
def test_parts_add_up_and_stay_near_the_headline(model: Model) -> None:
    count = count_parameters(model.architecture)
    assert count.total == sum(count.of(part) for part in ModelPart)
    assert 0 < count.active <= count.total
    assert count.active == sum(count.active_of(part) for part in ModelPart)
    if model.headline_parameters:
        assert count.total == pytest.approx(model.headline_parameters, rel=0.27)


def test_tied_embeddings_count_once() -> None:
    count = count_parameters(CATALOG.model("qwen2.5-0.5b").architecture)
    assert count.of(ModelPart.EMBEDDING) == 151_936 * 896
    assert count.of(ModelPart.LM_HEAD) == 0


def test_multi_token_prediction_layer_is_left_out() -> None:
    # 671B is what the card calls DeepSeek-V3 without the 14B of the prediction layer.
    assert count_parameters(CATALOG.model("deepseek-v3").architecture).total == pytest.approx(671.0e9, rel=0.001)
