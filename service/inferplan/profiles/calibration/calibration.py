"""A calibration: fitted coefficients with how well they are known, how wrong they were, and where they hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from packaging.version import InvalidVersion, Version

from inferplan.profiles.calibration.coefficients import with_values
from inferplan.sizing.efficiency import EfficiencyCoefficients


@dataclass(frozen=True, slots=True)
class Coefficient:
    """One fitted coefficient: `symbol` is a field of EfficiencyCoefficients, in `unit`; empty for plain numbers.

    `scope` is the stack that it is for (`vllm 0.12.0, some-harness`); empty for what the engine has in general. An
    empty `accelerator` is shared by all. `is_default` means that no measurement moved it.
    """

    symbol: str
    value: float
    standard_error: float
    unit: str = ""
    is_default: bool = False
    accelerator: str = ""
    scope: str = ""


@dataclass(frozen=True, slots=True)
class ErrorSummary:
    """How wrong predictions were over a group of points.

    Errors are shares, (predicted - measured) / measured, and not per cent.
    """

    group: str
    figure: str
    points: int
    median_absolute_relative_error: float
    mean_absolute_relative_error: float
    bias: float
    band_coverage: float


@dataclass(frozen=True, slots=True)
class ErrorBand:
    """The stated 90 % band of one figure (ttft, tpot, e2e, throughput).

    measured / predicted lies between 1 / (1 + relative) and 1 + relative, for a stack that was measured.
    """

    figure: str
    relative: float


@dataclass(frozen=True, slots=True)
class MeasuredRange:
    """What the points of a calibration covered, so that a plan can say by how much it goes beyond."""

    model_classes: tuple[str, ...]
    weight_precisions: tuple[str, ...]
    tensor_parallel_degrees: tuple[int, ...]
    longest_input_tokens: int
    longest_output_tokens: int
    most_running_sequences: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """Coefficients for one engine. `scopes` are the stacks that were measured, by engine version and harness."""

    name: str
    engine: str
    engine_versions: tuple[str, ...]
    accelerators: tuple[str, ...]
    coefficients: tuple[Coefficient, ...]
    error_bands: tuple[ErrorBand, ...]
    measured: MeasuredRange
    errors: tuple[ErrorSummary, ...] = ()
    outliers: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    data_sha256: str = ""
    points: int = 0
    built_in: bool = False
    create_time: datetime | None = None
    created_by: str = ""

    @property
    def scopes(self) -> tuple[str, ...]:
        """The stacks that have coefficients of their own."""
        return tuple(dict.fromkeys(item.scope for item in self.coefficients if item.scope))

    def efficiency(self, defaults: EfficiencyCoefficients, scope: str = "") -> EfficiencyCoefficients:
        """The coefficients of a scope, `defaults` where nothing was fitted."""
        values: dict[str, float] = {item.symbol: item.value for item in self.coefficients if not item.scope}
        if scope:
            values.update({item.symbol: item.value for item in self.coefficients if item.scope == scope})
        return with_values(defaults, values)

    def scope_for(self, version: str, harness: str = "") -> str:
        """The measured stack of that version and harness; of the version alone if only one has it; else empty."""
        exact = _scope_label(self.engine, version, harness)
        if exact in self.scopes:
            return exact
        if not version:
            return ""
        start = f"{self.engine} {version}"
        same = [scope for scope in self.scopes if scope == start or scope.startswith(f"{start}, ")]
        return same[0] if len(same) == 1 else ""

    def band(self, figure: str, widening: float = 1.0) -> float | None:
        """The 90 % band of a figure, as a relative error, widened for what was not measured."""
        for item in self.error_bands:
            if item.figure == figure:
                return math.expm1(math.log1p(item.relative) * widening)
        return None


def _scope_label(engine: str, version: str, harness: str) -> str:
    name = f"{engine} {version}".strip()
    return f"{name}, {harness}" if harness else name


NEW_STACK_WIDENING = 2.0
"""Of the logarithm of a band where neither engine version nor harness was measured. Leaving out whole stacks of the
reference points (tools/fit_builtin_calibrations.py --cross-validate) widened errors by 1.6 to 3."""

NEW_ACCELERATOR_WIDENING = 1.3
NEW_MODEL_CLASS_WIDENING = 1.5
NEW_PRECISION_WIDENING = 1.3
BEYOND_RANGE_WIDENING = 1.2
"""For each of: tensor-parallel degree, lengths and load beyond twice what was measured. The four are estimates: the
reference points are all of one accelerator."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What a prediction is for, as far as calibrations tell situations apart."""

    accelerator: str
    scope: str
    model_class: str
    weight_precision: str
    tensor_parallel: int
    input_tokens: float
    output_tokens: float
    running_sequences: float = 0.0


@dataclass(frozen=True, slots=True)
class Extrapolation:
    """How far a prediction goes beyond what was measured: the factor on its band's logarithm, and why, in words."""

    widening: float
    reasons: tuple[str, ...]


def extrapolation(calibration: Calibration, situation: Situation) -> Extrapolation:
    """By how much a situation goes beyond a calibration's points."""
    measured = calibration.measured
    found: list[tuple[float, str]] = []
    if not situation.scope:
        found.append((NEW_STACK_WIDENING, f"this engine version was not measured ({_listed(calibration.scopes)} were)"))
    if situation.accelerator not in calibration.accelerators:
        reason = f"{situation.accelerator} was not measured ({_listed(calibration.accelerators)} were)"
        found.append((NEW_ACCELERATOR_WIDENING, reason))
    if situation.model_class not in measured.model_classes:
        reason = f"no {situation.model_class} model was measured"
        found.append((NEW_MODEL_CLASS_WIDENING, reason))
    if situation.weight_precision not in measured.weight_precisions:
        reason = f"no {situation.weight_precision} weights were measured ({_listed(measured.weight_precisions)} were)"
        found.append((NEW_PRECISION_WIDENING, reason))
    limits: Mapping[str, tuple[float, float]] = {
        "tensor parallel": (situation.tensor_parallel, max(measured.tensor_parallel_degrees, default=1)),
        "input tokens": (situation.input_tokens, measured.longest_input_tokens),
        "output tokens": (situation.output_tokens, measured.longest_output_tokens),
        "running sequences": (situation.running_sequences, measured.most_running_sequences),
    }
    for what, (asked, most) in limits.items():
        allowed = most if what == "tensor parallel" else 2 * most
        if asked > allowed:
            found.append(
                (BEYOND_RANGE_WIDENING, f"{what} {asked:g} is {asked / max(most, 1):.1f} times the measured {most:g}")
            )
    return Extrapolation(math.prod(factor for factor, _ in found), tuple(reason for _, reason in found))


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) if names else "none"


def version_range(versions: tuple[str, ...]) -> tuple[str, ...]:
    """First and last of the stated versions, in order; those that are no versions sort first as text."""
    stated = sorted({version for version in versions if version}, key=_version_key)
    return tuple(dict.fromkeys((stated[0], stated[-1]))) if stated else ()


def _version_key(version: str) -> tuple[int, Version, str]:
    try:
        return 1, Version(version), version
    except InvalidVersion:
        return 0, Version("0"), version
