"""What a transformer is made of, as far as memory and step time depend on it.

These types hold dimensions only. How many bytes or operations follow from them is sizing's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from inferplan.catalog.precision import Precision


@dataclass(frozen=True, slots=True)
class GroupedAttention:
    """Multi-head, multi-query or grouped-query attention: `kv_heads` = `query_heads` is MHA, 1 is MQA.

    `output_gate` marks models whose query projection carries a gate of the same size beside the query (Qwen3-Next).
    """

    query_heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool = False
    output_bias: bool = False
    query_key_norm: bool = False
    output_gate: bool = False


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2 and later): the cache holds one compressed vector a token and layer.

    `query_lora_rank` None means that the query is projected directly. `indexer_heads`/`indexer_head_dim` describe the
    sparse-attention indexer of DeepSeek-V3.2 and GLM-5, which keeps one key of `indexer_head_dim` a token in FP8.
    """

    query_heads: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    value_head_dim: int
    query_lora_rank: int | None = None
    indexer_heads: int | None = None
    indexer_head_dim: int | None = None


@dataclass(frozen=True, slots=True)
class LinearAttention:
    """Gated delta-net layers (Qwen3-Next): a constant state per sequence instead of a growing cache."""

    key_heads: int
    value_heads: int
    key_head_dim: int
    value_head_dim: int
    convolution_kernel_tokens: int


class AttentionScope(StrEnum):
    """How far back a layer looks."""

    FULL = "full"
    SLIDING_WINDOW = "sliding_window"
    CHUNKED = "chunked"
    LINEAR = "linear"


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """`layers` layers that look equally far back. `window_tokens` is set for sliding-window and chunked layers only."""

    layers: int
    scope: AttentionScope
    window_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class FeedForward:
    """The dense feed-forward of `layers` layers. Gated (SwiGLU, GeGLU) blocks have three matrices, plain ones two."""

    layers: int
    intermediate_size: int
    gated: bool = True
    bias: bool = False


@dataclass(frozen=True, slots=True)
class MixtureOfExperts:
    """The expert feed-forward of `layers` layers.

    `shared_intermediate_size` is the sum over all shared experts, 0 if none. Every expert is resident in memory; a
    token runs through `experts_per_token` of them and all shared ones.
    """

    layers: int
    experts: int
    experts_per_token: int
    expert_intermediate_size: int
    shared_intermediate_size: int = 0
    gated: bool = True
    bias: bool = False


class QuantizationMethod(StrEnum):
    """The checkpoint formats that `quantization_config` can name and that the memory model knows.

    GPTQ stands for packed integers with 16-bit group scales, so for `compressed-tensors` pack-quantized files as well.
    """

    FP8 = "fp8"
    AWQ = "awq"
    GPTQ = "gptq"
    MXFP4 = "mxfp4"
    NVFP4 = "nvfp4"
    INT8 = "int8"


@dataclass(frozen=True, slots=True)
class WeightQuantization:
    """How the linear layers are quantised. Embeddings and the LM head stay 16-bit, as engines keep them.

    `group_size_elements` is the number of weights that share a scale along the input dimension (AWQ, GPTQ 128, MXFP4
    32, NVFP4 16). `block_size_elements` is the side of a square FP8 block (128 in DeepSeek and Qwen checkpoints). None
    of both: one scale a tensor or output channel, too small to count. `scale_bytes` is the size of one scale and
    `zero_point_bytes` that of one zero point. `experts_only`: attention and shared layers stay 16-bit (gpt-oss).
    """

    method: QuantizationMethod
    precision: Precision
    group_size_elements: int | None = None
    block_size_elements: int | None = None
    scale_bytes: float = 2.0
    zero_point_bytes: float = 0.0
    experts_only: bool = False


@dataclass(frozen=True, slots=True)
class ModelArchitecture:
    """The dimensions of one decoder-only language model.

    `family` is the Hugging Face `model_type`. `layer_groups` cover all `layers` between them. Dense and expert
    feed-forward layers together cover all `layers`. `vision_parameters` counts a vision tower and its projector, which
    engines load beside the language model. `checkpoint_precision` is the 16- or 32-bit type of everything that is not
    quantised.
    """

    family: str
    layers: int
    hidden_size: int
    vocabulary_size: int
    tied_embeddings: bool
    maximum_context_tokens: int
    attention: GroupedAttention | LatentAttention
    layer_groups: tuple[LayerGroup, ...]
    checkpoint_precision: Precision
    feed_forward: FeedForward | None = None
    experts: MixtureOfExperts | None = None
    linear_attention: LinearAttention | None = None
    quantization: WeightQuantization | None = None
    vision_parameters: int = 0

    @property
    def weight_precision(self) -> Precision:
        """The format that the checkpoint keeps its linear layers in."""
        return self.quantization.precision if self.quantization else self.checkpoint_precision


@dataclass(frozen=True, slots=True)
class Model:
    """A catalogue entry.

    `id` is the short, lower-case resource id (`llama-3.1-8b`). `aliases` are other names it is known by, Hugging Face
    repository names first. `headline_parameters` is the rounded figure of the model's name or card (7e9), which
    textbook arithmetic uses; None where the name states none. `source` says where the dimensions were read.
    """

    id: str
    display_name: str
    architecture: ModelArchitecture
    source: str
    aliases: tuple[str, ...] = ()
    headline_parameters: float | None = None
    notes: str = ""
