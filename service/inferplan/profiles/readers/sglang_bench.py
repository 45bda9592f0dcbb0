"""`sglang.bench_serving`: JSON lines, one a run, latencies in ms, rates as bare Infinity (sgl-project/sglang).

Neither model nor GPU is in the file, old versions hold no date. `concurrency` is the mean in flight, measured. TPOT
divided by the requested output length in some versions (issue 10746); the sanity rules catch that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from inferplan.profiles.profile import BrokenSanityRule, ImportHeader, ServingPoint
from inferplan.profiles.readers.build import (
    FileFacts,
    arrivals_of_burstiness,
    check_latencies,
    check_load,
    closed_loop,
    length_of,
    open_loop,
    serving_profile,
    speculative_decoding,
)
from inferplan.profiles.readers.content import BenchmarkContent
from inferplan.profiles.readers.reader import ReadResult
from inferplan.profiles.readers.record import Problems, Record
from inferplan.profiles.readers.vllm_bench import MILLISECOND, mean_of_total, suffixed_latencies
from inferplan.sizing.workload import LatencyMetric, LengthDistribution, TrafficClass

_METRICS = {
    "ttft": LatencyMetric.TTFT,
    "tpot": LatencyMetric.TPOT,
    "itl": LatencyMetric.INTER_TOKEN,
    "e2e_latency": LatencyMetric.END_TO_END,
}
_OWN_KEYS = ("mean_e2e_latency_ms", "random_range_ratio", "sharegpt_output_len", "total_output_tokens_retokenized")


@dataclass(frozen=True, slots=True)
class SglangBenchReader:
    """Reads runs of `sglang.bench_serving`."""

    name: str = "sglang-bench"

    def recognises(self, content: BenchmarkContent) -> bool:
        """Runs with latencies in ms, keys of SGLang's own and no model."""
        return bool(content.records) and all(
            "model_id" not in record
            and ("mean_ttft_ms" in record or "median_ttft_ms" in record)
            and any(key in record for key in _OWN_KEYS)
            for record in content.records
        )

    def read(self, content: BenchmarkContent, header: ImportHeader) -> ReadResult:
        """One point a run."""
        problems = Problems()
        notes: list[str] = []
        several = len(content.records) > 1
        runs = [
            Record(values, f"line[{index}]" if several else "", problems)
            for index, values in enumerate(content.records)
        ]
        points = [_point(run, notes) for run in runs]
        # Only the native backend tells the engine; `sglang-oai`, `vllm` and others speak a protocol that many serve.
        native = all(run.text("backend") == "sglang" for run in runs)
        facts = FileFacts(engine="sglang" if native else "", tool=self.name)
        return ReadResult(self.name, (serving_profile(points, facts, header, problems),), tuple(dict.fromkeys(notes)))


def _point(run: Record, notes: list[str]) -> ServingPoint:
    completed = run.count("completed")
    input_tokens = _length(run, "total_input_tokens", "input_throughput", completed)
    output_tokens = _length(run, "total_output_tokens", "output_throughput", completed)
    load = _load(run, input_tokens, output_tokens, notes)
    check_load(load, run.at("request_rate"), run.problems)
    latencies = suffixed_latencies(run, _METRICS, "_ms", MILLISECOND)
    check_latencies(latencies, run.at("latencies"), run.problems)
    return ServingPoint(
        model=run.text("model", "model_path"),
        load=load,
        latencies=tuple(latencies),
        requests_per_second=run.positive("request_throughput"),
        output_tokens_per_second=run.positive("output_throughput"),
        completed_requests=completed,
        duration_seconds=run.positive("duration"),
        broken_rules=_speculative(run),
    )


def _length(run: Record, total: str, throughput: str, completed: int | None) -> LengthDistribution | None:
    mean = mean_of_total(run, total, completed)
    rate, duration = run.positive(throughput), run.positive("duration")
    if mean is None and rate is not None and duration is not None and completed:
        # Both are totals over the same duration.
        mean = rate * duration / completed
    return length_of(mean, None, run.at(total), run.problems)


def _load(
    run: Record, input_tokens: LengthDistribution | None, output_tokens: LengthDistribution | None, notes: list[str]
) -> TrafficClass:
    rate = run.number_or_infinity("request_rate")
    clients = run.positive("max_concurrency")
    if rate is not None and rate <= 0:
        run.problems.add(run.at("request_rate"), f"is {rate:g}; legal is a number above 0, or Infinity")
    elif rate is not None and math.isfinite(rate) and clients is None:
        return open_loop(rate, input_tokens, output_tokens, arrivals_of_burstiness(None))
    in_flight = run.positive("concurrency")
    if clients is None and not run.has("max_concurrency") and in_flight is not None:
        clients = round(in_flight)
        notes.append(
            f"max_concurrency is missing: the measured mean in flight, {in_flight:.4g}, is taken as {clients:g} clients"
        )
    elif clients is None and rate is not None:
        clients = run.positive("completed")
        notes.append(f"no limit on rate or concurrency: {clients or 0:g} requests were sent at once")
    return closed_loop(clients, input_tokens, output_tokens)


def _speculative(run: Record) -> tuple[BrokenSanityRule, ...]:
    accepted = run.number("accept_length")
    return (speculative_decoding(f"accept length {accepted:g}"),) if accepted is not None and accepted > 1 else ()
