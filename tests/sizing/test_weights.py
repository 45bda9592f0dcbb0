"""Bytes of the weights, against what engines logged after loading."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferplan.catalog import ModelArchitecture, Precision, load_catalog
from inferplan.catalog.engine import EngineMemory
from inferplan.sizing.parallelism import Parallelism
from inferplan.sizing.parameters import count_parameters
from inferplan.sizing.weights import served_architecture, weight_bytes, weight_bytes_per_gpu

CATALOG = load_catalog()
GIBIBYTE = 2**30
MODELS = st.sampled_from([model.architecture for model in CATALOG.models()])
PRECISIONS = st.sampled_from([None, *Precision])


def memory_of(version: str) -> EngineMemory:
    return CATALOG.engine("vllm").release_for(version).memory


@pytest.mark.parametrize(
    ("name", "precision", "parallelism", "version", "logged_gib", "tolerance"),
    [
        # "model weights take" and "Model loading took" of the logs in tests/data/kv_capacity.csv.
        ("llama-2-7b", None, Parallelism(), "0.8.0", 12.55, 0.005),
        ("llama-3.1-8b", None, Parallelism(), "0.11.0", 14.99, 0.005),
        ("llama-3.1-70b-fp8", None, Parallelism(), "0.11.0", 67.72, 0.005),
        ("llama-3.1-70b-fp8", None, Parallelism(2), "0.11.0", 33.88, 0.005),
        ("mistral-small-3.2-24b", None, Parallelism(), "0.11.0", 44.76, 0.005),
        ("qwen2-7b", None, Parallelism(), "0.10.1.1", 14.2488, 0.005),
        ("qwen2-7b", None, Parallelism(2), "0.10.1.1", 7.1217, 0.005),
        ("phi-4", Precision.INT4, Parallelism(), "0.6.6", 8.51, 0.005),
        # MXFP4: Marlin on an H100 (vllm issue 23278) and on four A100, Triton on an H100 (vllm issue 33155).
        ("gpt-oss-120b", None, Parallelism(), "0.10.1.1", 65.97, 0.005),
        ("gpt-oss-120b", None, Parallelism(4), "0.10.1.1", 17.2217, 0.005),
        ("gpt-oss-120b", None, Parallelism(), "0.14.1", 64.38, 0.005),
        # RTX PRO 6000, k0046.
        ("llama-3.1-70b", Precision.INT4, Parallelism(), "0.14.0", 37.09, 0.01),
    ],
)  # fmt: skip
def test_weights_are_what_the_engine_logged(
    name: str, precision: Precision | None, parallelism: Parallelism, version: str, logged_gib: float, tolerance: float
) -> None:
    architecture = served_architecture(CATALOG.model(name).architecture, precision)
    found = weight_bytes_per_gpu(architecture, parallelism, memory_of(version)) / GIBIBYTE
    assert found == pytest.approx(logged_gib, rel=tolerance)


def test_embeddings_and_head_stay_at_16_bit() -> None:
    model = CATALOG.model("llama-3.1-8b").architecture
    table = 2 * 128_256 * 4096
    linear = count_parameters(model).total - table - (2 * 32 + 1) * 4096
    found = weight_bytes(served_architecture(model, Precision.FP8))
    assert found == linear + 2 * table + 2 * (2 * 32 + 1) * 4096


def test_block_scales_and_group_scales_are_counted() -> None:
    model = CATALOG.model("deepseek-v3").architecture
    unscaled = served_architecture(CATALOG.model("deepseek-v3").architecture, Precision.BFLOAT16)
    plain_fp8 = served_architecture(unscaled, Precision.FP8)
    extra = weight_bytes(model) / weight_bytes(plain_fp8) - 1
    assert 0 < extra < 4 / 128**2
    # The checkpoint's files are 688.6e9 B with the prediction layer of about 14e9.
    assert weight_bytes(model) == pytest.approx(675e9, rel=0.01)


def test_every_expert_is_resident() -> None:
    # vllm issue 2363: 87 GiB of Mixtral-8x7B in 16 bit, though 12.9B parameters are active.
    assert weight_bytes(CATALOG.model("mixtral-8x7b").architecture) / GIBIBYTE == pytest.approx(87, rel=0.005)


def test_a_float32_checkpoint_is_served_at_16_bit() -> None:
    model = served_architecture(CATALOG.model("llama-2-7b").architecture, Precision.FLOAT32)
    assert weight_bytes(model) == 2 * weight_bytes(served_architecture(model, None))


def test_checkpoint_s_own_format_changes_nothing() -> None:
    model = CATALOG.model("qwen3-235b-a22b-fp8").architecture
    assert served_architecture(model, Precision.FP8) is model


@given(MODELS, PRECISIONS, st.sampled_from([1, 2, 3, 4, 5, 8]), st.sampled_from([1, 2, 3, 4]))
def test_more_gpus_never_hold_more_each_and_never_less_in_all(
    architecture: ModelArchitecture, precision: Precision | None, tensor: int, pipeline: int
) -> None:
    served = served_architecture(architecture, precision)
    memory = memory_of("0.11.0")
    found = weight_bytes_per_gpu(served, Parallelism(tensor, pipeline), memory)
    for more in (Parallelism(2 * tensor, pipeline), Parallelism(tensor, pipeline + 1)):
        assert weight_bytes_per_gpu(served, more, memory) <= found * (1 + 1e-12)
    assert found * tensor * pipeline >= weight_bytes(served) * (1 - 1e-12)


@given(MODELS)
def test_fewer_bits_never_take_more_bytes(architecture: ModelArchitecture) -> None:
    order = (Precision.BFLOAT16, Precision.FP8, Precision.NVFP4, Precision.INT4)
    sizes = [weight_bytes(served_architecture(served_architecture(architecture, order[0]), each)) for each in order]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("degree", [2, 4, 8])
def test_expert_parallelism_spreads_the_same_bytes(degree: int) -> None:
    model = CATALOG.model("qwen3-235b-a22b").architecture
    memory = memory_of("0.11.0")
    split = weight_bytes_per_gpu(model, Parallelism(degree), memory)
    assert weight_bytes_per_gpu(model, Parallelism(degree, 1, degree), memory) == pytest.approx(split, rel=1e-12)
