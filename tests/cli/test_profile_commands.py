"""`inferplan profiles …` as a person or a script uses it."""

from __future__ import annotations

import dataclasses
import json
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from inferplan.cli.main import main
from inferplan.profiles.profile import (
    BrokenSanityRule,
    DeviceMeasurement,
    DeviceMeasurementKind,
    Profile,
    StepMeasurement,
)
from inferplan.rpc.startup import open_planner
from inferplan.settings import load_settings
from inferplan.storage.database import Database
from inferplan.storage.plans import PlanStore
from support.plans import plan_content
from support.profiles import profile, serving_point


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERPLAN_DATABASE_URL", f"sqlite:///{tmp_path / 'inferplan.db'}")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def stored(*profiles: Profile) -> list[str]:
    """Names of the profiles once they are stored."""
    with open_planner(load_settings()) as planner:
        return [planner.profiles.create_profile(each, caller="ada").name for each in profiles]


def rejected_profile() -> Profile:
    rule = BrokenSanityRule("TTFT_ABOVE_END_TO_END", "TTFT is 900 ms, the end to end 800 ms")
    rejected = dataclasses.replace(serving_point(8), broken_rules=(rule,))
    return dataclasses.replace(
        profile(labels={"team": "search"}),
        serving_points=(serving_point(), rejected),
        device_measurements=(
            DeviceMeasurement(DeviceMeasurementKind.MEMORY_COPY, 2.9e12, buffer_bytes=2**30, clock_ratio=0.97),
            DeviceMeasurement(DeviceMeasurementKind.MATMUL, 7e14, shape=(4096, 4096, 4096), rejected_reason="hot"),
        ),
        step_measurements=(StepMeasurement(0.02, 64, 70_000),),
    )


def test_profiles_are_listed_newest_first() -> None:
    first, second = stored(profile(), rejected_profile())
    listed = json.loads(run("profiles", "list", "--format", "json").stdout)
    assert [each["name"] for each in listed] == [second, first]
    result = run("profiles", "list", "--limit", "1")
    assert result.exit_code == 0, result.stderr
    row = next(line for line in result.stdout.splitlines() if second.removeprefix("profiles/") in line)
    assert [cell.strip() for cell in row.split("│")[3:-1]] == [
        "h100-sxm-80gb",
        "vllm 0.10.0",
        "vllm-bench",
        "5",
        "2",
        "active",
    ]
    assert first.removeprefix("profiles/") not in result.stdout


def test_a_profile_is_shown_with_every_rule_and_figure() -> None:
    (name,) = stored(rejected_profile())
    result = run("profiles", "show", name.removeprefix("profiles/"))
    assert result.exit_code == 0, result.stderr
    shown = " ".join(result.stdout.replace("│", " ").split())
    for part in (
        name,
        "gpu-1",
        "2026-02-03 04:05:06Z",
        "team=search",
        "64 clients",
        "415.1 ms",
        "28.77 ms",
        "accepted",
    ):
        assert part in shown
    for part in ("2.9 TB/s", "700 TFLOP/s", "4096 x 4096 x 4096", "97%", "hot", "1 scheduler steps"):
        assert part in shown
    # The last column is narrow, so its words are in pieces.
    verdicts = "".join(line.split("│")[-2].strip() for line in result.stdout.splitlines() if line.count("│") == 12)
    assert verdicts == "acceptedTTFT_ABOVE_END_TO_END: TTFTis 900ms, theend toend 800ms"
    assert json.loads(run("profiles", "show", name, "--format", "json").stdout)["name"] == name


