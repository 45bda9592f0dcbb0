"""From measured cases to a calibration: the fit, its uncertainty, its errors on left-out points, its band."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from inferplan.profiles.calibration.calibration import (
    Calibration,
    Coefficient,
    ErrorBand,
    ErrorSummary,
    MeasuredRange,
    version_range,
)
from inferplan.profiles.calibration.cases import MeasuredCase
from inferplan.profiles.calibration.coefficients import FITTED_COEFFICIENTS
from inferplan.profiles.calibration.fitting import FIGURE_SPREADS, Array, Fit, fit
from inferplan.sizing.efficiency import DATASHEET_EFFICIENCY, EfficiencyCoefficients

BAND_SHARE = 0.9
OUTLIER_SPREADS = 6.0
"""A point is listed as an outlier when one of its figures misses the fit by this many spreads and the robust loss has
all but set it aside."""

FEWEST_POINTS_FOR_BAND = 8
LEAST_BAND = {"ttft": 0.10, "tpot": 0.04, "e2e": 0.04, "throughput": 0.04}
"""What repeating the same benchmark scatters by; no band is stated narrower."""
DEFAULT_BAND = {"ttft": 0.6, "tpot": 0.25, "e2e": 0.25, "throughput": 0.25}
"""Stated where too few points were left out to tell: errors of the datasheet defaults on the reference points."""


def fit_calibration(
    cases: Sequence[MeasuredCase],
    name: str = "",
    defaults: EfficiencyCoefficients = DATASHEET_EFFICIENCY,
    check: Callable[[], None] = lambda: None,
) -> Calibration:
    """Fit the coefficients of one engine to its cases; there must be at least one, all of the same engine.

    `check` is called between simulations and may raise to stop the fit.
    """
    fitted = fit(cases, defaults, check)
    left_out = fitted.left_out_residuals["degree"]
    bands = _bands(fitted, left_out)
    return Calibration(
        name=name,
        engine=cases[0].stack.engine,
        engine_versions=version_range(tuple(case.stack.version for case in cases)),
        accelerators=tuple(sorted({case.accelerator.id for case in cases})),
        coefficients=tuple(_coefficients(fitted)),
        error_bands=bands,
        measured=measured_range(cases),
        errors=tuple(_errors(cases, fitted, left_out, bands)),
        outliers=tuple(_outliers(cases, fitted)),
        points=len(cases),
    )


def model_class(case: MeasuredCase) -> str:
    """`dense` or `mixture-of-experts`."""
    return "mixture-of-experts" if case.served.experts else "dense"


def measured_range(cases: Sequence[MeasuredCase]) -> MeasuredRange:
    """What the cases cover."""
    return MeasuredRange(
        model_classes=tuple(sorted({model_class(case) for case in cases})),
        weight_precisions=tuple(sorted({case.served.weight_precision.value for case in cases})),
        tensor_parallel_degrees=tuple(sorted({case.parallelism.tensor_parallel for case in cases})),
        longest_input_tokens=max(int(case.requests.prompt_tokens.max()) for case in cases),
        longest_output_tokens=max(int(case.requests.output_tokens.max()) for case in cases),
        most_running_sequences=max(max(case.clients, 1) for case in cases),
    )


def _coefficients(fitted: Fit) -> Iterable[Coefficient]:
    """The shared ones first, then each stack's own where the stack may differ."""
    errors = np.sqrt(np.diag(fitted.covariance))
    general = fitted.efficiency()
    free = [index for index, item in enumerate(FITTED_COEFFICIENTS) if item.stack_spread > 0]
    for index, item in enumerate(FITTED_COEFFICIENTS):
        value = float(getattr(general, item.name))
        moved = bool(np.abs(fitted.jacobian[:, index]).max() > 1e-9)
        yield Coefficient(item.name, value, value * float(errors[index]), item.unit, is_default=not moved)
    for number, stack in enumerate(fitted.stacks):
        own = fitted.efficiency(stack)
        for position, index in enumerate(free):
            item = FITTED_COEFFICIENTS[index]
            column = len(FITTED_COEFFICIENTS) + number * len(free) + position
            value = float(getattr(own, item.name))
            error = value * float(np.hypot(errors[index], errors[column]))
            yield Coefficient(item.name, value, error, item.unit, scope=stack.label)


def _bands(fitted: Fit, left_out: Array) -> tuple[ErrorBand, ...]:
    bands = []
    for figure in FIGURE_SPREADS:
        errors = np.abs([error for (_, name), error in zip(fitted.figures, left_out, strict=True) if name == figure])
        if errors.size >= FEWEST_POINTS_FOR_BAND:
            relative = max(float(np.expm1(np.quantile(errors, BAND_SHARE))), LEAST_BAND[figure])
        else:
            relative = DEFAULT_BAND[figure]
        bands.append(ErrorBand(figure, relative))
    return tuple(bands)


def _errors(
    cases: Sequence[MeasuredCase], fitted: Fit, left_out: Array, bands: tuple[ErrorBand, ...]
) -> Iterable[ErrorSummary]:
    groups: dict[tuple[str, str], list[float]] = {}
    for (index, figure), error in zip(fitted.figures, left_out, strict=True):
        groups.setdefault((cases[index].group, figure), []).append(float(error))
    widths = {band.figure: np.log1p(band.relative) for band in bands}
    for (group, figure), logs in groups.items():
        yield error_summary(group, figure, np.array(logs), np.full(len(logs), widths[figure]))


def error_summary(group: str, figure: str, logs: Array, band_logs: Array) -> ErrorSummary:
    """Summary of logarithms of predicted over measured, and of how many lie inside their bands."""
    relative = np.expm1(logs)
    return ErrorSummary(
        group=group,
        figure=figure,
        points=int(logs.size),
        median_absolute_relative_error=float(np.median(np.abs(relative))),
        mean_absolute_relative_error=float(np.mean(np.abs(relative))),
        bias=float(np.mean(relative)),
        band_coverage=float(np.mean(np.abs(logs) <= band_logs)),
    )


def _outliers(cases: Sequence[MeasuredCase], fitted: Fit) -> Iterable[str]:
    for (index, figure), error in zip(fitted.figures, fitted.residuals, strict=True):
        if abs(error) > OUTLIER_SPREADS * FIGURE_SPREADS[figure]:
            measured = cases[index].measured[figure]
            yield (
                f"{cases[index].label}: {figure} was measured as {measured:.4g}, "
                f"{abs(np.expm1(-error)) * 100:.0f} % {'below' if error > 0 else 'above'} the fit"
            )
