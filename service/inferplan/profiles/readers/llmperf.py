"""llmperf summaries (ray-project/llmperf): flat keys in seconds, closed loop, rates a minute.

`inter_token_latency` there is E2E / output tokens, so TTFT is in it: it is another figure than TPOT. The mean TPOT is
computed from E2E, TTFT and the real output length instead, and its percentiles are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    percentile_latencies,
    scaled,
    serving_profile,
    tpot_seconds,
)
from inferplan.profiles.readers.content import BenchmarkContent
from inferplan.profiles.readers.reader import ReadResult
from inferplan.profiles.readers.record import Problems, Record
from inferplan.sizing.workload import LatencyMetric

_PERCENTILES = (25, 50, 75, 90, 95, 99)
_SECONDS_PER_MINUTE = 60.0
_NOTE = (
    "inter_token_latency is E2E / output tokens in this tool: mean TPOT was computed as (E2E - TTFT) / (output tokens "
    "- 1), its percentiles were left out"
)


@dataclass(frozen=True, slots=True)
class LlmperfReader:
    """Reads llmperf's `…_summary.json`."""

    name: str = "llmperf"

    def recognises(self, content: BenchmarkContent) -> bool:
        """Keys that begin with `results_` and end in seconds."""
        return bool(content.records) and all(
            "results_ttft_s_mean" in record and "num_concurrent_requests" in record for record in content.records
        )

    def read(self, content: BenchmarkContent, header: ImportHeader) -> ReadResult:
        """One point a summary."""
        problems = Problems()
        several = len(content.records) > 1
        runs = [
            Record(values, f"[{index}]" if several else "", problems) for index, values in enumerate(content.records)
        ]
        points = [_point(run) for run in runs]
        facts = FileFacts(
            tool=self.name,
            tool_version=runs[0].text("version", maximum=100),
            measure_time=moment_of_epoch(runs[0].number("timestamp")),
        )
        return ReadResult(self.name, (serving_profile(points, facts, header, problems),), (_NOTE,))


def _point(run: Record) -> ServingPoint:
    input_mean = run.positive("results_number_input_tokens_mean", "mean_input_tokens")
    output_mean = run.positive("results_number_output_tokens_mean", "mean_output_tokens")
    load = closed_loop(
        run.positive("num_concurrent_requests"),
        length_of(
            input_mean,
            run.positive("results_number_input_tokens_stddev"),
            run.at("results_number_input_tokens_mean"),
            run.problems,
        ),
        length_of(
            output_mean,
            run.positive("results_number_output_tokens_stddev"),
            run.at("results_number_output_tokens_mean"),
            run.problems,
        ),
    )
    check_load(load, run.at("num_concurrent_requests"), run.problems)
    latencies = _latencies(run, output_mean)
    check_latencies(latencies, run.at("latencies"), run.problems)
    return ServingPoint(
        model=run.text("model"),
        load=load,
        latencies=tuple(latencies),
        requests_per_second=scaled(run.positive("results_num_completed_requests_per_min"), 1.0 / _SECONDS_PER_MINUTE),
        output_tokens_per_second=run.positive("results_mean_output_throughput_token_per_s"),
        completed_requests=run.count("results_num_completed_requests"),
        failed_requests=run.count("results_number_errors"),
    )


def _latencies(run: Record, output_mean: float | None) -> Sequence[MeasuredLatency]:
    latencies: list[MeasuredLatency] = []
    means: dict[LatencyMetric, float | None] = {}
    for metric, key in ((LatencyMetric.TTFT, "ttft"), (LatencyMetric.END_TO_END, "end_to_end_latency")):
        means[metric] = run.positive(f"results_{key}_s_mean")
        latencies += mean_latency(metric, means[metric])
        quantiles = {float(each): run.positive(f"results_{key}_s_quantiles_p{each}") for each in _PERCENTILES}
        latencies += percentile_latencies(metric, quantiles)
    tpot = tpot_seconds(means[LatencyMetric.END_TO_END], means[LatencyMetric.TTFT], output_mean or 0.0)
    return latencies + mean_latency(LatencyMetric.TPOT, tpot)
