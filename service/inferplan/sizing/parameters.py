"""How many parameters a model has, by part, and how many of them one token passes through.

Counted from the dimensions: the figure in a model's name is rounded, and some count what engines do not load.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from inferplan.catalog.architecture import (
    AttentionScope,
    GroupedAttention,
    LatentAttention,
    LinearAttention,
    MixtureOfExperts,
    ModelArchitecture,
)


class ModelPart(StrEnum):
    """What the parameters belong to."""

    EMBEDDING = "embedding"
    LM_HEAD = "lm_head"
    ATTENTION = "attention"
    LINEAR_ATTENTION = "linear_attention"
    FEED_FORWARD = "feed_forward"
    EXPERTS = "experts"
    SHARED_EXPERTS = "shared_experts"
    ROUTER = "router"
    NORMS = "norms"
    VISION = "vision"


@dataclass(frozen=True, slots=True)
class PartParameters:
    """The parameters of one part of the whole model, by how tensor parallelism treats them.

    `sharded` matrices are divided among the GPUs, `kv_sharded` ones by KV head and so never beyond the number of KV
    heads, `replicated` ones are held by every GPU. `vectors` are biases and norm weights, 16-bit in every checkpoint
    format. `active` is how many of them all one token passes through.
    """

    part: ModelPart
    sharded: int = 0
    kv_sharded: int = 0
    replicated: int = 0
    vectors: int = 0
    active_share: float = 1.0

    @property
    def total(self) -> int:
        """All parameters of the part."""
        return self.sharded + self.kv_sharded + self.replicated + self.vectors

    @property
    def active(self) -> int:
        """Parameters that one token passes through."""
        return round(self.total * self.active_share)


@dataclass(frozen=True, slots=True)
class ParameterCount:
    """The parameters of a model."""

    parts: tuple[PartParameters, ...]

    @property
    def total(self) -> int:
        """All parameters, embeddings and vision tower included, tied embeddings once."""
        return sum(part.total for part in self.parts)

    @property
    def active(self) -> int:
        """Parameters that one text token passes through: k of E experts, no vision tower."""
        return sum(part.active for part in self.parts)

    def of(self, part: ModelPart) -> int:
        """All parameters of one part; 0 if the model has none."""
        return sum(entry.total for entry in self.parts if entry.part is part)

    def active_of(self, part: ModelPart) -> int:
        """Parameters of one part that one text token passes through."""
        return sum(entry.active for entry in self.parts if entry.part is part)


def count_parameters(architecture: ModelArchitecture) -> ParameterCount:
    """Parameters by part, exact but for norm biases and learned positions of old models (below 0.2 %)."""
    return ParameterCount(tuple(part for part in _parts(architecture) if part.total))


def _parts(architecture: ModelArchitecture) -> Iterator[PartParameters]:
    table = architecture.vocabulary_size * architecture.hidden_size
    yield PartParameters(ModelPart.EMBEDDING, sharded=table)
    yield PartParameters(ModelPart.LM_HEAD, sharded=0 if architecture.tied_embeddings else table)
    linear_layers = sum(group.layers for group in architecture.layer_groups if group.scope is AttentionScope.LINEAR)
    attention_layers = architecture.layers - linear_layers
    yield _attention(architecture, attention_layers)
    if architecture.linear_attention is not None:
        yield _linear_attention(architecture.linear_attention, architecture.hidden_size, linear_layers)
    yield from _feed_forward(architecture)
    if architecture.experts is not None:
        yield from _experts(architecture.experts, architecture.hidden_size)
    # Two norms a layer and one at the end.
    yield PartParameters(ModelPart.NORMS, vectors=(2 * architecture.layers + 1) * architecture.hidden_size)
    yield PartParameters(ModelPart.VISION, sharded=architecture.vision_parameters, active_share=0.0)


def _attention(architecture: ModelArchitecture, layers: int) -> PartParameters:
    attention = architecture.attention
    if isinstance(attention, GroupedAttention):
        return _grouped_attention(attention, architecture.hidden_size, layers)
    return _latent_attention(attention, architecture.hidden_size, layers)


def _grouped_attention(attention: GroupedAttention, hidden: int, layers: int) -> PartParameters:
    query_width = attention.query_heads * attention.head_dim
    kv_width = attention.kv_heads * attention.head_dim
    query_outputs = query_width * (2 if attention.output_gate else 1)
    vectors = 0
    if attention.qkv_bias:
        vectors += query_outputs + 2 * kv_width
    if attention.output_bias:
        vectors += hidden
    if attention.query_key_norm:
        vectors += 2 * attention.head_dim
    return PartParameters(
        ModelPart.ATTENTION,
        sharded=layers * hidden * (query_outputs + query_width),
        kv_sharded=layers * hidden * 2 * kv_width,
        vectors=layers * vectors,
    )


def _latent_attention(attention: LatentAttention, hidden: int, layers: int) -> PartParameters:
    heads = attention.query_heads
    query_width = heads * (attention.qk_nope_head_dim + attention.qk_rope_head_dim)
    up_projection = attention.kv_lora_rank * heads * (attention.qk_nope_head_dim + attention.value_head_dim)
    output = heads * attention.value_head_dim * hidden
    replicated = hidden * (attention.kv_lora_rank + attention.qk_rope_head_dim)
    vectors = attention.kv_lora_rank
    if attention.query_lora_rank is None:
        query = hidden * query_width
    else:
        query = attention.query_lora_rank * query_width
        replicated += hidden * attention.query_lora_rank
        vectors += attention.query_lora_rank
    replicated += _indexer(attention, hidden)
    return PartParameters(
        ModelPart.ATTENTION,
        sharded=layers * (query + up_projection + output),
        replicated=layers * replicated,
        vectors=layers * vectors,
    )


def _indexer(attention: LatentAttention, hidden: int) -> int:
    """Query, key and weight projections of the sparse-attention indexer, which every GPU holds whole."""
    if attention.indexer_heads is None or attention.indexer_head_dim is None:
        return 0
    query_inputs = attention.query_lora_rank or hidden
    query = query_inputs * attention.indexer_heads * attention.indexer_head_dim
    return query + hidden * (attention.indexer_head_dim + attention.indexer_heads)


def _linear_attention(linear: LinearAttention, hidden: int, layers: int) -> PartParameters:
    """Gated delta net: query, key, value and output gate; decay and write strength; convolution; output."""
    key_width = linear.key_heads * linear.key_head_dim
    value_width = linear.value_heads * linear.value_head_dim
    projections = hidden * (2 * key_width + 2 * value_width + 2 * linear.value_heads)
    convolution = (2 * key_width + value_width) * linear.convolution_kernel_tokens
    return PartParameters(
        ModelPart.LINEAR_ATTENTION,
        sharded=layers * (projections + convolution + value_width * hidden),
        vectors=layers * (2 * linear.value_heads + linear.value_head_dim),
    )


def _feed_forward(architecture: ModelArchitecture) -> Iterator[PartParameters]:
    dense = architecture.feed_forward
    if dense is None:
        return
    hidden = architecture.hidden_size
    inputs = 2 if dense.gated else 1
    yield PartParameters(
        ModelPart.FEED_FORWARD,
        sharded=dense.layers * (inputs + 1) * hidden * dense.intermediate_size,
        vectors=dense.layers * (inputs * dense.intermediate_size + hidden) if dense.bias else 0,
    )


def _experts(experts: MixtureOfExperts, hidden: int) -> Iterator[PartParameters]:
    inputs = 2 if experts.gated else 1
    all_experts = experts.layers * experts.experts
    yield PartParameters(
        ModelPart.EXPERTS,
        sharded=all_experts * (inputs + 1) * hidden * experts.expert_intermediate_size,
        vectors=all_experts * (inputs * experts.expert_intermediate_size + hidden) if experts.bias else 0,
        active_share=experts.experts_per_token / experts.experts,
    )
    yield PartParameters(
        ModelPart.SHARED_EXPERTS,
        sharded=experts.layers * (inputs + 1) * hidden * experts.shared_intermediate_size,
    )
    yield PartParameters(
        ModelPart.ROUTER,
        replicated=experts.layers * hidden * experts.experts,
        vectors=all_experts if experts.bias else 0,
    )
