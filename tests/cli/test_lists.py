"""`plans list`, `profiles list` and `deployments` with filters, from end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from inferplan.cli.main import main

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "chatbot.yaml"


@pytest.fixture(autouse=True)
def _database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERPLAN_DATABASE_URL", f"sqlite:///{tmp_path / 'inferplan.db'}")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def made(*arguments: str) -> Result:
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    return result


def test_plans_by_filter_and_order() -> None:
    made("deployments", "create", "chatbot", "--label", "team=search")
    for _ in range(3):
        made("plan", "-f", str(EXAMPLE), "--method", "textbook")
    found = json.loads(
        made(
            "plans", "list", "--filter", "labels.team = search AND cost_per_hour < 20 AND method = textbook",
            "--order-by", "revision", "--format", "json",
        ).stdout
    )  # fmt: skip
    assert [plan["revision"] for plan in found] == ["1", "2", "3"]
    assert "deployments/chatbot/plans/3" in made("plans", "list", "--filter", "replicas = 2 revision > 2").stdout
    assert made("plans", "list", "--filter", "replicas > 50", "--format", "json").stdout.strip() == "[]"
    assert json.loads(made("profiles", "list", "--filter", "status = active", "--format", "json").stdout) == []
    calibrations = made("calibrations", "list", "--filter", "engine = vllm", "--format", "json")
    assert {each["engine"] for each in json.loads(calibrations.stdout)} == {"engines/vllm"}
    result = run("plans", "list", "--filter", "modle = x")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "did you mean 'model'?" in result.stderr


def test_a_deployment_from_creation_to_deletion() -> None:
    made("deployments", "create", "chatbot", "--label", "team=search", "--display-name", "A chatbot")
    made("plan", "-f", str(EXAMPLE), "--method", "textbook")
    shown = made("deployments", "list", "--filter", "labels.team = search").stdout
    assert "team=search" in shown
    refused = run("deployments", "delete", "chatbot")
    assert refused.exit_code == 2
    assert "has 1 plans" in refused.stderr
    assert "deleteTime" in json.loads(made("deployments", "delete", "chatbot", "--force").stdout)
    assert json.loads(made("deployments", "list", "--format", "json").stdout) == []
    assert len(json.loads(made("deployments", "list", "--show-deleted", "--format", "json").stdout)) == 1
    assert len(json.loads(made("plans", "list", "--show-deleted", "--format", "json").stdout)) == 1
    assert run("deployments", "create", "other", "--label", "team").exit_code == 2
