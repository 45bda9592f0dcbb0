"""Loading an endpoint: what the load tool is told, what its report says, what the endpoint says about itself."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from inferplan.errors import InvalidInputError
from inferplan.measurement.aiperf_report import ServedConfiguration, read_report
from inferplan.measurement.endpoint import EndpointQuestion, assemble, measure_endpoint, served_name
from inferplan.measurement.endpoint_facts import EndpointFacts, read_endpoint_facts
from inferplan.measurement.load_tool import GridPoint, LoadTarget, grid_points, load_command
from inferplan.sizing.configuration import ParallelismChoice
from inferplan.sizing.workload import ConstantLength, LatencyMetric
from support.byte_tokenizer import write_byte_tokenizer
from support.openai_server import ENGINE_VERSION, OpenAIServer, serve_openai

REPORT = Path(__file__).parents[1] / "data" / "benchmarks" / "aiperf-0.13-emulated.json"
SERVED = ServedConfiguration("llama-3.1-8b", ParallelismChoice(tensor_parallel=2))
POINT = GridPoint(concurrency=4, input_tokens=64, output_tokens=32, requests=16)


def question(url: str = "http://127.0.0.1:1", tokenizer: Path = Path("tokenizer")) -> EndpointQuestion:
    return EndpointQuestion(url, "h100-sxm-80gb", "vllm", SERVED, tokenizer, (POINT,))


def test_the_grid_is_every_combination_with_enough_requests() -> None:
    points = grid_points((16, 1), (128, 512), (32,))
    assert [(point.concurrency, point.input_tokens, point.requests) for point in points] == [
        (1, 128, 20),
        (16, 128, 80),
        (1, 512, 20),
        (16, 512, 80),
    ]
    assert len({point.label for point in points}) == 4
    assert [point.requests for point in grid_points((1, 64), (8,), (8,), 10)] == [10, 64]


def test_the_command_fixes_lengths_and_names_a_local_tokenizer() -> None:
    target = LoadTarget("http://127.0.0.1:8000", "served", Path("/models/tokenizer"))
    command = load_command("aiperf", target, POINT, Path("/out"))
    options = {name: command[index + 1] for index, name in enumerate(command[:-1]) if name.startswith("--")}
    assert command[:2] == ["aiperf", "profile"]
    assert options["--tokenizer"] == "/models/tokenizer"
    assert (options["--isl"], options["--isl-stddev"], options["--osl"], options["--osl-stddev"]) == (
        "64",
        "0",
        "32",
        "0",
    )
    assert (options["--concurrency"], options["--request-count"], options["--model"]) == ("4", "16", "served")
    assert {"ignore_eos:true", "min_tokens:32", "--streaming", "--use-server-token-count"} <= set(command)


def test_a_recorded_report_is_read_as_the_server_behaved() -> None:
    point, version = read_report(REPORT.read_bytes(), 4, SERVED)
    assert version == "0.13.0"
    assert point.load.concurrency == 4
    assert (point.load.input_tokens, point.load.output_tokens) == (ConstantLength(64), ConstantLength(32))
    assert (point.completed_requests, point.failed_requests) == (16, 0)
    assert point.parallelism == ParallelismChoice(tensor_parallel=2)
    ttft = point.latency_seconds(LatencyMetric.TTFT)
    tpot = point.latency_seconds(LatencyMetric.TPOT)
    end_to_end = point.latency_seconds(LatencyMetric.END_TO_END)
    assert ttft is not None and tpot is not None and end_to_end is not None
    assert 0.020 <= ttft < 0.030, "the server's 20 ms, and what a connection takes"
    assert 0.002 <= tpot < 0.003, "the server's 2 ms"
    assert end_to_end == pytest.approx(ttft + 31 * tpot, rel=1e-6)
    assert point.output_tokens_per_second is not None and point.requests_per_second is not None
    assert point.output_tokens_per_second == pytest.approx(32 * point.requests_per_second)
    assert {latency.percentile for latency in point.latencies} == {None, 50, 90, 95, 99}


def test_what_a_report_lacks_stays_absent() -> None:
    report = json.loads(REPORT.read_text())
    del report["inter_token_latency"], report["request_error_rate"], report["benchmark_duration"]
    report["time_to_first_token"]["p99"] = float("nan")
    point, _version = read_report(json.dumps(report).encode(), 4, SERVED)
    assert point.latency_seconds(LatencyMetric.TPOT) is None
    assert point.latency_seconds(LatencyMetric.TTFT, 99) is None
    assert point.failed_requests is None and point.duration_seconds is None


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"{", "not JSON"),
        (b"[]", "not a summary"),
        (b'{"aiperf_version": "0.13.0"}', "no token counts"),
        (REPORT.read_bytes().replace(b'"ms"', b'"fortnights"'), "no unit of time"),
    ],
)
def test_a_file_that_is_no_report_is_refused(content: bytes, part: str) -> None:
    with pytest.raises(InvalidInputError, match=part):
        read_report(content, 4, SERVED)


def test_the_profile_says_where_its_points_came_from() -> None:
    content = REPORT.read_bytes()
    asked = replace(question(), engine_version="0.10.0", engine_flags="--max-num-seqs 64")
    measured = assemble(asked, EndpointFacts(("m",), ENGINE_VERSION), [(POINT, content), (POINT, content)])
    provenance = measured.profile.provenance
    assert (provenance.tool, provenance.tool_version) == ("aiperf", "0.13.0")
    assert (provenance.engine, provenance.engine_version) == ("vllm", ENGINE_VERSION)
    assert provenance.engine_flags == "--max-num-seqs 64"
    assert provenance.raw_sha256 == hashlib.sha256(content + content).hexdigest()
    assert len(measured.profile.serving_points) == 2
    assert measured.notes == (f"the endpoint says that it is version {ENGINE_VERSION}, not 0.10.0; 0.11.0 is recorded",)


def test_an_endpoint_says_its_models_and_version() -> None:
    with serve_openai(OpenAIServer(model="served")) as server:
        assert read_endpoint_facts(server.url) == EndpointFacts(("served",), ENGINE_VERSION)
    with serve_openai(OpenAIServer(version=None)) as server:
        assert read_endpoint_facts(server.url).engine_version == ""


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("ftp://host", "legal is such as http"),
        ("127.0.0.1:8000", "legal is such as http"),
        ("http://user:secret@host", "neither a password"),
        ("http://127.0.0.1:1", "is the server up"),
    ],
)
def test_an_address_that_cannot_be_loaded_is_refused(url: str, part: str) -> None:
    with pytest.raises(InvalidInputError, match=part) as raised:
        read_endpoint_facts(url)
    assert "secret" not in str(raised.value)


def test_the_served_name_is_the_only_one_or_given() -> None:
    assert served_name(question(), EndpointFacts(("only",), "")) == "only"
    several = EndpointFacts(("a", "b"), "")
    assert served_name(replace(question(), served_model="b"), several) == "b"
    for asked in (question(), replace(question(), served_model="c")):
        with pytest.raises(InvalidInputError, match="legal: a, b"):
            served_name(asked, several)


def test_a_folder_without_tokenizer_is_refused_before_anything_is_fetched(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="Nothing is fetched"):
        measure_endpoint(question(tokenizer=tmp_path), tmp_path)


@pytest.mark.skipif(
    shutil.which("aiperf") is None, reason="AIPerf, the extra `endpoint`, is not installed: too large for every run"
)
def test_an_endpoint_is_loaded_and_its_pace_found(tmp_path: Path) -> None:
    tokenizer = write_byte_tokenizer(tmp_path / "tokenizer")
    with serve_openai(OpenAIServer()) as server:
        measured = measure_endpoint(question(server.url, tokenizer), tmp_path / "reports")
    (point,) = measured.profile.serving_points
    assert measured.profile.provenance.engine_version == ENGINE_VERSION
    assert (point.load.input_tokens, point.load.output_tokens) == (ConstantLength(64), ConstantLength(32))
    assert point.completed_requests == 16
    assert len(server.requests) == 16 + 4, "the warm-up comes on top"
    ttft, tpot = point.latency_seconds(LatencyMetric.TTFT), point.latency_seconds(LatencyMetric.TPOT)
    assert ttft is not None and ttft >= server.ttft_seconds
    assert tpot is not None and tpot >= server.tpot_seconds
