"""KServe InferenceService (serving.kserve.io/v1beta1) with autoscaler class keda.

Field facts (KServe's KEDA reconciler): an external metric's threshold is read from `target.value` alone, so that
`averageValue` would give a threshold of 0; the trigger gets no metric type, which KEDA takes as an average; of
`behavior` only the windows are copied; there is no polling interval, cooldown, fallback or ignoreNullValues. Class hpa
takes CPU and memory only.
"""

from __future__ import annotations

from typing import Any

from inferplan.autoscaling.policy import AutoscalingPolicy
from inferplan.autoscaling.rendering.behavior import window_seconds
from inferplan.autoscaling.rendering.documents import Commented, header_lines, yaml_file
from inferplan.autoscaling.rendering.engine_flags import require_engine, vllm_flags
from inferplan.autoscaling.rendering.keda_objects import PROMETHEUS_ADDRESS_OPTION
from inferplan.autoscaling.rendering.losses import concurrency_loss, rule_losses, shown_missing
from inferplan.autoscaling.rendering.model_uri import MODEL_URI_OPTION, model_uri
from inferplan.autoscaling.rendering.naming import metadata, object_name
from inferplan.autoscaling.rendering.options import RESOURCE_NAME, Option, ResolvedOptions, named_service
from inferplan.autoscaling.rendering.registry import Target
from inferplan.autoscaling.rendering.replicas import never_zero, replica_bounds
from inferplan.autoscaling.rendering.request import Rendering, RenderingLoss, RenderingRequest
from inferplan.autoscaling.rendering.signals import SIGNAL_OPTIONS, RenderedSignal, rendered_signals
from inferplan.autoscaling.rendering.stop_sequence import stop_sequence
from inferplan.autoscaling.rendering.targets.hpa import quantity
from inferplan.errors import InvalidInputError


def _render(request: RenderingRequest, options: ResolvedOptions) -> Rendering:
    require_engine(request, "vllm")
    _refuse_several_nodes(request)
    policy = request.policy
    name = object_name(request, options, "-predictor")
    bounds = replica_bounds(policy, can_run_ahead=True)
    signals, signal_losses = rendered_signals(request, options, ahead_replicas=bounds.ahead, value_targets=False)
    floor, zero_losses = never_zero(policy, bounds, "InferenceService has no trigger that would wake it from zero")
    up_window, up_losses = window_seconds("scale_up", policy.scale_up)
    down_window, down_losses = window_seconds("scale_down", policy.scale_down)
    model, flag_losses = _model(request, options)
    predictor: dict[str, Any] = Commented(
        {
            "minReplicas": floor,
            "maxReplicas": bounds.most,
            **_grace(policy),
            "autoScaling": {
                "metrics": [_metric(signal, options) for signal in signals],
                "behavior": {
                    "scaleUp": {"stabilizationWindowSeconds": up_window},
                    "scaleDown": {"stabilizationWindowSeconds": down_window},
                },
            },
            "model": model,
        },
        {"minReplicas": bounds.floor_comment, "maxReplicas": bounds.most_comment},
    )
    annotations = {"serving.kserve.io/deploymentMode": "Standard", "serving.kserve.io/autoscalerClass": "keda"}
    document = {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {**metadata(name, options), "annotations": annotations},
        "spec": {"predictor": predictor},
    }
    header = header_lines(request, "KServe InferenceService; its ScaledObject alone writes replicas.")
    losses = (
        *bounds.losses,
        *signal_losses,
        *zero_losses,
        *up_losses,
        *down_losses,
        *rule_losses(
            policy,
            ("scale_up.sustain", "scale_down.sustain", "scale_down.cooldown"),
            "KServe copies the windows alone and drops behaviour policies and tolerances",
        ),
        *flag_losses,
        *_missing(policy),
        *_pre_stop(policy),
        *concurrency_loss(policy),
    )
    return Rendering((yaml_file("inferenceservice.yaml", header, [document]),), losses)


def _refuse_several_nodes(request: RenderingRequest) -> None:
    if request.nodes_per_replica > 1:
        raise InvalidInputError.single(
            "target",
            f"a replica needs {request.nodes_per_replica} nodes; KServe does not scale an InferenceService of several "
            "nodes; legal: a replica within one node, or target keda on a LeaderWorkerSet",
            "MULTI_NODE_REPLICA",
        )


def _grace(policy: AutoscalingPolicy) -> dict[str, Any]:
    stop = stop_sequence(policy)
    return {} if stop is None else {"terminationGracePeriodSeconds": stop.grace_seconds}


def _model(request: RenderingRequest, options: ResolvedOptions) -> tuple[dict[str, Any], list[RenderingLoss]]:
    flags, losses = vllm_flags(request)
    arguments = [f"--model_name={request.model_name}"]
    for flag in flags:
        if flag.name != "--served-model-name":
            arguments.append(flag.name if flag.value is None else f"{flag.name}={flag.value}")
    resource, gpus = options.text("gpu_resource"), str(request.configuration.gpus_per_replica)
    model = {
        "modelFormat": {"name": "huggingface"},
        "storageUri": model_uri(request, options),
        "args": arguments,
        "resources": {"requests": {resource: gpus}, "limits": {resource: gpus}},
    }
    return model, losses


def _metric(signal: RenderedSignal, options: ResolvedOptions) -> dict[str, Any]:
    return {
        "type": "External",
        "external": {
            "metric": {
                "backend": "prometheus",
                "serverAddress": options.text("prometheus_address"),
                "query": signal.query,
            },
            "target": Commented(
                {"type": "Value", "value": quantity(signal.signal.target)},
                {"value": signal.comment},
            ),
        },
    }


def _missing(policy: AutoscalingPolicy) -> list[RenderingLoss]:
    text = f"{shown_missing(policy)}: KServe has no fallback, and KEDA counts missing data as 0, which lowers replicas"
    return [RenderingLoss("missing_metrics", text)]


def _pre_stop(policy: AutoscalingPolicy) -> list[RenderingLoss]:
    if policy.pre_stop_seconds is None:
        return []
    return [
        RenderingLoss(
            "pre_stop_seconds",
            f"{policy.pre_stop_seconds:g} s: InferenceService states no pre-stop hook; only the grace period holds it",
        )
    ]


TARGET = Target(
    "kserve",
    "KServe InferenceService with autoscaler class keda",
    (
        *named_service("-predictor"),
        MODEL_URI_OPTION,
        Option("gpu_resource", "nvidia.com/gpu", "name under which nodes offer GPUs", RESOURCE_NAME),
        PROMETHEUS_ADDRESS_OPTION,
        *SIGNAL_OPTIONS,
    ),
    _render,
)
