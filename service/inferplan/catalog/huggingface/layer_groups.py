"""How far back each layer looks, family by family.

Defaults are those of the family's config class in the `transformers` library (version 5.24 was read).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from inferplan.catalog.architecture import AttentionScope, LayerGroup
from inferplan.catalog.huggingface.fields import MAXIMUM_LAYERS, MAXIMUM_TOKENS, ConfigFields, describe


def full_everywhere(_fields: ConfigFields, layers: int) -> tuple[LayerGroup, ...]:
    """Every layer looks at the whole context."""
    return grouped([AttentionScope.FULL] * layers, None)


def window_everywhere(fields: ConfigFields, layers: int) -> tuple[LayerGroup, ...]:
    """`sliding_window` holds for all layers; null or absent means none (Mixtral, Phi-3)."""
    window_tokens = _window_tokens(fields)
    return grouped([AttentionScope.SLIDING_WINDOW if window_tokens else AttentionScope.FULL] * layers, window_tokens)


def mistral_window(fields: ConfigFields, layers: int) -> tuple[LayerGroup, ...]:
    """As `window_everywhere`, but an absent key means 4096, which Mistral 7B v0.1 has; only null turns it off."""
    if "sliding_window" in fields.values:
        return window_everywhere(fields, layers)
    return grouped([AttentionScope.SLIDING_WINDOW] * layers, 4096)


def switched_window_everywhere(fields: ConfigFields, layers: int) -> tuple[LayerGroup, ...]:
    """Qwen3-MoE: `use_sliding_window` (off by default) switches the window of all layers."""
    if fields.flag("use_sliding_window", default=False):
        return window_everywhere(fields, layers)
    return full_everywhere(fields, layers)


def switched_window_above(fields: ConfigFields, layers: int) -> tuple[LayerGroup, ...]:
    """Qwen2 and Qwen3: where `use_sliding_window` is on, layers from `max_window_layers` up have the window."""
    if not fields.flag("use_sliding_window", default=False) or not fields.has("sliding_window"):
        return full_everywhere(fields, layers)
    scopes = stated_scopes(fields, layers, AttentionScope.SLIDING_WINDOW)
    if scopes is None:
        first = fields.integer("max_window_layers", maximum=MAXIMUM_LAYERS, minimum=0)
        scopes = [AttentionScope.SLIDING_WINDOW if i >= first else AttentionScope.FULL for i in range(layers)]
    return grouped(scopes, _window_tokens(fields))


def switched_window_stated(fields: ConfigFields, layers: int) -> tuple[LayerGroup, ...]:
    """Qwen2-MoE: releases of the library disagree which layers have the window, so `layer_types` must say."""
    if not fields.flag("use_sliding_window", default=False):
        return full_everywhere(fields, layers)
    scopes = stated_scopes(fields, layers, AttentionScope.SLIDING_WINDOW)
    if scopes is None and not fields.has("layer_types"):
        fields.note("layer_types", "is missing; needed when use_sliding_window is true: one entry a layer", "MISSING")
    return grouped(scopes or [AttentionScope.FULL] * layers, _window_tokens(fields))


def alternating_window(fields: ConfigFields, layers: int) -> tuple[LayerGroup, ...]:
    """Gemma 2 and gpt-oss: every second layer is full, the others have the window, unless `layer_types` disagrees."""
    return _every_nth_full(fields, layers, 2)


def patterned_window(fields: ConfigFields, layers: int) -> tuple[LayerGroup, ...]:
    """Gemma 3: every sixth layer is full, or every `sliding_window_pattern`-th, unless `layer_types` disagrees."""
    nth = fields.integer("sliding_window_pattern", "_sliding_window_pattern", maximum=MAXIMUM_LAYERS, default=6)
    return _every_nth_full(fields, layers, nth)


def _every_nth_full(fields: ConfigFields, layers: int, nth: int) -> tuple[LayerGroup, ...]:
    window_tokens = fields.integer("sliding_window", maximum=MAXIMUM_TOKENS)
    scopes = stated_scopes(fields, layers, AttentionScope.SLIDING_WINDOW)
    if scopes is None:
        scopes = [_full_if(nth > 0 and (i + 1) % nth == 0, AttentionScope.SLIDING_WINDOW) for i in range(layers)]
    return grouped(scopes, window_tokens)


def chunked_unless_without_rotary(fields: ConfigFields, layers: int) -> tuple[LayerGroup, ...]:
    """Llama 4: layers without rotary embedding (a 0 in `no_rope_layers`, else every fourth) look at everything."""
    if "attention_chunk_size" in fields.values and not fields.has("attention_chunk_size"):
        return full_everywhere(fields, layers)
    chunk_tokens = fields.integer("attention_chunk_size", maximum=MAXIMUM_TOKENS, default=8192)
    scopes = stated_scopes(fields, layers, AttentionScope.CHUNKED)
    if scopes is None:
        interval = fields.integer("no_rope_layer_interval", maximum=MAXIMUM_LAYERS, default=4)
        has_rotary = fields.integers("no_rope_layers", maximum=1)
        if not has_rotary:
            has_rotary = [int(interval > 0 and (i + 1) % interval != 0) for i in range(layers)]
        elif len(has_rotary) != layers:
            fields.note("no_rope_layers", f"has {len(has_rotary)} entries; needed is one for each of {layers} layers")
        scopes = [_full_if(not rotary, AttentionScope.CHUNKED) for rotary in has_rotary]
    return grouped(scopes, chunk_tokens)


def linear_unless_full(fields: ConfigFields, layers: int) -> tuple[LayerGroup, ...]:
    """Qwen3-Next: every `full_attention_interval`-th layer (4 by default) is full, the others are linear."""
    scopes = stated_scopes(fields, layers, AttentionScope.LINEAR)
    if scopes is None:
        nth = fields.integer("full_attention_interval", maximum=MAXIMUM_LAYERS, default=4)
        scopes = [_full_if(nth > 0 and (i + 1) % nth == 0, AttentionScope.LINEAR) for i in range(layers)]
    return grouped(scopes, None)


def stated_scopes(fields: ConfigFields, layers: int, other: AttentionScope) -> list[AttentionScope] | None:
    """The scopes in `layer_types`, each full or `other`; None where the key is absent or wrong."""
    names = fields.texts("layer_types")
    if names is None:
        return None
    legal = {"full_attention": AttentionScope.FULL, _LAYER_TYPES[other]: other}
    unknown = sorted({name for name in names if name not in legal})
    if unknown:
        shown = ", ".join(describe(name) for name in unknown[:5])
        fields.note("layer_types", f"holds {shown}; legal entries of this family are {', '.join(legal)}")
        return None
    if len(names) != layers:
        fields.note("layer_types", f"has {len(names)} entries; needed is one for each of {layers} layers")
        return None
    return [legal[name] for name in names]


_LAYER_TYPES = {
    AttentionScope.SLIDING_WINDOW: "sliding_attention",
    AttentionScope.CHUNKED: "chunked_attention",
    AttentionScope.LINEAR: "linear_attention",
}


def _full_if(is_full: bool, other: AttentionScope) -> AttentionScope:
    return AttentionScope.FULL if is_full else other


def _window_tokens(fields: ConfigFields) -> int | None:
    return fields.optional_integer("sliding_window", maximum=MAXIMUM_TOKENS)


def grouped(scopes: Iterable[AttentionScope], window_tokens: int | None) -> tuple[LayerGroup, ...]:
    """One group a scope, in the order of AttentionScope, with the window where the scope has one."""
    counts = Counter(scopes)
    windowed = (AttentionScope.SLIDING_WINDOW, AttentionScope.CHUNKED)
    return tuple(
        LayerGroup(counts[scope], scope, window_tokens if scope in windowed else None)
        for scope in AttentionScope
        if counts[scope]
    )
