"""Loads over time: what formulas bring, and what a file must not say."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from inferplan.autoscaling.replay import traces
from inferplan.autoscaling.replay.derive import forecast_of
from inferplan.autoscaling.replay.traces import csv_trace, formula_trace
from inferplan.errors import InvalidInputError

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51.2224670,879,55
"""
"""The first rows of the public Azure LLM inference trace (AzureLLMInferenceTrace_conv.csv, CC-BY 4.0)."""


def fields(error: InvalidInputError) -> dict[str, str]:
    return {violation.field: violation.description for violation in error.violations}


def test_a_day_swings_between_trough_and_peak() -> None:
    trace = formula_trace("diurnal:peak=10,trough=2", seed=1)
    assert trace.duration_seconds == 86_400
    hourly = trace.rates_per_second(3600.0)
    assert hourly.size == 24
    assert int(hourly.argmax()) in (13, 14)
    assert int(hourly.argmin()) in (1, 2)
    assert hourly.max() == pytest.approx(10, rel=0.05)
    assert hourly.min() == pytest.approx(2, rel=0.10)
    # The mean of a cosine over a day is the middle: 6 requests/s.
    assert trace.arrival_seconds.size == pytest.approx(6 * 86_400, rel=0.01)


def test_a_step_and_a_spike_change_where_they_say() -> None:
    step = formula_trace("step:before=5,after=50,at=600,hours=0.5", seed=2).rates_per_second()
    assert step[:10].mean() == pytest.approx(5, rel=0.15)
    assert step[10:].mean() == pytest.approx(50, rel=0.05)
    spike = formula_trace("spike:base=5,peak=80,at=600,length=120,hours=0.5", seed=2).rates_per_second()
    assert spike[10:12].mean() == pytest.approx(80, rel=0.05)
    assert spike[12:].mean() == pytest.approx(5, rel=0.15)


def test_a_formula_is_forecast_by_its_course_and_not_by_chance() -> None:
    forecast = forecast_of(formula_trace("diurnal:peak=100,trough=20,hours=24", seed=3))
    assert forecast.peak_per_second == pytest.approx(100, abs=0.01)
    assert forecast.trough_per_second == pytest.approx(20, abs=0.01)
    # Steepest of a cosine of amplitude 40 over a day.
    assert forecast.growth_per_second_squared == pytest.approx(40 * 2 * np.pi / 86_400, rel=0.01)
    flat = forecast_of(formula_trace("constant:rate=5", seed=3))
    assert flat.growth_per_second_squared == 0.0


@pytest.mark.parametrize(
    ("specification", "field", "part"),
    [
        ("daily:peak=1", "trace", "diurnal"),
        ("diurnal:peak=100", "trace.trough", "must be given"),
        ("diurnal:peak=5,trough=9", "trace.trough", "above the peak"),
        ("step:before=1,after=2,when=3", "trace.when", "at"),
        ("constant:rate=-1", "trace.rate", "0 to"),
        ("constant:rate=nan", "trace.rate", "0 to"),
        ("constant:rate=1e9", "trace.rate", "0 to"),
        ("constant:rate=fast", "trace.rate", "'fast'"),
        ("constant:rate=1,hours=10000", "trace.hours", "0.02 to"),
        ("constant:rate=0", "trace", "no request"),
        ("constant:rate=20000,hours=24", "trace", "at most 10,000,000"),
    ],
)
def test_a_specification_that_cannot_be_is_refused(specification: str, field: str, part: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        formula_trace(specification, seed=1)
    assert part in fields(caught.value)[field]


def test_everything_wrong_with_a_specification_is_told_at_once() -> None:
    with pytest.raises(InvalidInputError) as caught:
        formula_trace("diurnal:peek=3,trough=-1", seed=1)
    assert set(fields(caught.value)) == {"trace.peek", "trace.trough", "trace.peak"}


def test_the_public_azure_trace_is_read() -> None:
    trace = csv_trace(AZURE.splitlines(), "azure")
    assert trace.arrival_seconds.tolist() == pytest.approx([0.0, 4.314579, 4.541877], abs=2e-6)
    assert trace.input_tokens is not None
    assert trace.output_tokens is not None
    assert trace.input_tokens.tolist() == [374, 396, 879]
    assert trace.output_tokens.tolist() == [44, 109, 55]


def test_times_alone_will_do() -> None:
    trace = csv_trace(["arrival_seconds", "5", "", "6.5", "6.5"], "times")
    assert trace.arrival_seconds.tolist() == [0.0, 1.5, 1.5]
    assert trace.input_tokens is None


@pytest.mark.parametrize(
    ("lines", "field", "part"),
    [
        (["a,b", "1,2"], "trace", "no time column"),
        ([], "trace", "no time column"),
        (["time"], "trace", "no row"),
        (["time", "-3"], "trace.row[2]", "negative"),
        (["time", "5", "4"], "trace.row[3]", "must rise"),
        (["time", "soon"], "trace.row[2]", "no time that can be read"),
        (["time", "nan"], "trace.row[2]", "no time that can be read"),
        (["time", "0", "30000"], "trace.arrivals[1]", "hole"),
        (["time,ContextTokens,GeneratedTokens", "0,1.5,2"], "trace.row[2]", "whole number"),
        (["time,ContextTokens,GeneratedTokens", "0,-1,2"], "trace.row[2]", "whole number"),
        (["time,ContextTokens,GeneratedTokens", "0,99999999999,2"], "trace.row[2]", "whole number"),
    ],
)
def test_a_file_that_cannot_be_played_is_refused(lines: list[str], field: str, part: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        csv_trace(lines, "bad")
    assert part in fields(caught.value)[field]


def test_a_file_of_fifty_million_rows_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MAXIMUM_ROWS", 1000)
    read = 0

    def lines() -> Iterator[str]:
        nonlocal read
        yield "time"
        for second in range(50_000_000):
            read += 1
            yield str(second)

    with pytest.raises(InvalidInputError, match="more than 1,000 rows"):
        csv_trace(lines(), "long")
    assert read < 1100


def test_the_beginning_of_a_trace() -> None:
    trace = formula_trace("step:before=5,after=50,at=600,hours=1", seed=2)
    part = trace.first(300.0)
    assert part.duration_seconds == 300.0
    assert part.arrival_seconds.max() < 300.0
    assert forecast_of(part).peak_per_second == pytest.approx(5.0)
    assert trace.first(1e6) is trace
