"""`inferplan measure` as a person uses it: what is missing is said plainly, before anything is loaded."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from google.protobuf import json_format

from inferplan.cli.main import main
from inferplan.v1 import profile_pb2
from support.byte_tokenizer import write_byte_tokenizer
from support.openai_server import OpenAIServer, serve_openai

REPORT = Path(__file__).parents[1] / "data" / "benchmarks" / "aiperf-0.13-emulated.json"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["measure", *arguments])


def endpoint(url: str, tokenizer: Path, out: Path | None, *more: str) -> Result:
    return run(
        *("endpoint", url, "--model", "llama-3.1-8b", "--accelerator", "h100-sxm-80gb", "--engine", "vllm"),
        *("--tokenizer", str(tokenizer), *(("--out", str(out)) if out else ()), *more),
    )


@pytest.fixture
def load_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program `aiperf` on the path that leaves the recorded report and its own arguments."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "aiperf"
    program.write_text(
        f"#!{sys.executable}\n"
        "import pathlib, shutil, sys\n"
        "folder = pathlib.Path(sys.argv[sys.argv.index('--output-artifact-dir') + 1])\n"
        "folder.mkdir(parents=True)\n"
        "(folder / 'arguments').write_text(' '.join(sys.argv[1:]))\n"
        "if '--concurrency 666' in (folder / 'arguments').read_text(): sys.exit('the endpoint fell over')\n"
        f"shutil.copy({str(REPORT)!r}, folder / 'profile_export_aiperf.json')\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return program


def test_a_machine_that_cannot_be_measured_is_told_what_to_install(tmp_path: Path) -> None:
    result = run("node", "--out", str(tmp_path / "node.json"))
    if result.exit_code == 0:
        pytest.skip("this machine has a GPU and can be measured")
    assert result.exit_code == 2
    assert "install" in result.stderr and "Traceback" not in result.stderr
    assert not (tmp_path / "node.json").exists()


@pytest.mark.usefixtures("load_tool")
def test_the_grid_ends_in_a_profile_as_the_contract_s_json(tmp_path: Path) -> None:
    out, reports = tmp_path / "profile.json", tmp_path / "reports"
    with serve_openai(OpenAIServer(model="served")) as server:
        result = endpoint(
            server.url,
            write_byte_tokenizer(tmp_path / "tokenizer"),
            out,
            *("--concurrency", "4,1", "--input-tokens", "64", "--output-tokens", "32", "--tensor-parallel", "2"),
            *("--precision", "fp8", "--engine-flags", "--max-num-seqs 64", "--reports", str(reports)),
        )
    assert result.exit_code == 0, result.stderr
    profile = json_format.Parse(out.read_text(), profile_pb2.Profile())
    assert [point.load.concurrency for point in profile.serving_points] == [1, 4]
    assert profile.serving_points[0].parallelism.tensor_parallel == 2
    assert profile.provenance.engine_version == "0.11.0"
    assert profile.provenance.engine_flags == "--max-num-seqs 64"
    assert "2 measurements, 0 of them rejected" in result.stdout
    asked = (reports / "concurrency-1-input-64-output-32" / "arguments").read_text()
    assert "--model served" in asked and "--request-count 20" in asked


@pytest.mark.usefixtures("load_tool")
def test_without_a_file_the_profile_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERPLAN_DATABASE_URL", f"sqlite:///{tmp_path / 'inferplan.db'}")
    with serve_openai(OpenAIServer()) as server:
        tokenizer = write_byte_tokenizer(tmp_path / "tokenizer")
        measured = endpoint(
            server.url, tokenizer, None, "--concurrency", "4", "--measured-by", "Ada", "--format", "json"
        )
    assert measured.exit_code == 0, measured.stderr
    stored = json.loads(measured.stdout)
    shown = CliRunner().invoke(main, ["profiles", "show", stored["name"], "--format", "json"])
    assert json.loads(shown.stdout) == stored
    assert (stored["status"], stored["provenance"]["measuredBy"]) == ("STATUS_ACTIVE", "Ada")
    assert stored["servingPoints"][0]["completedRequests"] == "16"


def test_a_service_that_is_away_is_found_before_anything_is_loaded(tmp_path: Path, load_tool: Path) -> None:
    assert load_tool.exists()
    with serve_openai(OpenAIServer()) as server:
        tokenizer = write_byte_tokenizer(tmp_path / "tokenizer")
        reports = tmp_path / "reports"
        result = endpoint(server.url, tokenizer, None, "--server", "127.0.0.1:1", "--reports", str(reports))
    assert result.exit_code == 4, result.stderr
    assert not reports.exists()


@pytest.mark.usefixtures("load_tool")
def test_as_json_only_the_profile_is_on_standard_output(tmp_path: Path) -> None:
    with serve_openai(OpenAIServer()) as server:
        tokenizer = write_byte_tokenizer(tmp_path / "tokenizer")
        result = endpoint(server.url, tokenizer, tmp_path / "p.json", "--concurrency", "1", "--format", "json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["provenance"]["tool"] == "aiperf"


@pytest.mark.usefixtures("load_tool")
def test_a_load_tool_that_fails_is_quoted(tmp_path: Path) -> None:
    with serve_openai(OpenAIServer()) as server:
        tokenizer = write_byte_tokenizer(tmp_path / "tokenizer")
        result = endpoint(server.url, tokenizer, tmp_path / "p.json", "--concurrency", "666")
    assert result.exit_code == 1
    assert "the endpoint fell over" in result.stderr and "concurrency-666" in result.stderr
    assert not (tmp_path / "p.json").exists()


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    result = run(
        *("endpoint", "http://127.0.0.1:1", "--model", "no-model", "--accelerator", "no-gpu", "--engine", "no-engine"),
        *("--tokenizer", str(tmp_path), "--out", str(tmp_path / "p.json")),
    )
    assert result.exit_code == 2
    for option in ("--model", "--accelerator", "--engine", "--tokenizer"):
        assert f"error: {option}: " in result.stderr


def test_without_load_tool_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    tokenizer = write_byte_tokenizer(tmp_path / "tokenizer")
    result = endpoint("http://127.0.0.1:1", tokenizer, tmp_path / "p.json")
    assert result.exit_code == 2
    assert "pip install 'inferplan[endpoint]'" in result.stderr


@pytest.mark.parametrize("value", ["0", "1,x", "1,,2", "-4"])
def test_a_list_of_counts_holds_counts(value: str, tmp_path: Path) -> None:
    result = endpoint("http://127.0.0.1:1", tmp_path, tmp_path / "p.json", "--concurrency", value)
    assert result.exit_code == 2
    assert "--concurrency" in result.stderr
