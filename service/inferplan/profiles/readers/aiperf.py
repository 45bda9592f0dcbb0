"""AIPerf and its predecessor GenAI-Perf (ai-dynamo/aiperf, triton perf_analyzer): one JSON object a run.

Each figure is an object with its own `unit`. `inter_token_latency` is (E2E - TTFT) / (output tokens - 1) of a request,
which is TPOT.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from inferplan.profiles.profile import ImportHeader, MeasuredLatency, ServingPoint
from inferplan.profiles.readers.build import (
    FileFacts,
    check_latencies,
    check_load,
    closed_loop,
    length_of,
    mean_latency,
    open_loop,
    percentile_latencies,
    scaled,
    serving_profile,
)
from inferplan.profiles.readers.content import BenchmarkContent
from inferplan.profiles.readers.reader import ReadResult
from inferplan.profiles.readers.record import Problems, Record
from inferplan.sizing.workload import ArrivalProcess, Arrivals, LatencyMetric, LengthDistribution, TrafficClass

_UNIT_SECONDS = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_METRICS = {
    "time_to_first_token": LatencyMetric.TTFT,
    "inter_token_latency": LatencyMetric.TPOT,
    "request_latency": LatencyMetric.END_TO_END,
}


@dataclass(frozen=True, slots=True)
class AiPerfReader:
    """Reads `profile_export_aiperf.json` and `profile_export_genai_perf.json`."""

    name: str = "aiperf"

    def recognises(self, content: BenchmarkContent) -> bool:
        """Figures that are objects with a unit and an average."""
        latency = content.document.get("request_latency")
        return isinstance(latency, dict) and "unit" in latency and "avg" in latency

    def read(self, content: BenchmarkContent, header: ImportHeader) -> ReadResult:
        """The run's point. Refuses a run that was cancelled, since its figures cover a part only."""
        problems = Problems()
        run = Record(content.document, "", problems)
        if content.document.get("was_cancelled") is True:
            problems.add("was_cancelled", "is true: the run is not complete; legal is a complete run", "INCOMPLETE_RUN")
        version = run.text("aiperf_version", "genai_perf_version", maximum=100)
        facts = FileFacts(tool=self.name, tool_version=version, measure_time=_moment(run.text("start_time")))
        return ReadResult(self.name, (serving_profile([_point(run)], facts, header, problems),))


def _moment(text: str) -> datetime | None:
    """ISO 8601; the tool writes UTC without saying so."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _point(run: Record) -> ServingPoint:
    load = _load(run, _length(run, "input_sequence_length"), _length(run, "output_sequence_length"))
    check_load(load, "input_config", run.problems)
    latencies = [latency for key, metric in _METRICS.items() for latency in _distribution(run, key, metric)]
    check_latencies(latencies, "request_latency", run.problems)
    config = run.record("input_config")
    models = config.values.get("model_names")
    model = str(models[0]) if isinstance(models, list) and models else config.record("endpoint").text("model")
    return ServingPoint(
        model=model,
        load=load,
        latencies=tuple(latencies),
        requests_per_second=run.record("request_throughput").positive("avg"),
        output_tokens_per_second=run.record("output_token_throughput").positive("avg"),
        completed_requests=run.record("request_count").count("avg"),
        failed_requests=run.record("error_request_count").count("avg"),
        duration_seconds=_seconds(run, "benchmark_duration", "avg"),
    )


def _length(run: Record, key: str) -> LengthDistribution | None:
    figure = run.record(key)
    return length_of(figure.positive("avg"), figure.positive("std"), f"{key}.avg", run.problems)


def _seconds(run: Record, key: str, statistic: str) -> float | None:
    figure = run.record(key)
    unit = figure.text("unit").lower() or "ms"
    if figure.values and unit not in _UNIT_SECONDS:
        run.problems.add(f"{key}.unit", f"is {unit!r}; legal: {', '.join(_UNIT_SECONDS)}")
        return None
    return scaled(figure.positive(statistic), _UNIT_SECONDS[unit])


def _distribution(run: Record, key: str, metric: LatencyMetric) -> list[MeasuredLatency]:
    percentiles = {
        float(match.group(1).replace("_", ".")): _seconds(run, key, name)
        for name in run.record(key).values
        if (match := re.fullmatch(r"p(\d+(?:[._]\d+)?)", name))
    }
    return mean_latency(metric, _seconds(run, key, "avg")) + percentile_latencies(metric, percentiles)


def _load(
    run: Record, input_tokens: LengthDistribution | None, output_tokens: LengthDistribution | None
) -> TrafficClass:
    """The profiling phase of newer files, the load generator's settings of older ones."""
    config = run.record("input_config")
    phases = [phase for phase in config.records("phases") if phase.values.get("exclude_from_results") is not True]
    sources = [*phases, config.record("loadgen"), config.record("perf_analyzer").record("stimulus"), config]
    for source in sources:
        clients = source.positive("concurrency")
        if clients is not None:
            return closed_loop(clients, input_tokens, output_tokens)
        rate = source.positive("request_rate", "rate")
        if rate is not None:
            poisson = source.text("request_rate_mode", "type").lower() == "poisson"
            process = ArrivalProcess.POISSON if poisson else ArrivalProcess.CONSTANT
            return open_loop(rate, input_tokens, output_tokens, Arrivals(process))
    return closed_loop(None, input_tokens, output_tokens)
