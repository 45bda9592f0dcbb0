"""Serving engines: their defaults, their memory constants and the dialect of their metrics, by version.

Engines change memory behaviour between releases, so every constant belongs to a version, and a stored plan names it.
"""

from __future__ import annotations

from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from inferplan.catalog.accelerator import Accelerator
from inferplan.errors import InvalidInputError

_GIBIBYTE = 2**30
_LARGE_GPU_BYTES = 70 * _GIBIBYTE
_NOT_LARGE_ARCHITECTURES = ("Ampere",)


@dataclass(frozen=True, slots=True)
class EngineDefaults:
    """What the engine does when a flag is not given. `maximum_batched_tokens` is the token budget of one step.

    `large_gpu_…` hold on GPUs of 70 GiB and more that are newer than Ampere, where vLLM picks larger defaults (it
    excludes the A100 by name); None where there is no such rule. `whole_prompts_up_to_tokens` is the longest context up
    to which prompts are prefilled whole, so that the token budget grows to the context (vLLM V0); None: always chunked.
    `prefill_with_decode`: one step may work on prompts and decode (vLLM V1, TensorRT-LLM); otherwise waiting prompts go
    first, in steps of their own (vLLM V0, SGLang).
    """

    gpu_memory_utilization: float
    maximum_sequences: int
    maximum_batched_tokens: int
    kv_block_tokens: int
    chunked_prefill: bool
    prefix_caching: bool
    large_gpu_maximum_sequences: int | None = None
    large_gpu_maximum_batched_tokens: int | None = None
    whole_prompts_up_to_tokens: int | None = None
    prefill_with_decode: bool = True

    def sequences_on(self, accelerator: Accelerator) -> int:
        """The default of max_num_seqs on `accelerator`."""
        if self.large_gpu_maximum_sequences is not None and _is_large(accelerator):
            return self.large_gpu_maximum_sequences
        return self.maximum_sequences

    def batched_tokens_on(self, accelerator: Accelerator) -> int:
        """The default of max_num_batched_tokens on `accelerator` where prompts are chunked."""
        if self.large_gpu_maximum_batched_tokens is not None and _is_large(accelerator):
            return self.large_gpu_maximum_batched_tokens
        return self.maximum_batched_tokens


def _is_large(accelerator: Accelerator) -> bool:
    return (
        accelerator.visible_memory_bytes >= _LARGE_GPU_BYTES
        and accelerator.architecture not in _NOT_LARGE_ARCHITECTURES
    )


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """Constants of the memory model, fitted to start-up logs.

    Activation peak of every GPU = max(
    tokens x `activation_bytes_factor` x (hidden + intermediate / tensor parallel) x 2,
    sequences x vocabulary x `sampler_bytes_per_logit` + tokens x hidden x 2) bytes. The second is the profiling run's
    sampler, which sorts the logits of max_num_seqs sequences over the whole vocabulary on every GPU.

    Non-torch memory is what CUDA contexts and NCCL hold. CUDA graphs take `cuda_graph_fixed_bytes` + layers x
    `cuda_graph_bytes_per_layer`; whether the engine subtracts them from the KV budget is `cuda_graphs_inside_budget`.
    `window_aware_kv_cache`: sliding-window layers stop at the window. `chunk_aware_kv_cache`: chunked-attention
    layers do.

    What the memory fraction is taken of differs: vLLM takes it of the total and pays all out of it. SGLang pays weights
    and KV cache out of it (`activations_inside_budget` false). TensorRT-LLM takes it of what is free after everything
    else (`utilization_of_free_memory`).

    MXFP4 kernels pad the experts: the hidden size to `mxfp4_hidden_multiple_elements`, the intermediate size of a GPU
    to `mxfp4_intermediate_multiple_elements`. The vocabulary is padded to `vocabulary_multiple_elements`; 1: not
    padded.
    """

    activation_bytes_factor: float
    sampler_bytes_per_logit: float
    non_torch_bytes_single_gpu: float
    non_torch_bytes_multi_gpu: float
    cuda_graph_fixed_bytes: float
    cuda_graph_bytes_per_layer: float
    cuda_graphs_inside_budget: bool
    window_aware_kv_cache: bool
    chunk_aware_kv_cache: bool = False
    activations_inside_budget: bool = True
    utilization_of_free_memory: bool = False
    mxfp4_hidden_multiple_elements: int = 1
    mxfp4_intermediate_multiple_elements: int = 1
    vocabulary_multiple_elements: int = 64


@dataclass(frozen=True, slots=True)
class EngineRelease:
    """Constants that hold from `since` on, until the next release of the same engine that is listed."""

    since: str
    defaults: EngineDefaults
    memory: EngineMemory
    metric_dialect: str
    source: str


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine; `releases` are in rising order of `since`."""

    id: str
    display_name: str
    releases: tuple[EngineRelease, ...]
    aliases: tuple[str, ...] = ()

    @property
    def newest_version(self) -> str:
        """The version from which the newest known constants hold."""
        return self.releases[-1].since

    def release_for(self, version: str) -> EngineRelease:
        """The constants that hold for `version` (empty: the newest known).

        Raises InvalidInputError for a version that is not one, or that is older than the oldest known release.
        """
        if not version:
            return self.releases[-1]
        known = ", ".join(release.since for release in self.releases)
        try:
            wanted = Version(version)
        except InvalidVersion:
            raise InvalidInputError.single(
                "engine.version", f"{version!r} is not a version number; known releases of {self.id} start at: {known}"
            ) from None
        holding = [release for release in self.releases if Version(release.since) <= wanted]
        if not holding:
            raise InvalidInputError.single(
                "engine.version",
                f"{self.id} {version} is older than the oldest release that is known; known releases start at: {known}",
            )
        return holding[-1]
