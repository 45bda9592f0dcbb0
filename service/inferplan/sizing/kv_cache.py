"""How many bytes the KV cache takes on one GPU: of a token, of a sequence, and as the engine reserves them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from inferplan.catalog.architecture import (
    AttentionScope,
    GroupedAttention,
    LatentAttention,
    LinearAttention,
    ModelArchitecture,
)
from inferplan.catalog.precision import Precision
from inferplan.sizing.parallelism import Parallelism

KV_PRECISIONS = (Precision.FLOAT16, Precision.BFLOAT16, Precision.FP8)

_INDEXER_SCALE_BYTES = 4
"""The indexer of DeepSeek-V3.2 keeps one float32 scale beside the FP8 key of a token."""

_RECURRENT_STATE_BYTES = 4
"""Gated delta nets keep their recurrent state in float32, the convolution's inputs at 16 bit."""

_CONVOLUTION_STATE_BYTES = 2


@dataclass(frozen=True, slots=True)
class WindowAwareness:
    """Whether layers with a sliding window, or with chunked attention, give up what they no longer look at."""

    sliding_window: bool = True
    chunked: bool = True


EVERY_WINDOW = WindowAwareness()
NO_WINDOW = WindowAwareness(sliding_window=False, chunked=False)


def kv_precision_or_default(architecture: ModelArchitecture, kv_precision: Precision | None) -> Precision:
    """The KV cache's format; None is the engine's `auto`, the checkpoint's own 16-bit format."""
    if kv_precision is not None:
        return kv_precision
    own = architecture.checkpoint_precision
    return own if own.is_sixteen_bit else Precision.BFLOAT16


def nominal_kv_bytes_per_token(
    architecture: ModelArchitecture, kv_precision: Precision, parallelism: Parallelism
) -> int:
    """Bytes of one token on one GPU while every layer still grows; linear layers keep no token.

    Grouped attention: 2 x layers x max(1, KV heads / tensor parallel) x head dim x element bytes: past as many GPUs as
    there are KV heads, heads are replicated and nothing more is saved. Latent attention: layers x (rank + rotary) x
    element bytes, on every GPU. With pipeline parallelism the stage with most layers counts, since it fills first.
    """
    growing = sum(
        _stage_layers(layers, parallelism)
        for layers, window in _growing_layers(architecture, NO_WINDOW)
        if window is None
    )
    return growing * _layer_bytes_per_token(architecture, kv_precision, parallelism)


def kv_bytes_for_sequence(
    architecture: ModelArchitecture,
    kv_precision: Precision,
    parallelism: Parallelism,
    tokens: int,
    window_aware: bool | WindowAwareness = True,
) -> int:
    """Bytes that one sequence of `tokens` tokens keeps on one GPU, state of linear layers included.

    `window_aware` False treats sliding-window and chunked layers as full, as engines without a hybrid cache do.
    """
    awareness = _awareness(window_aware)
    layer_bytes = _layer_bytes_per_token(architecture, kv_precision, parallelism)
    kept = sum(
        _stage_layers(layers, parallelism) * (tokens if window is None else min(tokens, window))
        for layers, window in _growing_layers(architecture, awareness)
    )
    return kept * layer_bytes + state_bytes_per_sequence(architecture, parallelism)


def reserved_bytes_for_sequence(
    architecture: ModelArchitecture,
    kv_precision: Precision,
    parallelism: Parallelism,
    tokens: int,
    *,
    window_aware: bool | WindowAwareness,
    block_tokens: int,
    batched_tokens: int,
) -> int:
    """Bytes on one GPU that an engine must be able to give a sequence that may grow to `tokens` tokens.

    Whole blocks; a window layer needs room for the window and the chunk of prefill in flight, min(window - 1 +
    batched_tokens, tokens), and one block more since a window starts inside a block (vLLM V1's admission rule).
    """
    awareness = _awareness(window_aware)
    block_bytes = block_tokens * _layer_bytes_per_token(architecture, kv_precision, parallelism)
    blocks = 0
    for layers, window in _growing_layers(architecture, awareness):
        needed = math.ceil(tokens / block_tokens)
        if window is not None and tokens > 0:
            # Not more than a full layer takes: the engine never keeps blocks beyond the sequence's end.
            in_window = math.ceil(min(window - 1 + batched_tokens, tokens) / block_tokens) + 1
            needed = min(needed, in_window)
        blocks += _stage_layers(layers, parallelism) * needed
    return blocks * block_bytes + state_bytes_per_sequence(architecture, parallelism)


def state_bytes_per_sequence(architecture: ModelArchitecture, parallelism: Parallelism) -> int:
    """Bytes on one GPU of the constant state that linear layers keep of a sequence; 0 for models without any."""
    linear = architecture.linear_attention
    if linear is None:
        return 0
    layers = sum(group.layers for group in architecture.layer_groups if group.scope is AttentionScope.LINEAR)
    return _stage_layers(layers, parallelism) * _linear_layer_state_bytes(linear, parallelism.tensor_parallel)


def kv_heads_per_gpu(attention: GroupedAttention, tensor_parallel: int) -> int:
    """KV heads on one GPU, at least 1."""
    return max(1, math.ceil(attention.kv_heads / tensor_parallel))


def _awareness(window_aware: bool | WindowAwareness) -> WindowAwareness:
    if isinstance(window_aware, WindowAwareness):
        return window_aware
    return EVERY_WINDOW if window_aware else NO_WINDOW


def _growing_layers(architecture: ModelArchitecture, awareness: WindowAwareness) -> Iterator[tuple[int, int | None]]:
    """Layers that keep tokens, with the number of tokens at which they stop growing."""
    for group in architecture.layer_groups:
        if group.scope is AttentionScope.LINEAR:
            continue
        stops = (group.scope is AttentionScope.SLIDING_WINDOW and awareness.sliding_window) or (
            group.scope is AttentionScope.CHUNKED and awareness.chunked
        )
        yield group.layers, group.window_tokens if stops else None


def _stage_layers(layers: int, parallelism: Parallelism) -> int:
    return math.ceil(layers / parallelism.pipeline_parallel)


def _layer_bytes_per_token(architecture: ModelArchitecture, kv_precision: Precision, parallelism: Parallelism) -> int:
    attention = architecture.attention
    element_bytes = int(kv_precision.bytes_per_element)
    if isinstance(attention, GroupedAttention):
        return 2 * kv_heads_per_gpu(attention, parallelism.tensor_parallel) * attention.head_dim * element_bytes
    return (attention.kv_lora_rank + attention.qk_rope_head_dim) * element_bytes + _indexer_bytes_per_token(attention)


def _indexer_bytes_per_token(attention: LatentAttention) -> int:
    return 0 if attention.indexer_head_dim is None else attention.indexer_head_dim + _INDEXER_SCALE_BYTES


def _linear_layer_state_bytes(linear: LinearAttention, tensor_parallel: int) -> int:
    value_heads = max(1, math.ceil(linear.value_heads / tensor_parallel))
    key_heads = max(1, math.ceil(linear.key_heads / tensor_parallel))
    recurrent = value_heads * linear.value_head_dim * linear.key_head_dim * _RECURRENT_STATE_BYTES
    channels = 2 * key_heads * linear.key_head_dim + value_heads * linear.value_head_dim
    return recurrent + channels * (linear.convolution_kernel_tokens - 1) * _CONVOLUTION_STATE_BYTES
