"""`vllm bench serve` and its predecessor `benchmark_serving.py`: one JSON object a run, latencies in ms.

Keys: vllm/benchmarks/serve.py and, before, benchmarks/benchmark_serving.py. `request_rate` is a number or "inf";
percentiles are `p99_ttft_ms`, `p99.9_e2el_ms`; `--metadata` adds keys of the user's own. Between 2024 and mid-2025 a
slip wrote the key `request_goodput:` with a colon.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from inferplan.profiles.profile import BrokenSanityRule, ImportHeader, MeasuredLatency, ServingPoint
from inferplan.profiles.readers.build import (
    FileFacts,
    arrivals_of_burstiness,
    check_latencies,
    check_load,
    closed_loop,
    length_of,
    mean_latency,
    open_loop,
    percentile_latencies,
    scaled,
    serving_profile,
    several_replicas,
    speculative_decoding,
)
from inferplan.profiles.readers.content import BenchmarkContent
from inferplan.profiles.readers.reader import ReadResult
from inferplan.profiles.readers.record import Problems, Record
from inferplan.sizing.workload import LatencyMetric, LengthDistribution, TrafficClass

MILLISECOND = 1e-3
_HELD_BACK_BELOW = 0.9
"""Below this share of the asked rate, the client's own limit on concurrency held requests back."""

_METRICS = {
    "ttft": LatencyMetric.TTFT,
    "tpot": LatencyMetric.TPOT,
    "itl": LatencyMetric.INTER_TOKEN,
    "e2el": LatencyMetric.END_TO_END,
}


@dataclass(frozen=True, slots=True)
class VllmBenchReader:
    """Reads runs of `vllm bench serve`."""

    name: str = "vllm-bench"

    def recognises(self, content: BenchmarkContent) -> bool:
        """A run that names `model_id` and `num_prompts` and has latencies in `_ms`."""
        return bool(content.records) and all(
            "model_id" in record
            and "num_prompts" in record
            and ("mean_ttft_ms" in record or "median_ttft_ms" in record)
            for record in content.records
        )

    def read(self, content: BenchmarkContent, header: ImportHeader) -> ReadResult:
        """One point a run."""
        problems = Problems()
        notes: list[str] = []
        points = [
            _point(Record(values, _path(index, content), problems), notes)
            for index, values in enumerate(content.records)
        ]
        facts = FileFacts(tool=self.name)
        return ReadResult(self.name, (serving_profile(points, facts, header, problems),), tuple(dict.fromkeys(notes)))


def _path(index: int, content: BenchmarkContent) -> str:
    return f"[{index}]" if len(content.records) > 1 else ""


def _point(run: Record, notes: list[str]) -> ServingPoint:
    completed = run.count("completed")
    input_tokens = length_of(
        mean_of_total(run, "total_input_tokens", completed), None, run.at("total_input_tokens"), run.problems
    )
    output_tokens = length_of(
        mean_of_total(run, "total_output_tokens", completed), None, run.at("total_output_tokens"), run.problems
    )
    load = _load(run, input_tokens, output_tokens, notes)
    check_load(load, run.at("request_rate"), run.problems)
    latencies = suffixed_latencies(run, _METRICS, "_ms", MILLISECOND)
    check_latencies(latencies, run.at("latencies"), run.problems)
    return ServingPoint(
        model=run.text("model_id"),
        load=load,
        latencies=tuple(latencies),
        requests_per_second=run.positive("request_throughput"),
        output_tokens_per_second=run.positive("output_throughput"),
        completed_requests=completed,
        failed_requests=run.count("failed"),
        duration_seconds=run.positive("duration"),
        broken_rules=(*several_replicas(run, "replicas", "prefill_replicas", "decode_replicas"), *_speculative(run)),
    )


def mean_of_total(run: Record, key: str, completed: int | None) -> float | None:
    """Mean tokens a request from the run's total, which tools keep instead."""
    total = run.positive(key)
    return None if total is None or not completed else total / completed


def suffixed_latencies(
    run: Record, metrics: Mapping[str, LatencyMetric], suffix: str, unit_seconds: float
) -> list[MeasuredLatency]:
    """Latencies under `mean_ttft_ms`, `median_ttft_ms`, `p99_ttft_ms` and the like; those that are absent stay so."""
    latencies: list[MeasuredLatency] = []
    for word, metric in metrics.items():
        ending = f"_{word}{suffix}"
        latencies += mean_latency(metric, scaled(run.positive(f"mean{ending}"), unit_seconds))
        percentiles: dict[float, float | None] = {}
        for key in run.values:
            percentile = _percentile_of(key, ending)
            if percentile is not None and percentiles.get(percentile) is None:
                percentiles[percentile] = scaled(run.positive(key), unit_seconds)
        latencies += percentile_latencies(metric, percentiles)
    return latencies


def _percentile_of(key: str, ending: str) -> float | None:
    """99.0 of `p99_ttft_ms`, 50.0 of `median_ttft_ms`; None for other keys."""
    if not key.endswith(ending):
        return None
    word = key.removesuffix(ending)
    if word == "median":
        return 50.0
    digits = word.removeprefix("p")
    if digits == word or not digits.replace(".", "", 1).isdecimal() or not digits.isascii():
        return None
    return float(digits)


def _load(
    run: Record, input_tokens: LengthDistribution | None, output_tokens: LengthDistribution | None, notes: list[str]
) -> TrafficClass:
    """The load as it was played: a rate, clients, or everything at once."""
    rate = run.number_or_infinity("request_rate")
    clients = run.positive("max_concurrency")
    if rate is not None and rate <= 0:
        run.problems.add(run.at("request_rate"), f"is {rate:g}; legal is a number above 0, or inf")
        rate = None
    burstiness = run.positive("burstiness")
    if rate is not None and math.isfinite(rate):
        reached = run.positive("request_throughput")
        if clients is None or reached is None or reached >= _HELD_BACK_BELOW * rate:
            return open_loop(rate, input_tokens, output_tokens, arrivals_of_burstiness(burstiness))
        notes.append(
            f"{reached:g} of {rate:g} requests a second were reached under a limit of {clients:g} in flight: "
            "taken as that many clients in a closed loop"
        )
    if clients is None and rate is not None:
        clients = run.positive("num_prompts", "completed")
        notes.append(f"no limit on rate or concurrency: {clients or 0:g} requests were sent at once")
    return closed_loop(clients, input_tokens, output_tokens)


def _speculative(run: Record) -> tuple[BrokenSanityRule, ...]:
    accepted = run.number("spec_decode_acceptance_length")
    return (speculative_decoding(f"acceptance length {accepted:g}"),) if accepted is not None and accepted > 1 else ()
