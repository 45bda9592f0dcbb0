"""The reference points and the calibrations fitted from them, which ship with the package."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from functools import cache
from importlib import resources

from cattrs import Converter

from inferplan.profiles.calibration.calibration import Calibration

_DATA = resources.files("inferplan.profiles") / "data"
POINTS_FILE = "reference_serving_points.csv"
CALIBRATIONS_FILE = "builtin_calibrations.json"
BUILT_IN = "builtin"
"""Name that stands for the built-in calibration of whichever engine is asked about."""


def reference_points() -> str:
    """The CSV of reference points, as `inferplan.profiles.measured_table` reads it."""
    return (_DATA / POINTS_FILE).read_text(encoding="utf-8")


def reference_points_sha256() -> str:
    """SHA-256 of that CSV in lower-case hexadecimal."""
    return hashlib.sha256((_DATA / POINTS_FILE).read_bytes()).hexdigest()


@cache
def builtin_calibrations() -> dict[str, Calibration]:
    """The built-in calibrations by engine id."""
    document = json.loads((_DATA / CALIBRATIONS_FILE).read_text(encoding="utf-8"))
    calibrations = Converter(forbid_extra_keys=True).structure(document, list[Calibration])
    return {calibration.engine: calibration for calibration in calibrations}


def calibrations_document(calibrations: list[Calibration]) -> str:
    """The text of the file of built-in calibrations: stable, figures to six digits, times left out."""
    plain = [
        {key: value for key, value in dataclasses.asdict(item).items() if key not in ("create_time", "created_by")}
        for item in calibrations
    ]
    return json.dumps(_rounded(plain), indent=1) + "\n"


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value
