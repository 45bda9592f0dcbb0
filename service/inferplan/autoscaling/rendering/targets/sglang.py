"""`sglang.launch_server` with every planned value stated.

SGLang drains running requests after the stop signal for as long as it takes (sglang pull request 1838), so that only
the pod's grace period bounds the drain.
"""

from __future__ import annotations

from inferplan.autoscaling.rendering.engine_flags import (
    MODEL_PATH_OPTION,
    model_path,
    require_engine,
    scaling_losses,
    sglang_flags,
    start_script,
)
from inferplan.autoscaling.rendering.options import ResolvedOptions
from inferplan.autoscaling.rendering.registry import Target
from inferplan.autoscaling.rendering.request import Rendering, RenderingRequest


def _render(request: RenderingRequest, options: ResolvedOptions) -> Rendering:
    require_engine(request, "sglang")
    flags, losses = sglang_flags(request)
    command = ["python3", "-m", "sglang.launch_server", "--model-path", model_path(request, options)]
    losses += scaling_losses(request.policy, "SGLang")
    return Rendering((start_script(request, "serve.sh", command, flags),), tuple(losses))


TARGET = Target("sglang", "Start command of SGLang", (MODEL_PATH_OPTION,), _render)
