"""SageMaker with Application Auto Scaling: the input of RegisterScalableTarget and PutScalingPolicy.

Field facts: an inference component scales in copies, a variant in instances. The high-resolution metric counts
concurrent requests a copy, running and queued. Neither queue nor KV cache can be tracked.
"""

from __future__ import annotations

import math
from typing import Any

from inferplan.autoscaling.policy import AutoscalingPolicy
from inferplan.autoscaling.rendering.documents import cold_start_lines, json_file
from inferplan.autoscaling.rendering.losses import concurrency_loss, drain_losses, rule_losses, shown_missing
from inferplan.autoscaling.rendering.options import Option, ResolvedOptions, matching, one_of, optional, whole_number
from inferplan.autoscaling.rendering.registry import Target
from inferplan.autoscaling.rendering.replicas import never_zero, replica_bounds
from inferplan.autoscaling.rendering.request import Rendering, RenderingLoss, RenderingRequest
from inferplan.autoscaling.rendering.signals import SIGNAL_OPTIONS, requests_per_replica, with_companion
from inferplan.errors import InvalidInputError

_RESOURCE_LABEL = matching(r"[a-zA-Z0-9]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?", "1 to 63 letters, digits and -")


def _render(request: RenderingRequest, options: ResolvedOptions) -> Rendering:
    policy = request.policy
    signals, companion_losses = with_companion(request, options)
    target, signal_losses = requests_per_replica(signals)
    if target is None:
        raise InvalidInputError.single(
            "policy.signals",
            "has no count of requests in flight, the only signal of SageMaker here; legal: running or ongoing per "
            "replica",
            "NOTHING_TO_SCALE_ON",
        )
    bounds = replica_bounds(policy, can_run_ahead=False)
    floor, zero_losses = never_zero(
        policy,
        bounds,
        "target tracking does not wake copies from zero; that takes a step policy and an alarm of its own",
    )
    on_instances = options.text("resource") == "variant"
    share = options.whole_number("replicas_per_instance") if on_instances else 1
    resource = _resource(request, options, on_instances)
    plan = request.plan_name or "not-stored"
    register = {
        **resource,
        "MinCapacity": -(-floor // share),
        "MaxCapacity": -(-bounds.most // share),
        "Tags": {"inferplan:plan": plan, "inferplan:revision": str(request.revision)},
    }
    put = {
        "PolicyName": f"inferplan {plan} revision {request.revision}: running + queued requests",
        **resource,
        "PolicyType": "TargetTrackingScaling",
        "TargetTrackingScalingPolicyConfiguration": {
            "TargetValue": target,
            "PredefinedMetricSpecification": {
                "PredefinedMetricType": "SageMakerVariantConcurrentRequestsPerModelHighResolution"
                if on_instances
                else "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"
            },
            "ScaleOutCooldown": math.ceil(policy.scale_up.cooldown_seconds),
            "ScaleInCooldown": math.ceil(policy.scale_down.cooldown_seconds),
        },
    }
    losses = (
        *bounds.losses,
        *companion_losses,
        *signal_losses,
        *zero_losses,
        *_other_losses(policy, share, on_instances),
        *_comment_losses(policy),
    )
    files = (json_file("register-scalable-target.json", register), json_file("put-scaling-policy.json", put))
    return Rendering(files, losses)


def _resource(request: RenderingRequest, options: ResolvedOptions, on_instances: bool) -> dict[str, Any]:
    name = options.text("resource_name") or request.deployment_id
    if on_instances:
        identifier, dimension = f"endpoint/{name}/variant/{options.text('variant')}", "variant:DesiredInstanceCount"
    else:
        identifier, dimension = f"inference-component/{name}", "inference-component:DesiredCopyCount"
    return {
        "ServiceNamespace": "sagemaker",
        "ResourceId": identifier,
        "ScalableDimension": f"sagemaker:{dimension}",
    }


def _comment_losses(policy: AutoscalingPolicy) -> list[RenderingLoss]:
    """What other targets say in comments, which JSON does not have."""
    formulas = [f"{derivation.field}: {derivation.formula}" for derivation in policy.derivations]
    return [
        *(RenderingLoss("derivations", f"{text}: JSON has no comment for it") for text in formulas),
        *(
            RenderingLoss("cold_start", f"{text} JSON has no comment for it")
            for text in cold_start_lines(policy.cold_start)
        ),
    ]


def _other_losses(policy: AutoscalingPolicy, share: int, on_instances: bool) -> list[RenderingLoss]:
    losses = rule_losses(
        policy, ("scale_up.cooldown", "scale_down.cooldown"), "target tracking bounds no step and sets its own alarms"
    )
    losses.append(
        RenderingLoss(
            "missing_metrics", f"{shown_missing(policy)}: without data the alarms keep the capacity, nothing else"
        )
    )
    if on_instances:
        losses.append(
            RenderingLoss(
                "maximum_replicas", f"capacity counts instances of {share} replicas, rounded up, and not replicas"
            )
        )
    else:
        losses.append(
            RenderingLoss(
                "maximum_replicas",
                "capacity counts copies; instances under them scale only where the endpoint has managed instance "
                "scaling",
            )
        )
    return losses + concurrency_loss(policy) + drain_losses(policy)


TARGET = Target(
    "sagemaker",
    "SageMaker with Application Auto Scaling",
    (
        Option("resource", "inference-component", "what is scaled", one_of("inference-component", "variant")),
        Option(
            "resource_name",
            "",
            "name of the inference component, or of the endpoint; empty: the deployment's id",
            optional(_RESOURCE_LABEL),
        ),
        Option("variant", "AllTraffic", "production variant of the endpoint", _RESOURCE_LABEL),
        Option("replicas_per_instance", "1", "replicas that one instance runs", whole_number(1, 64)),
        *(option for option in SIGNAL_OPTIONS if option.key == "running_target"),
    ),
    _render,
)
