"""Knative Service (serving.knative.dev/v1) with the Knative pod autoscaler.

Field facts: autoscaling annotations are strings; concurrency counts requests that run and wait in a pod; the target is
multiplied by a utilisation of 70 % unless that is set; `window` is 6 s to 1 h, `scale-down-delay` 0 to 1 h; panic mode
scales up without regard to the window.
"""

from __future__ import annotations

import math
from typing import Any

from inferplan.autoscaling.policy import AutoscalingPolicy
from inferplan.autoscaling.rendering.behavior import one_delay
from inferplan.autoscaling.rendering.documents import Commented, formula, header_lines, yaml_file
from inferplan.autoscaling.rendering.engine_flags import (
    MODEL_PATH_OPTION,
    Flag,
    default_image,
    model_path,
    require_engine,
    sglang_flags,
    vllm_flags,
)
from inferplan.autoscaling.rendering.losses import rule_losses, shown_missing
from inferplan.autoscaling.rendering.naming import metadata, object_name
from inferplan.autoscaling.rendering.options import (
    IMAGE,
    RESOURCE_NAME,
    Option,
    ResolvedOptions,
    named_service,
    optional,
)
from inferplan.autoscaling.rendering.registry import Target
from inferplan.autoscaling.rendering.replicas import ReplicaBounds, replica_bounds
from inferplan.autoscaling.rendering.request import Rendering, RenderingLoss, RenderingRequest
from inferplan.autoscaling.rendering.signals import SIGNAL_OPTIONS, plain_number, requests_per_replica, with_companion
from inferplan.errors import InvalidInputError

_SHORTEST_WINDOW_SECONDS, _LONGEST_SECONDS = 6, 3600
_USUAL_WINDOW_SECONDS = 60
_DEFAULT_TIMEOUT_SECONDS = 300
_ANNOTATION = "autoscaling.knative.dev"


def _render(request: RenderingRequest, options: ResolvedOptions) -> Rendering:
    require_engine(request, "vllm", "sglang")
    if request.nodes_per_replica > 1:
        raise InvalidInputError.single(
            "target",
            f"a replica needs {request.nodes_per_replica} nodes, but Knative runs one pod a replica; legal: a replica "
            "within one node, or target keda on a LeaderWorkerSet",
            "MULTI_NODE_REPLICA",
        )
    policy = request.policy
    signals, companion_losses = with_companion(request, options)
    target, signal_losses = requests_per_replica(signals)
    if target is None:
        raise InvalidInputError.single(
            "policy.signals",
            "has no count of requests in flight, the only signal of Knative here; legal: running or ongoing per "
            "replica",
            "NOTHING_TO_SCALE_ON",
        )
    bounds = replica_bounds(policy, can_run_ahead=False)
    annotations, scaling_losses = _annotations(policy, bounds, target)
    container, flag_losses = _container(request, options)
    pod: dict[str, Any] = {
        "containerConcurrency": policy.maximum_concurrency_per_replica or 0,
        "timeoutSeconds": max(_DEFAULT_TIMEOUT_SECONDS, math.ceil(policy.drain_seconds or 0)),
        "containers": [container],
    }
    pod = Commented(
        pod, {"timeoutSeconds": "longest request, and the time to drain", "containerConcurrency": "0: no limit"}
    )
    document = {
        "apiVersion": "serving.knative.dev/v1",
        "kind": "Service",
        "metadata": metadata(object_name(request, options, ""), options),
        "spec": {"template": {"metadata": {"annotations": annotations}, "spec": pod}},
    }
    header = header_lines(request, "Knative Service; Knative's autoscaler alone writes replicas.")
    losses = (
        *bounds.losses,
        *companion_losses,
        *signal_losses,
        *scaling_losses,
        *flag_losses,
        *_other_losses(policy),
    )
    return Rendering((yaml_file("knative-service.yaml", header, [document]),), losses)


