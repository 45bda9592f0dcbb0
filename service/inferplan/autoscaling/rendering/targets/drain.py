"""A strategic merge patch that lets a Deployment's pods finish their streams before they are killed.

The grace period counts from the start of the pre-stop hook, so that it must be more than hook and drain together.
"""

from __future__ import annotations

import math

from inferplan.autoscaling.rendering.documents import Commented, header_lines, yaml_file
from inferplan.autoscaling.rendering.losses import policy_losses
from inferplan.autoscaling.rendering.naming import metadata, object_name
from inferplan.autoscaling.rendering.options import (
    Option,
    ResolvedOptions,
    kubernetes_name,
    name_options,
    optional,
    whole_number,
)
from inferplan.autoscaling.rendering.registry import Target
from inferplan.autoscaling.rendering.request import Rendering, RenderingLoss, RenderingRequest
from inferplan.autoscaling.rendering.stop_sequence import GRACE_MARGIN_SECONDS, StopSequence
from inferplan.errors import InvalidInputError


def _render(request: RenderingRequest, options: ResolvedOptions) -> Rendering:
    if request.nodes_per_replica > 1:
        raise InvalidInputError.single(
            "target",
            f"a replica needs {request.nodes_per_replica} nodes, and this patches a Deployment, which runs one pod a "
            "replica; legal: a replica within one node",
            "MULTI_NODE_REPLICA",
        )
    stop, losses = _sequence(request, options)
    name = object_name(request, options)
    pod = Commented(
        {
            "terminationGracePeriodSeconds": stop.grace_seconds,
            "containers": [
                {
                    "name": options.text("container"),
                    "lifecycle": {"preStop": {"sleep": {"seconds": stop.pre_stop_seconds}}},
                }
            ],
        },
        {
            "terminationGracePeriodSeconds": f"{stop.pre_stop_seconds} s pre-stop + {stop.drain_seconds} s drain + "
            f"{GRACE_MARGIN_SECONDS} s for the processes to end"
        },
    )
    document = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(name, options),
        "spec": {"template": {"spec": pod}},
    }
    header = header_lines(
        request, f"Patch: kubectl patch deployment {name} --patch-file drain-patch.yaml. It leaves replicas alone."
    )
    losses += _grace_losses(request, options, stop)
    losses += policy_losses(
        request.policy, ("pre_stop_seconds", "drain_seconds"), "the patch holds the stop sequence only; render a scaler"
    )
    return Rendering((yaml_file("drain-patch.yaml", header, [document]),), tuple(losses))


def _sequence(request: RenderingRequest, options: ResolvedOptions) -> tuple[StopSequence, list[RenderingLoss]]:
    policy = request.policy
    losses = []
    times = []
    for name, stated in (("pre_stop_seconds", policy.pre_stop_seconds), ("drain_seconds", policy.drain_seconds)):
        if stated is None:
            times.append(options.whole_number(name))
            losses.append(RenderingLoss(name, f"the policy states none; option {name} gives {times[-1]} s"))
        else:
            times.append(math.ceil(stated))
    return StopSequence(max(1, times[0]), times[1]), losses


def _grace_losses(request: RenderingRequest, options: ResolvedOptions, stop: StopSequence) -> list[RenderingLoss]:
    losses = []
    node_grace = options.text("node_pool_grace_seconds")
    if not node_grace:
        losses.append(
            RenderingLoss(
                "drain_seconds",
                f"terminationGracePeriod of a Karpenter NodePool, where set, overrides the pod's {stop.grace_seconds} "
                "s when a node goes; option node_pool_grace_seconds checks it",
            )
        )
    elif int(node_grace) < stop.grace_seconds:
        losses.append(
            RenderingLoss(
                "drain_seconds",
                f"the NodePool's {node_grace} s override the pod's {stop.grace_seconds} s when a node goes: streams "
                "are cut short",
            )
        )
    if request.configuration.engine == "vllm":
        losses.append(
            RenderingLoss(
                "drain_seconds",
                f"vLLM drains only with `--shutdown-timeout {stop.drain_seconds}` (0.18 and later), which a patch "
                "cannot add to a list of arguments",
            )
        )
    return losses


TARGET = Target(
    "drain",
    "Patch of a Deployment's stop sequence",
    (
        *name_options(),
        Option("container", "main", "container of the engine", kubernetes_name),
        Option("pre_stop_seconds", "15", "pre-stop where the policy states none", whole_number(1, 3600)),
        Option("drain_seconds", "120", "drain where the policy states none", whole_number(0, 86400)),
        Option(
            "node_pool_grace_seconds", "", "terminationGracePeriod of the NodePool", optional(whole_number(0, 604800))
        ),
    ),
    _render,
)
