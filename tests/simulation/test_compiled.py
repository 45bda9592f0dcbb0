from __future__ import annotations

from pathlib import Path
from typing import Any

import numba
import pytest

from inferplan.simulation import compiled
from inferplan.simulation.step_time import StepTimeCoefficients, step_seconds


def test_the_digest_changes_with_any_source(tmp_path: Path) -> None:
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    first.write_text("a = 1\n")
    second.write_text("b = 1\n")
    before = compiled.source_digest([str(first), str(second)])
    second.write_text("b = 2\n")
    assert compiled.source_digest([str(first), str(second)]) != before


def test_without_a_place_for_the_cache_the_function_is_still_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose file system is read-only: Numba raises when it is asked to cache."""
    real_njit: Any = numba.njit

    def njit_without_cache(**options: Any) -> Any:
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return real_njit(**options)

    monkeypatch.setattr(numba, "njit", njit_without_cache)

    def double(number: int) -> int:
        return 2 * number

    assert compiled.compiled_entry_point(double)(21) == 42


def test_plain_python_and_machine_code_are_one_source() -> None:
    coefficients = StepTimeCoefficients(
        4e-3, 1.4e-5, 1.5e-7, 3e-10, 2e-4, 1e-7, 2e-7, 2e-3, 5e-5, 4.7, 1e-2, 64, 4, 1000, 0.5
    ).as_array()
    step = (300, 50, 60_000, 40_000, 30_000.0, 20_000.0)
    plain: Any = step_seconds
    assert plain.py_func(coefficients, *step) == pytest.approx(step_seconds(coefficients, *step), rel=1e-14)
