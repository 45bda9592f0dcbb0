"""Start commands of the engines from the configuration: every planned value stated, none left to a default.

Flag names: `vllm serve`, `sglang.launch_server` and `trtllm-serve` as their reference pages list them.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from inferplan.autoscaling.policy import AutoscalingPolicy
from inferplan.autoscaling.rendering.documents import header_lines
from inferplan.autoscaling.rendering.losses import policy_losses
from inferplan.autoscaling.rendering.options import Option, ResolvedOptions, optional, printable
from inferplan.autoscaling.rendering.request import RenderedFile, RenderingLoss, RenderingRequest
from inferplan.catalog.precision import Precision
from inferplan.errors import InvalidInputError

SHELL_MEDIA_TYPE = "text/x-shellscript"

MODEL_PATH_OPTION = Option(
    "model_path", "", "path or repository from which the engine loads; empty: the model's name", optional(printable)
)

_SHUTDOWN_TIMEOUT_SINCE = Version("0.18.0")
"""`vllm serve --shutdown-timeout`: vllm pull request 34730."""

_NO_FLAG_BEFORE = Version("0.8.0")
"""Before, prefix caching was off by default, and its negative flag not in every release."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag; `value` None for a switch. `shell` marks a value that the shell is to expand."""

    name: str
    value: str | None = None
    shell: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The flag as words of an argument list."""
        return (self.name,) if self.value is None else (self.name, self.value)

    @property
    def shell_text(self) -> str:
        """The flag as it stands in a shell script."""
        if self.shell:
            return f'{self.name} "{self.value}"'
        return " ".join(shlex.quote(word) for word in self.words)


def model_path(request: RenderingRequest, options: ResolvedOptions) -> str:
    """Where the engine loads from. Raises InvalidInputError for what an engine would take for a flag."""
    path = options.text("model_path") or request.model_name
    if path.startswith("-"):
        raise InvalidInputError.single(
            "options[model_path]", f"{path[:80]!r} would be read as a flag; legal: a path or repository name"
        )
    return path


def require_engine(request: RenderingRequest, *engines: str) -> None:
    """Raises InvalidInputError where the plan is for another engine than the target runs."""
    if request.configuration.engine not in engines:
        raise InvalidInputError.single(
            "target",
            f"the plan is for engine {request.configuration.engine}, which this target does not run; legal: "
            f"{', '.join(engines)}",
            "OTHER_ENGINE",
        )


def vllm_flags(request: RenderingRequest) -> tuple[list[Flag], list[RenderingLoss]]:
    """Flags of `vllm serve` without the model."""
    configuration = request.configuration
    parallelism = configuration.parallelism
    flags = [
        Flag("--served-model-name", request.model_name),
        Flag("--tensor-parallel-size", str(parallelism.tensor_parallel)),
        Flag("--pipeline-parallel-size", str(parallelism.pipeline_parallel)),
        Flag("--max-num-seqs", str(configuration.max_num_seqs)),
        Flag("--max-num-batched-tokens", str(configuration.max_num_batched_tokens)),
        Flag("--max-model-len", str(configuration.max_model_len_tokens)),
        Flag("--gpu-memory-utilization", f"{configuration.gpu_memory_utilization:g}"),
        Flag("--kv-cache-dtype", "fp8" if configuration.kv_precision is Precision.FP8 else "auto"),
    ]
    if configuration.weight_precision in _VLLM_DTYPES:
        flags.append(Flag("--dtype", configuration.weight_precision.value))
    if parallelism.expert_parallel > 1:
        flags.append(Flag("--enable-expert-parallel"))
    is_old = _version(request) < _NO_FLAG_BEFORE
    if configuration.enable_prefix_caching:
        flags.append(Flag("--enable-prefix-caching"))
    elif not is_old:
        flags.append(Flag("--no-enable-prefix-caching"))
    if request.nodes_per_replica > 1:
        flags.append(Flag("--distributed-executor-backend", "ray"))
    quantization, losses = _quantization(request, "--quantization")
    flags += quantization
    losses += _expert_losses(request) + _kv_losses(request)
    drain, drain_losses = _shutdown_timeout(request)
    return flags + drain, losses + drain_losses


def sglang_flags(request: RenderingRequest) -> tuple[list[Flag], list[RenderingLoss]]:
    """Flags of `sglang.launch_server` without the model; metrics are off by default, so that they are turned on."""
    configuration = request.configuration
    parallelism = configuration.parallelism
    flags = [
        Flag("--served-model-name", request.model_name),
        Flag("--tp-size", str(parallelism.tensor_parallel)),
        Flag("--pp-size", str(parallelism.pipeline_parallel)),
        Flag("--max-running-requests", str(configuration.max_num_seqs)),
        Flag("--chunked-prefill-size", str(configuration.max_num_batched_tokens)),
        Flag("--context-length", str(configuration.max_model_len_tokens)),
        Flag("--mem-fraction-static", f"{configuration.gpu_memory_utilization:g}"),
        Flag("--kv-cache-dtype", "fp8_e4m3" if configuration.kv_precision is Precision.FP8 else "auto"),
        Flag("--enable-metrics"),
    ]
    if configuration.weight_precision in _SGLANG_DTYPES:
        flags.append(Flag("--dtype", configuration.weight_precision.value))
    if parallelism.expert_parallel > 1:
        flags.append(Flag("--ep-size", str(parallelism.expert_parallel)))
    if not configuration.enable_prefix_caching:
        flags.append(Flag("--disable-radix-cache"))
    if request.nodes_per_replica > 1:
        flags += [
            Flag("--nnodes", str(request.nodes_per_replica)),
            Flag("--node-rank", "${NODE_RANK:?rank of this node, from 0}", shell=True),
            Flag("--dist-init-addr", "${HEAD_ADDRESS:?host:port of node 0}", shell=True),
        ]
    quantization, losses = _quantization(request, "--quantization")
    return flags + quantization, losses + _kv_losses(request)


def trtllm_flags(request: RenderingRequest) -> list[Flag]:
    """Flags of `trtllm-serve` without the model and the extra options' file."""
    configuration = request.configuration
    parallelism = configuration.parallelism
    flags = [
        Flag("--backend", "pytorch"),
        Flag("--tp_size", str(parallelism.tensor_parallel)),
        Flag("--pp_size", str(parallelism.pipeline_parallel)),
        Flag("--max_batch_size", str(configuration.max_num_seqs)),
        Flag("--max_num_tokens", str(configuration.max_num_batched_tokens)),
        Flag("--max_seq_len", str(configuration.max_model_len_tokens)),
        Flag("--kv_cache_free_gpu_memory_fraction", f"{configuration.gpu_memory_utilization:g}"),
    ]
    if parallelism.expert_parallel > 1:
        flags.append(Flag("--ep_size", str(parallelism.expert_parallel)))
    return flags


