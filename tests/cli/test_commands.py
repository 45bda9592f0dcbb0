"""The command line as a person or a script uses it, each command in a process of its own where that matters."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner, Result

from inferplan import __version__
from inferplan.cli.main import main
from inferplan.v1 import plan_service_pb2, plan_service_pb2_grpc

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "chatbot.yaml"


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "folder" / "inferplan.db"
    monkeypatch.setenv("INFERPLAN_DATABASE_URL", f"sqlite:///{path}")
    return path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_the_main_job_as_json(database: Path) -> None:
    result = run("plan", "-f", str(EXAMPLE), "--method", "textbook", "--format", "json")
    assert result.exit_code == 0, result.stderr
    plan = json.loads(result.stdout)
    assert plan["name"] == "deployments/chatbot/plans/1"
    assert (plan["fleet"]["activeReplicas"], plan["fleet"]["spareReplicas"]) == (2, 1)
    assert database.exists()
    again = run("plans", "show", "chatbot", "--format", "json")
    assert json.loads(again.stdout) == plan


def test_the_main_job_as_text_shows_steps_warnings_and_the_place(database: Path) -> None:
    result = run("plan", "-f", str(EXAMPLE), "--method", "textbook")
    assert result.exit_code == 0, result.stderr
    for part in ("4.179 ms", "835.8 ms", "14.16 ms", "11,964", "59.82", "850 ms", "8.87 ms", "23.5 requests/s"):
        assert part in result.stdout
    assert "deployments/chatbot/plans/1" in result.stdout.replace("\n", "")
    assert str(database) in result.stdout.replace("\n", "")


@pytest.mark.usefixtures("database")
def test_a_dry_run_stores_nothing() -> None:
    result = run("plan", "-f", str(EXAMPLE), "--method", "textbook", "--dry-run", "--format", "yaml")
    assert result.exit_code == 0, result.stderr
    assert "activeReplicas: 2" in result.stdout
    assert json.loads(run("plans", "list", "--format", "json").stdout) == []


@pytest.mark.usefixtures("database")
def test_the_same_request_id_gives_the_same_plan() -> None:
    arguments = ("plan", "-f", str(EXAMPLE), "--request-id", "0b2a7f5e-7f2b-4c7e-9a52-6f1f0f6f0001", "--format", "json")
    first, second = run(*arguments), run(*arguments)
    assert json.loads(first.stdout) == json.loads(second.stdout)
    listed = json.loads(run("plans", "list", "--format", "json").stdout)
    assert [plan["name"] for plan in listed] == ["deployments/chatbot/plans/1"]


@pytest.mark.usefixtures("database")
def test_memory_as_json() -> None:
    result = run(
        *("memory", "--model", "llama-2-7b", "--accelerator", "h100-sxm-80gb", "--tensor-parallel", "1"),
        *("--format", "json"),
    )
    assert result.exit_code == 0, result.stderr
    estimate = json.loads(result.stdout)
    assert estimate["fits"] is True
    assert estimate["kvBytesPerToken"] == 524288
    from_file = run(
        *("memory", "--model", str(EXAMPLE.parent / "llama-2-7b" / "config.json"), "--accelerator", "h100-sxm-80gb"),
        *("--format", "json"),
    )
    assert json.loads(from_file.stdout) == estimate


@pytest.mark.usefixtures("database")
def test_memory_that_does_not_fit_exits_with_3_and_says_why() -> None:
    result = run("memory", "--model", "llama-3.1-70b", "--accelerator", "h100-sxm-80gb")
    assert result.exit_code == 3
    assert "does not fit" in result.stdout
    assert "WEIGHTS_DO_NOT_FIT" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "exit_code", "part"),
    [
        (("memory", "--model", "lama-2-7b", "--accelerator", "h100"), 2, "llama-2-7b"),
        (("memory", "--model", "llama-2-7b", "--accelerator", "h100", "--tensor-parallel", "0"), 2, "tensor-parallel"),
        (("memory", "--model", "llama-2-7b", "--accelerator", "h100", "--tensor-parallel", "3"), 2, "1, 2, 4, 8"),
        (("memory", "--model", "no/such/config.json", "--accelerator", "h100"), 2, "No such file"),
        (
            ("memory", "--model", "llama-2-7b", "--accelerator", "h100", "--gpu-memory-utilization", "1.5"),
            2,
            "less than or equal to 1",
        ),
        (("memory", "--model", "llama-2-7b", "--accelerator", "h100", "--gpu-memory-utilization", "nan"), 2, "finite"),
        (("plan", "-f", "no-such-file.yaml"), 2, "No such file"),
        (("plans", "show", "nowhere"), 2, "deployments/nowhere"),
        (("models", "show", "lama-2-7b"), 2, "llama-2-7b"),
        (("plans", "list", "--server", "127.0.0.1:1"), 4, "does not answer"),
    ],
)
@pytest.mark.usefixtures("database")
def test_what_goes_wrong_is_told_on_standard_error(arguments: tuple[str, ...], exit_code: int, part: str) -> None:
    result = run(*arguments)
    assert result.exit_code == exit_code, result.stderr
    assert part in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


@pytest.mark.usefixtures("database")
def test_nothing_fits_exits_with_3(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_text(
        "model: {model: llama-3.1-70b}\n"
        "hardware: {accelerators: [h100-sxm-80gb]}\n"
        "workload: {traffic_classes: [{requests_per_second: 1, input_tokens: 100, output_tokens: 10}]}\n",
        encoding="utf-8",
    )
    result = run("plan", "-f", str(path), "--method", "textbook", "--format", "json")
    assert result.exit_code == 3
    assert "WEIGHTS_DO_NOT_FIT" in result.stderr
    assert "tensor parallel" in result.stderr
    assert result.stdout == ""


@pytest.mark.usefixtures("database")
def test_a_quota_that_is_too_small_is_told_with_what_would_do(tmp_path: Path) -> None:
    """The worked example takes 5 H100s or more; 2 are allowed."""
    text = EXAMPLE.read_text(encoding="utf-8").replace("failures_to_survive: 1", "maximum_gpus: 2")
    (tmp_path / "llama-2-7b").mkdir()
    config = EXAMPLE.parent / "llama-2-7b" / "config.json"
    (tmp_path / "llama-2-7b" / "config.json").write_bytes(config.read_bytes())
    path = tmp_path / "small.yaml"
    path.write_text(text, encoding="utf-8")
    result = run("plan", "-f", str(path))
    assert result.exit_code == 3
    assert "GPU_QUOTA" in result.stderr
    assert "earest" in result.stderr


@pytest.mark.usefixtures("database")
def test_catalogue_commands() -> None:
    assert "llama-3.1-8b" in run("models", "list").stdout
    assert json.loads(run("models", "show", "meta-llama/Llama-2-7b-hf", "--format", "json").stdout)["name"] == (
        "models/llama-2-7b"
    )
    listed = json.loads(run("accelerators", "list", "--format", "json").stdout)
    assert {"accelerators/h100-sxm-80gb", "accelerators/l4-24gb"} <= {item["name"] for item in listed}
    assert "sources:" in run("accelerators", "show", "h100").stdout


def test_config_masks_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERPLAN_DATABASE_URL", "postgresql://planner:hunter2@db.internal/plans")
    for output_format in ("text", "json"):
        result = run("config", "--format", output_format)
        assert result.exit_code == 0
        assert "hunter2" not in result.stdout
    assert json.loads(run("config", "--format", "json").stdout)["database_url"] == (
        "postgresql://planner:***@db.internal/plans"
    )
    monkeypatch.setenv("INFERPLAN_HANDLER_THREADS", "many")
    result = run("config")
    assert result.exit_code == 2
    assert "INFERPLAN_HANDLER_THREADS" in result.stderr


def test_version() -> None:
    assert run("version").stdout.strip() == __version__


@pytest.mark.usefixtures("database")
def test_the_database_can_be_created_checked_and_is_refused_when_it_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("db", "check").exit_code == 2
    assert run("db", "upgrade").exit_code == 0
    assert run("db", "check").exit_code == 0
    not_a_database = tmp_path / "text.db"
    not_a_database.write_text("this is text, and long enough not to pass for an empty file\n" * 100, encoding="utf-8")
    monkeypatch.setenv("INFERPLAN_DATABASE_URL", f"sqlite:///{not_a_database}")
    for command in (("db", "check"), ("plans", "list")):
        result = run(*command)
        assert result.exit_code == 2, result.stderr
        assert str(not_a_database) in result.stderr
    monkeypatch.setenv("INFERPLAN_DATABASE_URL", "mysql://root:hunter2@host/db")
    result = run("plans", "list")
    assert result.exit_code == 2
    assert "hunter2" not in result.stderr


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """`inferplan serve` in a process of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        "INFERPLAN_DATABASE_URL": f"sqlite:///{tmp_path / 'served.db'}",
        "INFERPLAN_DRAIN_NOTICE_SECONDS": "0",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "inferplan.cli", "serve", "--listen", f"127.0.0.1:{port}"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            grpc.channel_ready_future(channel).result(timeout=60)
        yield process, port
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def test_a_served_plan_is_seen_from_another_process(served: tuple[subprocess.Popen[str], int]) -> None:
    process, port = served
    server = f"127.0.0.1:{port}"
    created = run("plan", "-f", str(EXAMPLE), "--server", server, "--format", "json")
    assert created.exit_code == 0, created.stderr
    with grpc.insecure_channel(server) as channel:
        plan = plan_service_pb2_grpc.PlanServiceStub(channel).GetPlan(
            plan_service_pb2.GetPlanRequest(name="deployments/chatbot/plans/latest")
        )
    assert 4 <= plan.fleet.active_replicas <= 7
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0


def test_a_second_server_on_the_same_port_is_refused(served: tuple[subprocess.Popen[str], int], tmp_path: Path) -> None:
    _process, port = served
    environment = {**os.environ, "INFERPLAN_DATABASE_URL": f"sqlite:///{tmp_path / 'second.db'}"}
    second = subprocess.run(
        [sys.executable, "-m", "inferplan.cli", "serve", "--listen", f"127.0.0.1:{port}"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert second.returncode == 2
    assert "in use" in second.stderr
    assert "Traceback" not in second.stderr


def test_an_acknowledged_plan_survives_kill_9(served: tuple[subprocess.Popen[str], int], tmp_path: Path) -> None:
    process, port = served
    created = run("plan", "-f", str(EXAMPLE), "--server", f"127.0.0.1:{port}", "--format", "json")
    process.kill()
    process.wait()
    environment = {
        "INFERPLAN_DATABASE_URL": f"sqlite:///{tmp_path / 'served.db'}",
        "INFERPLAN_DRAIN_NOTICE_SECONDS": "0",
    }
    shown = CliRunner(env=environment).invoke(main, ["plans", "show", "chatbot/1", "--format", "json"])
    assert json.loads(shown.stdout) == json.loads(created.stdout)
