"""Warm nodes: placeholder pods of a low priority class, or a CapacityBuffer (autoscaling.x-k8s.io/v1beta1).

Placeholders are evicted as soon as a real replica wants their GPUs, and pend again, which brings the next node.
"""

from __future__ import annotations

from typing import Any

from inferplan.autoscaling.policy import WarmKind
from inferplan.autoscaling.rendering.documents import Commented, formula, header_lines, yaml_file
from inferplan.autoscaling.rendering.losses import policy_losses
from inferplan.autoscaling.rendering.naming import metadata, object_name
from inferplan.autoscaling.rendering.options import (
    IMAGE,
    RESOURCE_NAME,
    Option,
    ResolvedOptions,
    matching,
    name_options,
    one_of,
    optional,
)
from inferplan.autoscaling.rendering.registry import Target
from inferplan.autoscaling.rendering.request import Rendering, RenderingLoss, RenderingRequest
from inferplan.errors import InvalidInputError

_PLACEHOLDER, _BUFFER = "placeholder", "capacity-buffer"
_NODE_LABEL = matching(
    r"[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?=[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?",
    "one node label, such as nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3",
)


def _render(request: RenderingRequest, options: ResolvedOptions) -> Rendering:
    policy = request.policy
    if policy.warm_replicas == 0:
        raise InvalidInputError.single("policy.warm_replicas", "is 0: there is no spare to render; legal: 1 or more")
    name = f"{object_name(request, options)[:58].rstrip('-')}-warm"
    kind = options.text("kind") or (_BUFFER if policy.warm_kind is WarmKind.CAPACITY_BUFFER else _PLACEHOLDER)
    nodes = request.nodes_per_replica
    pods = policy.warm_replicas * nodes
    comment = f"{policy.warm_replicas} warm x {nodes} nodes a replica: {formula(policy, 'warm_replicas')}".rstrip(": ")
    pod = _pod(request, options)
    if kind == _BUFFER:
        documents = _buffer(name, options, pod, pods, comment)
        filename, purpose = "capacity-buffer.yaml", "CapacityBuffer: the node autoscaler keeps room for warm replicas."
    else:
        documents = _placeholder(name, options, pod, pods, comment)
        filename, purpose = "warm-placeholder.yaml", "Placeholder pods that hold nodes until a replica wants them."
    losses = [
        RenderingLoss("warm_replicas", "nodes are kept, not replicas: image, weights and graphs still take their time")
    ]
    if policy.warm_kind in (WarmKind.HOT_FLOOR, WarmKind.HOT_AHEAD):
        losses.append(
            RenderingLoss(
                "warm_kind",
                f"{policy.warm_kind.value}: the scaler's target keeps these replicas hot already; nodes come on top",
            )
        )
    elif (policy.warm_kind is WarmKind.CAPACITY_BUFFER) != (kind == _BUFFER):
        losses.append(RenderingLoss("warm_kind", f"{policy.warm_kind.value}: the option asks for {kind}"))
    losses += policy_losses(policy, ("warm_replicas", "warm_kind"), "not part of warm spares; render a scaler too")
    return Rendering((yaml_file(filename, header_lines(request, purpose), documents),), tuple(losses))


def _pod(request: RenderingRequest, options: ResolvedOptions) -> dict[str, Any]:
    gpus = str(-(-request.configuration.gpus_per_replica // request.nodes_per_replica))
    resource = options.text("gpu_resource")
    label = options.text("node_label")
    return {
        "terminationGracePeriodSeconds": 0,
        **({"nodeSelector": dict([label.split("=", 1)])} if label else {}),
        "tolerations": [{"key": resource, "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [
            {
                "name": "placeholder",
                "image": options.text("pause_image"),
                "resources": {"requests": {resource: gpus}, "limits": {resource: gpus}},
            }
        ],
    }


def _placeholder(
    name: str, options: ResolvedOptions, pod: dict[str, Any], pods: int, comment: str
) -> list[dict[str, Any]]:
    labels = {"app.kubernetes.io/name": name}
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": -10,
            "globalDefault": False,
            "preemptionPolicy": "Never",
            "description": "Placeholders that give way to real replicas.",
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata(name, options),
            "spec": Commented(
                {
                    "replicas": pods,
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": {"priorityClassName": name, **pod}},
                },
                {"replicas": comment},
            ),
        },
    ]


def _buffer(name: str, options: ResolvedOptions, pod: dict[str, Any], pods: int, comment: str) -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": metadata(name, options),
            "template": {"metadata": {"labels": {"app.kubernetes.io/name": name}}, "spec": pod},
        },
        {
            "apiVersion": "autoscaling.x-k8s.io/v1beta1",
            "kind": "CapacityBuffer",
            "metadata": metadata(name, options),
            "spec": Commented(
                {
                    "provisioningStrategy": "buffer.x-k8s.io/active-capacity",
                    "podTemplateRef": {"name": name},
                    "replicas": pods,
                },
                {"replicas": comment},
            ),
        },
    ]


TARGET = Target(
    "warm-spares",
    "Placeholder pods or a CapacityBuffer that keep nodes warm",
    (
        *name_options(),
        Option(
            "kind", "", "placeholder or capacity-buffer; empty: as the policy says", one_of("", _PLACEHOLDER, _BUFFER)
        ),
        Option("gpu_resource", "nvidia.com/gpu", "name under which nodes offer GPUs", RESOURCE_NAME),
        Option("node_label", "", "label of the nodes to hold", optional(_NODE_LABEL)),
        Option("pause_image", "registry.k8s.io/pause:3.10", "image of the placeholder", IMAGE),
    ),
    _render,
)
