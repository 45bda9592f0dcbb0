"""How wrong predictions are: fit on one table of measurements, predict another, compare."""

from __future__ import annotations

from inferplan.catalog import Catalog
from inferplan.errors import InvalidInputError, Violation
from inferplan.planning.coefficients import DATASHEET
from inferplan.profiles.calibration.calibration import Calibration
from inferplan.profiles.calibration.cases import MeasuredCase
from inferplan.profiles.calibration.scoring import (
    LEFT_OUT_PARTS,
    AccuracyReport,
    UnusedRow,
    cases_of,
    cross_validate,
    fit_by_engine,
    score,
    summaries_of,
)
from inferplan.profiles.measured_table import read_measured_table
from inferplan.profiles.reference import BUILT_IN, builtin_calibrations

LEFT_OUT_NAMES = tuple(LEFT_OUT_PARTS)


def accuracy(catalog: Catalog, calibrate: str, score_text: str, calibrate_text: str | None = None) -> AccuracyReport:
    """Score the table `score_text` with coefficients from `calibrate`.

    `calibrate` is `builtin` or `datasheet`, or else names the table `calibrate_text`, which is fitted from the
    datasheet's defaults and nothing else.
    Raises InvalidInputError for what is no table, or has no row that can be used.
    """
    fitted_points, unused_to_fit = 0, tuple[UnusedRow, ...]()
    if calibrate_text is not None:
        cases, unused = usable_cases(catalog, calibrate_text, "calibrate")
        calibrations, fitted_points, unused_to_fit = fit_by_engine(cases), len(cases), tuple(unused)
    else:
        calibrations = _named_calibrations(calibrate)
    cases, unused = usable_cases(catalog, score_text, "score")
    summaries, figures = score(cases, calibrations)
    return AccuracyReport(summaries, figures, unused_to_fit, tuple(unused), fitted_points, len(cases))


def cross_validated_accuracy(catalog: Catalog, text: str, leave_out: str) -> AccuracyReport:
    """Leave out each part of a table in turn, fit on the rest, predict the part. `leave_out` is in LEFT_OUT_NAMES."""
    cases, unused = usable_cases(catalog, text, "cross_validate")
    figures = cross_validate(cases, LEFT_OUT_PARTS[leave_out])
    return AccuracyReport(summaries_of(figures), figures, (), tuple(unused), len(cases), len(cases))


def _named_calibrations(name: str) -> dict[str, Calibration]:
    if name == BUILT_IN:
        return builtin_calibrations()
    if name == DATASHEET:
        return {}
    raise InvalidInputError.single("calibrate", f"is {name!r}; legal: {BUILT_IN}, {DATASHEET}, or a table")


def usable_cases(catalog: Catalog, text: str, path: str) -> tuple[list[MeasuredCase], list[UnusedRow]]:
    """The rows of a table that can be played, and the others. Raises InvalidInputError if there is none at all."""
    try:
        rows = read_measured_table(text, catalog)
    except InvalidInputError as error:
        raise InvalidInputError(violation.below(path) for violation in error.violations) from None
    cases, unused = cases_of(rows, catalog)
    if not cases:
        raise InvalidInputError(Violation(f"{path}.{row.label}", row.reason, "ROW_NOT_USED") for row in unused)
    return cases, unused
