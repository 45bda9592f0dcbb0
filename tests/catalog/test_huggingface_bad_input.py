"""Whatever a caller sends as config.json, the answer names everything that is wrong with it and what would be legal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inferplan.catalog import read_huggingface_config
from inferplan.catalog.huggingface import KNOWN_MODEL_TYPES, MAXIMUM_CONFIG_BYTES
from inferplan.errors import InvalidInputError, Violation

CONFIGS = Path(__file__).parents[1] / "data" / "huggingface"


def violations_of(text: str | bytes, field: str = "config_json") -> tuple[Violation, ...]:
    with pytest.raises(InvalidInputError) as caught:
        read_huggingface_config(text, field)
    return caught.value.violations


def changed(name: str, **changes: object) -> str:
    content = json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))
    return json.dumps(content | changes)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "NOT_JSON"),
        ("{", "NOT_JSON"),
        ("hello", "NOT_JSON"),
        ("{'model_type': 'llama'}", "NOT_JSON"),
        (b"\xff\xfe\x00", "NOT_JSON"),
        ('{"hidden_size": ' + "9" * 5000 + "}", "NOT_JSON"),
        ("[" * 100_000, "NOT_JSON"),
        ('{"a":' * 50_000 + "1" + "}" * 50_000, "NOT_JSON"),
        ("[]", "NOT_AN_OBJECT"),
        ("null", "NOT_AN_OBJECT"),
        ("NaN", "NOT_AN_OBJECT"),
        ('"config"', "NOT_AN_OBJECT"),
        (" " * (MAXIMUM_CONFIG_BYTES + 1), "TOO_LARGE"),
        (b" " * 10_000_000, "TOO_LARGE"),
        ("\u20ac" * (MAXIMUM_CONFIG_BYTES // 2), "TOO_LARGE"),
    ],
)
def test_what_is_not_a_config_at_all(text: str | bytes, reason: str) -> None:
    (found,) = violations_of(text, "model.config_json")
    assert found.field == "model.config_json"
    assert found.reason == reason
    assert len(found.description) < 500


def test_a_config_of_exactly_the_largest_size_is_read() -> None:
    text = changed("llama-2-7b")
    assert read_huggingface_config(text + " " * (MAXIMUM_CONFIG_BYTES - len(text))).layers == 32


@pytest.mark.parametrize(
    ("model_type", "nearest"), [("llama3", "llama"), ("qwen3_mo", "qwen3_moe"), ("deepseek_v4", "deepseek_v3")]
)
def test_unknown_family_is_refused_naming_the_nearest_and_all_known(model_type: str, nearest: str) -> None:
    (found,) = violations_of(changed("llama-2-7b", model_type=model_type))
    assert found.field == "config_json.model_type"
    assert found.reason == "UNKNOWN_MODEL"
    assert f"nearest: {nearest}" in found.description or f", {nearest}" in found.description
    assert all(known in found.description for known in KNOWN_MODEL_TYPES)


@pytest.mark.parametrize("model_type", ["t5", "mamba", "x" * 100_000, 7, None, ["llama"], {}])
def test_what_is_no_family_is_refused(model_type: object) -> None:
    (found,) = violations_of(changed("llama-2-7b", model_type=model_type))
    assert found.field == "config_json.model_type"
    assert len(found.description) < 1500


def test_all_missing_keys_are_named_together() -> None:
    found = violations_of('{"model_type": "llama"}')
    assert {violation.field for violation in found} == {
        f"config_json.{key}"
        for key in (
            "num_hidden_layers", "hidden_size", "intermediate_size", "vocab_size", "max_position_embeddings",
            "num_attention_heads", "torch_dtype",
        )
    }  # fmt: skip
    assert {violation.reason for violation in found} == {"MISSING"}


def test_nested_fields_have_their_full_path() -> None:
    content = json.loads((CONFIGS / "gemma-3-27b.json").read_text(encoding="utf-8"))
    del content["text_config"]["hidden_size"]
    content["vision_config"]["num_hidden_layers"] = -1
    found = violations_of(json.dumps(content), "model.config_json")
    assert [violation.field for violation in found] == [
        "model.config_json.text_config.hidden_size",
        "model.config_json.vision_config.num_hidden_layers",
    ]


@pytest.mark.parametrize("key", ["num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size"])
@pytest.mark.parametrize(
    "value", [0, -1, 1.5, True, False, "32", [], {}, 10**9, 10**400, 1e300, float("nan"), float("inf"), -float("inf")]
)
def test_dimensions_that_are_none(key: str, value: object) -> None:
    found = violations_of(changed("llama-2-7b", **{key: value}))
    assert found[0].field == f"config_json.{key}"
    assert "legal is a whole number from 1 to" in found[0].description


def test_all_violations_come_at_once() -> None:
    text = changed(
        "llama-3.1-8b",
        num_hidden_layers=-5,
        vocab_size="many",
        tie_word_embeddings="no",
        torch_dtype="float8",
        quantization_config={"quant_method": "bitsandbytes"},
    )
    assert {violation.field for violation in violations_of(text)} == {
        "config_json.num_hidden_layers",
        "config_json.vocab_size",
        "config_json.tie_word_embeddings",
        "config_json.torch_dtype",
        "config_json.quantization_config.quant_method",
    }


@pytest.mark.parametrize(
    ("name", "changes", "field", "text"),
    [
        ("llama-3.1-8b", {"num_key_value_heads": 6}, "num_key_value_heads", "legal are 1, 2, 4, 8, 16, 32"),
        ("llama-3.1-8b", {"num_key_value_heads": 64}, "num_key_value_heads", "does not divide"),
        ("llama-3.1-8b", {"num_attention_heads": 24}, "num_attention_heads", "does not divide the hidden size 4096"),
        ("qwen2.5-7b", {"num_key_value_heads": 5}, "num_key_value_heads", "28 query heads"),
        ("falcon-180b", {"num_kv_heads": 7}, "num_kv_heads", "232 query heads"),
        ("mixtral-8x7b", {"num_experts_per_tok": 9}, "num_experts_per_tok", "1 up to the 8 experts"),
        ("gpt-oss-20b", {"layer_types": ["full_attention"]}, "layer_types", "one for each of 24 layers"),
        ("gpt-oss-20b", {"layer_types": ["global"] * 24}, "layer_types", "full_attention, sliding_attention"),
        ("gpt-oss-20b", {"layer_types": [1] * 24}, "layer_types", "something else than strings"),
        ("gpt-oss-20b", {"layer_types": ["linear_attention"] * 24}, "layer_types", "legal entries of this family"),
        ("gpt-oss-20b", {"sliding_window": None}, "sliding_window", "is missing"),
        ("mistral-7b-v0.1", {"sliding_window": 0}, "sliding_window", "whole number from 1"),
        ("qwen1.5-moe-a2.7b", {"use_sliding_window": True}, "layer_types", "is missing"),
        ("qwen2.5-7b", {"use_sliding_window": "yes"}, "use_sliding_window", "true and false"),
        ("qwen2.5-7b", {"rope_scaling": {"type": "yarn", "factor": -4}}, "rope_scaling.factor", "above 0"),
        ("opt-6.7b", {"word_embed_proj_dim": 512}, "word_embed_proj_dim", "hidden size 4096"),
        ("llama-2-7b", {"torch_dtype": "int8"}, "torch_dtype", "bfloat16, float16, float32"),
        ("llama-2-7b", {"torch_dtype": None}, "torch_dtype", "is missing"),
        ("llama-2-7b", {"quantization_config": "fp8"}, "quantization_config", "legal is an object"),
        ("gemma-3-27b", {"text_config": None}, "text_config", "is missing"),
        ("gemma-3-27b", {"text_config": "gemma"}, "text_config", "legal is an object"),
        ("gemma-3-27b", {"vision_config": None}, "vision_config", "model_type gemma3_text"),
        ("mistral-small-3.2-24b", {"text_config": {"model_type": "llama"}}, "text_config.model_type", "is mistral"),
        ("deepseek-v3", {"first_k_dense_replace": -1}, "first_k_dense_replace", "from 0"),
    ],
)  # fmt: skip
def test_contradictions(name: str, changes: dict[str, object], field: str, text: str) -> None:
    found = {violation.field: violation.description for violation in violations_of(changed(name, **changes))}
    assert text in found[f"config_json.{field}"]


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("qwen2.5-7b", "num_key_value_heads"),
        ("qwen3-8b", "head_dim"),
        ("deepseek-v3", "q_lora_rank"),
        ("deepseek-v3", "n_routed_experts"),
        ("deepseek-v3.2", "index_head_dim"),
        ("mixtral-8x7b", "num_local_experts"),
        ("qwen3-next-80b-a3b", "linear_num_key_heads"),
        ("bloom-7b1", "seq_length"),
    ],
)
def test_keys_whose_absence_the_library_fills_with_a_fixed_number_are_not_guessed(name: str, key: str) -> None:
    content = json.loads(changed(name))
    del content[key]
    (found,) = violations_of(json.dumps(content))
    assert (found.field, found.reason) == (f"config_json.{key}", "MISSING")


def test_a_deeply_nested_value_in_place_of_a_number_is_refused_in_words() -> None:
    nested = "[" * 500 + "]" * 500
    text = changed("llama-2-7b", hidden_size="@").replace('"@"', nested)
    assert violations_of(text)[0].description.startswith("is a list")
