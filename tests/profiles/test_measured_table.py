"""The project's own table of measured points: what each row is taken to mean, and which rows are set aside."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferplan.catalog import Precision
from inferplan.errors import InvalidInputError
from inferplan.profiles.measured_table import MeasuredRow, read_measured_table
from inferplan.profiles.reference import reference_points
from inferplan.sizing.workload import ArrivalProcess, ConstantLength, LatencyMetric, UniformLength
from support.searches import catalog

HEADER = (
    "row_id,group,engine,engine_version,gpu,tp,ep,model,precision,isl,osl,concurrency,batch,rate_rps,"
    "ttft_ms,tpot_ms,stat"
)


def row(**changes: str) -> MeasuredRow:
    values = {
        "row_id": "r1",
        "engine": "vLLM",
        "engine_version": "0.12.0",
        "gpu": "H100-SXM5-80GB",
        "tp": "2.0",
        "model": "Qwen/Qwen3-32B",
        "isl": "1024.0",
        "osl": "128.0",
        "concurrency": "8.0",
        "ttft_ms": "154.25",
        "tpot_ms": "18.04",
    } | changes
    line = ",".join(values.get(name, "") for name in HEADER.split(","))
    (found,) = read_measured_table(f"{HEADER}\n{line}\n", catalog())
    return found


def test_a_closed_loop_with_constant_lengths() -> None:
    found = row()
    assert (found.accelerator, found.engine, found.model) == ("h100-sxm-80gb", "vllm", "qwen3-32b")
    point = found.point
    assert point is not None
    assert point.load.concurrency == 8
    assert point.load.input_tokens == ConstantLength(1024)
    assert point.latency_seconds(LatencyMetric.TTFT) == pytest.approx(0.15425)
    assert point.parallelism is not None and point.parallelism.tensor_parallel == 2


def test_inferencex_draws_lengths_of_80_to_100_per_cent() -> None:
    point = row(group="aic-dump-2026-04-06").point
    assert point is not None
    assert point.load.input_tokens == UniformLength(820, 1024)


def test_a_rate_is_an_open_loop_even_beside_a_measured_concurrency() -> None:
    point = row(rate_rps="4.46", concurrency="60.377").point
    assert point is not None
    assert (point.load.requests_per_second, point.load.concurrency) == (4.46, None)
    assert point.load.arrivals.process is ArrivalProcess.POISSON


def test_a_batch_alone_is_static() -> None:
    point = row(concurrency="", batch="16.0").point
    assert point is not None and point.static_batch_sequences == 16


def test_a_median_is_no_mean() -> None:
    point = row(stat="median").point
    assert point is not None
    assert point.latency_seconds(LatencyMetric.TTFT) is None
    assert point.latency_seconds(LatencyMetric.TTFT, 50.0) == pytest.approx(0.15425)


@pytest.mark.parametrize(
    ("gpu", "accelerator"),
    [
        ("H100-SXM5-80GB", "h100-sxm-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm-80gb"),
        ("H100 (variant not stated in CSV; 80GB)", "h100-sxm-80gb"),
        ("H100-PCIe-80GB", "h100-pcie-80gb"),
        ("H200-SXM-141GB", "h200-sxm-141gb"),
        ("NVIDIA H200", "h200-sxm-141gb"),
        ("A100-SXM4-80GB", "a100-sxm-80gb"),
        ("A100-SXM4-40GB", "a100-sxm-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("B200-SXM-180GB", "b200-sxm-180gb"),
        ("NVIDIA B200", "b200-sxm-180gb"),
        ("GB200", "gb200-186gb"),
        ("NVIDIA L40S", "l40s-48gb"),
        ("AMD Instinct MI300X", "mi300x-192gb"),
        ("H20", "h20-96gb"),
    ],
)
def test_gpus_are_known_by_many_spellings(gpu: str, accelerator: str) -> None:
    found = row(gpu=gpu)
    assert found.problem == ""
    assert found.accelerator == accelerator


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3.1-70B-Instruct", "llama-3.1-70b"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("Qwen/Qwen3-235B-A22B-FP8", "qwen3-235b-a22b-fp8"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-r1"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
    ],
)
def test_models_are_known_by_their_repository_names(model: str, expected: str) -> None:
    assert row(model=model).model == expected


def test_a_stated_precision_quantises_a_sixteen_bit_checkpoint_only() -> None:
    quantised = row(model="meta-llama/Llama-3.1-70B", precision="gemm=fp8").point
    assert quantised is not None and quantised.weight_precision is Precision.FP8
    own = row(model="openai/gpt-oss-120b", precision="gemm=nvfp4").point
    assert own is not None and own.weight_precision is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gpu": "TPU v5e"}, "'TPU v5e' is not in the catalogue"),
        ({"model": "acme/secret-1t"}, "'acme/secret-1t' is not in the catalogue"),
        ({"tpot_ms": "fast"}, "tpot_ms is 'fast'"),
        ({"tpot_ms": "-1"}, "tpot_ms is '-1'"),
        ({"ttft_ms": "inf"}, "ttft_ms is 'inf'"),
        ({"isl": ""}, "isl and osl must both be above 0"),
        ({"concurrency": ""}, "states no load"),
    ],
)
def test_a_row_that_cannot_be_used_says_why(changes: dict[str, str], reason: str) -> None:
    found = row(**changes)
    assert found.point is None
    assert reason in found.problem


def test_what_is_no_such_table_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="lack engine, gpu, model, isl, osl"):
        read_measured_table("a,b\n1,2\n", catalog())
    with pytest.raises(InvalidInputError, match="a header and nothing else"):
        read_measured_table(f"{HEADER}\n", catalog())


@given(st.text(max_size=400))
def test_no_text_gives_anything_but_rows_or_a_refusal(text: str) -> None:
    for content in (text, f"{HEADER}\n{text}"):
        try:
            read_measured_table(content, catalog())
        except InvalidInputError:
            continue


def test_every_reference_row_is_understood() -> None:
    rows = read_measured_table(reference_points(), catalog())
    assert len(rows) == 350
    assert [item.problem for item in rows if item.point is None] == []
