"""Fitting: what is put in comes out again, a wrong point does not matter, few points stay near the defaults."""

from __future__ import annotations

import csv
import dataclasses
import io
from functools import cache

import numpy as np
import pytest

from inferplan.profiles.calibration import Calibration, MeasuredCase, Situation, extrapolation, fit_calibration
from inferplan.profiles.calibration.playing import play_case
from inferplan.profiles.calibration.scoring import cases_of, fit_by_engine, score
from inferplan.profiles.measured_table import read_measured_table
from inferplan.profiles.reference import builtin_calibrations, reference_points, reference_points_sha256
from inferplan.sizing.efficiency import DATASHEET_EFFICIENCY, EfficiencyCoefficients
from support.searches import catalog

TRUTH = dataclasses.replace(
    DATASHEET_EFFICIENCY,
    weight_bandwidth_ratio=0.88,
    eight_bit_flops_ratio=0.6,
    host_step_seconds=2.2e-3,
    host_layer_seconds=30e-6,
    front_end_seconds=40e-3,
)


def rows_where(**wanted: str) -> str:
    """The reference table's rows that have these values, as a table."""
    records = list(csv.DictReader(io.StringIO(reference_points())))
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]))
    writer.writeheader()
    writer.writerows(item for item in records if all(item[name] == value for name, value in wanted.items()))
    return text.getvalue()


@cache
def cases(**wanted: str) -> tuple[MeasuredCase, ...]:
    found, _unused = cases_of(read_measured_table(rows_where(**wanted), catalog()), catalog())
    return tuple(found)


LLAMA_70B = {"model": "meta-llama/Llama-3.1-70B", "engine": "vLLM"}


def measured_as(
    originals: tuple[MeasuredCase, ...], efficiency: EfficiencyCoefficients, noise: float
) -> list[MeasuredCase]:
    """The cases with figures that the simulator itself gives under `efficiency`, scattered by `noise`."""
    random = np.random.default_rng(7)
    made = []
    for case in originals:
        played = play_case(case, efficiency)
        figures = {name: played[name] * float(np.exp(random.normal(0.0, noise))) for name in case.measured}
        made.append(dataclasses.replace(case, measured=figures))
    return made


def value(calibration: Calibration, symbol: str) -> float:
    return float(getattr(calibration.efficiency(DATASHEET_EFFICIENCY, calibration.scopes[0]), symbol))


def test_known_coefficients_are_found_again() -> None:
    calibration = fit_calibration(measured_as(cases(**LLAMA_70B), TRUTH, noise=0.01))
    # What a step takes is what the points determine; its parts may trade a little against each other.
    assert value(calibration, "weight_bandwidth_ratio") == pytest.approx(0.88, rel=0.06)
    assert value(calibration, "eight_bit_flops_ratio") == pytest.approx(0.6, rel=0.08)
    assert value(calibration, "front_end_seconds") == pytest.approx(40e-3, rel=0.25)
    host = value(calibration, "host_step_seconds") + 80 * value(calibration, "host_layer_seconds")
    assert host == pytest.approx(2.2e-3 + 80 * 30e-6, rel=0.15)
    tpot = [item for item in calibration.errors if item.figure == "tpot"]
    assert tpot[0].median_absolute_relative_error < 0.02
    for item in calibration.coefficients:
        assert item.standard_error > 0


def test_one_absurd_point_does_not_move_the_fit() -> None:
    points = measured_as(cases(**LLAMA_70B), TRUTH, noise=0.01)
    spoiled = dataclasses.replace(points[3], measured={name: 30 * item for name, item in points[3].measured.items()})
    before, after = fit_calibration(points), fit_calibration([*points[:3], spoiled, *points[4:]])
    for symbol in ("weight_bandwidth_ratio", "eight_bit_flops_ratio", "host_step_seconds", "front_end_seconds"):
        assert value(after, symbol) == pytest.approx(value(before, symbol), rel=0.12)
    assert any(text.startswith(points[3].label) for text in after.outliers)


