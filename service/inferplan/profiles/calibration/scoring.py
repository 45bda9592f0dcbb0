"""Scoring: predict measured points and say by group how wrong the predictions are, and how often the band held."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from inferplan.catalog import Catalog
from inferplan.profiles.calibration.building import DEFAULT_BAND, error_summary, fit_calibration, model_class
from inferplan.profiles.calibration.calibration import Calibration, ErrorSummary, Situation, extrapolation
from inferplan.profiles.calibration.cases import MeasuredCase, UnplayableError, measured_case
from inferplan.profiles.calibration.playing import play_case
from inferplan.profiles.measured_table import MeasuredRow
from inferplan.sizing.efficiency import DATASHEET_EFFICIENCY

OVERALL = "all"


@dataclass(frozen=True, slots=True)
class ScoredFigure:
    """One figure of one point. Latencies in seconds, throughput in requests a second; `band` is relative, 90 %."""

    label: str
    group: str
    figure: str
    measured: float
    predicted: float
    band: float

    @property
    def inside_band(self) -> bool:
        """Whether the measured value lies inside the prediction's stated band."""
        return bool(abs(np.log(self.predicted / self.measured)) <= np.log1p(self.band))


@dataclass(frozen=True, slots=True)
class UnusedRow:
    """A row that could not be used, and why."""

    label: str
    reason: str


@dataclass(frozen=True, slots=True)
class AccuracyReport:
    """What scoring found. `summaries` are by group and figure, then over all; nothing is left out silently."""

    summaries: tuple[ErrorSummary, ...]
    figures: tuple[ScoredFigure, ...]
    unused_to_fit: tuple[UnusedRow, ...]
    unused_to_score: tuple[UnusedRow, ...]
    fitted_points: int
    scored_points: int


def cases_of(rows: Iterable[MeasuredRow], catalog: Catalog) -> tuple[list[MeasuredCase], list[UnusedRow]]:
    """The rows that can be played, and the others with the reason."""
    cases: list[MeasuredCase] = []
    unused: list[UnusedRow] = []
    for row in rows:
        if row.point is None:
            unused.append(UnusedRow(row.row_id, row.problem))
            continue
        try:
            cases.append(
                measured_case(
                    catalog, row.accelerator, row.engine, row.engine_version, row.group, row.row_id, row.point
                )
            )
        except UnplayableError as error:
            unused.append(UnusedRow(row.row_id, str(error)))
    return cases, unused


def fit_by_engine(cases: Sequence[MeasuredCase]) -> dict[str, Calibration]:
    """One calibration for each engine that has cases."""
    engines = sorted({case.stack.engine for case in cases})
    return {engine: fit_calibration([case for case in cases if case.stack.engine == engine]) for engine in engines}


def score(
    cases: Sequence[MeasuredCase], calibrations: Mapping[str, Calibration]
) -> tuple[tuple[ErrorSummary, ...], tuple[ScoredFigure, ...]]:
    """Predict every case with its engine's calibration (the datasheet where there is none) and summarise."""
    figures = tuple(figure for case in cases for figure in _score_case(case, calibrations.get(case.stack.engine)))
    return summaries_of(figures), figures


def summaries_of(figures: Sequence[ScoredFigure]) -> tuple[ErrorSummary, ...]:
    """By group and figure in order of appearance, then over all groups."""
    grouped: dict[tuple[str, str], list[ScoredFigure]] = {}
    for item in figures:
        grouped.setdefault((item.group, item.figure), []).append(item)
    overall: dict[tuple[str, str], list[ScoredFigure]] = {}
    for item in figures:
        overall.setdefault((OVERALL, item.figure), []).append(item)
    return tuple(
        error_summary(
            group,
            figure,
            np.log([item.predicted / item.measured for item in items]),
            np.log1p([item.band for item in items]),
        )
        for (group, figure), items in (*grouped.items(), *overall.items())
    )


def _score_case(case: MeasuredCase, calibration: Calibration | None) -> Iterable[ScoredFigure]:
    if calibration is None:
        efficiency, bands = DATASHEET_EFFICIENCY, dict(DEFAULT_BAND)
    else:
        scope = calibration.scope_for(case.stack.version, case.stack.harness)
        efficiency = calibration.efficiency(DATASHEET_EFFICIENCY, scope)
        widening = extrapolation(calibration, situation_of(case, scope)).widening
        bands = {figure: calibration.band(figure, widening) or DEFAULT_BAND[figure] for figure in case.measured}
    predicted = play_case(case, efficiency)
    for figure, measured in case.measured.items():
        yield ScoredFigure(case.label, case.group, figure, measured, predicted[figure], bands[figure])


def situation_of(case: MeasuredCase, scope: str) -> Situation:
    """What the case is, as calibrations tell situations apart."""
    return Situation(
        accelerator=case.accelerator.id,
        scope=scope,
        model_class=model_class(case),
        weight_precision=case.served.weight_precision.value,
        tensor_parallel=case.parallelism.tensor_parallel,
        input_tokens=float(case.requests.prompt_tokens.mean()),
        output_tokens=float(case.requests.output_tokens.mean()),
        running_sequences=float(case.clients),
    )


LEFT_OUT_PARTS: Mapping[str, Callable[[MeasuredCase], str]] = {
    "tensor-parallel": lambda case: f"{case.group} / tp {case.parallelism.tensor_parallel}",
    "lengths": lambda case: f"{case.group} / {round(case.mean_context_tokens)} tokens",
    "model": lambda case: case.model,
    "accelerator": lambda case: case.accelerator.id,
    "group": lambda case: case.stack.label,
}
"""What cross-validation can leave out as a whole."""


def cross_validate(cases: Sequence[MeasuredCase], part_of: Callable[[MeasuredCase], str]) -> tuple[ScoredFigure, ...]:
    """Leave out each part in turn, fit on the rest of its engine's cases, predict the part."""
    scored: list[ScoredFigure] = []
    for part in sorted({(case.stack.engine, part_of(case)) for case in cases}):
        mine = [case for case in cases if (case.stack.engine, part_of(case)) == part]
        rest = [case for case in cases if case.stack.engine == part[0] and part_of(case) != part[1]]
        calibrations = {part[0]: fit_calibration(rest)} if rest else {}
        scored += score(mine, calibrations)[1]
    return tuple(scored)
