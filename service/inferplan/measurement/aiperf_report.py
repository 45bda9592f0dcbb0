"""Reading the report that AIPerf writes after a run that we started, whose load is known."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from inferplan.catalog.precision import Precision
from inferplan.errors import InvalidInputError
from inferplan.profiles.profile import MeasuredLatency, ServingPoint
from inferplan.sizing.configuration import ParallelismChoice
from inferplan.sizing.workload import ConstantLength, LatencyMetric, TrafficClass

LATENCIES = (
    (LatencyMetric.TTFT, "time_to_first_token"),
    (LatencyMetric.TPOT, "inter_token_latency"),
    (LatencyMetric.INTER_TOKEN, "inter_chunk_latency"),
    (LatencyMetric.END_TO_END, "request_latency"),
)
"""AIPerf's metrics by ours (its docs/metrics-reference.md): `inter_token_latency` is a request's mean after the first
token, (end to end - TTFT) / (output tokens - 1); `inter_chunk_latency` are the single gaps."""

PERCENTILES = (50.0, 90.0, 95.0, 99.0)
SECONDS_PER_UNIT = {"ms": 1e-3, "sec": 1.0, "s": 1.0, "us": 1e-6, "ns": 1e-9}


@dataclass(frozen=True, slots=True)
class ServedConfiguration:
    """What the report does not know: the model by its catalogue name, and how its engine was run."""

    model: str
    parallelism: ParallelismChoice
    weight_precision: Precision | None = None
    kv_precision: Precision | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None


def read_report(content: bytes, concurrency: int, served: ServedConfiguration) -> tuple[ServingPoint, str]:
    """The point that one report holds, and AIPerf's version. Lengths are the mean of what the server counted.

    Raises InvalidInputError if it is not such a report, or if no request completed.
    """
    try:
        report = json.loads(content)
    except ValueError:
        raise InvalidInputError.single("report", "is not JSON; AIPerf was probably stopped while writing it") from None
    if not isinstance(report, dict) or "aiperf_version" not in report:
        raise InvalidInputError.single("report", "is not a summary by AIPerf: it has no aiperf_version")
    input_tokens = _statistic(report, "input_sequence_length", "avg")
    output_tokens = _statistic(report, "output_sequence_length", "avg")
    if input_tokens is None or output_tokens is None:
        raise InvalidInputError.single(
            "report", "has no token counts: no request completed, or the server does not report usage when streaming"
        )
    completed = _count(report, "request_count")
    point = ServingPoint(
        model=served.model,
        load=TrafficClass(
            concurrency=concurrency,
            input_tokens=ConstantLength(max(round(input_tokens), 1)),
            output_tokens=ConstantLength(max(round(output_tokens), 1)),
        ),
        parallelism=served.parallelism,
        weight_precision=served.weight_precision,
        kv_precision=served.kv_precision,
        max_num_seqs=served.max_num_seqs,
        max_num_batched_tokens=served.max_num_batched_tokens,
        latencies=tuple(_latencies(report)),
        requests_per_second=_statistic(report, "request_throughput", "avg"),
        output_tokens_per_second=_statistic(report, "output_token_throughput", "avg"),
        completed_requests=completed,
        failed_requests=_failed(report),
        duration_seconds=_seconds(report, "benchmark_duration", "avg"),
    )
    return point, str(report["aiperf_version"])


def _latencies(report: dict[str, Any]) -> list[MeasuredLatency]:
    latencies = []
    for metric, name in LATENCIES:
        for percentile in (None, *PERCENTILES):
            seconds = _seconds(report, name, "avg" if percentile is None else f"p{percentile:g}")
            if seconds is not None:
                latencies.append(MeasuredLatency(metric, seconds, percentile))
    return latencies


def _failed(report: dict[str, Any]) -> int | None:
    """Failed requests. A report without failures omits the count and has a rate of 0."""
    failed = _count(report, "error_request_count")
    if failed is None and _statistic(report, "request_error_rate", "avg") == 0:
        return 0
    return failed


def _count(report: dict[str, Any], metric: str) -> int | None:
    value = _statistic(report, metric, "avg")
    return None if value is None else round(value)


def _seconds(report: dict[str, Any], metric: str, statistic: str) -> float | None:
    value = _statistic(report, metric, statistic)
    if value is None:
        return None
    unit = report[metric].get("unit")
    if unit not in SECONDS_PER_UNIT:
        legal = ", ".join(SECONDS_PER_UNIT)
        raise InvalidInputError.single(f"report.{metric}.unit", f"{unit!r} is no unit of time; legal: {legal}")
    return value * SECONDS_PER_UNIT[unit]


def _statistic(report: dict[str, Any], metric: str, statistic: str) -> float | None:
    """A figure of the report; None if it is absent or not finite, which is never a measurement."""
    held = report.get(metric)
    value = held.get(statistic) if isinstance(held, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
