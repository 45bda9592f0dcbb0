"""Requests to render, and the validators of other projects that rendered files are held against."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import kubernetes_validate  # type: ignore[import-untyped]
import promql_parser
from ruamel.yaml import YAML

from inferplan.autoscaling.policy import (
    AutoscalingPolicy,
    AutoscalingSignal,
    ColdStart,
    MissingMetricBehavior,
    PolicyDerivation,
    ScalingRule,
    SignalKind,
    SignalOrigin,
    WarmKind,
)
from inferplan.autoscaling.rendering import Rendering, RenderingRequest, render
from inferplan.catalog.precision import Precision
from inferplan.sizing.configuration import Configuration
from inferplan.sizing.parallelism import Parallelism
from inferplan.sizing.workload import LatencyMetric, Objective

SCHEMAS = Path(__file__).parent.parent / "data" / "schemas"

QUEUE = AutoscalingSignal(SignalKind.QUEUE_DEPTH, 20.0, per_replica=True)
RUNNING = AutoscalingSignal(SignalKind.RUNNING, 48.0, per_replica=True)
KV_CACHE = AutoscalingSignal(SignalKind.KV_CACHE_RATIO, 0.85, per_replica=True)
TTFT = AutoscalingSignal(SignalKind.TTFT_P95, 2.0, per_replica=False)
GATEWAY_QUEUE = replace(QUEUE, origin=SignalOrigin.GATEWAY)
GATEWAY_RUNNING = replace(RUNNING, origin=SignalOrigin.GATEWAY)

ENGINE_OF_TARGET = {"sglang": ("sglang", "0.5.5", "sglang"), "tensorrt-llm": ("tensorrt-llm", "1.0.0", "trtllm")}


def policy(**changes: Any) -> AutoscalingPolicy:
    """The worked example's policy with a running companion and steps: queue 20, 90 s, 300 s, 1 + 1 warm to 8."""
    example = AutoscalingPolicy(
        minimum_replicas=1,
        maximum_replicas=8,
        allow_zero=False,
        warm_replicas=1,
        warm_kind=WarmKind.HOT_FLOOR,
        signals=(QUEUE, RUNNING),
        scale_up=ScalingRule(cooldown_seconds=90.0, maximum_step_replicas=2),
        scale_down=ScalingRule(cooldown_seconds=300.0, maximum_step_replicas=1),
        missing_metrics=MissingMetricBehavior.HOLD,
        derivations=(PolicyDerivation("signals[0].target", "floor(0.4 x 50 concurrent sequences) = 20 requests"),),
        cold_start=ColdStart(total_seconds=90.0, weights_load_seconds=90.0),
    )
    return replace(example, **changes)


def configuration(**changes: Any) -> Configuration:
    """Two H100 under vLLM 0.21, 256 sequences."""
    example = Configuration(
        accelerator="h100-sxm",
        gpus_per_replica=2,
        engine="vllm",
        engine_version="0.21.0",
        engine_release="0.21.0",
        weight_precision=Precision.BFLOAT16,
        kv_precision=Precision.BFLOAT16,
        gpu_memory_utilization=0.92,
        max_num_seqs=256,
        max_num_batched_tokens=8192,
        max_model_len_tokens=16384,
        enable_prefix_caching=True,
        parallelism=Parallelism(tensor_parallel=2),
    )
    return replace(example, **changes)


def request(target: str = "keda", options: Mapping[str, str] | None = None, **changes: Any) -> RenderingRequest:
    """A request that `target` can render, with fields replaced by `changes`."""
    engine, version, dialect = ENGINE_OF_TARGET.get(target, ("vllm", "0.21.0", "vllm"))
    example = RenderingRequest(
        policy=policy(),
        configuration=configuration(engine=engine, engine_version=version),
        metric_dialect=dialect,
        model_name="meta-llama/Llama-3.1-8B-Instruct",
        plan_name="deployments/chat/plans/3",
        revision=3,
        objectives=(Objective(LatencyMetric.TTFT, 95.0, 2.0), Objective(LatencyMetric.TPOT, 95.0, 0.05)),
        options=options or {},
    )
    return replace(example, **changes)


def rendered(target: str, options: Mapping[str, str] | None = None, **changes: Any) -> Rendering:
    """What `target` gives for `request(target, options, **changes)`."""
    return render(target, request(target, options, **changes))


def documents(rendering: Rendering, index: int = 0) -> list[Any]:
    """The YAML documents of one file."""
    return list(YAML(typ="safe", pure=True).load_all(rendering.files[index].content))


def document(target: str, options: Mapping[str, str] | None = None, **changes: Any) -> Any:
    """The first YAML document that `target` gives."""
    return documents(rendered(target, options, **changes))[0]


def lost_fields(rendering: Rendering) -> set[str]:
    """Fields that the rendering reports as lost."""
    return {loss.field for loss in rendering.losses}


def losses_of(rendering: Rendering, field: str) -> str:
    """Everything that is said about the loss of one field."""
    return "; ".join(loss.description for loss in rendering.losses if loss.field == field)


def check_schema(value: Any, filename: str) -> None:
    """Raises SchemaError for anything that the strict schema does not list."""
    schema = json.loads((SCHEMAS / filename).read_text("utf-8"))
    try:
        jsonschema.Draft202012Validator(schema).validate(value)
    except jsonschema.ValidationError as error:
        raise SchemaError(error.message) from None


def check_kubernetes(value: Mapping[str, Any], version: str) -> None:
    """Raises SchemaError for what Kubernetes of that version would not take."""
    try:
        kubernetes_validate.validate(value, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        raise SchemaError(error.message) from None


class SchemaError(Exception):
    """A rendered object breaks its schema."""


def metrics_of(query: str) -> set[str]:
    """Metric names of a query that parses. Raises ValueError for one that does not."""
    found: set[str] = set()

    def visit(node: promql_parser.Expr) -> bool:
        selector = node.vector_selector if isinstance(node, promql_parser.MatrixSelector) else node
        if isinstance(selector, promql_parser.VectorSelector) and selector.name:
            found.add(selector.name)
        return True

    promql_parser.walk(promql_parser.parse(query), visit)
    return found
