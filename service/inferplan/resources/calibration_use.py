"""Which coefficients a plan or prediction rests on, how wrong they are known to be, and how far they were stretched."""

from __future__ import annotations

from dataclasses import dataclass

from inferplan.profiles.calibration import Coefficient, ErrorBand


@dataclass(frozen=True, slots=True)
class CalibrationUse:
    """The coefficients that were used, all of them, so that a plan can be played again years later.

    `scope` is the measured stack that they are for; empty for what the engine has in general. `error_bands` are the
    90 % bands of this prediction: those of the calibration, widened by `widening` (a factor on their logarithm) for
    what `extrapolations` names. Without a band nothing is known about the error.
    """

    calibration: str
    scope: str = ""
    coefficients: tuple[Coefficient, ...] = ()
    error_bands: tuple[ErrorBand, ...] = ()
    widening: float = 1.0
    extrapolations: tuple[str, ...] = ()
