"""`inferplan replay` from end to end: a stored plan, a trace, a policy and a plot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from inferplan.cli.main import main

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "chatbot.yaml"


@pytest.fixture(scope="module", autouse=True)
def _plan(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One plan for all tests of this file: they only read it."""
    path = tmp_path_factory.mktemp("replay") / "inferplan.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INFERPLAN_DATABASE_URL", f"sqlite:///{path}")
        result = CliRunner().invoke(main, ["plan", "-f", str(EXAMPLE), "--method", "textbook"])
    assert result.exit_code == 0, result.stderr
    _DATABASE.append(f"sqlite:///{path}")


_DATABASE: list[str] = []


def replay(*arguments: str) -> Result:
    return CliRunner(env={"INFERPLAN_DATABASE_URL": _DATABASE[-1]}).invoke(main, ["replay", "chatbot", *arguments])


def test_a_replay_as_text_and_as_a_plot(tmp_path: Path) -> None:
    plot = tmp_path / "replay.svg"
    result = replay("--trace", "step:before=10,after=30,at=300,hours=0.2", "--plot", str(plot))
    assert result.exit_code == 0, result.stderr
    shown = " ".join(result.stdout.split())
    for part in ("objective P95 ttft at most 500 ms", "worst minute", "GPU-hours, against", "requests met every"):
        assert part in shown.replace("[bold]", "")
    assert plot.read_text(encoding="utf-8").count("<svg") == 1


def test_a_recorded_trace_and_a_policy_of_ones_own(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = "\n".join(f"{index / 10:.1f},100,20" for index in range(3000))
    trace.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}\n", encoding="utf-8")
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "minimum_replicas: 1\nmaximum_replicas: 4\nwarm_kind: hot_floor\n"
        "signals:\n- {kind: running, target: 10, per_replica: true}\n"
        "scale_up: {cooldown: 60s}\nscale_down: {cooldown: 5 min}\ncold_start: {weights_load: 30s, node_boot: 15s}\n",
        encoding="utf-8",
    )
    result = replay("--trace", str(trace), "--policy", str(policy), "--target", "keda", "--format", "json")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["performance"]["simulatedRequests"] == "3000"
    assert report["performance"]["outputTokensPerSecond"] == pytest.approx(200, rel=0.05)
    assert report["policy"]["coldStart"]["total"] == "45s"
    assert [interval["length"] for interval in report["intervals"]] == [*["60s"] * 5, "0.900s"]


def test_a_constant_fleet() -> None:
    result = replay(
        "--trace", "constant:rate=5,hours=0.1", "--policy", "constant", "--replicas", "2", "--format", "json"
    )
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["gpuHours"] == pytest.approx(0.2)
    assert "policy" not in report


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--trace", "diurnal:peak=3"), "trace.trough"),
        (("--trace", "nothing-here.csv"), "No such file"),
        (("--policy", "nothing-here.yaml"), "No such file"),
        (("--duration", "soon"), "--duration"),
        (("--trace", "constant:rate=5", "--policy", "constant", "--target", "hpa"), "needs a policy"),
        (("--trace", "constant:rate=5", "--target", "nomad"), "knative"),
        (("--trace", "constant:rate=5", "--target", "ray-serve"), "requests in flight"),
    ],
)
def test_what_cannot_be_played_is_told_on_standard_error(arguments: tuple[str, ...], part: str) -> None:
    result = replay(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert part in result.stderr
    assert "Traceback" not in result.stderr


def test_a_policy_file_is_checked_whole(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("minimum_replicas: 5\nmaximum_replicas: 2\nsignals:\n- {kind: running, target: 0}\n")
    result = replay("--trace", "constant:rate=5", "--policy", str(policy))
    assert (result.exit_code, result.stdout) == (2, "")
    for part in ("policy.signals[0].target", "policy.scale_up.cooldown", "policy.scale_down.cooldown"):
        assert part in result.stderr
