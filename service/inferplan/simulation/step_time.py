"""How long one scheduler step takes, from the numbers that it depends on.

The equation is the engine model's (GEMM roofline with a soft corner, decode attention, prefill attention, all-reduces,
element-wise kernels, host). This room knows no model and no accelerator: sizing/ turns an architecture, an accelerator
and efficiency coefficients into `StepTimeCoefficients`, already divided by the tensor-parallel degree.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, fields

import numpy as np
import numpy.typing as npt

from inferplan.errors import InvalidInputError, Violation
from inferplan.simulation.compiled import compiled, compiled_entry_point, compiled_inline


@dataclass(frozen=True, slots=True)
class StepTimeCoefficients:
    """The numbers that one step's time depends on.

    dense_weight_seconds: streaming every weight that each step touches (all but the routed experts') from memory once.
    compute_seconds_per_token: GEMM time of one token where compute, not memory, is the limit.
    kv_seconds_per_context_token: streaming the KV cache of one token of context (all layers that keep one) in decode.
    prefill_attention_seconds_per_pair: attention between one prompt token and one token before it, all layers.
    allreduce_seconds_per_step, allreduce_seconds_per_token: 0 at tensor parallel 1.
    elementwise_seconds_per_token: norms, activations, rotary embedding.
    host_seconds_per_step: T0 + layers x tau. host_seconds_per_sequence: per decoding sequence.
    roofline_sharpness: p of (Tw^p + Tf^p)^(1/p), 1 or more; large values give the plain max().
    expert_weight_seconds: streaming all routed experts of all layers once; a step streams what its tokens touch.
    expert_count, experts_per_token: of one layer; 0 for a dense model.
    window_tokens, windowed_fraction: `windowed_fraction` (0 to 1) of the attention layers look back `window_tokens` at
        most. 0 where every layer looks back over the whole context. Linear layers have no part in any attention figure.
    gemm_padding_tokens: tokens that GEMMs compute beyond those of the step, since they work on whole tiles.
    """

    dense_weight_seconds: float
    compute_seconds_per_token: float
    kv_seconds_per_context_token: float
    prefill_attention_seconds_per_pair: float = 0.0
    allreduce_seconds_per_step: float = 0.0
    allreduce_seconds_per_token: float = 0.0
    elementwise_seconds_per_token: float = 0.0
    host_seconds_per_step: float = 0.0
    host_seconds_per_sequence: float = 0.0
    roofline_sharpness: float = 4.7
    expert_weight_seconds: float = 0.0
    expert_count: int = 0
    experts_per_token: int = 0
    window_tokens: int = 0
    windowed_fraction: float = 0.0
    gemm_padding_tokens: float = 0.0

    def __post_init__(self) -> None:
        violations = _coefficient_violations(self)
        if violations:
            raise InvalidInputError(violations)

    def as_array(self) -> npt.NDArray[np.float64]:
        """The flat form that the kernel reads, in the order of the fields."""
        return np.array(astuple(self), dtype=np.float64)


_FIELD_NAMES = tuple(field.name for field in fields(StepTimeCoefficients))
DENSE_WEIGHT = _FIELD_NAMES.index("dense_weight_seconds")
COMPUTE = _FIELD_NAMES.index("compute_seconds_per_token")
KV = _FIELD_NAMES.index("kv_seconds_per_context_token")
PREFILL_PAIR = _FIELD_NAMES.index("prefill_attention_seconds_per_pair")
ALLREDUCE_STEP = _FIELD_NAMES.index("allreduce_seconds_per_step")
ALLREDUCE_TOKEN = _FIELD_NAMES.index("allreduce_seconds_per_token")
ELEMENTWISE = _FIELD_NAMES.index("elementwise_seconds_per_token")
HOST_STEP = _FIELD_NAMES.index("host_seconds_per_step")
HOST_SEQUENCE = _FIELD_NAMES.index("host_seconds_per_sequence")
SHARPNESS = _FIELD_NAMES.index("roofline_sharpness")
EXPERT_WEIGHT = _FIELD_NAMES.index("expert_weight_seconds")
EXPERT_COUNT = _FIELD_NAMES.index("expert_count")
EXPERTS_PER_TOKEN = _FIELD_NAMES.index("experts_per_token")
WINDOW_TOKENS = _FIELD_NAMES.index("window_tokens")
WINDOWED_FRACTION = _FIELD_NAMES.index("windowed_fraction")
GEMM_PADDING = _FIELD_NAMES.index("gemm_padding_tokens")


def _coefficient_violations(coefficients: StepTimeCoefficients) -> list[Violation]:
    violations = []
    for name in _FIELD_NAMES:
        value = getattr(coefficients, name)
        if not (math.isfinite(value) and value >= 0):
            violations.append(Violation(name, f"is {value}; must be finite and not negative"))
    if violations:
        return violations
    if coefficients.roofline_sharpness < 1:
        violations.append(Violation("roofline_sharpness", f"is {coefficients.roofline_sharpness}; must be at least 1"))
    if coefficients.windowed_fraction > 1:
        violations.append(Violation("windowed_fraction", f"is {coefficients.windowed_fraction}; must be from 0 to 1"))
    if coefficients.windowed_fraction > 0 and coefficients.window_tokens < 1:
        violations.append(Violation("window_tokens", "must be at least 1 where windowed_fraction is above 0"))
    if coefficients.experts_per_token > coefficients.expert_count:
        violations.append(
            Violation(
                "experts_per_token",
                f"is {coefficients.experts_per_token}; must not exceed expert_count {coefficients.expert_count}",
            )
        )
    if coefficients.expert_weight_seconds > 0 and coefficients.experts_per_token < 1:
        violations.append(Violation("experts_per_token", "must be at least 1 where expert_weight_seconds is above 0"))
    at_rest = (
        coefficients.dense_weight_seconds
        + coefficients.host_seconds_per_step
        + coefficients.compute_seconds_per_token
        + coefficients.elementwise_seconds_per_token
    )
    if at_rest <= 0:
        violations.append(
            Violation(
                "dense_weight_seconds",
                "a step of one token would take no time; set dense_weight_seconds, compute_seconds_per_token, "
                "elementwise_seconds_per_token or host_seconds_per_step above 0",
            )
        )
    return violations


@compiled
def soft_maximum(first: float, second: float, sharpness: float) -> float:
    """(first^p + second^p)^(1/p), scaled so that small times to a high power do not underflow."""
    larger = max(first, second)
    if larger == 0.0:
        return 0.0
    ratio = min(first, second) / larger
    softened: float = larger * (1.0 + ratio**sharpness) ** (1.0 / sharpness)
    return softened


@compiled
def token_seconds(coefficients: npt.NDArray[np.float64], tokens: int) -> float:
    """The part of a step that depends on its number of tokens alone: GEMMs, all-reduces, element-wise kernels, host."""
    weight_seconds = coefficients[DENSE_WEIGHT]
    if coefficients[EXPERT_WEIGHT] > 0.0:
        # Each token picks k of E experts: the share that n tokens touch together is 1 - (1 - k/E)^n.
        untouched = (1.0 - coefficients[EXPERTS_PER_TOKEN] / coefficients[EXPERT_COUNT]) ** tokens
        weight_seconds += coefficients[EXPERT_WEIGHT] * (1.0 - untouched)
    compute_seconds = coefficients[COMPUTE] * (tokens + coefficients[GEMM_PADDING])
    seconds: float = (
        soft_maximum(weight_seconds, compute_seconds, coefficients[SHARPNESS])
        + coefficients[ALLREDUCE_STEP]
        + (coefficients[ALLREDUCE_TOKEN] + coefficients[ELEMENTWISE]) * tokens
        + coefficients[HOST_STEP]
    )
    return seconds


@compiled_inline
def sequence_seconds(
    coefficients: npt.NDArray[np.float64],
    decode_sequences: int,
    context_tokens: int,
    windowed_context_tokens: int,
    prefill_pairs: float,
    windowed_prefill_pairs: float,
) -> float:
    """The part of a step that depends on who its tokens belong to: attention, and the host's work per sequence."""
    windowed = coefficients[WINDOWED_FRACTION]
    context = context_tokens * (1.0 - windowed) + windowed_context_tokens * windowed
    pairs = prefill_pairs * (1.0 - windowed) + windowed_prefill_pairs * windowed
    seconds: float = (
        context * coefficients[KV] + pairs * coefficients[PREFILL_PAIR] + decode_sequences * coefficients[HOST_SEQUENCE]
    )
    return seconds


@compiled_entry_point
def step_seconds(
    coefficients: npt.NDArray[np.float64],
    tokens: int,
    decode_sequences: int,
    context_tokens: int,
    windowed_context_tokens: int,
    prefill_pairs: float,
    windowed_prefill_pairs: float,
) -> float:
    """One step of `tokens` tokens (decode and prefill together).

    context_tokens: sum of the decoding sequences' contexts, the token being computed included.
    windowed_context_tokens: the same sum with each context cut at the window.
    prefill_pairs, windowed_prefill_pairs: as `prefill_pairs()` and `windowed_prefill_pairs()` count them.
    """
    return token_seconds(coefficients, tokens) + sequence_seconds(
        coefficients, decode_sequences, context_tokens, windowed_context_tokens, prefill_pairs, windowed_prefill_pairs
    )


@compiled_inline
def prefill_pairs(tokens_before: int, tokens: int) -> float:
    """Causal pairs of a chunk: take x (before + take / 2)."""
    return tokens * (tokens_before + 0.5 * tokens)


@compiled
def windowed_prefill_pairs(tokens_before: int, tokens: int, window_tokens: int) -> float:
    """Causal pairs of a chunk where no token looks back over more than the window."""
    inside = max(min(window_tokens - tokens_before, tokens), 0)
    return prefill_pairs(tokens_before, inside) + (tokens - inside) * float(window_tokens)
