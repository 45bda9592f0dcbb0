"""inference-perf (kubernetes-sigs/inference-perf) lifecycle reports: one JSON object a stage, everything in seconds.

Up to pull request 410 a streamed token arrived in two chunks, each counted as a token, so that
`time_per_output_token` and `inter_token_latency` are half the truth. A mean that E2E, TTFT and the real output length
contradict is computed from them; percentiles of it cannot be mended and are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from inferplan.errors import InvalidInputError
from inferplan.profiles.profile import ImportHeader, MeasuredLatency, ServingPoint
from inferplan.profiles.readers.build import (
    FileFacts,
    check_latencies,
    check_load,
    length_of,
    mean_latency,
    open_loop,
    percentile_latencies,
    serving_profile,
    tpot_seconds,
)
from inferplan.profiles.readers.content import BenchmarkContent
from inferplan.profiles.readers.reader import ReadResult
from inferplan.profiles.readers.record import Problems, Record
from inferplan.sizing.workload import ArrivalProcess, Arrivals, LatencyMetric, TrafficClass

_PERCENTILES = {"median": 50.0, "p50": 50.0, "p75": 75.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p99.9": 99.9}
_AGREEING = 0.10
_SENT_AS_ASKED = 0.05


@dataclass(frozen=True, slots=True)
class InferencePerfReader:
    """Reads `stage_N_lifecycle_metrics.json`."""

    name: str = "inference-perf"

    def recognises(self, content: BenchmarkContent) -> bool:
        """The three parts of a report."""
        return all(key in content.document for key in ("load_summary", "successes", "failures"))

    def read(self, content: BenchmarkContent, header: ImportHeader) -> ReadResult:
        """The stage's point. Refuses reports that are not of one stage as its clients saw it."""
        problems = Problems()
        report = Record(content.document, "", problems)
        summary, successes = report.record("load_summary"), report.record("successes")
        if not summary.values and not successes.has("latency"):
            raise InvalidInputError.single(
                "file",
                "is inference-perf's Prometheus report: averages of the server's own metrics over the scrape window, "
                "not over the stage's requests; legal is stage_N_lifecycle_metrics.json",
                "NOT_A_CLIENT_MEASUREMENT",
            )
        if not summary.has("requested_rate", "achieved_rate"):
            raise InvalidInputError.single(
                "load_summary.requested_rate",
                "is missing: this is the summary over all stages, which mixes loads; legal is one "
                "stage_N_lifecycle_metrics.json at a time",
                "MIXED_LOADS",
            )
        notes: list[str] = []
        point = _point(report, summary, successes, notes)
        profile = serving_profile([point], FileFacts(tool=self.name), header, problems)
        return ReadResult(self.name, (profile,), tuple(notes))


def _point(report: Record, summary: Record, successes: Record, notes: list[str]) -> ServingPoint:
    throughput = successes.record("throughput")
    output_mean = successes.record("output_len").positive("mean")
    load = _load(summary, successes, output_mean, notes)
    check_load(load, summary.at("requested_rate"), report.problems)
    latencies = _latencies(successes.record("latency"), output_mean, notes)
    check_latencies(latencies, successes.at("latency"), report.problems)
    return ServingPoint(
        model="",
        load=load,
        latencies=tuple(latencies),
        requests_per_second=throughput.positive("requests_per_sec"),
        output_tokens_per_second=throughput.positive("output_tokens_per_sec"),
        completed_requests=successes.count("count"),
        failed_requests=report.record("failures").count("count"),
    )


def _load(summary: Record, successes: Record, output_mean: float | None, notes: list[str]) -> TrafficClass:
    """`achieved_rate` is what the client sent, not what the server finished: it is the load that was offered."""
    asked, sent = summary.positive("requested_rate"), summary.positive("achieved_rate")
    rate = asked or sent or 0.0
    if asked is not None and sent is not None and abs(sent - asked) > _SENT_AS_ASKED * asked:
        notes.append(
            f"the client sent {sent:.4g} of the {asked:g} requests a second that were asked: taken as the load"
        )
        rate = sent
    prompts = successes.record("prompt_len")
    return open_loop(
        rate,
        length_of(prompts.positive("mean"), None, prompts.at("mean"), prompts.problems),
        length_of(output_mean, None, successes.at("output_len.mean"), successes.problems),
        Arrivals(ArrivalProcess.CONSTANT),
    )


def _latencies(latency: Record, output_mean: float | None, notes: list[str]) -> list[MeasuredLatency]:
    latencies: list[MeasuredLatency] = []
    for metric, key in (
        (LatencyMetric.TTFT, "time_to_first_token"),
        (LatencyMetric.END_TO_END, "request_latency"),
    ):
        latencies += _all_of(latency.record(key), metric)
    reported = latency.record("time_per_output_token").positive("mean")
    computed = tpot_seconds(
        latency.record("request_latency").positive("mean"),
        latency.record("time_to_first_token").positive("mean"),
        output_mean or 0.0,
    )
    if reported is not None and computed is not None and abs(reported - computed) > _AGREEING * computed:
        notes.append(
            f"TPOT was recomputed as (E2E - TTFT) / (output tokens - 1) = {computed * 1e3:.4g} ms, the file's "
            f"{reported * 1e3:.4g} ms contradicts them; its percentiles and the inter-token latencies were left out"
        )
        return latencies + mean_latency(LatencyMetric.TPOT, computed)
    latencies += _all_of(latency.record("time_per_output_token"), LatencyMetric.TPOT)
    return latencies + _all_of(latency.record("inter_token_latency"), LatencyMetric.INTER_TOKEN)


def _all_of(distribution: Record, metric: LatencyMetric) -> list[MeasuredLatency]:
    percentiles = {
        percentile: distribution.positive(key) for key, percentile in _PERCENTILES.items() if distribution.has(key)
    }
    return mean_latency(metric, distribution.positive("mean")) + percentile_latencies(metric, percentiles)
