"""Names of calibrations. The calibration itself is `inferplan.profiles.calibration.Calibration`."""

from __future__ import annotations

CALIBRATIONS = "calibrations/"


def calibration_name(calibration_id: str) -> str:
    """The resource name of a calibration."""
    return f"{CALIBRATIONS}{calibration_id}"


def calibration_id_of(name: str) -> str:
    """The id of `calibrations/a` and of `a` alike."""
    return name.removeprefix(CALIBRATIONS)
