"""Which coefficients a request is answered with: a stored calibration, the built-in one, or the datasheet's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from inferplan.catalog import ModelArchitecture
from inferplan.errors import NotFoundError, Violation
from inferplan.profiles.calibration import Calibration, ErrorBand, Situation, extrapolation
from inferplan.profiles.calibration.building import DEFAULT_BAND
from inferplan.profiles.calibration.calibration import Coefficient
from inferplan.profiles.calibration.coefficients import FITTED_COEFFICIENTS, with_values
from inferplan.profiles.reference import BUILT_IN, builtin_calibrations
from inferplan.resources.calibration_use import CalibrationUse
from inferplan.sizing.configuration import Configuration
from inferplan.sizing.efficiency import DATASHEET_EFFICIENCY, EfficiencyCoefficients
from inferplan.sizing.explanation import PlanWarning
from inferplan.sizing.workload import Workload

DATASHEET = "datasheet"
"""The coefficients of the datasheet and of published kernel measurements, fitted to no serving point of the engine."""

CALIBRATION_COLLECTION = "calibrations/"

DATASHEET_WARNING = PlanWarning(
    "CALIBRATION_IS_DATASHEET",
    "The step-time coefficients are the datasheet defaults, not fitted to measurements of this engine; expect errors "
    "of 10 to 20 % in TPOT and capacity, and more in TTFT.",
)


class CalibrationSource(Protocol):
    """Where stored calibrations come from."""

    def get_calibration(self, name: str) -> Calibration:
        """The calibration of that id. Raises NotFoundError."""
        ...

    def newest_calibration(self, engine: str) -> Calibration | None:
        """The newest stored calibration of an engine, None if there is none."""
        ...


class NoStoredCalibrations:
    """The source of a service that has only what ships with it."""

    def get_calibration(self, name: str) -> Calibration:
        """Always raises NotFoundError."""
        raise NotFoundError("Calibration", f"{CALIBRATION_COLLECTION}{name}")

    def newest_calibration(self, _engine: str) -> Calibration | None:
        """Always None."""
        return None


NO_STORED_CALIBRATIONS = NoStoredCalibrations()


@dataclass(frozen=True, slots=True)
class ChosenCoefficients:
    """The coefficients for one engine version. `calibration` is None for the datasheet's."""

    efficiency: EfficiencyCoefficients
    calibration: Calibration | None = None
    scope: str = ""

    @property
    def name(self) -> str:
        """`calibrations/{id}` or `datasheet`."""
        return f"{CALIBRATION_COLLECTION}{self.calibration.name}" if self.calibration else DATASHEET


def choose_coefficients(name: str, engine: str, version: str, source: CalibrationSource) -> ChosenCoefficients:
    """The coefficients that `name` stands for.

    An empty name stands for the newest stored calibration of the engine, else the built-in one, else the datasheet's.
    Raises NotFoundError for a name that is not known.
    """
    if name == DATASHEET:
        return ChosenCoefficients(DATASHEET_EFFICIENCY)
    built_in = builtin_calibrations().get(engine)
    if name in ("", BUILT_IN):
        calibration = (source.newest_calibration(engine) if not name else None) or built_in
    else:
        calibration = _named(name.removeprefix(CALIBRATION_COLLECTION), source)
    if calibration is None:
        return ChosenCoefficients(DATASHEET_EFFICIENCY)
    scope = calibration.scope_for(version)
    return ChosenCoefficients(calibration.efficiency(DATASHEET_EFFICIENCY, scope), calibration, scope)


def _named(name: str, source: CalibrationSource) -> Calibration:
    for calibration in builtin_calibrations().values():
        if calibration.name == name:
            return calibration
    return source.get_calibration(name)


def calibration_violations(name: str, engine: str, source: CalibrationSource, path: str) -> list[Violation]:
    """A calibration that is not known, or is for another engine."""
    try:
        chosen = choose_coefficients(name, engine, "", source)
    except NotFoundError as error:
        legal = f"legal: {DATASHEET}, {BUILT_IN}, or the name of a stored calibration"
        return [Violation(path, f"{error}; {legal}", "UNKNOWN_CALIBRATION")]
    if chosen.calibration is not None and chosen.calibration.engine != engine:
        text = f"{name!r} was fitted for {chosen.calibration.engine}, and the engine is {engine}"
        return [Violation(path, text, "CALIBRATION_OF_ANOTHER_ENGINE")]
    return []


def use_of(
    chosen: ChosenCoefficients,
    configuration: Configuration,
    architecture: ModelArchitecture,
    workload: Workload,
    running_sequences: float,
) -> CalibrationUse:
    """What an answer for this configuration and workload rests on."""
    coefficients = _coefficients_in_use(chosen)
    if chosen.calibration is None:
        bands = tuple(ErrorBand(figure, relative) for figure, relative in DEFAULT_BAND.items())
        return CalibrationUse(DATASHEET, coefficients=coefficients, error_bands=bands)
    classes = workload.traffic_classes
    found = extrapolation(
        chosen.calibration,
        Situation(
            accelerator=configuration.accelerator,
            scope=chosen.scope,
            model_class="mixture-of-experts" if architecture.experts else "dense",
            weight_precision=configuration.weight_precision.value,
            tensor_parallel=configuration.parallelism.tensor_parallel,
            input_tokens=max(traffic.mean_input_tokens for traffic in classes),
            output_tokens=max(traffic.mean_output_tokens for traffic in classes),
            running_sequences=running_sequences,
        ),
    )
    bands = tuple(
        ErrorBand(item.figure, chosen.calibration.band(item.figure, found.widening) or item.relative)
        for item in chosen.calibration.error_bands
    )
    return CalibrationUse(chosen.name, chosen.scope, coefficients, bands, found.widening, found.reasons)


def _coefficients_in_use(chosen: ChosenCoefficients) -> tuple[Coefficient, ...]:
    known = {}
    if chosen.calibration is not None:
        known = {item.symbol: item for item in chosen.calibration.coefficients if not item.scope}
        if chosen.scope:
            known |= {item.symbol: item for item in chosen.calibration.coefficients if item.scope == chosen.scope}
    return tuple(
        known.get(item.name)
        or Coefficient(item.name, getattr(chosen.efficiency, item.name), 0.0, item.unit, is_default=True)
        for item in FITTED_COEFFICIENTS
    )


def use_warnings(use: CalibrationUse) -> tuple[PlanWarning, ...]:
    """What a reader should know about the coefficients of an answer."""
    if use.calibration == DATASHEET:
        return (DATASHEET_WARNING,)
    if not use.extrapolations:
        return ()
    bands = ", ".join(f"{band.figure} {band.relative * 100:.0f} %" for band in use.error_bands)
    text = (
        f"{use.calibration} is used beyond what was measured: {'; '.join(use.extrapolations)}. The 90 % error bands "
        f"are widened by a factor of {use.widening:.2g} on their logarithm: {bands}."
    )
    return (PlanWarning("CALIBRATION_EXTRAPOLATES", text),)


def efficiency_of_use(use: CalibrationUse | None) -> EfficiencyCoefficients:
    """The coefficients that a stored plan was computed with; the datasheet's for plans from before they were kept."""
    if use is None or not use.coefficients:
        return DATASHEET_EFFICIENCY
    return with_values(DATASHEET_EFFICIENCY, {item.symbol: item.value for item in use.coefficients})
