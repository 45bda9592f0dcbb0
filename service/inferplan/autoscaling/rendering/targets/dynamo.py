"""NVIDIA Dynamo: KEDA on the scaling adapter, or the planner's configuration. Never both: each writes replicas.

Field facts: Dynamo's autoscaling guide and PlannerConfig of ai-dynamo 1.6. The operator makes one
DynamoGraphDeploymentScalingAdapter a service; it has a scale subresource. The frontend's metrics carry
`dynamo_namespace` = <Kubernetes namespace>-<graph deployment>. With no worker left the frontend forgets the model, so
that nothing wakes it. The planner takes KV use in percent and a GPU budget in place of a number of replicas, and drops
unknown keys without a word.
"""

from __future__ import annotations

import math
from typing import Any

from inferplan.autoscaling.policy import SignalKind
from inferplan.autoscaling.rendering.documents import Commented, header_lines, yaml_file
from inferplan.autoscaling.rendering.keda_objects import KEDA_OPTIONS, keda_scaling
from inferplan.autoscaling.rendering.known_fields import KnownFields, require_known_fields
from inferplan.autoscaling.rendering.losses import concurrency_loss, drain_losses, policy_losses
from inferplan.autoscaling.rendering.metrics import gateway_dialect
from inferplan.autoscaling.rendering.naming import object_name
from inferplan.autoscaling.rendering.options import (
    Option,
    ResolvedOptions,
    kubernetes_name,
    name_options,
    one_of,
    optional,
)
from inferplan.autoscaling.rendering.registry import Target
from inferplan.autoscaling.rendering.replicas import never_zero, replica_bounds
from inferplan.autoscaling.rendering.request import Rendering, RenderingLoss, RenderingRequest
from inferplan.autoscaling.rendering.targets.keda import scaled_object
from inferplan.errors import InvalidInputError
from inferplan.sizing.workload import LatencyMetric

PLANNER_FIELDS: KnownFields = dict.fromkeys(
    (
        "environment",
        "backend",
        "mode",
        "optimization_target",
        "max_gpu_budget",
        "min_gpu_budget",
        "min_endpoint",
        "decode_engine_num_gpu",
        "prefill_engine_num_gpu",
        "ttft_ms",
        "itl_ms",
        "model_name",
        "enable_throughput_scaling",
        "enable_load_scaling",
        "load_adjustment_interval_seconds",
        "throughput_adjustment_interval_seconds",
        "max_throughput_scaling_replicas",
        "prefill_scale_up_queue_tokens",
        "prefill_scale_down_queue_tokens",
        "decode_scale_up_kv_rate",
        "decode_scale_down_kv_rate",
    )
)
"""Fields of PlannerConfig that a plan could state."""

_ZERO = "Dynamo's frontend forgets a model whose last worker is gone, so that nothing would wake it"

_BACKENDS = {"vllm": "vllm", "sglang": "sglang", "tensorrt-llm": "trtllm"}


def _render(request: RenderingRequest, options: ResolvedOptions) -> Rendering:
    if options.text("autoscaler") == "planner":
        return _planner(request)
    return _keda(request, options)


def _keda(request: RenderingRequest, options: ResolvedOptions) -> Rendering:
    graph = options.text("graph_deployment") or object_name(request, options)
    service = options.text("service")
    adapter = f"{graph}-{service.lower()}"
    dialect = gateway_dialect("dynamo")
    scaling = keda_scaling(
        request,
        options,
        read_at=dialect,
        labels=(
            ("dynamo_namespace", f"{options.text('namespace')}-{graph}"),
            (dialect.model_label, request.model_name),
        ),
        zero_refused_because=_ZERO,
    )
    reference = {
        "apiVersion": "nvidia.com/v1alpha1",
        "kind": "DynamoGraphDeploymentScalingAdapter",
        "name": adapter,
    }
    document = scaled_object(object_name(request, options), options, reference, scaling)
    header = header_lines(
        request,
        f"KEDA ScaledObject on Dynamo's scaling adapter {adapter}, which service {service} of {graph} must have "
        "enabled. Neither the planner nor `replicas` of that service may write replicas beside it.",
    )
    read_elsewhere = [
        RenderingLoss(f"signals[{index}].origin", "engine: read at Dynamo's frontend, which sees the same requests")
        for index, signal in enumerate(request.policy.signals)
        if signal.origin.value == "engine"
    ]
    losses = (
        *scaling.losses,
        *read_elsewhere,
        *concurrency_loss(request.policy),
        *drain_losses(request.policy),
    )
    return Rendering((yaml_file("scaledobject.yaml", header, [document]),), losses)


