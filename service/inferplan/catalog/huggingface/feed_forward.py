"""Dense and expert feed-forward dimensions, family by family.

Defaults are those of the family's config class in the `transformers` library (version 5.24 was read).
"""

from __future__ import annotations

from dataclasses import dataclass

from inferplan.catalog.architecture import FeedForward, MixtureOfExperts
from inferplan.catalog.huggingface.fields import MAXIMUM_EXPERTS, MAXIMUM_LAYERS, MAXIMUM_WIDTH, ConfigFields

FeedForwardPair = tuple[FeedForward | None, MixtureOfExperts | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseRules:
    """A feed-forward block of the same width in every layer.

    `default_multiple_of_hidden` is what an absent width means; None: the key is required. `bias_key` overrides `bias`.
    """

    keys: tuple[str, ...] = ("intermediate_size",)
    default_multiple_of_hidden: int | None = None
    gated: bool = True
    bias_key: str | None = None
    bias: bool = False

    def read(self, fields: ConfigFields, layers: int, hidden_size: int) -> FeedForwardPair:
        """The block that `fields` describe; what is wrong is noted there."""
        multiple = self.default_multiple_of_hidden
        width = fields.integer(
            *self.keys, maximum=MAXIMUM_WIDTH, default=hidden_size * multiple if multiple is not None else None
        )
        bias = fields.flag(self.bias_key, self.bias) if self.bias_key else self.bias
        return FeedForward(layers, width, gated=self.gated, bias=bias), None


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedDenseRules:
    """BLOOM: the width is four times the hidden size, without a key."""

    multiple_of_hidden: int

    def read(self, _fields: ConfigFields, layers: int, hidden_size: int) -> FeedForwardPair:
        """The block that follows from the hidden size."""
        return FeedForward(layers, hidden_size * self.multiple_of_hidden, gated=False, bias=True), None


def mixtral_experts(fields: ConfigFields, layers: int, _hidden_size: int) -> FeedForwardPair:
    """Mixtral: experts in every layer."""
    return None, _experts(fields, layers, "num_local_experts", "intermediate_size")


def gpt_oss_experts(fields: ConfigFields, layers: int, _hidden_size: int) -> FeedForwardPair:
    """GPT-OSS: experts with biases in every layer."""
    return None, _experts(fields, layers, "num_local_experts", "intermediate_size", bias=True)


def qwen_experts(fields: ConfigFields, layers: int, _hidden_size: int) -> FeedForwardPair:
    """Qwen3-MoE: a layer has experts if it is a `decoder_sparse_step`-th one and not listed in `mlp_only_layers`."""
    return _qwen(fields, layers, shared_intermediate_size=0)


def qwen_experts_with_shared(fields: ConfigFields, layers: int, _hidden_size: int) -> FeedForwardPair:
    """Qwen2-MoE and Qwen3-Next: as Qwen3-MoE, with one shared expert of its own width."""
    shared = fields.integer("shared_expert_intermediate_size", maximum=MAXIMUM_WIDTH, minimum=0)
    return _qwen(fields, layers, shared)


def _qwen(fields: ConfigFields, layers: int, shared_intermediate_size: int) -> FeedForwardPair:
    step = fields.integer("decoder_sparse_step", maximum=MAXIMUM_LAYERS, default=1)
    dense_only = set(fields.integers("mlp_only_layers", maximum=MAXIMUM_LAYERS) or ())
    sparse = sum(1 for i in range(layers) if i not in dense_only and step > 0 and (i + 1) % step == 0)
    experts = _experts(
        fields,
        sparse,
        "num_experts",
        "moe_intermediate_size",
        other_count_key="num_local_experts",
        shared_intermediate_size=shared_intermediate_size,
    )
    return _dense_rest(fields, layers, sparse), experts


def deepseek_experts(fields: ConfigFields, layers: int, _hidden_size: int) -> FeedForwardPair:
    """DeepSeek, Kimi and GLM: the first `first_k_dense_replace` layers are dense, the rest have experts."""
    first = fields.integer("first_k_dense_replace", maximum=MAXIMUM_LAYERS, minimum=0)
    frequency = fields.integer("moe_layer_freq", maximum=MAXIMUM_LAYERS, default=1)
    sparse = sum(1 for i in range(layers) if i >= first and frequency > 0 and i % frequency == 0)
    shared_experts = fields.integer("n_shared_experts", maximum=MAXIMUM_EXPERTS, minimum=0, default=0)
    width = fields.optional_integer("moe_intermediate_size", maximum=MAXIMUM_WIDTH) or 0
    experts = _experts(
        fields,
        sparse,
        "n_routed_experts",
        "moe_intermediate_size",
        shared_intermediate_size=shared_experts * width,
    )
    return _dense_rest(fields, layers, sparse), experts


def llama4_experts(fields: ConfigFields, layers: int, _hidden_size: int) -> FeedForwardPair:
    """Llama 4: every `interleave_moe_layer_step`-th layer has experts and one shared expert of the same width.

    The other layers are dense with a width of their own (`intermediate_size_mlp`).
    """
    stated = fields.integers("moe_layers", maximum=MAXIMUM_LAYERS)
    if stated is None:
        step = fields.integer("interleave_moe_layer_step", maximum=MAXIMUM_LAYERS, default=1)
        stated = list(range(step - 1, layers, step)) if step else []
    sparse = len({layer for layer in stated if layer < layers})
    width = fields.optional_integer("intermediate_size", maximum=MAXIMUM_WIDTH) or 0
    experts = _experts(fields, sparse, "num_local_experts", "intermediate_size", shared_intermediate_size=width)
    return _dense_rest(fields, layers, sparse, "intermediate_size_mlp"), experts


def _dense_rest(fields: ConfigFields, layers: int, sparse: int, key: str = "intermediate_size") -> FeedForward | None:
    if layers - sparse <= 0:
        return None
    return FeedForward(layers - sparse, fields.integer(key, maximum=MAXIMUM_WIDTH))


def _experts(
    fields: ConfigFields,
    layers: int,
    count_key: str,
    width_key: str,
    *,
    other_count_key: str | None = None,
    shared_intermediate_size: int = 0,
    bias: bool = False,
) -> MixtureOfExperts | None:
    """Reads, and so checks, all keys even when no layer has experts."""
    count_keys = (count_key,) if other_count_key is None else (count_key, other_count_key)
    experts = fields.integer(*count_keys, maximum=MAXIMUM_EXPERTS)
    per_token = fields.integer("num_experts_per_tok", "experts_per_token", maximum=MAXIMUM_EXPERTS)
    width = fields.integer(width_key, maximum=MAXIMUM_WIDTH)
    if experts and per_token > experts:
        fields.note("num_experts_per_tok", f"is {per_token}; legal is 1 up to the {experts} experts there are")
    if layers <= 0:
        return None
    return MixtureOfExperts(layers, experts, per_token, width, shared_intermediate_size, gated=True, bias=bias)