def start_script(
    request: RenderingRequest, filename: str, command: Sequence[str], flags: Sequence[Flag]
) -> RenderedFile:
    """A shell script that becomes the engine (`exec`), so that the stop signal reaches it."""
    lines = ["#!/bin/sh", *(f"# {line}" for line in header_lines(request, "Starts one replica.")), "set -eu"]
    words = [shlex.join(command), *(flag.shell_text for flag in flags)]
    lines.append("exec " + " \\\n  ".join(words))
    return RenderedFile(filename, SHELL_MEDIA_TYPE, "\n".join(lines) + "\n")


def scaling_losses(policy: AutoscalingPolicy, engine: str, expressed: Sequence[str] = ()) -> list[RenderingLoss]:
    """The whole of the scaling policy, which starts no replica."""
    return policy_losses(
        policy, expressed, f"{engine}'s flags start one replica and scale nothing; render a scaler too"
    )


def default_image(request: RenderingRequest) -> str:
    """The engine project's own image of the planned version."""
    configuration = request.configuration
    repository, prefix = _IMAGES.get(configuration.engine, ("", ""))
    if not repository:
        raise InvalidInputError.single(
            "options[image]", f"must be set, since no image of engine {configuration.engine} is known", "REQUIRED"
        )
    return f"{repository}:{prefix}{configuration.engine_version}"


_IMAGES = {
    "vllm": ("vllm/vllm-openai", "v"),
    "sglang": ("lmsysorg/sglang", "v"),
    "tensorrt-llm": ("nvcr.io/nvidia/tensorrt-llm/release", ""),
}

_VLLM_DTYPES = (Precision.BFLOAT16, Precision.FLOAT16, Precision.FLOAT32)
_SGLANG_DTYPES = _VLLM_DTYPES


def _version(request: RenderingRequest) -> Version:
    try:
        return Version(request.configuration.engine_version)
    except InvalidVersion:
        raise InvalidInputError.single(
            "configuration.engine_version", f"{request.configuration.engine_version[:80]!r} is not a version number"
        ) from None


def _quantization(request: RenderingRequest, flag: str) -> tuple[list[Flag], list[RenderingLoss]]:
    """FP8 can be made on loading from a 16-bit checkpoint; every other format must be in the checkpoint already."""
    wanted, held = request.configuration.weight_precision, request.checkpoint_precision
    if wanted.is_sixteen_bit or wanted is Precision.FLOAT32 or wanted is held:
        return [], []
    if held is not None and held.is_sixteen_bit and wanted is Precision.FP8:
        return [Flag(flag, "fp8")], []
    return [], [weight_loss(request)]


def weight_loss(request: RenderingRequest) -> RenderingLoss:
    """The loss where weights must come as planned in the checkpoint."""
    wanted, held = request.configuration.weight_precision, request.checkpoint_precision
    shown = "of an unknown format" if held is None else f"in {held.value}"
    return RenderingLoss(
        "configuration.weight_precision",
        f"{wanted.value}: no flag makes it of a checkpoint {shown}; name a checkpoint that holds it (option "
        "model_path)",
    )


def _kv_losses(request: RenderingRequest) -> list[RenderingLoss]:
    kv = request.configuration.kv_precision
    if kv.is_sixteen_bit or kv is Precision.FP8:
        return []
    return [RenderingLoss("configuration.kv_precision", f"{kv.value}: the flag knows auto and FP8; auto is rendered")]


def _expert_losses(request: RenderingRequest) -> list[RenderingLoss]:
    """The switch of vLLM spreads experts over all tensor-parallel GPUs; other degrees cannot be asked for."""
    parallelism = request.configuration.parallelism
    if parallelism.expert_parallel in (1, parallelism.tensor_parallel):
        return []
    return [
        RenderingLoss(
            "configuration.parallelism.expert_parallel",
            f"{parallelism.expert_parallel}: vLLM spreads experts over all {parallelism.tensor_parallel} "
            "tensor-parallel GPUs or none",
        )
    ]


def _shutdown_timeout(request: RenderingRequest) -> tuple[list[Flag], list[RenderingLoss]]:
    drain = request.policy.drain_seconds
    if drain is None:
        return [], []
    if _version(request) >= _SHUTDOWN_TIMEOUT_SINCE:
        return [Flag("--shutdown-timeout", str(math.ceil(drain)))], []
    return [], [
        RenderingLoss(
            "drain_seconds",
            f"{drain:g} s: vLLM {request.configuration.engine_version} aborts running requests at the stop signal; "
            f"`--shutdown-timeout` exists from {_SHUTDOWN_TIMEOUT_SINCE} on",
        )
    ]
