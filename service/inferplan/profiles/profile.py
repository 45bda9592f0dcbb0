"""What was measured, where it came from, and what was wrong with it.

Field names are those of the contract's messages, so that both are converted field for field.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from inferplan.catalog.precision import Precision
from inferplan.sizing.configuration import EngineSettings, ParallelismChoice
from inferplan.sizing.workload import LatencyMetric, TrafficClass


class ProfileStatus(StrEnum):
    """Whether a profile may be used."""

    ACTIVE = "active"
    WITHDRAWN = "withdrawn"
    SUPERSEDED = "superseded"


class DeviceMeasurementKind(StrEnum):
    """What a device test measured. A copy counts the bytes read and the bytes written."""

    MEMORY_READ = "memory_read"
    MEMORY_COPY = "memory_copy"
    MATMUL = "matmul"
    ALL_REDUCE = "all_reduce"
    HOST_TO_DEVICE = "host_to_device"
    DEVICE_TO_HOST = "device_to_host"
    DEVICE_TO_DEVICE = "device_to_device"


@dataclass(frozen=True, slots=True)
class ProfileProvenance:
    """Where a profile's figures came from. Empty text and None mean that it was not recorded.

    `accelerator` is a catalogue id or alias. `environment` holds variables that change behaviour, never secrets.
    `measure_time` is an aware datetime in UTC. `raw_sha256` is in lower-case hexadecimal.
    """

    accelerator: str = ""
    visible_memory_bytes: float | None = None
    node: str = ""
    gpu_uuids: tuple[str, ...] = ()
    driver_version: str = ""
    runtime_version: str = ""
    engine: str = ""
    engine_version: str = ""
    engine_flags: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    tool: str = ""
    tool_version: str = ""
    measure_time: datetime | None = None
    measured_by: str = ""
    raw_sha256: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class DeviceMeasurement:
    """What one GPU or one link reached in one test.

    `gpu_index` is the GPU in its node, for links the sender, and `peer_gpu_index` the receiver. `gpus` is for
    all-reduce only, `precision` and `shape` (rows, columns, inner dimension) for matrix products only.
    `rate_per_second` is in bytes, for matrix products in FLOP. `clock_ratio` is the SM clock over its maximum.
    """

    kind: DeviceMeasurementKind
    rate_per_second: float
    gpu_index: int = 0
    peer_gpu_index: int | None = None
    gpus: int | None = None
    precision: Precision | None = None
    shape: tuple[int, ...] = ()
    buffer_bytes: float | None = None
    latency_seconds: float | None = None
    clock_ratio: float | None = None
    rejected_reason: str = ""


@dataclass(frozen=True, slots=True)
class StepMeasurement:
    """How long one scheduler step took. `context_tokens` is the sum over the decoding sequences."""

    duration_seconds: float
    decoding_sequences: int = 0
    context_tokens: int = 0
    prefill_tokens: int = 0


@dataclass(frozen=True, slots=True)
class MeasuredLatency:
    """One measured latency; `percentile` None is the mean. TPOT = (end to end - TTFT) / (output tokens - 1)."""

    metric: LatencyMetric
    value_seconds: float
    percentile: float | None = None


@dataclass(frozen=True, slots=True)
class BrokenSanityRule:
    """A sanity rule that a measurement broke: a stable code, and the figures in words."""

    rule: str
    description: str


@dataclass(frozen=True, slots=True)
class ServingPoint:
    """What one replica of a served model did under one load. None means that it was not recorded.

    `static_batch_sequences` None is continuous batching. A point with `broken_rules` is kept and not used. `label` is
    what its file calls it.
    """

    model: str
    load: TrafficClass
    parallelism: ParallelismChoice | None = None
    weight_precision: Precision | None = None
    kv_precision: Precision | None = None
    static_batch_sequences: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    latencies: tuple[MeasuredLatency, ...] = ()
    requests_per_second: float | None = None
    output_tokens_per_second: float | None = None
    completed_requests: int | None = None
    failed_requests: int | None = None
    duration_seconds: float | None = None
    broken_rules: tuple[BrokenSanityRule, ...] = ()
    label: str = ""

    def latency_seconds(self, metric: LatencyMetric, percentile: float | None = None) -> float | None:
        """The measured value of `metric` at `percentile` (None: the mean), None if it was not measured."""
        for latency in self.latencies:
            if latency.metric is metric and latency.percentile == percentile:
                return latency.value_seconds
        return None


@dataclass(frozen=True, slots=True)
class Profile:
    """An immutable set of measurements from one node or one benchmark run.

    `name`, `status`, `create_time` and `created_by` are set when it is stored; `superseded_by` names another profile.
    """

    provenance: ProfileProvenance
    device_measurements: tuple[DeviceMeasurement, ...] = ()
    step_measurements: tuple[StepMeasurement, ...] = ()
    serving_points: tuple[ServingPoint, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    status: ProfileStatus = ProfileStatus.ACTIVE
    status_reason: str = ""
    superseded_by: str = ""
    create_time: datetime | None = None
    created_by: str = ""

    @property
    def measurements(self) -> int:
        """How many device tests, steps and serving points there are."""
        return len(self.device_measurements) + len(self.step_measurements) + len(self.serving_points)

    @property
    def rejected_measurements(self) -> int:
        """How many of them are kept and not used."""
        tests = sum(bool(test.rejected_reason) for test in self.device_measurements)
        return tests + sum(bool(point.broken_rules) for point in self.serving_points)


@dataclass(frozen=True, slots=True)
class ImportHeader:
    """What a benchmark file itself does not say; what the file states wins where both do.

    `tool` empty means that the format is detected from the content. `engine` may name engine and version where
    `provenance` does not, and carries the number formats and limits that the engine was run with.
    """

    provenance: ProfileProvenance = field(default_factory=ProfileProvenance)
    filename: str = ""
    tool: str = ""
    model: str = ""
    parallelism: ParallelismChoice | None = None
    engine: EngineSettings = field(default_factory=EngineSettings)
    labels: Mapping[str, str] = field(default_factory=dict)
