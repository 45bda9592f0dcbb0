"""`inferplan accuracy`: errors by group, nothing dropped silently, bad tables refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from inferplan.cli.main import main
from inferplan.profiles.reference import reference_points


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["accuracy", *arguments])


@pytest.fixture
def tables(tmp_path: Path) -> tuple[Path, Path]:
    """Llama-3.1-70B FP8 on H100s, every second row in each of two tables; the second has a GPU that nobody knows."""
    header, *rows = reference_points().splitlines()
    mine = [row for row in rows if "Llama-3.1-70B" in row]
    fit, score = tmp_path / "a.csv", tmp_path / "b.csv"
    fit.write_text("\n".join([header, *mine[::2]]))
    score.write_text("\n".join([header, *mine[1::2], mine[1].replace("H100-SXM5-80GB", "Cerebras WSE-3")]))
    return fit, score


def test_errors_by_group_as_json(tables: tuple[Path, Path], tmp_path: Path) -> None:
    fit, score = tables
    plot = tmp_path / "plot.svg"
    result = run("--calibrate", str(fit), "--score", str(score), "--format", "json", "--plot", str(plot))
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["fitted_points"], report["scored_points"]) == (10, 10)
    (group,) = report["groups"]
    assert (group["accelerator"], group["engine"], group["model"]) == ("h100-sxm-80gb", "vllm", "llama-3.1-70b")
    assert group["figures"]["tpot"]["n"] == 10
    assert group["figures"]["tpot"]["median_absolute_percentage_error"] < 4
    assert group["figures"]["ttft"]["median_absolute_percentage_error"] < 8
    assert 0 <= report["overall"]["tpot"]["band_coverage"] <= 1
    assert len(report["points"]) == 20
    (unused,) = report["not_scored"]
    assert "Cerebras WSE-3" in unused["reason"]
    assert plot.read_text().startswith("<?xml")


def test_the_built_in_calibration_as_text(tables: tuple[Path, Path]) -> None:
    result = run("--score", str(tables[1]))
    assert result.exit_code == 0, result.stderr
    assert "llama-3.1-70b" in result.stdout
    assert "not used to score: 1 rows" in result.stdout


def test_cross_validation_predicts_what_it_left_out(tables: tuple[Path, Path]) -> None:
    result = run("--cross-validate", str(tables[0]), "--leave-out", "tensor-parallel", "--format", "json")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["overall"]["tpot"]["n"] == 10
    assert report["overall"]["tpot"]["median_absolute_percentage_error"] < 6


def test_bad_tables_are_refused(tmp_path: Path) -> None:
    table = tmp_path / "bad.csv"
    table.write_text("a,b\n1,2\n")
    for arguments, words in (
        (["--score", str(tmp_path / "missing.csv")], "cannot be read"),
        (["--score", str(table)], "lack engine, gpu, model, isl, osl"),
        ([], "must be given"),
    ):
        result = run(*arguments)
        assert result.exit_code == 2
        assert words in result.stderr
        assert "Traceback" not in result.stderr
