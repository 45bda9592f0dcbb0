"""GuideLLM reports (vllm-project/guidellm): one JSON document with a list of benchmarks, in ms but for E2E.

Two layouts are known: `config.strategy` (report version 2, from 0.4 on) and `args.strategy` (0.1 to 0.3). What the tool
calls `time_per_output_token_ms` is E2E / output tokens, with TTFT in it; `inter_token_latency_ms` counts a request once
a token. So mean TPOT is computed from E2E, TTFT and the real output length, and percentiles of it are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from inferplan.profiles.profile import ImportHeader, MeasuredLatency, ServingPoint
from inferplan.profiles.readers.build import (
    FileFacts,
    check_latencies,
    check_load,
    closed_loop,
    length_of,
    mean_latency,
    moment_of_epoch,
    open_loop,
    percentile_latencies,
    scaled,
    serving_profile,
    tpot_seconds,
)
from inferplan.profiles.readers.content import BenchmarkContent
from inferplan.profiles.readers.reader import ReadResult
from inferplan.profiles.readers.record import Problems, Record
from inferplan.sizing.workload import ArrivalProcess, Arrivals, LatencyMetric, TrafficClass

_MILLISECOND = 1e-3
_NOTE = (
    "mean TPOT was computed as (E2E - TTFT) / (output tokens - 1); the tool's per-token latencies are other figures "
    "and were left out"
)


@dataclass(frozen=True, slots=True)
class GuideLlmReader:
    """Reads GuideLLM's `benchmarks.json`."""

    name: str = "guidellm"

    def recognises(self, content: BenchmarkContent) -> bool:
        """A list of benchmarks with metrics of successful requests."""
        benchmarks = content.document.get("benchmarks")
        return (
            isinstance(benchmarks, list)
            and bool(benchmarks)
            and all(
                isinstance(item, Mapping)
                and isinstance(item.get("metrics"), Mapping)
                and "request_latency" in item["metrics"]
                for item in benchmarks
            )
        )

    def read(self, content: BenchmarkContent, header: ImportHeader) -> ReadResult:
        """One point a benchmark of the report."""
        problems = Problems()
        report = Record(content.document, "", problems)
        benchmarks = list(report.records("benchmarks"))
        points = [_point(benchmark) for benchmark in benchmarks]
        started = benchmarks[0].number("start_time") or benchmarks[0].record("run_stats").number("start_time")
        facts = FileFacts(
            tool=self.name,
            tool_version=report.record("metadata").text("guidellm_version", maximum=100),
            measure_time=moment_of_epoch(started),
        )
        return ReadResult(self.name, (serving_profile(points, facts, header, problems),), (_NOTE,))


def _point(benchmark: Record) -> ServingPoint:
    metrics = benchmark.record("metrics")
    strategy = benchmark.record("config", "args").record("strategy")
    prompts, outputs = _successful(metrics, "prompt_token_count"), _successful(metrics, "output_token_count")
    input_tokens = length_of(
        prompts.positive("mean"), prompts.positive("std_dev"), prompts.at("mean"), metrics.problems
    )
    output_tokens = length_of(
        outputs.positive("mean"), outputs.positive("std_dev"), outputs.at("mean"), metrics.problems
    )
    load = _load(strategy, closed_loop(None, input_tokens, output_tokens), benchmark)
    check_load(load, strategy.at("type_"), metrics.problems)
    latencies = _latencies(metrics, outputs.positive("mean"))
    check_latencies(latencies, metrics.at("request_latency"), metrics.problems)
    totals = metrics.record("request_totals")
    completed = totals.count("successful")
    duration = benchmark.positive("duration")
    return ServingPoint(
        model=benchmark.record("config").record("backend").text("model")
        or benchmark.record("worker").text("backend_model"),
        load=load,
        latencies=tuple(latencies),
        requests_per_second=_successful(metrics, "requests_per_second").positive("mean"),
        output_tokens_per_second=_rate(outputs, duration),
        completed_requests=completed,
        failed_requests=totals.count("errored"),
        duration_seconds=duration,
    )


def _rate(outputs: Record, duration_seconds: float | None) -> float | None:
    """The tool's own rate is a mean over moments, which idle ones pull down; the total over the duration is none."""
    total = outputs.positive("total_sum")
    return total / duration_seconds if total is not None and duration_seconds is not None else None


def _successful(metrics: Record, name: str) -> Record:
    return metrics.record(name).record("successful")


def _load(strategy: Record, lengths: TrafficClass, benchmark: Record) -> TrafficClass:
    kind = strategy.text("type_", "type", "kind")
    rate = strategy.positive("rate")
    if kind in ("constant", "poisson", "async") and rate is not None:
        process = ArrivalProcess.POISSON if kind == "poisson" else ArrivalProcess.CONSTANT
        return open_loop(rate, lengths.input_tokens, lengths.output_tokens, Arrivals(process))
    if kind == "synchronous":
        return closed_loop(1, lengths.input_tokens, lengths.output_tokens)
    clients = strategy.positive("streams", "max_concurrency")
    if kind == "throughput":
        # All requests at once, at most max_concurrency in flight; the limit is often far above what was sent.
        sent = benchmark.record("metrics").record("request_totals").positive("total")
        clients = min((value for value in (clients, sent) if value is not None), default=None)
    return closed_loop(clients, lengths.input_tokens, lengths.output_tokens)


def _latencies(metrics: Record, output_mean: float | None) -> list[MeasuredLatency]:
    latencies: list[MeasuredLatency] = []
    means: dict[LatencyMetric, float | None] = {}
    for metric, name, unit in (
        (LatencyMetric.TTFT, "time_to_first_token_ms", _MILLISECOND),
        (LatencyMetric.END_TO_END, "request_latency", 1.0),
    ):
        distribution = _successful(metrics, name)
        means[metric] = scaled(distribution.positive("mean"), unit)
        latencies += mean_latency(metric, means[metric])
        percentiles = distribution.record("percentiles")
        found = {_percentile(key): scaled(percentiles.positive(key), unit) for key in percentiles.values}
        found[50.0] = scaled(distribution.positive("median"), unit)
        latencies += percentile_latencies(metric, {key: value for key, value in found.items() if key is not None})
    tpot = tpot_seconds(means[LatencyMetric.END_TO_END], means[LatencyMetric.TTFT], output_mean or 0.0)
    return latencies + mean_latency(LatencyMetric.TPOT, tpot)


def _percentile(key: str) -> float | None:
    """95.0 of `p95`, 99.9 of `p999`, 0.1 of `p001`."""
    if not re.fullmatch(r"p\d{2,3}", key):
        return None
    digits = key[1:]
    return int(digits) / 10 if len(digits) == 3 else float(digits)
