"""Building measurements out of a tool's figures and the header: what readers of serving benchmarks share."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from inferplan.catalog.precision import Precision
from inferplan.profiles.profile import (
    BrokenSanityRule,
    ImportHeader,
    MeasuredLatency,
    Profile,
    ProfileProvenance,
    ServingPoint,
)
from inferplan.profiles.readers.record import MAXIMUM_TOKENS, Problems, Record
from inferplan.sizing.configuration import ParallelismChoice
from inferplan.sizing.workload import (
    ArrivalProcess,
    Arrivals,
    ConstantLength,
    LatencyMetric,
    LengthDistribution,
    LognormalLength,
    TrafficClass,
)

MAXIMUM_POINTS = 10_000
"""The contract's limit of serving points in one profile."""
MAXIMUM_LATENCY_SECONDS = 86_400.0
"""The contract's limit of a measured latency: one day."""
KEPT_PERCENTILES = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9)
"""Percentiles that planning asks for; the lower tail is not kept."""
_CONSTANT_UP_TO_VARIATION = 0.005
_MAXIMUM_CONCURRENCY = 10_000_000
_MAXIMUM_RATE_PER_SECOND = 1e7


def mean_latency(metric: LatencyMetric, seconds: float | None) -> list[MeasuredLatency]:
    """The mean as a list of one, empty if it was not measured."""
    return [] if seconds is None else [MeasuredLatency(metric, seconds)]


def percentile_latencies(metric: LatencyMetric, percentiles: Mapping[float, float | None]) -> list[MeasuredLatency]:
    """Those of the percentiles that were measured and are kept, in rising order."""
    return [
        MeasuredLatency(metric, seconds, percentile)
        for percentile, seconds in sorted(percentiles.items())
        if seconds is not None and percentile in KEPT_PERCENTILES
    ]


def scaled(value: float | None, factor: float) -> float | None:
    """`value` in another unit; absent stays absent."""
    return None if value is None else value * factor


def tpot_seconds(end_to_end_seconds: float | None, ttft_seconds: float | None, output_tokens: float) -> float | None:
    """TPOT by its definition, (E2E - TTFT) / (output tokens - 1); None where that says nothing."""
    if end_to_end_seconds is None or ttft_seconds is None or output_tokens <= 1:
        return None
    decode_seconds = end_to_end_seconds - ttft_seconds
    return decode_seconds / (output_tokens - 1) if decode_seconds > 0 else None


def length_of(
    mean_tokens: float | None, standard_deviation_tokens: float | None, path: str, problems: Problems
) -> LengthDistribution | None:
    """Lengths with the measured mean: log-normal where their spread is known, else constant, to the whole token."""
    if mean_tokens is None:
        problems.add(path, "is not in the file; legal is a file that states the mean length in tokens", "REQUIRED")
        return None
    if not 0.5 <= mean_tokens <= MAXIMUM_TOKENS:
        problems.add(path, f"is {mean_tokens:g} tokens on average; legal is 1 to {MAXIMUM_TOKENS}")
        return None
    spread = (standard_deviation_tokens or 0.0) / mean_tokens
    if _CONSTANT_UP_TO_VARIATION < spread <= 100.0 and mean_tokens >= 1.0:
        return LognormalLength(mean_tokens, spread)
    return ConstantLength(max(1, round(mean_tokens)))


def closed_loop(
    clients: float | None, input_tokens: LengthDistribution | None, output_tokens: LengthDistribution | None
) -> TrafficClass:
    """Clients that each keep one request in flight; a burst of n requests is n clients that send one each."""
    return TrafficClass(
        concurrency=None if clients is None else max(1, round(clients)),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
    )


def open_loop(
    requests_per_second: float,
    input_tokens: LengthDistribution | None,
    output_tokens: LengthDistribution | None,
    arrivals: Arrivals,
) -> TrafficClass:
    """Requests that come at a rate, whatever the server does."""
    return TrafficClass(
        requests_per_second=requests_per_second,
        arrivals=arrivals,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
    )


