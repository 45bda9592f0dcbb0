"""`inferplan accuracy`: how wrong predictions are, by group, on measured points."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from rich.table import Table

from inferplan.catalog import load_catalog
from inferplan.cli.failures import explained
from inferplan.cli.options import format_option, settings_or_exit
from inferplan.cli.output import console, error_console
from inferplan.cli.plots import plot_accuracy, plot_path_option
from inferplan.errors import InvalidInputError
from inferplan.planning.accuracy import LEFT_OUT_NAMES, accuracy, cross_validated_accuracy
from inferplan.planning.coefficients import DATASHEET
from inferplan.profiles.calibration.calibration import ErrorSummary
from inferplan.profiles.calibration.scoring import OVERALL, AccuracyReport, UnusedRow
from inferplan.profiles.reference import BUILT_IN

SHOWN_REASONS = 20


@click.command("accuracy")
@click.option(
    "--calibrate", metavar="A.csv|builtin|datasheet", default=BUILT_IN, show_default=True, help="Fit on these."
)
@click.option("--score", "score_path", metavar="B.csv", type=click.Path(path_type=Path), help="Predict these points.")
@click.option(
    "--cross-validate", "table_path", metavar="FILE", type=click.Path(path_type=Path), help="Fit and predict."
)
@click.option("--leave-out", type=click.Choice(LEFT_OUT_NAMES), default="tensor-parallel", show_default=True)
@plot_path_option("predicted against measured figures, on logarithmic axes")
@format_option("text", "json")
def accuracy_command(
    calibrate: str,
    score_path: Path | None,
    table_path: Path | None,
    leave_out: str,
    plot: Path | None,
    output_format: str,
) -> None:
    """Fit coefficients on one table of measured points, predict another, and print the errors by group.

    With --cross-validate the parts of one table that --leave-out names are left out in turn and predicted from the
    rest.
    Needs neither server nor database. docs/calibration.md describes the table.
    """
    settings = settings_or_exit()
    with explained():
        if (score_path is None) == (table_path is None):
            raise InvalidInputError.single("--score", "or --cross-validate must be given, and not both", "REQUIRED")
        catalog = load_catalog(settings.catalog_directory)
        with error_console().status("fitting and predicting"):
            if table_path is not None:
                report = cross_validated_accuracy(catalog, _text(table_path, "--cross-validate"), leave_out)
            else:
                assert score_path is not None
                table = None if calibrate in (BUILT_IN, DATASHEET) else _text(Path(calibrate), "--calibrate")
                report = accuracy(catalog, calibrate, _text(score_path, "--score"), table)
        if plot is not None:
            plot_accuracy(report.figures, plot)
    if output_format == "json":
        sys.stdout.write(json.dumps(_document(report), indent=2, ensure_ascii=False) + "\n")
        return
    _print(report)


def _text(path: Path, option: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InvalidInputError.single(option, f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInputError.single(option, f"{path} is not UTF-8 text") from None


def _document(report: AccuracyReport) -> dict[str, object]:
    """Plain data; errors in per cent, coverage as a share."""
    return {
        "fitted_points": report.fitted_points,
        "scored_points": report.scored_points,
        "overall": _figures_of(report, OVERALL),
        "groups": [
            {**_names_of(group), "figures": _figures_of(report, group)}
            for group in dict.fromkeys(item.group for item in report.summaries)
            if group != OVERALL
        ],
        "points": [
            {
                "row_id": item.label,
                "group": item.group,
                "figure": item.figure,
                "measured": item.measured,
                "predicted": item.predicted,
                "error_percent": 100 * (item.predicted / item.measured - 1),
                "band_percent": 100 * item.band,
                "inside_band": item.inside_band,
            }
            for item in report.figures
        ],
        "not_used_to_calibrate": _unused(report.unused_to_fit),
        "not_scored": _unused(report.unused_to_score),
    }


def _figures_of(report: AccuracyReport, group: str) -> dict[str, object]:
    return {item.figure: _summary(item) for item in report.summaries if item.group == group}


def _summary(item: ErrorSummary) -> dict[str, float]:
    return {
        "n": item.points,
        "median_absolute_percentage_error": 100 * item.median_absolute_relative_error,
        "mean_absolute_percentage_error": 100 * item.mean_absolute_relative_error,
        "bias_percent": 100 * item.bias,
        "band_coverage": item.band_coverage,
    }


def _names_of(group: str) -> dict[str, str]:
    accelerator, engine, model = group.split(" / ", 2)
    return {"group": group, "accelerator": accelerator, "engine": engine, "model": model}


def _unused(rows: tuple[UnusedRow, ...]) -> list[dict[str, str]]:
    return [{"row_id": row.label, "reason": row.reason} for row in rows]


def _print(report: AccuracyReport) -> None:
    table = Table("group", "figure", "n", "median |error|", "mean |error|", "bias", "inside 90 % band")
    for item in report.summaries:
        table.add_row(
            item.group,
            item.figure,
            str(item.points),
            f"{item.median_absolute_relative_error:.1%}",
            f"{item.mean_absolute_relative_error:.1%}",
            f"{item.bias:+.1%}",
            f"{item.band_coverage:.0%}",
        )
    console().print(table)
    console().print(f"fitted to {report.fitted_points} points, scored {report.scored_points}")
    for what, rows in (("to calibrate", report.unused_to_fit), ("to score", report.unused_to_score)):
        reasons: dict[str, list[str]] = {}
        for row in rows:
            reasons.setdefault(row.reason, []).append(row.label)
        for reason, labels in list(reasons.items())[:SHOWN_REASONS]:
            console().print(f"not used {what}: {len(labels)} rows ({', '.join(labels[:3])} …): {reason}", markup=False)