def _annotations(
    policy: AutoscalingPolicy, bounds: ReplicaBounds, target: float
) -> tuple[dict[str, str], list[RenderingLoss]]:
    up, up_losses = one_delay("scale_up", policy.scale_up)
    down, down_losses = one_delay("scale_down", policy.scale_down)
    window, window_losses = _seconds(
        "scale_up.cooldown", "window", up or _USUAL_WINDOW_SECONDS, _SHORTEST_WINDOW_SECONDS
    )
    delay, delay_losses = _seconds("scale_down.cooldown", "scale-down-delay", down, 0)
    floor, zero_losses = bounds.floor, []
    if policy.allow_zero and floor:
        zero_losses.append(
            RenderingLoss("allow_zero", f"Knative goes to zero only from a floor of 0; at least {floor} stay")
        )
    values = {
        "class": "kpa.autoscaling.knative.dev",
        "metric": "concurrency",
        "target": plain_number(target),
        "target-utilization-percentage": "100",
        "min-scale": str(floor),
        "max-scale": str(bounds.most),
        "initial-scale": str(max(1, floor)),
        "window": f"{window}s",
        "scale-down-delay": f"{delay}s",
    }
    comments = {
        "target": "running + queued",
        "target-utilization-percentage": "the target is the target; the default takes 70 % of it",
        "min-scale": bounds.floor_comment,
        "max-scale": bounds.most_comment,
        "window": formula(policy, "scale_up.cooldown"),
        "scale-down-delay": formula(policy, "scale_down.cooldown"),
    }
    losses = [
        *up_losses,
        *down_losses,
        *window_losses,
        *delay_losses,
        *zero_losses,
        RenderingLoss(
            "scale_up.cooldown",
            f"{policy.scale_up.cooldown_seconds:g} s: Knative averages over a window and does not rest after it acted; "
            "at twice the target its panic mode scales up at once",
        ),
    ]
    return (
        Commented(
            {f"{_ANNOTATION}/{key}": value for key, value in values.items()},
            {f"{_ANNOTATION}/{key}": text for key, text in comments.items()},
        ),
        losses,
    )


def _seconds(field: str, what: str, seconds: float, least: int) -> tuple[int, list[RenderingLoss]]:
    whole = min(_LONGEST_SECONDS, max(least, math.ceil(seconds)))
    if whole == math.ceil(seconds):
        return whole, []
    return whole, [
        RenderingLoss(field, f"{seconds:g} s: {what} may be {least} to {_LONGEST_SECONDS} s; {whole} s are rendered")
    ]


def _container(request: RenderingRequest, options: ResolvedOptions) -> tuple[dict[str, Any], list[RenderingLoss]]:
    path = model_path(request, options)
    if request.configuration.engine == "vllm":
        flags, losses = vllm_flags(request)
        command = ["vllm", "serve", path]
    else:
        flags, losses = sglang_flags(request)
        command = ["python3", "-m", "sglang.launch_server", "--model-path", path]
    flags = [*flags, Flag("--host", "0.0.0.0"), Flag("--port", "8000")]
    resource, gpus = options.text("gpu_resource"), str(request.configuration.gpus_per_replica)
    container = {
        "image": options.text("image") or default_image(request),
        "command": command,
        "args": [word for flag in flags for word in flag.words],
        "ports": [{"containerPort": 8000}],
        "resources": {"requests": {resource: gpus}, "limits": {resource: gpus}},
    }
    return container, losses


def _other_losses(policy: AutoscalingPolicy) -> list[RenderingLoss]:
    losses = rule_losses(
        policy,
        ("scale_up.cooldown", "scale_up.sustain", "scale_down.cooldown", "scale_down.sustain"),
        "Knative has rates of change for the whole cluster, and no tolerance",
    )
    losses.append(
        RenderingLoss(
            "missing_metrics", f"{shown_missing(policy)}: Knative counts in its own proxies and has no such rule"
        )
    )
    if policy.pre_stop_seconds is not None:
        losses.append(
            RenderingLoss(
                "pre_stop_seconds",
                f"{policy.pre_stop_seconds:g} s: Knative's proxy sets the pre-stop hook itself, and a Service may not",
            )
        )
    if policy.drain_seconds is not None and policy.drain_seconds > _DEFAULT_TIMEOUT_SECONDS:
        losses.append(
            RenderingLoss(
                "drain_seconds",
                f"{policy.drain_seconds:g} s: needs max-revision-timeout-seconds of the cluster, 600 s by default, as "
                "long",
            )
        )
    return losses


TARGET = Target(
    "knative",
    "Knative Service with the pod autoscaler",
    (
        *named_service(""),
        MODEL_PATH_OPTION,
        Option("image", "", "container image; empty: the engine project's own", optional(IMAGE)),
        Option("gpu_resource", "nvidia.com/gpu", "name under which nodes offer GPUs", RESOURCE_NAME),
        *(option for option in SIGNAL_OPTIONS if option.key == "running_target"),
    ),
    _render,
)
