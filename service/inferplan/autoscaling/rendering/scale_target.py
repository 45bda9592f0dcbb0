"""What an autoscaler of Kubernetes scales."""

from __future__ import annotations

from inferplan.autoscaling.rendering.options import Option, ResolvedOptions, kubernetes_name, one_of, optional
from inferplan.autoscaling.rendering.request import RenderingRequest
from inferplan.errors import InvalidInputError

_API_VERSIONS = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
}

SCALE_TARGET_OPTIONS = (
    Option("scale_target_name", "", "object to scale; empty: the same name", optional(kubernetes_name)),
    Option(
        "scale_target_kind",
        "",
        "kind of the object to scale; empty: Deployment, or LeaderWorkerSet where a replica needs several nodes",
        one_of("", *_API_VERSIONS),
    ),
)


def scale_target_reference(request: RenderingRequest, options: ResolvedOptions, name: str) -> dict[str, str]:
    """`scaleTargetRef`. Raises InvalidInputError for a kind that cannot run a replica of several nodes."""
    several = request.nodes_per_replica > 1
    kind = options.text("scale_target_kind") or ("LeaderWorkerSet" if several else "Deployment")
    if several and kind != "LeaderWorkerSet":
        raise InvalidInputError.single(
            "options[scale_target_kind]",
            f"{kind} runs one pod a replica, but {request.configuration.gpus_per_replica} GPUs need "
            f"{request.nodes_per_replica} nodes; legal: LeaderWorkerSet",
            "MULTI_NODE_REPLICA",
        )
    return {"apiVersion": _API_VERSIONS[kind], "kind": kind, "name": options.text("scale_target_name") or name}
