"""What a checkpoint leaves at 16 bit, read from the module patterns that quantisation configs list.

The patterns are globs or regular expressions of somebody else's making. They are never run, only searched for the parts
of a model that they name, so that no pattern can stall the service.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum


class ModulePart(StrEnum):
    """The part of a model that a pattern names. NEGLIGIBLE is 16-bit in every format anyway, or too small to count."""

    NEGLIGIBLE = "negligible"
    ATTENTION = "attention"
    SHARED_EXPERTS = "shared experts"
    EXPERTS = "experts"
    FEED_FORWARD = "feed-forward"
    WHOLE_LAYER = "whole layer"
    UNKNOWN = "unknown"


_NEGLIGIBLE_WORDS = (
    "lm_head", "embed", "norm", "vision", "visual", "mm_projector", "multi_modal_projector", "router", "rotary",
    "shared_expert_gate", "indexer", "sinks", "e_score_correction_bias", "mtp", "conv1d",
)  # fmt: skip
_LAYER = re.compile(r"layers\\?\.(\d{1,4})(?!\d)")
_WHOLE_LAYER = re.compile(r"layers\\?\.\d{1,4}[^a-z0-9]*$")


def part_named_by(pattern: str) -> ModulePart:
    """The part of the model that a glob, regular expression or module name stands for."""
    lowered = pattern.lower().strip()
    ends_in_gate = re.sub(r"[^a-z0-9]+$", "", lowered).endswith("gate")
    if ends_in_gate or any(word in lowered for word in _NEGLIGIBLE_WORDS):
        return ModulePart.NEGLIGIBLE
    if "attn" in lowered or "attention" in lowered:
        return ModulePart.ATTENTION
    if "shared_expert" in lowered:
        return ModulePart.SHARED_EXPERTS
    if "expert" in lowered:
        return ModulePart.EXPERTS
    if any(word in lowered for word in ("mlp", "_proj", "ffn", "feed_forward", "block_sparse_moe")):
        return ModulePart.FEED_FORWARD
    return ModulePart.WHOLE_LAYER if _WHOLE_LAYER.search(lowered) else ModulePart.UNKNOWN


@dataclass(slots=True)
class UnquantizedModules:
    """Which layers of which part stay at 16 bit. `everywhere` are parts whose pattern names no layer."""

    everywhere: set[ModulePart] = field(default_factory=set)
    layers: dict[ModulePart, set[int]] = field(default_factory=dict)
    unknown_patterns: list[str] = field(default_factory=list)

    @classmethod
    def from_patterns(cls, patterns: Iterable[str], layers: int) -> UnquantizedModules:
        """Layers past the last, such as the multi-token-prediction layer, are left out: engines do not load them."""
        found = cls()
        for pattern in patterns:
            part = part_named_by(pattern)
            number = _LAYER.search(pattern.lower())
            if part is ModulePart.UNKNOWN:
                found.unknown_patterns.append(pattern)
            elif number is None:
                found.everywhere.add(part)
            elif int(number.group(1)) < layers:
                found.layers.setdefault(part, set()).add(int(number.group(1)))
        return found

    def names(self, part: ModulePart) -> bool:
        """Whether any layer leaves `part` at 16 bit."""
        return part in self.everywhere or bool(self.layers.get(part))

    def attention_layers(self, layers: int) -> int:
        """How many of `layers` layers have 16-bit attention."""
        if ModulePart.ATTENTION in self.everywhere:
            return layers
        whole = self.layers.get(ModulePart.WHOLE_LAYER, set())
        return len(self.layers.get(ModulePart.ATTENTION, set()) | whole)
