"""Fitting the step-time model's coefficients to measurements, and scoring predictions against them."""

from inferplan.profiles.calibration.building import fit_calibration
from inferplan.profiles.calibration.calibration import (
    Calibration,
    Coefficient,
    ErrorBand,
    ErrorSummary,
    Extrapolation,
    MeasuredRange,
    Situation,
    extrapolation,
)
from inferplan.profiles.calibration.cases import MeasuredCase, Stack, UnplayableError, measured_case

__all__ = [
    "Calibration",
    "Coefficient",
    "ErrorBand",
    "ErrorSummary",
    "Extrapolation",
    "MeasuredCase",
    "MeasuredRange",
    "Situation",
    "Stack",
    "UnplayableError",
    "extrapolation",
    "fit_calibration",
    "measured_case",
]
