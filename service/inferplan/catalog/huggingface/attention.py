"""Attention dimensions, family by family.

Defaults are those of the family's config class in the `transformers` library (version 5.24 was read).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from inferplan.catalog.architecture import GroupedAttention, LatentAttention, LinearAttention
from inferplan.catalog.huggingface.fields import MAXIMUM_HEADS, MAXIMUM_WIDTH, ConfigFields


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedAttentionRules:
    """Where a family keeps the dimensions of grouped attention.

    `kv_heads_key` None: always as many KV heads as query heads. `absent_kv_heads_mean_query_heads`: what the config
    class does when the key is absent; an explicit null means that in every family. `head_dim_required`: the class has a
    fixed default that differs from hidden size / heads, so that an absent key would have to be guessed. `bias_key`
    overrides `bias`, and `bias_covers_output` says whether the output projection has the bias too.
    """

    heads_keys: tuple[str, ...] = ("num_attention_heads",)
    kv_heads_key: str | None = "num_key_value_heads"
    absent_kv_heads_mean_query_heads: bool = False
    head_dim_required: bool = False
    bias_key: str | None = None
    bias: bool = False
    bias_covers_output: bool = False
    query_key_norm: bool = False
    query_key_norm_key: str | None = None
    output_gate: bool = False

    def read(self, fields: ConfigFields, hidden_size: int) -> GroupedAttention:
        """The attention that `fields` describe; what is wrong is noted there."""
        query_heads = fields.integer(*self.heads_keys, maximum=MAXIMUM_HEADS)
        kv_heads = self._kv_heads(fields, query_heads)
        if query_heads and kv_heads and query_heads % kv_heads:
            legal = ", ".join(str(heads) for heads in range(1, query_heads + 1) if query_heads % heads == 0)
            fields.note(
                self.kv_heads_key or self.heads_keys[0],
                f"is {kv_heads}, which does not divide the {query_heads} query heads; legal are {legal}",
            )
        bias = fields.flag(self.bias_key, self.bias) if self.bias_key else self.bias
        norm = self.query_key_norm
        if self.query_key_norm_key:
            norm = fields.flag(self.query_key_norm_key, norm)
        return GroupedAttention(
            query_heads=query_heads,
            kv_heads=kv_heads,
            head_dim=self._head_dim(fields, hidden_size, query_heads),
            qkv_bias=bias,
            output_bias=bias and self.bias_covers_output,
            query_key_norm=norm,
            output_gate=self.output_gate,
        )

    def _kv_heads(self, fields: ConfigFields, query_heads: int) -> int:
        if self.kv_heads_key is None:
            return query_heads
        is_null = self.kv_heads_key in fields.values and not fields.has(self.kv_heads_key)
        if is_null or self.absent_kv_heads_mean_query_heads:
            return fields.integer(self.kv_heads_key, maximum=MAXIMUM_HEADS, default=query_heads)
        return fields.integer(self.kv_heads_key, maximum=MAXIMUM_HEADS)

    def _head_dim(self, fields: ConfigFields, hidden_size: int, query_heads: int) -> int:
        is_null = "head_dim" in fields.values and not fields.has("head_dim")
        if fields.has("head_dim") or (self.head_dim_required and not is_null):
            return fields.integer("head_dim", maximum=MAXIMUM_WIDTH)
        return head_dim_by_division(fields, hidden_size, query_heads, self.heads_keys[0])


def head_dim_by_division(fields: ConfigFields, hidden_size: int, query_heads: int, heads_key: str) -> int:
    """Hidden size / query heads; 0 where that is no whole number, after noting it at `heads_key`."""
    if not hidden_size or not query_heads:
        return 0
    if hidden_size % query_heads:
        fields.note(
            heads_key,
            f"is {query_heads}, which does not divide the hidden size {hidden_size}; "
            "legal is a divisor of it, or any number if head_dim is given",
        )
        return 0
    return hidden_size // query_heads


def falcon_attention(fields: ConfigFields, hidden_size: int) -> GroupedAttention:
    """Falcon has two switches: grouped KV heads in the new decoder architecture, else one (multi-query) or all."""
    heads = fields.integer("num_attention_heads", "n_head", maximum=MAXIMUM_HEADS)
    kv_heads = heads
    if fields.flag("new_decoder_architecture", default=False):
        kv_heads = fields.integer("num_kv_heads", maximum=MAXIMUM_HEADS, default=heads)
        if heads and kv_heads and heads % kv_heads:
            fields.note("num_kv_heads", f"is {kv_heads}, which does not divide the {heads} query heads")
    elif fields.flag("multi_query", default=True):
        kv_heads = 1
    bias = fields.flag("bias", default=False)
    head_dim = head_dim_by_division(fields, hidden_size, heads, "num_attention_heads")
    return GroupedAttention(heads, kv_heads, head_dim, qkv_bias=bias, output_bias=bias)


def latent_attention(fields: ConfigFields, _hidden_size: int) -> LatentAttention:
    """Multi-head latent attention; a null `q_lora_rank` means a direct query projection (DeepSeek-V2-Lite)."""
    return LatentAttention(
        query_heads=fields.integer("num_attention_heads", maximum=MAXIMUM_HEADS),
        kv_lora_rank=fields.integer("kv_lora_rank", maximum=MAXIMUM_WIDTH),
        qk_nope_head_dim=fields.integer("qk_nope_head_dim", maximum=MAXIMUM_WIDTH),
        qk_rope_head_dim=fields.integer("qk_rope_head_dim", maximum=MAXIMUM_WIDTH),
        value_head_dim=fields.integer("v_head_dim", maximum=MAXIMUM_WIDTH),
        query_lora_rank=_query_lora_rank(fields),
    )


def indexed_latent_attention(fields: ConfigFields, hidden_size: int) -> LatentAttention:
    """Latent attention with the sparse-attention indexer of DeepSeek-V3.2 and GLM-5."""
    return dataclasses.replace(
        latent_attention(fields, hidden_size),
        indexer_heads=fields.integer("index_n_heads", maximum=MAXIMUM_HEADS),
        indexer_head_dim=fields.integer("index_head_dim", maximum=MAXIMUM_WIDTH),
    )


def _query_lora_rank(fields: ConfigFields) -> int | None:
    if "q_lora_rank" not in fields.values:
        # The class default is 1536, published files always say; neither reading of an absent key is safe.
        fields.note("q_lora_rank", "is missing; needed is a whole number, or null for a direct projection", "MISSING")
        return None
    return fields.optional_integer("q_lora_rank", maximum=MAXIMUM_WIDTH)


def gated_delta_net(fields: ConfigFields) -> LinearAttention:
    """The linear-attention layers of Qwen3-Next."""
    return LinearAttention(
        key_heads=fields.integer("linear_num_key_heads", maximum=MAXIMUM_HEADS),
        value_heads=fields.integer("linear_num_value_heads", maximum=MAXIMUM_HEADS),
        key_head_dim=fields.integer("linear_key_head_dim", maximum=MAXIMUM_WIDTH),
        value_head_dim=fields.integer("linear_value_head_dim", maximum=MAXIMUM_WIDTH),
        convolution_kernel_tokens=fields.integer("linear_conv_kernel_dim", maximum=1024),
    )
