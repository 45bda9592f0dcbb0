"""Real files of every tool: what is read out of them, in the domain's units, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferplan.errors import InvalidInputError
from inferplan.profiles.profile import DeviceMeasurementKind, ImportHeader, ProfileProvenance, ServingPoint
from inferplan.profiles.readers import READER_NAMES, ReadResult, read_benchmark
from inferplan.sizing.configuration import ParallelismChoice
from inferplan.sizing.workload import ArrivalProcess, LatencyMetric
from support.searches import catalog

FILES = Path(__file__).resolve().parent.parent / "data" / "benchmarks"
HEADER = ImportHeader(
    provenance=ProfileProvenance(accelerator="h100-sxm-80gb", engine="vllm", engine_version="0.12.0"),
    model="llama-3.1-8b",
    parallelism=ParallelismChoice(tensor_parallel=1),
)


def read(name: str, header: ImportHeader = HEADER) -> ReadResult:
    return read_benchmark((FILES / name).read_bytes(), header, catalog())


def read_json(document: Any, header: ImportHeader = HEADER) -> ReadResult:
    return read_benchmark(json.dumps(document).encode(), header, catalog())


def the_point(result: ReadResult) -> ServingPoint:
    (profile,) = result.profiles
    (point,) = profile.serving_points
    return point


def test_vllm_bench() -> None:
    result = read("vllm_benchmark_serving_2025-05_4xL40S_inf.json")
    assert result.tool == "vllm-bench"
    point = the_point(result)
    assert point.model == "meta-llama/Llama-3.2-3B-Instruct"
    # 899,100 and 240,163 tokens of 900 requests, all sent at once.
    assert (point.load.concurrency, point.load.mean_input_tokens, point.load.mean_output_tokens) == (900, 999, 267)
    assert point.latency_seconds(LatencyMetric.TTFT) == pytest.approx(0.9022532)
    assert point.latency_seconds(LatencyMetric.TTFT, 99.0) == pytest.approx(1.3531695)
    assert point.latency_seconds(LatencyMetric.TPOT) == pytest.approx(0.0443570)
    assert point.requests_per_second == pytest.approx(43.0246)
    # Four replicas stood behind a gateway: kept, and no measurement of one.
    assert [rule.rule for rule in point.broken_rules] == ["SEVERAL_REPLICAS"]


def test_sglang_bench_with_bare_infinity() -> None:
    point = the_point(read("sglang_bench_serving_Infinity_partial.jsonl"))
    # 23,196 tokens/s over 3,104 s and 12,000 requests are 6,000 a prompt.
    assert (point.load.concurrency, point.load.mean_input_tokens, point.load.mean_output_tokens) == (200, 6000, 1000)
    assert point.latency_seconds(LatencyMetric.TPOT) == pytest.approx(0.0508541)
    assert point.broken_rules == ()


def test_guidellm_two_versions() -> None:
    point = the_point(read("guidellm_report_v2.trim.json"))
    assert point.load.requests_per_second == 2.0
    assert point.load.arrivals.process is ArrivalProcess.CONSTANT
    assert point.latency_seconds(LatencyMetric.TTFT) == pytest.approx(0.01148117)
    # (19.789 ms - 11.481 ms) / 7; the tool's own 2.44 ms has TTFT in it.
    assert point.latency_seconds(LatencyMetric.TPOT) == pytest.approx(0.00118685, rel=1e-4)
    new = json.loads((FILES / "guidellm_report_v2.trim.json").read_text())
    benchmark = new["benchmarks"][0]
    old = dict(benchmark, args={"strategy": {"type_": "concurrent", "streams": 8}})
    del old["config"]
    assert the_point(read_json({"benchmarks": [old]})).load.concurrency == 8


def test_aiperf() -> None:
    result = read("aiperf_profile_export_aiperf_v0.10_schema1.3.trim.json")
    point = the_point(result)
    assert result.profiles[0].provenance.tool_version == "0.10.0"
    # The profiling phase, and not the warm-up.
    assert point.load.concurrency == 16
    assert point.latency_seconds(LatencyMetric.TTFT) == pytest.approx(0.11913046)
    assert point.latency_seconds(LatencyMetric.TPOT) == pytest.approx(0.01305021)
    assert point.latency_seconds(LatencyMetric.END_TO_END, 99.0) == pytest.approx(9.5332241)
    assert point.requests_per_second == pytest.approx(5.2320591)


def test_inference_perf_mends_a_tpot_of_half_the_size() -> None:
    """Measured: 7.33 ms a token; the file says 3.48, since each token arrived in two chunks."""
    result = read("inference-perf_stage_0_lifecycle_metrics.json")
    assert the_point(result).latency_seconds(LatencyMetric.TPOT) == pytest.approx(7.33e-3, rel=1e-3)
    assert "TPOT was recomputed" in result.notes[0]


def test_llmperf_counts_by_the_minute() -> None:
    point = the_point(read("llmperf_summary_anyscale_70b.json"))
    document = json.loads((FILES / "llmperf_summary_anyscale_70b.json").read_text())
    per_minute = document["results_num_completed_requests_per_min"]
    assert point.requests_per_second == pytest.approx(per_minute / 60)
    assert point.load.concurrency == 5


def test_inferencex_has_seconds_without_a_suffix() -> None:
    point = the_point(read("inferencex_glm5.json"))
    assert point.model == "zai-org/GLM-5-FP8"
    assert point.latency_seconds(LatencyMetric.TTFT, 50.0) == pytest.approx(0.29139943)
    assert (point.load.concurrency, point.load.mean_input_tokens, point.load.mean_output_tokens) == (16, 1024, 128)
    # What is null in the file stays absent.
    assert point.failed_requests is None
    assert point.latency_seconds(LatencyMetric.TTFT) is None


def test_nvbandwidth_reads_text_for_numbers_and_leaves_out_what_is_not_there() -> None:
    result = read("nvbandwidth_v0.8_json_documented_sample.json")
    (profile,) = result.profiles
    assert profile.provenance.accelerator == "NVIDIA H100 80GB HBM3"
    assert (profile.provenance.driver_version, profile.provenance.runtime_version) == ("550.54.15", "12.4")
    to_device = [item for item in profile.device_measurements if item.kind is DeviceMeasurementKind.HOST_TO_DEVICE]
    assert [item.gpu_index for item in to_device] == list(range(8))
    assert to_device[0].rate_per_second == pytest.approx(26.03e9)
    links = [item for item in profile.device_measurements if item.kind is DeviceMeasurementKind.DEVICE_TO_DEVICE]
    assert [(item.gpu_index, item.peer_gpu_index) for item in links] == [(0, 1), (1, 0)]
    assert "Waived" in result.notes[0]


def test_nvidia_smi() -> None:
    text = (
        "name, uuid, memory.total [MiB], driver_version\n"
        "NVIDIA H200, GPU-aa, 143771 MiB, 570.86\n"
        "NVIDIA H200, GPU-bb, [N/A], 570.86\n"
    )
    (profile,) = read_benchmark(text.encode(), ImportHeader(), catalog()).profiles
    assert profile.provenance.accelerator == "NVIDIA H200"
    assert profile.provenance.visible_memory_bytes == 143771 * 2**20
    assert profile.provenance.gpu_uuids == ("GPU-aa", "GPU-bb")


def test_the_own_table_gives_a_profile_for_each_engine_and_gpu() -> None:
    text = (
        "row_id,group,engine,gpu,model,tp,isl,osl,concurrency,ttft_ms,tpot_ms\n"
        "a,g,vLLM,H100-SXM5-80GB,qwen3-32b,2,1024,128,8,154,18\n"
        "b,g,SGLang,H100-SXM5-80GB,qwen3-32b,2,1024,128,16,840,16.5\n"
        "c,g,vLLM,TPU,qwen3-32b,2,1024,128,8,154,18\n"
    )
    result = read_benchmark(text.encode(), ImportHeader(), catalog())
    assert [profile.provenance.engine for profile in result.profiles] == ["vllm", "sglang"]
    assert [profile.serving_points[0].label for profile in result.profiles] == ["a", "b"]
    assert result.notes == ("row c was left out: accelerator 'TPU' is not in the catalogue",)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("inference-perf_stage_0_prometheus_metrics.json", "averages of the server's own metrics"),
        ("inference-perf_summary_lifecycle_metrics.json", "mixes loads"),
        ("nodeprofile_inference-sim_hardware_config.json", "catalogue values"),
    ],
)
def test_what_is_no_measurement_of_one_load_is_refused(name: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        read(name)


def test_everything_that_is_missing_is_told_at_once() -> None:
    with pytest.raises(InvalidInputError) as caught:
        read("sglang_bench_serving_Infinity_partial.jsonl", ImportHeader())
    assert {violation.field for violation in caught.value.violations} == {
        "header.provenance.accelerator",
        "header.provenance.engine",
        "header.model",
        "header.parallelism.tensor_parallel",
    }


def test_a_named_tool_is_obeyed() -> None:
    with pytest.raises(InvalidInputError, match="is no file of llmperf"):
        read("inferencex_glm5.json", ImportHeader(tool="llmperf"))
    with pytest.raises(InvalidInputError, match="legal: vllm-bench"):
        read("inferencex_glm5.json", ImportHeader(tool="locust"))
    assert len(set(READER_NAMES)) == len(READER_NAMES)


def test_a_cancelled_run_is_refused() -> None:
    document = json.loads((FILES / "aiperf_profile_export_aiperf_v0.10_schema1.3.trim.json").read_text())
    with pytest.raises(InvalidInputError, match="not complete"):
        read_json(document | {"was_cancelled": True})


RUN = {
    "model_id": "llama-3.1-8b",
    "num_prompts": 80,
    "request_rate": "inf",
    "max_concurrency": 8,
    "completed": 80,
    "duration": 50.0,
    "total_input_tokens": 80 * 500,
    "total_output_tokens": 80 * 201,
    "request_throughput": 1.6,
    "output_throughput": 1.6 * 201,
    "mean_ttft_ms": 100.0,
    "mean_tpot_ms": 24.0,
    "mean_e2el_ms": 4900.0,
    "median_ttft_ms": 90.0,
    "p99_ttft_ms": 300.0,
}


@pytest.mark.parametrize(
    ("changes", "rules"),
    [
        ({}, []),
        ({"mean_tpot_ms": 12.0}, ["PARTS_CONTRADICT_WHOLE"]),
        ({"mean_ttft_ms": 4950.0, "mean_tpot_ms": 0.1}, ["TTFT_ABOVE_END_TO_END", "FASTER_THAN_PHYSICS"]),
        ({"p99_ttft_ms": 50.0}, ["PERCENTILES_FALL"]),
        ({"request_throughput": 3.2, "output_throughput": 3.2 * 201}, ["LITTLES_LAW", "THROUGHPUT_CONTRADICTS_COUNT"]),
        ({"max_concurrency": 64}, ["LITTLES_LAW"]),
        ({"output_throughput": 1000.0}, ["TOKENS_CONTRADICT_REQUESTS"]),
        # 8 sequences need at least 4.8 ms a token: 16 GB of weights at 3.35 TB/s.
        ({"mean_tpot_ms": 2.0, "mean_e2el_ms": 500.0, "request_throughput": 16.0, "output_throughput": 16.0 * 201,
          "duration": 5.0}, ["FASTER_THAN_PHYSICS"]),
    ],
)  # fmt: skip
def test_sanity_rules(changes: dict[str, float], rules: list[str]) -> None:
    point = the_point(read_json(RUN | changes))
    assert [rule.rule for rule in point.broken_rules] == rules


@given(st.binary(max_size=300))
def test_no_bytes_give_anything_but_a_result_or_a_refusal(content: bytes) -> None:
    with pytest.raises(InvalidInputError):
        read_benchmark(content, ImportHeader(), catalog())


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


@given(st.sampled_from(sorted(path.name for path in FILES.glob("*.json"))), st.data())
def test_a_damaged_file_gives_a_result_or_a_refusal(name: str, data: st.DataObject) -> None:
    document = json.loads((FILES / name).read_text())
    if isinstance(document, dict) and document:
        key = data.draw(st.sampled_from(sorted(document)))
        document[key] = data.draw(_VALUES)
    try:
        read_json(document)
    except InvalidInputError as error:
        assert error.violations
