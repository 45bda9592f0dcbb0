"""The published config.json of each family gives the dimensions that its publisher states."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inferplan.catalog import (
    AttentionScope,
    FeedForward,
    GroupedAttention,
    LatentAttention,
    LayerGroup,
    LinearAttention,
    MixtureOfExperts,
    ModelArchitecture,
    Precision,
    read_huggingface_config,
)

TESTS = Path(__file__).parents[1]
CONFIGS = TESTS / "data" / "huggingface"
FULL = AttentionScope.FULL


def read(name: str, **changes: object) -> ModelArchitecture:
    return read_huggingface_config(json.dumps(load(name) | changes))


def load(name: str) -> dict[str, object]:
    content = json.loads((CONFIGS / f"{name}.json").read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def without(name: str, *keys: str) -> str:
    return json.dumps({key: value for key, value in load(name).items() if key not in keys})


@pytest.mark.parametrize(
    ("name", "attention"),
    [
        ("llama-2-7b", GroupedAttention(32, 32, 128)),
        ("llama-7b", GroupedAttention(32, 32, 128)),
        ("llama-3.1-8b", GroupedAttention(32, 8, 128)),
        ("llama-3.1-405b", GroupedAttention(128, 8, 128)),
        ("mistral-7b-v0.1", GroupedAttention(32, 8, 128)),
        ("mistral-small-3.2-24b", GroupedAttention(32, 8, 128)),
        ("mixtral-8x7b", GroupedAttention(32, 8, 128)),
        ("qwen2.5-0.5b", GroupedAttention(14, 2, 64, qkv_bias=True)),
        ("qwen2.5-7b", GroupedAttention(28, 4, 128, qkv_bias=True)),
        ("qwen2.5-vl-7b", GroupedAttention(28, 4, 128, qkv_bias=True)),
        ("qwen1.5-moe-a2.7b", GroupedAttention(16, 16, 128, qkv_bias=True)),
        ("qwen3-8b", GroupedAttention(32, 8, 128, query_key_norm=True)),
        ("qwen3-30b-a3b", GroupedAttention(32, 4, 128, query_key_norm=True)),
        ("qwen3-next-80b-a3b", GroupedAttention(16, 2, 256, query_key_norm=True, output_gate=True)),
        ("gemma-2-9b", GroupedAttention(16, 8, 256)),
        ("gemma-3-4b", GroupedAttention(8, 4, 256, query_key_norm=True)),
        ("gemma-3-27b", GroupedAttention(32, 16, 128, query_key_norm=True)),
        ("gpt-oss-20b", GroupedAttention(64, 8, 64, qkv_bias=True, output_bias=True)),
        ("glm-4.7", GroupedAttention(96, 8, 128, qkv_bias=True, query_key_norm=True)),
        ("phi-4", GroupedAttention(40, 10, 128)),
        ("llama-4-scout", GroupedAttention(40, 8, 128)),
        ("opt-6.7b", GroupedAttention(32, 32, 128, qkv_bias=True, output_bias=True)),
        ("gpt-j-6b", GroupedAttention(16, 16, 256)),
        ("bloom-7b1", GroupedAttention(32, 32, 128, qkv_bias=True, output_bias=True)),
        ("falcon-7b", GroupedAttention(71, 1, 64)),
        ("falcon-180b", GroupedAttention(232, 8, 64)),
        ("deepseek-v2-lite", LatentAttention(16, 512, 128, 64, 128)),
        ("deepseek-v3", LatentAttention(128, 512, 128, 64, 128, 1536)),
        ("deepseek-v3.2", LatentAttention(128, 512, 128, 64, 128, 1536, indexer_heads=64, indexer_head_dim=128)),
        ("kimi-k2", LatentAttention(64, 512, 128, 64, 128, 1536)),
        ("glm-5", LatentAttention(64, 512, 192, 64, 256, 2048, indexer_heads=32, indexer_head_dim=128)),
    ],
)
def test_attention(name: str, attention: GroupedAttention | LatentAttention) -> None:
    assert read(name).attention == attention


@pytest.mark.parametrize(
    ("name", "feed_forward", "experts"),
    [
        ("llama-2-7b", FeedForward(32, 11008), None),
        ("mistral-small-3.2-24b", FeedForward(40, 32768), None),
        ("gemma-3-27b", FeedForward(62, 21504), None),
        ("phi-4", FeedForward(40, 17920), None),
        ("opt-6.7b", FeedForward(32, 16384, gated=False, bias=True), None),
        ("gpt-j-6b", FeedForward(28, 16384, gated=False, bias=True), None),
        ("bloom-7b1", FeedForward(30, 16384, gated=False, bias=True), None),
        ("falcon-180b", FeedForward(80, 59392, gated=False), None),
        ("mixtral-8x7b", None, MixtureOfExperts(32, 8, 2, 14336)),
        ("qwen1.5-moe-a2.7b", None, MixtureOfExperts(24, 60, 4, 1408, shared_intermediate_size=5632)),
        ("qwen3-30b-a3b", None, MixtureOfExperts(48, 128, 8, 768)),
        ("qwen3-vl-30b-a3b", None, MixtureOfExperts(48, 128, 8, 768)),
        ("qwen3-next-80b-a3b", None, MixtureOfExperts(48, 512, 10, 512, shared_intermediate_size=512)),
        ("gpt-oss-20b", None, MixtureOfExperts(24, 32, 4, 2880, bias=True)),
        ("llama-4-scout", None, MixtureOfExperts(48, 16, 1, 8192, shared_intermediate_size=8192)),
        ("deepseek-v2-lite", FeedForward(1, 10944), MixtureOfExperts(26, 64, 6, 1408, shared_intermediate_size=2816)),
        ("deepseek-v3", FeedForward(3, 18432), MixtureOfExperts(58, 256, 8, 2048, shared_intermediate_size=2048)),
        ("kimi-k2", FeedForward(1, 18432), MixtureOfExperts(60, 384, 8, 2048, shared_intermediate_size=2048)),
        ("glm-4.7", FeedForward(3, 12288), MixtureOfExperts(89, 160, 8, 1536, shared_intermediate_size=1536)),
        ("glm-5", FeedForward(3, 12288), MixtureOfExperts(75, 256, 8, 2048, shared_intermediate_size=2048)),
    ],
)
def test_feed_forward(name: str, feed_forward: FeedForward | None, experts: MixtureOfExperts | None) -> None:
    architecture = read(name)
    assert architecture.feed_forward == feed_forward
    assert architecture.experts == experts


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("llama-3.1-8b", (LayerGroup(32, FULL),)),
        ("mixtral-8x7b", (LayerGroup(32, FULL),)),
        ("qwen2.5-7b", (LayerGroup(28, FULL),)),
        ("mistral-7b-v0.1", (LayerGroup(32, AttentionScope.SLIDING_WINDOW, 4096),)),
        ("mistral-small-3.2-24b", (LayerGroup(40, FULL),)),
        ("gemma-2-9b", (LayerGroup(21, FULL), LayerGroup(21, AttentionScope.SLIDING_WINDOW, 4096))),
        ("gemma-3-27b", (LayerGroup(10, FULL), LayerGroup(52, AttentionScope.SLIDING_WINDOW, 1024))),
        ("gpt-oss-20b", (LayerGroup(12, FULL), LayerGroup(12, AttentionScope.SLIDING_WINDOW, 128))),
        ("llama-4-scout", (LayerGroup(12, FULL), LayerGroup(36, AttentionScope.CHUNKED, 8192))),
        ("qwen3-next-80b-a3b", (LayerGroup(12, FULL), LayerGroup(36, AttentionScope.LINEAR))),
        ("deepseek-v3.2", (LayerGroup(61, FULL),)),
    ],
)
def test_how_far_back_layers_look(name: str, groups: tuple[LayerGroup, ...]) -> None:
    assert read(name).layer_groups == groups


@pytest.mark.parametrize(
    ("name", "layers", "hidden", "vocabulary", "context", "tied", "precision"),
    [
        ("llama-2-7b", 32, 4096, 32000, 4096, False, Precision.FLOAT16),
        ("llama-3.1-405b", 126, 16384, 128256, 131072, False, Precision.BFLOAT16),
        ("qwen2.5-0.5b", 24, 896, 151936, 32768, True, Precision.BFLOAT16),
        ("qwen3-vl-8b", 36, 4096, 151936, 262144, False, Precision.BFLOAT16),
        ("gemma-2-9b", 42, 3584, 256000, 8192, True, Precision.FLOAT32),
        ("gemma-3-4b", 34, 2560, 262208, 131072, True, Precision.BFLOAT16),
        ("mistral-small-3.2-24b", 40, 5120, 131072, 131072, False, Precision.BFLOAT16),
        ("llama-4-scout", 48, 5120, 202048, 10485760, False, Precision.BFLOAT16),
        ("gpt-oss-20b", 24, 2880, 201088, 131072, False, Precision.BFLOAT16),
        ("deepseek-v3", 61, 7168, 129280, 163840, False, Precision.BFLOAT16),
        ("opt-6.7b", 32, 4096, 50272, 2048, True, Precision.FLOAT16),
        ("gpt-j-6b", 28, 4096, 50400, 2048, False, Precision.FLOAT16),
        ("bloom-7b1", 30, 4096, 250880, 2048, True, Precision.FLOAT16),
        ("falcon-180b", 80, 14848, 65024, 2048, True, Precision.BFLOAT16),
    ],
)
def test_size_and_context(
    name: str, layers: int, hidden: int, vocabulary: int, context: int, tied: bool, precision: Precision
) -> None:
    found = read(name)
    assert (found.layers, found.hidden_size, found.vocabulary_size) == (layers, hidden, vocabulary)
    assert found.maximum_context_tokens == context
    assert found.tied_embeddings is tied
    assert found.checkpoint_precision is precision
    assert found.family == load(name)["model_type"]


@pytest.mark.parametrize(
    ("name", "published_total", "language_model"),
    [
        # Published totals of the checkpoints (safetensors metadata, recalled) and of the language model in them: those
        # of Qwen2.5-7B and Qwen3-8B are published too, the others are the sum of its matrices and norms.
        ("qwen2-vl-7b", 8_291_375_616, 7_615_616_512),
        ("qwen2.5-vl-7b", 8_292_166_656, 7_615_616_512),
        ("qwen3-vl-8b", 8_767_123_696, 8_190_735_360),
        ("mistral-small-3.2-24b", 24_011_361_280, 23_572_403_200),
        ("gemma-3-27b", 27_432_406_640, 27_009_346_304),
        ("llama-4-scout", 108_641_793_536, 107_769_861_120),
    ],
)
def test_vision_tower_is_what_the_checkpoint_has_beside_the_language_model(
    name: str, published_total: int, language_model: int
) -> None:
    assert read(name).vision_parameters == published_total - language_model


def test_linear_attention_of_qwen3_next() -> None:
    assert read("qwen3-next-80b-a3b").linear_attention == LinearAttention(16, 32, 128, 128, 4)


@pytest.mark.parametrize(
    ("name", "tied"),
    [("llama-3.1-8b", False), ("mistral-7b-v0.1", False), ("mixtral-8x7b", False), ("qwen2.5-0.5b", False),
     ("qwen3-8b", False), ("phi-4", False), ("gpt-oss-20b", False), ("deepseek-v3", False), ("gpt-j-6b", False),
     ("gemma-2-9b", True), ("opt-6.7b", True), ("bloom-7b1", True), ("falcon-7b", True)],
)  # fmt: skip
def test_tied_embeddings_default_to_the_familys_own_config_class(name: str, tied: bool) -> None:
    assert read_huggingface_config(without(name, "tie_word_embeddings")).tied_embeddings is tied


def test_tied_embeddings_of_the_language_model_win_over_those_of_the_whole_file() -> None:
    outer = load("mistral-small-3.2-24b")
    text = outer["text_config"]
    assert isinstance(text, dict)
    assert read("mistral-small-3.2-24b", tie_word_embeddings=True).tied_embeddings is True
    inner = text | {"tie_word_embeddings": False}
    assert read("mistral-small-3.2-24b", tie_word_embeddings=True, text_config=inner).tied_embeddings is False


def test_missing_head_dim_is_hidden_size_by_heads() -> None:
    found = read_huggingface_config(without("qwen3-30b-a3b", "head_dim")).attention
    assert isinstance(found, GroupedAttention)
    assert found.head_dim == 2048 // 32


def test_null_kv_heads_mean_as_many_as_query_heads() -> None:
    found = read("qwen2.5-7b", num_key_value_heads=None).attention
    assert isinstance(found, GroupedAttention)
    assert found.kv_heads == 28


def test_switched_on_window_of_qwen2_starts_at_max_window_layers() -> None:
    found = read("qwen2.5-7b", use_sliding_window=True, sliding_window=4096, max_window_layers=20)
    assert found.layer_groups == (LayerGroup(20, FULL), LayerGroup(8, AttentionScope.SLIDING_WINDOW, 4096))


def test_switched_on_window_of_qwen3_moe_holds_in_every_layer() -> None:
    found = read("qwen3-30b-a3b", use_sliding_window=True, sliding_window=4096)
    assert found.layer_groups == (LayerGroup(48, AttentionScope.SLIDING_WINDOW, 4096),)


def test_mistral_without_the_window_key_has_the_window_of_its_config_class() -> None:
    found = read_huggingface_config(without("mistral-7b-v0.1", "sliding_window"))
    assert found.layer_groups == (LayerGroup(32, AttentionScope.SLIDING_WINDOW, 4096),)
    assert read("mistral-7b-v0.1", sliding_window=None).layer_groups == (LayerGroup(32, FULL),)


def test_layer_types_win_over_the_pattern() -> None:
    names = ["full_attention"] * 20 + ["sliding_attention"] * 4
    assert read("gpt-oss-20b", layer_types=names).layer_groups == (
        LayerGroup(20, FULL),
        LayerGroup(4, AttentionScope.SLIDING_WINDOW, 128),
    )


def test_layers_of_llama_4_without_rotary_embedding_are_full() -> None:
    text = load("llama-4-scout")["text_config"]
    assert isinstance(text, dict)
    changed = text | {"no_rope_layers": [0] * 8 + [1] * 40}
    assert read("llama-4-scout", text_config=changed).layer_groups == (
        LayerGroup(8, FULL),
        LayerGroup(40, AttentionScope.CHUNKED, 8192),
    )


def test_every_second_layer_of_maverick_is_dense() -> None:
    text = load("llama-4-scout")["text_config"]
    assert isinstance(text, dict)
    found = read("llama-4-scout", text_config=text | {"interleave_moe_layer_step": 2, "num_local_experts": 128})
    assert found.feed_forward == FeedForward(24, 16384)
    assert found.experts == MixtureOfExperts(24, 128, 1, 8192, shared_intermediate_size=8192)


def test_qwen_layers_named_as_dense_have_no_experts() -> None:
    found = read("qwen3-30b-a3b", mlp_only_layers=[0, 1], decoder_sparse_step=2)
    # Every second layer has experts (1, 3, 5 ...), of which layer 1 is named as dense.
    assert found.experts is not None
    assert found.experts.layers == 23
    assert found.feed_forward == FeedForward(25, 6144)


def test_yarn_scaling_stretches_the_context() -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    assert read("qwen2.5-7b", rope_scaling=scaling).maximum_context_tokens == 131072
    assert read("qwen2.5-7b", rope_scaling={"type": "linear", "factor": 4.0}).maximum_context_tokens == 32768


def test_dtype_may_be_spelled_either_way() -> None:
    text = json.dumps(json.loads(without("llama-3.1-8b", "torch_dtype")) | {"dtype": "float16"})
    assert read_huggingface_config(text).checkpoint_precision is Precision.FLOAT16


def test_attention_bias_of_llama_covers_all_four_projections() -> None:
    found = read("llama-3.1-8b", attention_bias=True, mlp_bias=True)
    assert isinstance(found.attention, GroupedAttention)
    assert (found.attention.qkv_bias, found.attention.output_bias) == (True, True)
    assert found.feed_forward == FeedForward(32, 14336, bias=True)


def test_falcon_without_multi_query_has_all_kv_heads() -> None:
    found = read("falcon-7b", multi_query=False).attention
    assert isinstance(found, GroupedAttention)
    assert found.kv_heads == 71


def test_bytes_and_byte_order_mark_are_read() -> None:
    text = (CONFIGS / "llama-2-7b.json").read_text(encoding="utf-8")
    expected = read("llama-2-7b")
    assert read_huggingface_config(text.encode()) == expected
    assert read_huggingface_config("\ufeff" + text) == expected
    assert read_huggingface_config(b"\xef\xbb\xbf" + text.encode()) == expected


def test_example_of_the_documentation_is_llama_2_7b() -> None:
    example = TESTS.parent / "docs" / "examples" / "llama-2-7b" / "config.json"
    assert read_huggingface_config(example.read_bytes()) == read("llama-2-7b")
