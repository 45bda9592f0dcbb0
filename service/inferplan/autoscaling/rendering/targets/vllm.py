"""`vllm serve` with every planned value stated."""

from __future__ import annotations

from inferplan.autoscaling.rendering.engine_flags import (
    MODEL_PATH_OPTION,
    model_path,
    require_engine,
    scaling_losses,
    start_script,
    vllm_flags,
)
from inferplan.autoscaling.rendering.options import ResolvedOptions
from inferplan.autoscaling.rendering.registry import Target
from inferplan.autoscaling.rendering.request import Rendering, RenderingLoss, RenderingRequest


def _render(request: RenderingRequest, options: ResolvedOptions) -> Rendering:
    require_engine(request, "vllm")
    flags, losses = vllm_flags(request)
    script = start_script(request, "serve.sh", ["vllm", "serve", model_path(request, options)], flags)
    if request.nodes_per_replica > 1:
        losses.append(
            RenderingLoss(
                "configuration.parallelism",
                f"{request.nodes_per_replica} nodes: a Ray cluster over them must run before this command does",
            )
        )
    losses += scaling_losses(request.policy, "vLLM", expressed=("drain_seconds",))
    return Rendering((script,), tuple(losses))


TARGET = Target("vllm", "Start command of vLLM", (MODEL_PATH_OPTION,), _render)
