"""KServe LLMInferenceService (serving.kserve.io/v1alpha2), whose `scaling.keda` hands fields on to KEDA."""

from __future__ import annotations

from typing import Any

from inferplan.autoscaling.rendering.documents import Commented, header_lines, yaml_file
from inferplan.autoscaling.rendering.engine_flags import require_engine, vllm_flags
from inferplan.autoscaling.rendering.keda_objects import KEDA_OPTIONS, KedaScaling, keda_scaling
from inferplan.autoscaling.rendering.losses import concurrency_loss
from inferplan.autoscaling.rendering.model_uri import MODEL_URI_OPTION, model_uri
from inferplan.autoscaling.rendering.naming import metadata, object_name
from inferplan.autoscaling.rendering.options import RESOURCE_NAME, Option, ResolvedOptions, named_service
from inferplan.autoscaling.rendering.registry import Target
from inferplan.autoscaling.rendering.request import Rendering, RenderingLoss, RenderingRequest
from inferplan.autoscaling.rendering.stop_sequence import stop_sequence
from inferplan.errors import InvalidInputError

_SET_BY_KSERVE = ("--served-model-name", "--tensor-parallel-size", "--pipeline-parallel-size", "--shutdown-timeout")
"""Flags that KServe's own templates set from `model`, `parallelism` and the grace period."""

_KSERVE_PRE_STOP_SECONDS = 15
"""The template's pre-stop sleep; vLLM drains for the grace period less that (kserve pull requests 5485 and 5496)."""


def _render(request: RenderingRequest, options: ResolvedOptions) -> Rendering:
    require_engine(request, "vllm")
    _refuse_several_nodes(request)
    name = object_name(request, options, "-kserve-workload-svc")
    scaling = keda_scaling(request, options)
    floor, floor_losses = _floor(scaling)
    flags, flag_losses = vllm_flags(request)
    keda = dict(scaling.fields)
    if scaling.idle_zero:
        keda = {"idleReplicaCount": 0, **keda}
    parallelism = request.configuration.parallelism
    spec = {
        "model": {"uri": model_uri(request, options), "name": request.model_name},
        "parallelism": {
            "tensor": parallelism.tensor_parallel,
            "pipeline": parallelism.pipeline_parallel,
            "expert": parallelism.expert_parallel > 1,
        },
        "scaling": Commented(
            {"minReplicas": floor, "maxReplicas": scaling.most, "keda": keda},
            {"minReplicas": scaling.bounds.floor_comment, "maxReplicas": scaling.bounds.most_comment},
        ),
        "template": _template(request, options, [flag.words for flag in flags if flag.name not in _SET_BY_KSERVE]),
    }
    document = {
        "apiVersion": "serving.kserve.io/v1alpha2",
        "kind": "LLMInferenceService",
        "metadata": metadata(name, options),
        "spec": spec,
    }
    header = header_lines(
        request, "KServe LLMInferenceService. `replicas` must stay out of it: KEDA alone writes them."
    )
    losses = (
        *scaling.losses,
        *floor_losses,
        *(loss for loss in flag_losses if loss.field != "drain_seconds"),
        *concurrency_loss(request.policy),
        *_stop_losses(request),
    )
    return Rendering((yaml_file("llminferenceservice.yaml", header, [document]),), losses)


def _floor(scaling: KedaScaling) -> tuple[int, list[RenderingLoss]]:
    """The floor, of which this object takes 1 or more."""
    if scaling.floor:
        return scaling.floor, []
    return 1, [RenderingLoss("minimum_replicas", "0: LLMInferenceService takes 1 or more; 1 stays")]


def _refuse_several_nodes(request: RenderingRequest) -> None:
    if request.nodes_per_replica > 1:
        raise InvalidInputError.single(
            "target",
            f"a replica needs {request.nodes_per_replica} nodes, for which LLMInferenceService wants a `worker` "
            "template that no plan describes; legal: a replica within one node, or target keda on a LeaderWorkerSet",
            "MULTI_NODE_REPLICA",
        )


def _template(request: RenderingRequest, options: ResolvedOptions, flags: list[tuple[str, ...]]) -> dict[str, Any]:
    arguments = " ".join(word for words in flags for word in words)
    gpus = str(request.configuration.gpus_per_replica)
    template: dict[str, Any] = {}
    stop = stop_sequence(request.policy)
    if stop is not None:
        template["terminationGracePeriodSeconds"] = stop.grace_seconds
    resource = options.text("gpu_resource")
    template["containers"] = [
        {
            "name": "main",
            "env": [{"name": "VLLM_ADDITIONAL_ARGS", "value": arguments}],
            "resources": {"requests": {resource: gpus}, "limits": {resource: gpus}},
        }
    ]
    return template


def _stop_losses(request: RenderingRequest) -> list[RenderingLoss]:
    pre_stop = request.policy.pre_stop_seconds
    if pre_stop is None or pre_stop == _KSERVE_PRE_STOP_SECONDS:
        return []
    return [
        RenderingLoss(
            "pre_stop_seconds", f"{pre_stop:g} s: KServe's template sleeps {_KSERVE_PRE_STOP_SECONDS} s before it stops"
        )
    ]


TARGET = Target(
    "kserve-llm",
    "KServe LLMInferenceService with KEDA",
    (
        *named_service("-kserve-workload-svc"),
        MODEL_URI_OPTION,
        Option("gpu_resource", "nvidia.com/gpu", "name under which nodes offer GPUs", RESOURCE_NAME),
        *KEDA_OPTIONS,
    ),
    _render,
)