def test_a_profile_is_withdrawn_once() -> None:
    old, new = stored(profile(), profile())
    result = run("profiles", "withdraw", old, "--reason", "newer driver", "--superseded-by", new, "--format", "json")
    assert result.exit_code == 0, result.stderr
    withdrawn = json.loads(result.stdout)
    assert (withdrawn["status"], withdrawn["statusReason"]) == ("STATUS_SUPERSEDED", "newer driver")
    assert withdrawn["supersededBy"] == new
    again = run("profiles", "withdraw", old, "--reason", "something else")
    assert (again.exit_code, again.stdout) == (2, "")
    assert "newer driver" in again.stderr
    assert f"superseded by {new}: newer driver" in run("profiles", "show", old).stdout.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("show", "nobody"), "profiles/nobody"),
        (("withdraw", "nobody", "--reason", "why"), "profiles/nobody"),
        (("withdraw", "nobody"), "--reason"),
        (("show", "a b"), "name"),
    ],
)
def test_what_goes_wrong_is_told_on_standard_error(arguments: tuple[str, ...], part: str) -> None:
    result = run("profiles", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert part in result.stderr
    assert "Traceback" not in result.stderr


def test_a_plan_built_on_a_withdrawn_profile_says_so() -> None:
    (name,) = stored(profile())
    url = load_settings().database_url.get_secret_value()
    with closing(Database.open(url)) as database:
        PlanStore(database).create_plan("chat", plan_content(profiles=(name,)), allow_missing_deployment=True)
    assert "built on a withdrawn profile" not in run("plans", "show", "chat").stdout
    run("profiles", "withdraw", name, "--reason", "node throttled")
    shown = run("plans", "show", "chat")
    assert shown.exit_code == 0, shown.stderr
    assert f"built on a withdrawn profile: {name}" in shown.stdout.replace("\n", " ")
    assert json.loads(run("plans", "show", "chat", "--format", "json").stdout)["withdrawnProfiles"] == [name]


def test_a_calibration_is_fitted_listed_and_shown() -> None:
    # Llama-3.1-70B FP8 on two H100s, ai-dynamo/aiconfigurator's silicon sample.
    points = (serving_point(8, 0.0182208), serving_point(64, 0.0287686))
    (name,) = stored(dataclasses.replace(profile(), serving_points=points))
    dry = run("calibrations", "fit", "--engine", "vllm", "--dry-run")
    assert dry.exit_code == 0, dry.stderr
    assert "not stored" in dry.stdout
    fitted = run("calibrations", "fit", "--engine", "vllm", "--profile", name, "--id", "mine", "--format", "json")
    assert fitted.exit_code == 0, fitted.stderr
    calibration = json.loads(fitted.stdout)
    assert (calibration["name"], calibration["profiles"]) == ("calibrations/mine", [name])
    listed = run("calibrations", "list")
    assert next(line.split("│")[1].strip() for line in listed.stdout.splitlines() if "h100-sxm" in line) == "mine"
    assert "built in" in listed.stdout
    shown = run("calibrations", "show", "mine")
    for part in ("calibrations/mine", "2 points", "weight_bandwidth_ratio", "h100-sxm-80gb / vllm / llama-3.1-70b"):
        assert part in shown.stdout
    assert json.loads(run("calibrations", "show", "calibrations/mine", "--format", "json").stdout) == calibration
    predicted = run(
        *("predict", "--model", "llama-3.1-70b-fp8", "--accelerator", "h100-sxm-80gb", "--tensor-parallel", "2"),
        *("--input-tokens", "1024", "--output-tokens", "1024", "--concurrency", "8", "--calibration", "mine"),
        *("--format", "json"),
    )
    assert predicted.exit_code == 0, predicted.stderr
    assert json.loads(predicted.stdout)["calibration"] == "calibrations/mine"


def test_nothing_to_fit_is_told_with_what_to_do() -> None:
    result = run("calibrations", "fit", "--engine", "vllm")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "import a benchmark file first" in result.stderr


def import_file(path: Path, *arguments: str) -> Result:
    return run("profiles", "import", str(path), "--accelerator", "h100-sxm-80gb", *arguments)


def test_an_import_prints_every_point_with_its_verdict(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    # The second TPOT is below what streaming the weights alone takes.
    path.write_text(
        "row_id,group,engine,engine_version,gpu,n_gpu,tp,model,precision,isl,osl,concurrency,ttft_ms,tpot_ms\n"
        "e1,aic,vLLM,0.10.0,H100-SXM5-80GB,2,2,meta-llama/Llama-3.1-70B,fp8,1024,1024,8,150.2496,18.2208\n"
        "e2,aic,vLLM,0.10.0,H100-SXM5-80GB,2,2,meta-llama/Llama-3.1-70B,fp8,1024,1024,64,415.1325,1.2\n",
        encoding="utf-8",
    )
    result = import_file(path, "--node", "gpu-7", "--label", "team=search", "--label", "note=a=b")
    assert result.exit_code == 0, result.stderr
    shown = " ".join(result.stdout.replace("│", " ").split())
    for part in ("e1", "18.22 ms", "accepted", "e2", "FASTER", "1.2 ms", "gpu-7", "note=a=b, team=search"):
        assert part in shown
    assert "inferplan-csv: 1 accepted, 1 rejected; stored as profiles/" in shown
    again = import_file(path, "--format", "json")
    imported = json.loads(again.stdout)
    assert (imported["alreadyImported"], imported["acceptedPoints"], imported["rejectedPoints"]) == (True, 1, 1)
    assert imported["profile"]["labels"] == {"team": "search", "note": "a=b"}


@pytest.mark.parametrize(
    ("content", "arguments", "part"),
    [
        (None, (), "No such file"),
        (b"", (), "is empty"),
        (b"no benchmark", (), "no format that is known"),
        (b"{}", ("--tool", "abacus"), "vllm-bench"),
        (b"{}", ("--label", "team"), "KEY=VALUE"),
        (b"{}", ("--engine", "vlm"), "vllm"),
        (b"{}", ("--tensor-parallel", "0"), "tensor-parallel"),
    ],
)
def test_a_file_that_cannot_be_imported_is_told_on_standard_error(
    tmp_path: Path, content: bytes | None, arguments: tuple[str, ...], part: str
) -> None:
    path = tmp_path / "result.json"
    if content is not None:
        path.write_bytes(content)
    result = import_file(path, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert part in result.stderr
    assert "Traceback" not in result.stderr
