"""`inferplan predict`, `simulate` and `search`, and their plots."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from inferplan.cli.main import main

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "chatbot.yaml"
REPLICA = (
    "--model",
    "llama-3.1-8b",
    "--accelerator",
    "h100-sxm-80gb",
    "--max-num-seqs",
    "128",
    "--engine-version",
    "0.11.0",
)
LENGTHS = ("--input-tokens", "204", "--output-tokens", "62")


@pytest.fixture(autouse=True)
def _database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERPLAN_DATABASE_URL", f"sqlite:///{tmp_path / 'inferplan.db'}")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_predict_as_json() -> None:
    """Measured: 7.23 ms a token for a single stream."""
    result = run("predict", *REPLICA, *LENGTHS, "--rate", "1", "--arrival", "constant", "--format", "json")
    assert result.exit_code == 0, result.stderr
    answer = json.loads(result.stdout)
    (tpot,) = [item for item in answer["performance"]["latencies"] if item["metric"] == "LATENCY_METRIC_TPOT"]
    assert float(tpot["mean"].removesuffix("s")) * 1e3 == pytest.approx(7.23, rel=0.10)


def test_predict_a_closed_loop_as_text() -> None:
    result = run(
        "predict", *REPLICA, *LENGTHS, "--concurrency", "8", "--num-requests", "400", "--calibration", "datasheet"
    )
    assert result.exit_code == 0, result.stderr
    assert "400 requests played" in result.stdout.replace("\n", " ")
    assert "CALIBRATION_IS_DATASHEET" in result.stdout


def test_predict_draws_a_curve(tmp_path: Path) -> None:
    for name, start in (("curve.png", b"\x89PNG"), ("curve.svg", b"<?xml")):
        path = tmp_path / name
        result = run("predict", *REPLICA, *LENGTHS, "--rate", "90", "--plot", str(path))
        assert result.exit_code == 0, result.stderr
        assert path.read_bytes().startswith(start)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ((), "exactly one of --rate and --concurrency"),
        (("--rate", "1", "--concurrency", "2"), "exactly one of --rate and --concurrency"),
        (("--rate", "1", "--arrival", "bursty"), "'bursty' is not legal"),
        (("--rate", "1", "--arrival", "gamma"), "'gamma' is not legal"),
        (("--rate", "1", "--arrival", "gamma:x"), "no coefficient of variation"),
        (("--rate", "nan"), "must be finite"),
        (("--rate", "-1"), "greater than 0"),
        (("--rate", "1", "--plot", "curve.pdf"), "must end with one of .png, .svg"),
        (("--concurrency", "4", "--plot", "curve.png"), "no meaning for a closed loop"),
        (("--rate", "1", "--plot", "/nowhere/curve.png"), "cannot be written"),
    ],
)
def test_what_predict_refuses(arguments: tuple[str, ...], part: str) -> None:
    result = run("predict", *REPLICA, *LENGTHS, *arguments)
    assert result.exit_code == 2
    assert part in result.stderr.replace("\n", " ")


def test_simulate_a_textbook_plan_shows_that_it_fails() -> None:
    assert run("plan", "-f", str(EXAMPLE), "--method", "textbook").exit_code == 0
    result = run("simulate", "chatbot")
    assert result.exit_code == 0, result.stderr
    assert "saturated" in result.stdout
    assert "fails" in result.stdout
    more = run("simulate", "chatbot/1", "--replicas", "8", "--format", "json")
    assert json.loads(more.stdout)["performance"]["saturated"] is False