def _planner(request: RenderingRequest) -> Rendering:
    policy = request.policy
    configuration = request.configuration
    backend = _BACKENDS.get(configuration.engine)
    if backend is None:
        raise InvalidInputError.single(
            "target", f"Dynamo runs no {configuration.engine}; legal: {', '.join(_BACKENDS)}", "OTHER_ENGINE"
        )
    bounds = replica_bounds(policy, can_run_ahead=False)
    floor, zero_losses = never_zero(policy, bounds, _ZERO)
    target, comments, target_losses = _planner_target(request, floor)
    gpus = configuration.gpus_per_replica
    document = Commented(
        {
            "environment": "kubernetes",
            "backend": backend,
            "mode": "agg",
            "model_name": request.model_name,
            **target,
            "min_endpoint": floor,
            "decode_engine_num_gpu": gpus,
            "max_gpu_budget": bounds.most * gpus,
        },
        {
            "min_endpoint": bounds.floor_comment,
            "max_gpu_budget": f"{bounds.most} replicas x {gpus} GPUs: {bounds.most_comment}",
            **comments,
        },
    )
    require_known_fields(document, PLANNER_FIELDS)
    header = header_lines(
        request,
        "Configuration of Dynamo's planner (`python -m dynamo.planner --config`). No ScaledObject on the scaling "
        "adapter beside it.",
    )
    losses = (
        *bounds.losses,
        *zero_losses,
        *target_losses,
        *policy_losses(
            policy,
            ("minimum_replicas", "maximum_replicas", "allow_zero", "warm_replicas", "warm_kind", "signals"),
            "the planner has no such setting",
        ),
    )
    return Rendering((yaml_file("planner-config.yaml", header, [document]),), losses)


def _planner_target(
    request: RenderingRequest, floor: int
) -> tuple[dict[str, Any], dict[str, str], list[RenderingLoss]]:
    """KV use where the policy watches it, else objectives on TTFT and TPOT, else the planner's own thresholds."""
    policy = request.policy
    kv = [signal.target for signal in policy.signals if signal.kind is SignalKind.KV_CACHE_RATIO and signal.per_replica]
    losses = [
        RenderingLoss(f"signals[{index}]", f"{signal.kind.value} {signal.target:g}: the planner does not take it")
        for index, signal in enumerate(policy.signals)
        if signal.kind is not SignalKind.KV_CACHE_RATIO or not kv
    ]
    if kv:
        up = min(kv) * 100
        others = max(1, floor)
        # After one of n + 1 replicas went, the others carry (n + 1)/n of the load, which must stay below `up`.
        down = math.floor(up * others / (others + 1) * 10) / 10
        values = {"optimization_target": "load", "decode_scale_up_kv_rate": up, "decode_scale_down_kv_rate": down}
        return (
            values,
            {"decode_scale_down_kv_rate": f"{up:g} % x {others}/{others + 1}, so that it does not return"},
            losses,
        )
    bounds = _objective_bounds(request)
    if LatencyMetric.TTFT in bounds and LatencyMetric.TPOT in bounds:
        losses.append(
            RenderingLoss("objectives", "percentiles: the planner aims at the mean TTFT and TPOT of an interval")
        )
        values = {
            "optimization_target": "sla",
            "ttft_ms": bounds[LatencyMetric.TTFT] * 1000,
            "itl_ms": bounds[LatencyMetric.TPOT] * 1000,
            "enable_throughput_scaling": False,
            "enable_load_scaling": True,
        }
        return values, {}, losses
    return {"optimization_target": "throughput"}, {"optimization_target": "the planner's own thresholds"}, losses


def _objective_bounds(request: RenderingRequest) -> dict[LatencyMetric, float]:
    bounds: dict[LatencyMetric, float] = {}
    for objective in request.objectives:
        known = bounds.get(objective.metric, math.inf)
        bounds[objective.metric] = min(known, objective.maximum_seconds)
    return bounds


TARGET = Target(
    "dynamo",
    "NVIDIA Dynamo: KEDA on the scaling adapter, or the planner",
    (
        *name_options(),
        Option("autoscaler", "keda", "the one writer of replicas", one_of("keda", "planner")),
        Option(
            "graph_deployment", "", "name of the DynamoGraphDeployment; empty: the same name", optional(kubernetes_name)
        ),
        Option("service", "decode", "service of the graph that is scaled", kubernetes_name),
        *(option for option in KEDA_OPTIONS if option.key != "gateway"),
    ),
    _render,
)
