"""Which coefficients of the step-time model are fitted, within which physical bounds, and how far from their defaults.

All are fitted as logarithms, since all are positive scales. `spread` is the standard deviation, as a logarithm, that
the default is trusted with: few measurements move a coefficient little. `stack_spread` is how far one stack (an engine
version on one kind of host, driven by one harness) may lie from what its engine has in general: host times differ much
between versions and CPUs, kernel efficiencies little, and what is plain physics not at all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from inferplan.sizing.efficiency import EfficiencyCoefficients


@dataclass(frozen=True, slots=True)
class FittedCoefficient:
    """One coefficient: `name` is a field of EfficiencyCoefficients, bounds are in its own unit."""

    name: str
    unit: str
    lower: float
    upper: float
    spread: float
    stack_spread: float = 0.0


FITTED_COEFFICIENTS = (
    # No kernel streams faster than the memory; decode attention tops out at 0.93 of it.
    FittedCoefficient("weight_bandwidth_ratio", "", 0.5, 1.0, spread=0.05, stack_spread=0.05),
    FittedCoefficient("attention_bandwidth_ratio", "", 0.2, 1.0, spread=0.15, stack_spread=0.15),
    # GEMM benchmarks: bf16 0.65 to 0.85 of peak, FP8 0.45 to 0.7; a power-limited GPU reaches less.
    FittedCoefficient("sixteen_bit_flops_ratio", "", 0.3, 0.95, spread=0.15, stack_spread=0.1),
    FittedCoefficient("eight_bit_flops_ratio", "", 0.2, 0.9, spread=0.2, stack_spread=0.1),
    FittedCoefficient("prefill_attention_flops_ratio", "", 0.1, 0.95, spread=0.4, stack_spread=0.1),
    FittedCoefficient("expert_flops_ratio", "", 0.03, 1.0, spread=0.7, stack_spread=0.4),
    FittedCoefficient("expert_layer_seconds", "s", 1e-6, 2e-4, spread=1.0, stack_spread=0.5),
    FittedCoefficient("gemm_padding_tokens", "tokens", 1.0, 256.0, spread=0.7),
    FittedCoefficient("host_step_seconds", "s", 5e-5, 1e-2, spread=0.5, stack_spread=0.5),
    FittedCoefficient("host_layer_seconds", "s", 1e-6, 3e-4, spread=0.4, stack_spread=0.4),
    FittedCoefficient("host_sequence_seconds", "s", 1e-6, 5e-4, spread=0.7, stack_spread=0.7),
    # A custom all-reduce of one token in a CUDA graph takes 4.4 to 5.1 microseconds.
    FittedCoefficient("allreduce_seconds", "s", 3e-6, 1e-4, spread=0.4, stack_spread=0.3),
    FittedCoefficient("allreduce_bandwidth_ratio", "", 0.2, 1.0, spread=0.3, stack_spread=0.15),
    FittedCoefficient("elementwise_passes", "passes", 1.0, 40.0, spread=0.5, stack_spread=0.2),
    FittedCoefficient("roofline_sharpness", "", 1.5, 10.0, spread=0.3),
    FittedCoefficient("front_end_seconds", "s", 1e-3, 0.5, spread=0.7, stack_spread=0.7),
)
FITTED_NAMES = tuple(coefficient.name for coefficient in FITTED_COEFFICIENTS)


def with_values(defaults: EfficiencyCoefficients, values: Mapping[str, float]) -> EfficiencyCoefficients:
    """The coefficients with `values` in place of their defaults, each cut at its physical bounds."""
    bounded = {
        coefficient.name: min(max(values[coefficient.name], coefficient.lower), coefficient.upper)
        for coefficient in FITTED_COEFFICIENTS
        if coefficient.name in values
    }
    return dataclasses.replace(defaults, **bounded)
