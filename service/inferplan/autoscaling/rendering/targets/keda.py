"""KEDA ScaledObject (keda.sh/v1alpha1) on a Deployment, StatefulSet or LeaderWorkerSet."""

from __future__ import annotations

from typing import Any

from inferplan.autoscaling.rendering.documents import Commented, header_lines, yaml_file
from inferplan.autoscaling.rendering.keda_objects import KEDA_OPTIONS, KedaScaling, keda_scaling
from inferplan.autoscaling.rendering.losses import concurrency_loss, drain_losses
from inferplan.autoscaling.rendering.naming import metadata, object_name
from inferplan.autoscaling.rendering.options import ResolvedOptions, name_options
from inferplan.autoscaling.rendering.registry import Target
from inferplan.autoscaling.rendering.request import Rendering, RenderingRequest
from inferplan.autoscaling.rendering.scale_target import SCALE_TARGET_OPTIONS, scale_target_reference


def scaled_object(
    name: str, options: ResolvedOptions, reference: dict[str, str], scaling: KedaScaling
) -> dict[str, Any]:
    """The ScaledObject; it is the only writer of the scaled object's replicas."""
    counts: dict[str, Any] = {"minReplicaCount": scaling.floor, "maxReplicaCount": scaling.most}
    if scaling.idle_zero:
        counts = {"idleReplicaCount": 0, **counts}
    spec = Commented(
        {"scaleTargetRef": reference, **counts, **scaling.fields},
        {"minReplicaCount": scaling.bounds.floor_comment, "maxReplicaCount": scaling.bounds.most_comment},
    )
    return {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": metadata(name, options), "spec": spec}


def _render(request: RenderingRequest, options: ResolvedOptions) -> Rendering:
    name = object_name(request, options)
    scaling = keda_scaling(request, options)
    reference = scale_target_reference(request, options, name)
    document = scaled_object(name, options, reference, scaling)
    header = header_lines(
        request,
        f"KEDA ScaledObject. Nothing else may write the replicas of {reference['kind']} {reference['name']}: no "
        "HorizontalPodAutoscaler, and no `replicas` in its manifest.",
    )
    losses = (*scaling.losses, *concurrency_loss(request.policy), *drain_losses(request.policy))
    return Rendering((yaml_file("scaledobject.yaml", header, [document]),), losses)


TARGET = Target(
    "keda",
    "KEDA ScaledObject with Prometheus triggers",
    (*name_options(), *SCALE_TARGET_OPTIONS, *KEDA_OPTIONS),
    _render,
)
