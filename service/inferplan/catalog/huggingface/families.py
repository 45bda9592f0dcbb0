"""The families of models that can be read, by the `model_type` of their config.json.

A new family is one entry here. Defaults, `tie_word_embeddings` above all, are those of the family's own config class in
the `transformers` library (version 5.24 was read), because published files leave out what equals them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from inferplan.catalog.architecture import (
    GroupedAttention,
    LatentAttention,
    LayerGroup,
    LinearAttention,
)
from inferplan.catalog.huggingface import attention as attentions
from inferplan.catalog.huggingface import feed_forward as feed_forwards
from inferplan.catalog.huggingface import layer_groups as groups
from inferplan.catalog.huggingface import vision
from inferplan.catalog.huggingface.attention import GroupedAttentionRules
from inferplan.catalog.huggingface.feed_forward import DenseRules, FeedForwardPair, FixedDenseRules
from inferplan.catalog.huggingface.fields import ConfigFields
from inferplan.catalog.precision import Precision

AttentionReader = Callable[[ConfigFields, int], GroupedAttention | LatentAttention]
LayerGroupReader = Callable[[ConfigFields, int], tuple[LayerGroup, ...]]
FeedForwardReader = Callable[[ConfigFields, int, int], FeedForwardPair]
VisionCounter = Callable[[ConfigFields, ConfigFields, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFamily:
    """How to read a language model. The `_keys` are the spellings of a dimension, the usual one first.

    `checkpoint_precision` is what the engines load where the file names no dtype; None: the file must.
    """

    attention: AttentionReader
    feed_forward: FeedForwardReader
    layer_groups: LayerGroupReader = groups.full_everywhere
    linear_attention: Callable[[ConfigFields], LinearAttention] | None = None
    tied_by_default: bool = False
    layers_keys: tuple[str, ...] = ("num_hidden_layers",)
    hidden_keys: tuple[str, ...] = ("hidden_size",)
    context_keys: tuple[str, ...] = ("max_position_embeddings",)
    class_defaults: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    checkpoint_precision: Precision | None = None
    embedding_width_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MultimodalFamily:
    """A language model in `text_config` with a vision tower in `vision_config`.

    `text_families` are legal `model_type`s of `text_config`, the first being meant where it names none. `flat`: older
    files keep the language model's keys at the top level.
    """

    text_families: tuple[str, ...]
    count_vision_parameters: VisionCounter
    flat: bool = False


_LLAMA_ATTENTION = GroupedAttentionRules(
    absent_kv_heads_mean_query_heads=True, bias_key="attention_bias", bias_covers_output=True
)
_PLAIN_ATTENTION = GroupedAttentionRules()
_QWEN2_ATTENTION = GroupedAttentionRules(bias=True)
_QWEN3_ATTENTION = GroupedAttentionRules(
    head_dim_required=True, bias_key="attention_bias", bias_covers_output=True, query_key_norm=True
)
_QWEN3_MOE_ATTENTION = GroupedAttentionRules(bias_key="attention_bias", bias_covers_output=True, query_key_norm=True)
_QWEN3_NEXT_ATTENTION = GroupedAttentionRules(
    head_dim_required=True, bias_key="attention_bias", bias_covers_output=True, query_key_norm=True, output_gate=True
)
_GEMMA2_ATTENTION = GroupedAttentionRules(head_dim_required=True, bias_key="attention_bias", bias_covers_output=True)
_GEMMA3_ATTENTION = GroupedAttentionRules(
    head_dim_required=True, bias_key="attention_bias", bias_covers_output=True, query_key_norm=True
)
_GPT_OSS_ATTENTION = GroupedAttentionRules(
    head_dim_required=True, bias_key="attention_bias", bias=True, bias_covers_output=True
)
_GLM4_MOE_ATTENTION = GroupedAttentionRules(bias_key="attention_bias", query_key_norm_key="use_qk_norm")
# Llama 4 norms queries and keys without weights, so query_key_norm, which stands for weights, stays off.
_LLAMA4_ATTENTION = GroupedAttentionRules(head_dim_required=True, bias_key="attention_bias", bias_covers_output=True)
_OPT_ATTENTION = GroupedAttentionRules(kv_heads_key=None, bias_key="enable_bias", bias=True, bias_covers_output=True)
_GPTJ_ATTENTION = GroupedAttentionRules(heads_keys=("n_head", "num_attention_heads"), kv_heads_key=None)
_BLOOM_ATTENTION = GroupedAttentionRules(
    heads_keys=("num_attention_heads", "n_head"), kv_heads_key=None, bias=True, bias_covers_output=True
)

_QWEN2 = TextFamily(
    attention=_QWEN2_ATTENTION.read,
    feed_forward=DenseRules().read,
    layer_groups=groups.switched_window_above,
)
_QWEN3_MOE = TextFamily(
    attention=_QWEN3_MOE_ATTENTION.read,
    feed_forward=feed_forwards.qwen_experts,
    layer_groups=groups.switched_window_everywhere,
)
_GEMMA3_TEXT = TextFamily(
    attention=_GEMMA3_ATTENTION.read,
    feed_forward=DenseRules().read,
    layer_groups=groups.patterned_window,
    tied_by_default=True,
    # Published Gemma 3 files hold only what differs from these values of the config class.
    class_defaults=MappingProxyType(
        {
            "vocab_size": 262208,
            "max_position_embeddings": 131072,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
        }
    ),
)
_DEEPSEEK = TextFamily(attention=attentions.latent_attention, feed_forward=feed_forwards.deepseek_experts)
_INDEXED_DEEPSEEK = TextFamily(
    attention=attentions.indexed_latent_attention, feed_forward=feed_forwards.deepseek_experts
)

TEXT_FAMILIES: Mapping[str, TextFamily] = MappingProxyType(
    {
        "llama": TextFamily(attention=_LLAMA_ATTENTION.read, feed_forward=DenseRules(bias_key="mlp_bias").read),
        "mistral": TextFamily(
            attention=_PLAIN_ATTENTION.read,
            feed_forward=DenseRules().read,
            layer_groups=groups.mistral_window,
        ),
        "mixtral": TextFamily(
            attention=_PLAIN_ATTENTION.read,
            feed_forward=feed_forwards.mixtral_experts,
            layer_groups=groups.window_everywhere,
        ),
        "qwen2": _QWEN2,
        "qwen2_vl_text": _QWEN2,
        "qwen2_5_vl_text": _QWEN2,
        "qwen2_moe": TextFamily(
            attention=GroupedAttentionRules(bias_key="qkv_bias", bias=True).read,
            feed_forward=feed_forwards.qwen_experts_with_shared,
            layer_groups=groups.switched_window_stated,
        ),
        "qwen3": TextFamily(
            attention=_QWEN3_ATTENTION.read,
            feed_forward=DenseRules().read,
            layer_groups=groups.switched_window_above,
        ),
        "qwen3_vl_text": TextFamily(attention=_QWEN3_ATTENTION.read, feed_forward=DenseRules().read),
        "qwen3_moe": _QWEN3_MOE,
        "qwen3_vl_moe_text": _QWEN3_MOE,
        "qwen3_next": TextFamily(
            attention=_QWEN3_NEXT_ATTENTION.read,
            feed_forward=feed_forwards.qwen_experts_with_shared,
            layer_groups=groups.linear_unless_full,
            linear_attention=attentions.gated_delta_net,
        ),
        "gemma2": TextFamily(
            attention=_GEMMA2_ATTENTION.read,
            feed_forward=DenseRules().read,
            layer_groups=groups.alternating_window,
            tied_by_default=True,
        ),
        "gemma3_text": _GEMMA3_TEXT,
        "gpt_oss": TextFamily(
            attention=_GPT_OSS_ATTENTION.read,
            feed_forward=feed_forwards.gpt_oss_experts,
            layer_groups=groups.alternating_window,
            # The published files name no dtype; everything beside the experts is stored as bfloat16.
            checkpoint_precision=Precision.BFLOAT16,
        ),
        "deepseek_v2": _DEEPSEEK,
        "deepseek_v3": _DEEPSEEK,
        "deepseek_v32": _INDEXED_DEEPSEEK,
        "kimi_k2": _DEEPSEEK,
        "glm_moe_dsa": _INDEXED_DEEPSEEK,
        "glm4_moe": TextFamily(attention=_GLM4_MOE_ATTENTION.read, feed_forward=feed_forwards.deepseek_experts),
        "phi3": TextFamily(
            attention=GroupedAttentionRules(absent_kv_heads_mean_query_heads=True).read,
            feed_forward=DenseRules().read,
            layer_groups=groups.window_everywhere,
        ),
        "llama4_text": TextFamily(
            attention=_LLAMA4_ATTENTION.read,
            feed_forward=feed_forwards.llama4_experts,
            layer_groups=groups.chunked_unless_without_rotary,
        ),
        "opt": TextFamily(
            attention=_OPT_ATTENTION.read,
            feed_forward=DenseRules(keys=("ffn_dim",), gated=False, bias_key="enable_bias", bias=True).read,
            tied_by_default=True,
            embedding_width_key="word_embed_proj_dim",
        ),
        "gptj": TextFamily(
            attention=_GPTJ_ATTENTION.read,
            feed_forward=DenseRules(keys=("n_inner",), default_multiple_of_hidden=4, gated=False, bias=True).read,
            layers_keys=("n_layer", "num_hidden_layers"),
            hidden_keys=("n_embd", "hidden_size"),
            context_keys=("n_positions", "max_position_embeddings"),
        ),
        "bloom": TextFamily(
            attention=_BLOOM_ATTENTION.read,
            feed_forward=FixedDenseRules(multiple_of_hidden=4).read,
            tied_by_default=True,
            layers_keys=("n_layer", "num_hidden_layers"),
            hidden_keys=("hidden_size", "n_embed"),
            # ALiBi has no position limit of its own; this is the length that the model was trained with.
            context_keys=("seq_length",),
        ),
        "falcon": TextFamily(
            attention=attentions.falcon_attention,
            feed_forward=DenseRules(
                keys=("ffn_hidden_size",), default_multiple_of_hidden=4, gated=False, bias_key="bias"
            ).read,
            # Files up to Falcon-180B say nothing, store the LM head as well, and are still loaded as tied.
            tied_by_default=True,
            layers_keys=("num_hidden_layers", "n_layer"),
            hidden_keys=("hidden_size", "n_embed"),
            class_defaults=MappingProxyType({"max_position_embeddings": 2048}),
        ),
    }
)

MULTIMODAL_FAMILIES: Mapping[str, MultimodalFamily] = MappingProxyType(
    {
        "mistral3": MultimodalFamily(text_families=("mistral",), count_vision_parameters=vision.pixtral_parameters),
        "gemma3": MultimodalFamily(text_families=("gemma3_text",), count_vision_parameters=vision.siglip_parameters),
        "llama4": MultimodalFamily(text_families=("llama4_text",), count_vision_parameters=vision.llama4_parameters),
        "qwen2_vl": MultimodalFamily(
            text_families=("qwen2_vl_text", "qwen2_vl"), count_vision_parameters=vision.qwen2_vl_parameters, flat=True
        ),
        "qwen2_5_vl": MultimodalFamily(
            text_families=("qwen2_5_vl_text", "qwen2_5_vl"),
            count_vision_parameters=vision.qwen2_5_vl_parameters,
            flat=True,
        ),
        "qwen3_vl": MultimodalFamily(
            text_families=("qwen3_vl_text",), count_vision_parameters=vision.qwen3_vl_parameters
        ),
        "qwen3_vl_moe": MultimodalFamily(
            text_families=("qwen3_vl_moe_text",), count_vision_parameters=vision.qwen3_vl_parameters
        ),
    }
)

KNOWN_MODEL_TYPES = tuple(sorted({*TEXT_FAMILIES, *MULTIMODAL_FAMILIES}))
