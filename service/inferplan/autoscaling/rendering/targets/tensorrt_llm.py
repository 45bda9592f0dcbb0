"""`trtllm-serve` with every planned value stated, and the file of its further options."""

from __future__ import annotations

from typing import Any

from inferplan.autoscaling.rendering.documents import header_lines, yaml_file
from inferplan.autoscaling.rendering.engine_flags import (
    MODEL_PATH_OPTION,
    Flag,
    model_path,
    require_engine,
    scaling_losses,
    start_script,
    trtllm_flags,
    weight_loss,
)
from inferplan.autoscaling.rendering.options import ResolvedOptions
from inferplan.autoscaling.rendering.registry import Target
from inferplan.autoscaling.rendering.request import Rendering, RenderingLoss, RenderingRequest
from inferplan.catalog.precision import Precision

_OPTIONS_FILE = "llm-api-options.yaml"


def _render(request: RenderingRequest, options: ResolvedOptions) -> Rendering:
    require_engine(request, "tensorrt-llm")
    configuration = request.configuration
    path = model_path(request, options)
    flags = [*trtllm_flags(request), Flag("--extra_llm_api_options", _OPTIONS_FILE)]
    kv = configuration.kv_precision
    further: dict[str, Any] = {
        "kv_cache_config": {
            "enable_block_reuse": configuration.enable_prefix_caching,
            "free_gpu_memory_fraction": configuration.gpu_memory_utilization,
            "dtype": "fp8" if kv is Precision.FP8 else "auto",
        },
        "enable_iter_perf_stats": True,
        "return_perf_metrics": True,
    }
    header = header_lines(
        request, "Further options of trtllm-serve; the last two turn its metrics on, which are off by default."
    )
    losses: list[RenderingLoss] = []
    wanted = configuration.weight_precision
    if not wanted.is_sixteen_bit and wanted is not request.checkpoint_precision:
        losses.append(weight_loss(request))
    if path != request.model_name:
        losses.append(
            RenderingLoss(
                "model_name", f"{request.model_name}: trtllm-serve names the model after its path, metrics' labels too"
            )
        )
    if request.nodes_per_replica > 1:
        losses.append(
            RenderingLoss(
                "configuration.parallelism",
                f"{request.nodes_per_replica} nodes: trtllm-serve must be started by mpirun or srun over all of them",
            )
        )
    losses += scaling_losses(request.policy, "TensorRT-LLM")
    files = (
        start_script(request, "serve.sh", ["trtllm-serve", path], flags),
        yaml_file(_OPTIONS_FILE, header, [further]),
    )
    return Rendering(files, tuple(losses))


TARGET = Target("tensorrt-llm", "Start command of TensorRT-LLM", (MODEL_PATH_OPTION,), _render)