def test_few_points_stay_near_the_defaults() -> None:
    calibration = fit_calibration(measured_as(cases(**LLAMA_70B)[:2], TRUTH, noise=0.0))
    assert value(calibration, "weight_bandwidth_ratio") == pytest.approx(0.95, rel=0.1)
    untouched = {item.symbol for item in calibration.coefficients if item.is_default and not item.scope}
    assert {"expert_flops_ratio", "expert_layer_seconds"} <= untouched  # there are no experts to learn from


def test_real_points_of_degrees_that_were_left_out_are_predicted() -> None:
    """Fitted to tensor parallel 2 and 8 of other lengths, Llama-3.1-70B FP8 at the rest: TPOT within 6 %, TTFT 12 %."""
    known = [case for case in cases(**LLAMA_70B) if case.parallelism.tensor_parallel == 2]
    asked = [case for case in cases(**LLAMA_70B) if case.parallelism.tensor_parallel == 8]
    summaries, _figures = score(asked, fit_by_engine(known))
    errors = {item.figure: item.median_absolute_relative_error for item in summaries if item.group == "all"}
    assert errors["tpot"] < 0.06
    assert errors["ttft"] < 0.12


@pytest.mark.parametrize(
    ("wanted", "figure", "most"),
    [
        (LLAMA_70B, "tpot", 0.03),
        (LLAMA_70B, "ttft", 0.06),
        ({"model": "Qwen/Qwen3-32B", "engine": "vLLM"}, "tpot", 0.06),
        ({"model": "Qwen/Qwen3-32B", "engine": "vLLM"}, "ttft", 0.25),
        ({"model": "Qwen/Qwen3-32B", "engine": "SGLang"}, "tpot", 0.08),
        ({"model": "meta-llama/Llama-3.1-8B-Instruct", "engine": "TensorRT-LLM"}, "tpot", 0.08),
        ({"model": "Qwen/Qwen3-235B-A22B-FP8", "engine": "TensorRT-LLM"}, "tpot", 0.12),
        ({"model": "openai/gpt-oss-120b", "engine": "vLLM"}, "tpot", 0.12),
        ({"group": "argonne-llm-inference-bench"}, "e2e", 0.10),
    ],
)
def test_the_built_in_calibration_reaches_its_targets(wanted: dict[str, str], figure: str, most: float) -> None:
    summaries, _figures = score(cases(**wanted), builtin_calibrations())
    (found,) = [item for item in summaries if item.group == "all" and item.figure == figure]
    assert found.median_absolute_relative_error <= most


def test_the_stated_band_holds_for_nine_points_of_ten() -> None:
    for calibration in builtin_calibrations().values():
        for figure in ("ttft", "tpot"):
            mine = [item for item in calibration.errors if item.figure == figure]
            covered = sum(item.points * item.band_coverage for item in mine) / sum(item.points for item in mine)
            assert 0.8 <= covered <= 0.97


def test_the_built_in_calibrations_are_those_of_the_shipped_points() -> None:
    for engine, calibration in builtin_calibrations().items():
        assert calibration.data_sha256 == reference_points_sha256()
        assert (calibration.engine, calibration.built_in) == (engine, True)
    assert set(builtin_calibrations()) == {"sglang", "tensorrt-llm", "vllm"}


def test_a_fit_of_the_shipped_points_gives_the_shipped_calibration() -> None:
    again = fit_calibration(cases(engine="SGLang"))
    shipped = builtin_calibrations()["sglang"]
    for symbol in ("sixteen_bit_flops_ratio", "host_step_seconds", "allreduce_bandwidth_ratio"):
        assert value(again, symbol) == pytest.approx(value(shipped, symbol), rel=0.02)


def test_what_was_not_measured_widens_the_band_and_is_named() -> None:
    calibration = builtin_calibrations()["vllm"]
    known = Situation("h100-sxm-80gb", calibration.scope_for("0.12.0"), "dense", "bfloat16", 2, 1024, 512, 32)
    assert extrapolation(calibration, known).widening == 1.0
    far = dataclasses.replace(known, accelerator="b200-sxm-180gb", weight_precision="int4", input_tokens=100_000)
    found = extrapolation(calibration, far)
    assert found.widening > 1.5
    assert [text.split()[0] for text in found.reasons] == ["b200-sxm-180gb", "no", "input"]
    narrow, wide = calibration.band("tpot"), calibration.band("tpot", found.widening)
    assert narrow is not None and wide is not None and wide > narrow
