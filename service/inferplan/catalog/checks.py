"""Rules that every catalogue entry keeps, wherever it came from: built-in data, a site's data, a request."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator

from inferplan.catalog.accelerator import Accelerator
from inferplan.catalog.architecture import (
    AttentionScope,
    GroupedAttention,
    LayerGroup,
    Model,
    ModelArchitecture,
)
from inferplan.catalog.engine import Engine
from inferplan.catalog.precision import Precision
from inferplan.errors import Violation

ID_PATTERN = re.compile(r"[a-z]([a-z0-9.-]{0,61}[a-z0-9])?")
"""Resource ids as in Google's AIP-122, with the dot added that version numbers such as 3.1 need."""

ACCELERATOR_FIGURES = (
    "label_memory_bytes",
    "visible_memory_bytes",
    "memory_bandwidth_bytes_per_second",
    "dense_flops_per_second",
    "interconnect_bytes_per_second",
    "gpus_per_node",
    "cost_usd_per_gpu_hour",
)
"""The fields of an accelerator that hold figures, each of which needs a source."""

_MAY_BE_ZERO = frozenset({"shared_intermediate_size", "vision_parameters", "zero_point_bytes"})
_WINDOWED = (AttentionScope.SLIDING_WINDOW, AttentionScope.CHUNKED)


def model_violations(model: Model) -> list[Violation]:
    """All that is wrong with a catalogue entry; paths are relative to it."""
    found = list(_identity_violations(model.id, model.display_name, model.aliases))
    if not model.source.strip():
        found.append(Violation("source", "is empty; needed is where the dimensions were read", "MISSING"))
    if model.headline_parameters is not None and not _is_positive(model.headline_parameters):
        found.append(Violation("headline_parameters", "legal is a number above 0, or none"))
    found.extend(violation.below("architecture") for violation in architecture_violations(model.architecture))
    return found


def architecture_violations(architecture: ModelArchitecture) -> list[Violation]:
    """All contradictions inside an architecture; paths are relative to it."""
    found = list(_number_violations(architecture, ""))
    found.extend(_attention_violations(architecture))
    found.extend(_layer_group_violations(architecture))
    found.extend(_feed_forward_violations(architecture))
    return found


def accelerator_violations(accelerator: Accelerator) -> list[Violation]:
    """All that is wrong with an accelerator, figures without a source included; paths are relative to it."""
    found = list(_identity_violations(accelerator.id, accelerator.display_name, accelerator.aliases))
    found.extend(_number_violations(accelerator, ""))
    if accelerator.visible_memory_bytes > accelerator.label_memory_bytes:
        found.append(Violation("visible_memory_bytes", "is more than label_memory_bytes; legal is up to the label"))
    if Precision.FLOAT16 not in accelerator.dense_flops_per_second:
        found.append(Violation("dense_flops_per_second.float16", "is missing; needed is the 16-bit peak", "MISSING"))
    for precision, peak in accelerator.dense_flops_per_second.items():
        if not _is_positive(peak):
            found.append(Violation(f"dense_flops_per_second.{precision}", "legal is a finite number above 0"))
    for figure in ACCELERATOR_FIGURES:
        if not accelerator.sources.get(figure, "").strip():
            found.append(Violation(f"sources.{figure}", "is missing; needed is where the figure was read", "MISSING"))
    for name in sorted(set(accelerator.sources) - set(ACCELERATOR_FIGURES)):
        found.append(Violation(f"sources.{name}", f"names no figure; legal are {', '.join(ACCELERATOR_FIGURES)}"))
    return found


def engine_violations(engine: Engine) -> list[Violation]:
    """All that is wrong with an engine; paths are relative to it."""
    found = list(_identity_violations(engine.id, engine.display_name, engine.aliases))
    if not engine.releases:
        found.append(Violation("releases", "is empty; needed is at least one release", "MISSING"))
    return found


def _identity_violations(identifier: str, display_name: str, aliases: tuple[str, ...]) -> Iterator[Violation]:
    if not ID_PATTERN.fullmatch(identifier):
        yield Violation(
            "id",
            f"is {identifier[:80]!r}; legal are up to 63 lower-case letters, digits, dots and hyphens, a letter first",
        )
    if not display_name.strip():
        yield Violation("display_name", "is empty", "MISSING")
    for index, alias in enumerate(aliases):
        if not alias.strip():
            yield Violation(f"aliases[{index}]", "is empty", "MISSING")


def _number_violations(holder: object, path: str) -> Iterator[Violation]:
    """Numbers of a dataclass, and of those inside it, that are not finite and above zero (or zero for none)."""
    for field in dataclasses.fields(holder):  # type: ignore[arg-type]  # only dataclass instances are passed
        value = getattr(holder, field.name)
        name = f"{path}.{field.name}" if path else field.name
        if isinstance(value, int | float) and not isinstance(value, bool):
            is_legal = _is_positive(value) or (value == 0 and field.name in _MAY_BE_ZERO)
            if not is_legal:
                lowest = "0 or more" if field.name in _MAY_BE_ZERO else "above 0"
                yield Violation(name, f"is {value}; legal is a finite number {lowest}")
        elif dataclasses.is_dataclass(value):
            yield from _number_violations(value, name)
        elif isinstance(value, tuple):
            for index, entry in enumerate(value):
                if dataclasses.is_dataclass(entry):
                    yield from _number_violations(entry, f"{name}[{index}]")


def _attention_violations(architecture: ModelArchitecture) -> Iterator[Violation]:
    attention = architecture.attention
    if isinstance(attention, GroupedAttention):
        if attention.kv_heads > 0 and attention.query_heads % attention.kv_heads:
            yield Violation(
                "attention.kv_heads",
                f"is {attention.kv_heads}, which does not divide {attention.query_heads} query heads",
            )
    elif (attention.indexer_heads is None) != (attention.indexer_head_dim is None):
        yield Violation("attention.indexer_heads", "and indexer_head_dim are given together or not at all")
    scopes = {group.scope for group in architecture.layer_groups}
    if (AttentionScope.LINEAR in scopes) != (architecture.linear_attention is not None):
        yield Violation("linear_attention", "is given exactly when a layer group has the scope linear")


def _layer_group_violations(architecture: ModelArchitecture) -> Iterator[Violation]:
    covered = sum(group.layers for group in architecture.layer_groups)
    if covered != architecture.layers:
        yield Violation("layer_groups", f"cover {covered} layers; legal is exactly the {architecture.layers} there are")
    for index, group in enumerate(architecture.layer_groups):
        yield from _window_violations(group, f"layer_groups[{index}].window_tokens")


def _window_violations(group: LayerGroup, path: str) -> Iterator[Violation]:
    if group.scope in _WINDOWED and group.window_tokens is None:
        yield Violation(path, f"is missing; a {group.scope} group needs its length", "MISSING")
    if group.scope not in _WINDOWED and group.window_tokens is not None:
        yield Violation(path, f"is given; a {group.scope} group has none")


def _feed_forward_violations(architecture: ModelArchitecture) -> Iterator[Violation]:
    dense = architecture.feed_forward.layers if architecture.feed_forward else 0
    sparse = architecture.experts.layers if architecture.experts else 0
    if dense + sparse != architecture.layers:
        yield Violation(
            "feed_forward", f"and experts cover {dense} + {sparse} layers; legal is {architecture.layers} between them"
        )
    experts = architecture.experts
    if experts is not None and experts.experts_per_token > experts.experts:
        yield Violation("experts.experts_per_token", f"is more than the {experts.experts} experts there are")


def _is_positive(value: float) -> bool:
    return math.isfinite(value) and value > 0