def arrivals_of_burstiness(burstiness: float | None) -> Arrivals:
    """VLLM's burstiness is the shape of gamma gaps: coefficient of variation 1 / sqrt(shape), 1 is Poisson."""
    if burstiness is None or burstiness == 1.0:
        return Arrivals(ArrivalProcess.POISSON)
    return Arrivals(ArrivalProcess.GAMMA, coefficient_of_variation=min(100.0, 1.0 / math.sqrt(burstiness)))


def check_load(load: TrafficClass, path: str, problems: Problems) -> None:
    """A load that is missing or beyond what the contract can hold."""
    if load.concurrency is None and load.requests_per_second is None:
        problems.add(path, "the file states neither a concurrency nor a request rate; legal is one of them", "REQUIRED")
    if load.concurrency is not None and load.concurrency > _MAXIMUM_CONCURRENCY:
        problems.add(path, f"concurrency is {load.concurrency}; legal is 1 to {_MAXIMUM_CONCURRENCY}")
    rate = load.requests_per_second
    if rate is not None and not 0 < rate <= _MAXIMUM_RATE_PER_SECOND:
        problems.add(path, f"request rate is {rate:g}; legal is above 0 and at most {_MAXIMUM_RATE_PER_SECOND:g}")


def check_latencies(latencies: Iterable[MeasuredLatency], path: str, problems: Problems) -> None:
    """Latencies that no request can have."""
    for latency in latencies:
        if not 0 <= latency.value_seconds <= MAXIMUM_LATENCY_SECONDS:
            problems.add(
                path,
                f"{latency.metric.value} is {latency.value_seconds:g} s; legal is 0 to {MAXIMUM_LATENCY_SECONDS:g} s",
            )


def spoken_precision(text: str) -> Precision | None:
    """The number format that a label names, such as `FP8`, `fp8_block`, `bf16`, `awq`; None if it names none.

    `fp4` and `nvfp4` are None too: tools write them for MXFP4 checkpoints as well, so that the checkpoint's own format
    is the better guess.
    """
    return _PRECISION_BY_LABEL.get(text.strip().lower().replace("-", "_"))


_PRECISION_BY_LABEL = {
    "fp8": Precision.FP8,
    "fp8_block": Precision.FP8,
    "fp8_static": Precision.FP8,
    "float8": Precision.FP8,
    "fp8_e4m3": Precision.FP8,
    "bf16": Precision.BFLOAT16,
    "bfloat16": Precision.BFLOAT16,
    "fp16": Precision.FLOAT16,
    "float16": Precision.FLOAT16,
    "half": Precision.FLOAT16,
    "fp32": Precision.FLOAT32,
    "float32": Precision.FLOAT32,
    "int8": Precision.INT8,
    "w8a8": Precision.INT8,
    "int4": Precision.INT4,
    "awq": Precision.INT4,
    "gptq": Precision.INT4,
    "w4a16": Precision.INT4,
    "mxfp4": Precision.MXFP4,
}


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What a file says of its run as a whole; empty and None where it is silent, so that the header speaks."""

    accelerator: str = ""
    engine: str = ""
    engine_version: str = ""
    tool: str = ""
    tool_version: str = ""
    measure_time: datetime | None = None
    source: str = ""
    driver_version: str = ""
    runtime_version: str = ""


def merged_provenance(header: ImportHeader, facts: FileFacts) -> ProfileProvenance:
    """The header's provenance with what the file states itself put over it."""
    stated = header.provenance
    return dataclasses.replace(
        stated,
        accelerator=facts.accelerator or stated.accelerator,
        engine=facts.engine or stated.engine or header.engine.engine,
        engine_version=facts.engine_version or stated.engine_version or header.engine.version,
        tool=facts.tool or stated.tool,
        tool_version=facts.tool_version or stated.tool_version,
        measure_time=facts.measure_time or stated.measure_time,
        source=facts.source or stated.source,
        driver_version=facts.driver_version or stated.driver_version,
        runtime_version=facts.runtime_version or stated.runtime_version,
    )


