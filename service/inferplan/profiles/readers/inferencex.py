"""InferenceX (formerly InferenceMAX) results: vLLM's keys without `_ms`, in seconds, and their aggregated form.

The aggregated form (utils/process_result.py) adds `hw`, `tp`, `ep`, `conc`, `framework`, `precision` and throughputs
per GPU, and leaves out counts and duration.
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
    replicated,
    serving_profile,
    speculative_decoding,
    spoken_precision,
)
from inferplan.profiles.readers.content import BenchmarkContent
from inferplan.profiles.readers.reader import ReadResult
from inferplan.profiles.readers.record import Problems, Record
from inferplan.profiles.readers.vllm_bench import mean_of_total, suffixed_latencies
from inferplan.sizing.workload import LatencyMetric, TrafficClass

_METRICS = {
    "ttft": LatencyMetric.TTFT,
    "tpot": LatencyMetric.TPOT,
    "itl": LatencyMetric.INTER_TOKEN,
    "e2el": LatencyMetric.END_TO_END,
}
_ENGINES = {"vllm": "vllm", "sglang": "sglang", "trt": "tensorrt-llm", "trtllm": "tensorrt-llm"}


@dataclass(frozen=True, slots=True)
class InferenceXReader:
    """Reads InferenceX results; latencies have no suffix and are in seconds."""

    name: str = "inferencex"

    def recognises(self, content: BenchmarkContent) -> bool:
        """A `median_ttft` or `mean_ttft` without unit, beside vLLM's or the aggregate's keys."""
        return bool(content.records) and all(
            ("median_ttft" in record or "mean_ttft" in record)
            and (("model_id" in record and "num_prompts" in record) or ("hw" in record and "conc" in record))
            for record in content.records
        )

    def read(self, content: BenchmarkContent, header: ImportHeader) -> ReadResult:
        """One point a run; all runs of a file are on one kind of GPU and engine."""
        problems = Problems()
        several = len(content.records) > 1
        runs = [
            Record(values, f"[{index}]" if several else "", problems) for index, values in enumerate(content.records)
        ]
        facts = {(run.text("hw"), _ENGINES.get(run.text("framework").lower(), "")) for run in runs}
        if len(facts) > 1:
            problems.add("file", f"holds runs of {len(facts)} kinds of GPU and engine; legal is one file for each")
        accelerator, engine = min(facts)
        points = [_point(run) for run in runs]
        profile = serving_profile(points, FileFacts(accelerator, engine, tool=self.name), header, problems)
        return ReadResult(self.name, (profile,))


def _point(run: Record) -> ServingPoint:
    completed = run.count("completed")
    input_mean = run.positive("isl") or mean_of_total(run, "total_input_tokens", completed)
    output_mean = run.positive("osl") or mean_of_total(run, "total_output_tokens", completed)
    input_tokens = length_of(input_mean, None, run.at("total_input_tokens"), run.problems)
    output_tokens = length_of(output_mean, None, run.at("total_output_tokens"), run.problems)
    rate = run.number_or_infinity("request_rate")
    clients = run.positive("max_concurrency", "conc")
    if clients is None and rate is not None and math.isinf(rate):
        clients = run.positive("num_prompts")
    load: TrafficClass = closed_loop(clients, input_tokens, output_tokens)
    if clients is None and rate is not None and rate > 0:
        load = open_loop(rate, input_tokens, output_tokens, arrivals_of_burstiness(run.positive("burstiness")))
    check_load(load, run.at("max_concurrency"), run.problems)
    latencies = suffixed_latencies(run, _METRICS, "", 1.0)
    check_latencies(latencies, run.at("latencies"), run.problems)
    tensor_parallel = run.count("tp") or None
    return ServingPoint(
        model=run.text("model_id", "model"),
        load=load,
        parallelism=replicated(tensor_parallel, run.count("ep")),
        weight_precision=spoken_precision(run.text("precision")),
        latencies=tuple(latencies),
        requests_per_second=run.positive("request_throughput"),
        output_tokens_per_second=_output_rate(run, tensor_parallel),
        completed_requests=completed,
        duration_seconds=run.positive("duration"),
        broken_rules=_speculative(run),
    )


def _output_rate(run: Record, tensor_parallel: int | None) -> float | None:
    whole = run.positive("output_throughput")
    per_gpu = run.positive("output_tput_per_gpu")
    if whole is None and per_gpu is not None and tensor_parallel is not None:
        return per_gpu * tensor_parallel
    return whole


def _speculative(run: Record) -> tuple[BrokenSanityRule, ...]:
    mode = run.text("mtp", "spec_decoding")
    return (speculative_decoding(f"{mode}"),) if mode and mode.lower() not in ("off", "none", "false") else ()
