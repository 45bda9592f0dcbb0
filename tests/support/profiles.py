"""Profiles that tests store."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

from inferplan.catalog.precision import Precision
from inferplan.profiles.profile import MeasuredLatency, Profile, ProfileProvenance, ServingPoint
from inferplan.sizing.configuration import ParallelismChoice
from inferplan.sizing.workload import ConstantLength, LatencyMetric, TrafficClass


def sha256_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def serving_point(concurrency: int = 64, tpot_seconds: float = 0.0287686) -> ServingPoint:
    """Llama-3.1-70B in FP8 on two H100s, 1024 tokens in and out, as ai-dynamo/aiconfigurator publishes it."""
    return ServingPoint(
        model="llama-3.1-70b",
        load=TrafficClass(
            concurrency=concurrency, input_tokens=ConstantLength(1024), output_tokens=ConstantLength(1024)
        ),
        parallelism=ParallelismChoice(tensor_parallel=2),
        weight_precision=Precision.FP8,
        latencies=(
            MeasuredLatency(LatencyMetric.TTFT, 0.4151325),
            MeasuredLatency(LatencyMetric.TPOT, tpot_seconds),
        ),
    )


def profile(raw_sha256: str = "", labels: dict[str, str] | None = None, **provenance: Any) -> Profile:
    """A profile of one serving point."""
    known: dict[str, Any] = {
        "accelerator": "h100-sxm-80gb",
        "engine": "vllm",
        "engine_version": "0.10.0",
        "tool": "vllm-bench",
        "measure_time": datetime(2026, 2, 3, 4, 5, 6, 789, tzinfo=UTC),
        "node": "gpu-1",
        "gpu_uuids": ("GPU-1", "GPU-2"),
        "environment": {"VLLM_USE_V1": "1"},
        "raw_sha256": raw_sha256,
    }
    return Profile(
        provenance=ProfileProvenance(**known | provenance), serving_points=(serving_point(),), labels=labels or {}
    )