def with_header(point: ServingPoint, header: ImportHeader) -> ServingPoint:
    """The point with what the header knows and the file does not say."""
    engine = header.engine
    return dataclasses.replace(
        point,
        model=point.model or header.model,
        parallelism=point.parallelism or header.parallelism,
        weight_precision=point.weight_precision or engine.weight_precision,
        kv_precision=point.kv_precision or engine.kv_precision,
        max_num_seqs=point.max_num_seqs or engine.max_num_seqs,
        max_num_batched_tokens=point.max_num_batched_tokens or engine.max_num_batched_tokens,
    )


def serving_profile(
    points: Sequence[ServingPoint], facts: FileFacts, header: ImportHeader, problems: Problems
) -> Profile:
    """The profile of one run. Raises InvalidInputError with all that was wrong in the file or is still missing."""
    provenance = merged_provenance(header, facts)
    completed = tuple(with_header(point, header) for point in points)
    if not completed and not problems.violations:
        problems.add("file", "holds no measurement; legal is at least one benchmark run", "NO_MEASUREMENTS")
    if len(completed) > MAXIMUM_POINTS:
        problems.add(
            "file", f"holds {len(completed)} runs; legal is at most {MAXIMUM_POINTS} in one profile", "TOO_MANY_ROWS"
        )
    _check_required(completed, provenance, problems)
    problems.raise_if_any()
    return Profile(provenance=provenance, serving_points=completed, labels=header.labels)


def require_accelerator(provenance: ProfileProvenance, problems: Problems) -> None:
    """An accelerator that neither the file nor the header names."""
    if not provenance.accelerator:
        problems.add(
            "header.provenance.accelerator", "the file does not name the GPU; state it with --accelerator", "REQUIRED"
        )


def _check_required(points: Sequence[ServingPoint], provenance: ProfileProvenance, problems: Problems) -> None:
    require_accelerator(provenance, problems)
    if not provenance.engine:
        problems.add(
            "header.provenance.engine", "the file does not name the engine; state it with --engine", "REQUIRED"
        )
    if any(not point.model for point in points):
        problems.add("header.model", "the file does not name the model; state it with --model", "REQUIRED")
    if any(point.parallelism is None or point.parallelism.tensor_parallel is None for point in points):
        problems.add(
            "header.parallelism.tensor_parallel",
            "the file does not say over how many GPUs a replica was spread; state it with --tensor-parallel",
            "REQUIRED",
        )


def moment_of_epoch(seconds: float | None) -> datetime | None:
    """A Unix time as a moment in UTC; None where it is absent or outside the years 1970 to 9999."""
    if seconds is None or not 0 < seconds < 253_402_300_800:
        return None
    return datetime.fromtimestamp(seconds, UTC)


def several_replicas(record: Record, *keys: str) -> tuple[BrokenSanityRule, ...]:
    """A point stands for one replica, so a run over more of them can be kept but not used."""
    replicas = sum(record.count(key) or 0 for key in keys)
    if replicas <= 1:
        return ()
    stated = ", ".join(f"{key} {record.count(key)}" for key in keys if record.count(key))
    return (
        BrokenSanityRule(
            "SEVERAL_REPLICAS",
            f"the load was spread over {replicas} replicas ({stated}); legal is a run on one replica",
        ),
    )


def speculative_decoding(evidence: str) -> BrokenSanityRule:
    """The step model decodes one token a sequence and step, so a run with more can be kept but not used."""
    return BrokenSanityRule(
        "SPECULATIVE_DECODING", f"speculative decoding was on ({evidence}); legal is one token a sequence and step"
    )


def replicated(tensor_parallel: int | None, expert_parallel: int | None = None) -> ParallelismChoice | None:
    """The parallelism of a file that states it; None if it does not."""
    if tensor_parallel is None:
        return None
    return ParallelismChoice(tensor_parallel=tensor_parallel, pipeline_parallel=1, expert_parallel=expert_parallel or 1)
