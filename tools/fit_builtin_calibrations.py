"""Fit the calibrations that ship with the package from its reference points, one for each engine.

Deterministic on one machine type: the same points and the same code give the same file. Takes about two minutes.
With --check it fits and compares, and writes nothing.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from inferplan.catalog import load_catalog
from inferplan.profiles.calibration.scoring import cases_of, fit_by_engine
from inferplan.profiles.measured_table import read_measured_table
from inferplan.profiles.reference import (
    CALIBRATIONS_FILE,
    calibrations_document,
    reference_points,
    reference_points_sha256,
)

TARGET = Path(__file__).resolve().parent.parent / "service" / "inferplan" / "profiles" / "data" / CALIBRATIONS_FILE


def main() -> None:
    """Command line entry point."""
    catalog = load_catalog()
    cases, unused = cases_of(read_measured_table(reference_points(), catalog), catalog)
    for row in unused:
        print(f"not used: {row.label}: {row.reason}")
    fitted = [
        dataclasses.replace(calibration, name=f"builtin-{engine}", built_in=True, data_sha256=reference_points_sha256())
        for engine, calibration in fit_by_engine(cases).items()
    ]
    for calibration in fitted:
        print(f"{calibration.name}: {calibration.points} points, {len(calibration.outliers)} outlying figures")
    document = calibrations_document(fitted)
    if "--check" in sys.argv[1:]:
        sys.exit(0 if TARGET.read_text(encoding="utf-8") == document else f"{TARGET.name} is stale")
    TARGET.write_text(document, encoding="utf-8")


if __name__ == "__main__":
    main()
