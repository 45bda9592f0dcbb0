"""quantization_config of every format that is known, and refusal of those that are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inferplan.catalog import Precision, QuantizationMethod, WeightQuantization, read_huggingface_config
from inferplan.errors import InvalidInputError

CONFIGS = Path(__file__).parents[1] / "data" / "huggingface"
FP8 = WeightQuantization(QuantizationMethod.FP8, Precision.FP8)
NVFP4 = WeightQuantization(QuantizationMethod.NVFP4, Precision.NVFP4, group_size_elements=16, scale_bytes=1.0)


def quantized(model: str, config: object) -> str:
    content = json.loads((CONFIGS / f"{model}.json").read_text(encoding="utf-8"))
    return json.dumps(content | {"quantization_config": config})


def group(**weights: object) -> dict[str, object]:
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}


def fp8_blocks(side: int) -> WeightQuantization:
    return WeightQuantization(QuantizationMethod.FP8, Precision.FP8, block_size_elements=side, scale_bytes=4.0)


def integers(method: QuantizationMethod, group_size: int | None, zero_point_bytes: float) -> WeightQuantization:
    return WeightQuantization(method, Precision.INT4, group_size_elements=group_size, zero_point_bytes=zero_point_bytes)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"quant_method": "fp8", "activation_scheme": "dynamic"}, FP8),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, fp8_blocks(128)),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"},
         integers(QuantizationMethod.AWQ, 128, 0.5)),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64, "zero_point": False, "modules_to_not_convert": None},
         integers(QuantizationMethod.AWQ, 64, 0.0)),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True},
         integers(QuantizationMethod.GPTQ, 128, 0.5)),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, integers(QuantizationMethod.GPTQ, None, 0.5)),
        ({"quant_method": "gptq", "bits": 8, "group_size": 32},
         WeightQuantization(QuantizationMethod.GPTQ, Precision.INT8, group_size_elements=32, zero_point_bytes=1.0)),
        (group(type="float", num_bits=8, strategy="channel") | {"ignore": ["lm_head"]}, FP8),
        (group(type="float", num_bits=8, strategy="block", block_structure=[128, 128]), fp8_blocks(128)),
        (group(type="int", num_bits=8, strategy="channel"),
         WeightQuantization(QuantizationMethod.INT8, Precision.INT8)),
        (group(type="int", num_bits=4, strategy="group", group_size=128, symmetric=True),
         integers(QuantizationMethod.GPTQ, 128, 0.0)),
        (group(type="int", num_bits=4, strategy="group", group_size=128, symmetric=False),
         integers(QuantizationMethod.GPTQ, 128, 0.5)),
        (group(type="float", num_bits=4, group_size=16), NVFP4),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}, FP8),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}, NVFP4),
        ({"quant_algo": "FP8", "producer": {"name": "modelopt"}, "ignore": ["lm_head"]}, FP8),
        ({"quant_method": "fp8", "modules_to_not_convert":
            ["lm_head", "model.layers.0.input_layernorm", "model.embed_tokens", "visual", "re:.*vision_tower.*"]}, FP8),
    ],
)  # fmt: skip
def test_known_formats(config: dict[str, object], expected: WeightQuantization) -> None:
    assert read_huggingface_config(quantized("llama-3.1-8b", config)).quantization == expected


def test_published_fp8_checkpoint_with_its_list_of_unquantised_modules() -> None:
    text = (CONFIGS / "qwen3-235b-a22b-fp8.json").read_text(encoding="utf-8")
    assert text.count("mlp.gate") == 94
    assert read_huggingface_config(text).quantization == fp8_blocks(128)


def test_gpt_oss_quantises_experts_only() -> None:
    found = read_huggingface_config((CONFIGS / "gpt-oss-20b.json").read_text(encoding="utf-8"))
    assert found.quantization == WeightQuantization(
        QuantizationMethod.MXFP4, Precision.MXFP4, group_size_elements=32, scale_bytes=1.0, experts_only=True
    )
    assert found.weight_precision is Precision.MXFP4


@pytest.mark.parametrize(
    "patterns",
    [
        # Kimi-K2-Thinking, regular expressions over all layers.
        ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"],
        # NVIDIA's exports name each layer, the dense ones as a whole, and the prediction layer past the end.
        ["lm_head", "model.layers.0*", "model.layers.1.*", "model.layers.61*"]
        + [f"model.layers.{i}.self_attn*" for i in range(2, 61)],
    ],
)
def test_sixteen_bit_attention_in_every_layer_means_that_only_experts_are_quantised(patterns: list[str]) -> None:
    config = group(type="int", num_bits=4, group_size=32, symmetric=True) | {"ignore": patterns}
    found = read_huggingface_config(quantized("kimi-k2", config)).quantization
    assert found == WeightQuantization(
        QuantizationMethod.GPTQ, Precision.INT4, group_size_elements=32, experts_only=True
    )


@pytest.mark.parametrize(
    ("model", "config", "path", "text"),
    [
        ("llama-3.1-8b", {"quant_method": "bitsandbytes", "load_in_4bit": True}, "quant_method",
         "fp8, awq, gptq, mxfp4, compressed-tensors, modelopt"),
        ("llama-3.1-8b", {"quant_method": "aqlm"}, "quant_method", "fp8, awq, gptq"),
        ("llama-3.1-8b", {}, "quant_method", "is missing"),
        ("llama-3.1-8b", {"quant_method": 5}, "quant_method", "legal is a string"),
        ("llama-3.1-8b", {"quant_method": "fp8", "weight_block_size": [128, 64]}, "weight_block_size", "square"),
        ("llama-3.1-8b", {"quant_method": "fp8", "weight_block_size": "128"}, "weight_block_size", "list"),
        ("llama-3.1-8b", {"quant_method": "awq", "bits": 3, "group_size": 128}, "bits", "legal for AWQ is 4"),
        ("llama-3.1-8b", {"quant_method": "gptq", "bits": 3, "group_size": 128}, "bits", "4 and 8"),
        ("llama-3.1-8b", {"quant_method": "gptq", "bits": 4}, "group_size", "is missing"),
        ("llama-3.1-8b", {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"x": {"bits": 8}}},
         "dynamic", "one format"),
        ("llama-3.1-8b", {"quant_method": "mxfp4"}, "quant_method", "has none"),
        ("llama-3.1-8b", {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "quant_algo", "FP8, NVFP4"),
        ("llama-3.1-8b", {"quant_method": "compressed-tensors"}, "config_groups", "is missing"),
        ("llama-3.1-8b", {"quant_method": "compressed-tensors", "config_groups": {"group_0": {}}},
         "config_groups.group_0.weights", "is missing"),
        ("llama-3.1-8b", group(type="int", num_bits=2, group_size=128), "config_groups.group_0.weights.type", "int 4"),
        ("llama-3.1-8b", {"quant_method": "fp8", "ignore": ["model.layers.0.self_attn"]}, "ignore", "1 of 32 layers"),
        ("llama-3.1-8b", {"quant_method": "fp8", "ignore": ["re:.*mlp.*"]}, "ignore", "some feed-forward"),
        ("llama-3.1-8b", {"quant_method": "fp8", "ignore": ["whatever"]}, "ignore", "unknown parts: 'whatever'"),
        ("mixtral-8x7b", {"quant_method": "fp8", "ignore": ["re:.*self_attn", "model.layers.3.mlp.experts.0"]},
         "ignore", "some experts"),
    ],
)  # fmt: skip
def test_refused_formats_say_what_is_legal(model: str, config: dict[str, object], path: str, text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_huggingface_config(quantized(model, config), "model.config_json")
    found = {violation.field: violation.description for violation in caught.value.violations}
    assert text in found[f"model.config_json.quantization_config.{path}"]


def test_two_groups_of_different_formats_are_refused() -> None:
    weights = {"int": {"weights": {"type": "int", "num_bits": 4, "group_size": 128}},
               "float": {"weights": {"type": "float", "num_bits": 8}}}  # fmt: skip
    config = {"quant_method": "compressed-tensors", "config_groups": weights}
    with pytest.raises(InvalidInputError, match="mixes formats"):
        read_huggingface_config(quantized("llama-3.1-8b", config))
