"""One replica's configuration: as it is asked for, with gaps, and as it is planned, without."""

from __future__ import annotations

from dataclasses import dataclass, field

from inferplan.catalog.precision import Precision
from inferplan.sizing.parallelism import Parallelism


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How the engine is run. None means the engine release's default, or the planner's choice where it searches.

    An empty `engine` means vLLM, an empty `version` the newest release that the catalogue knows. `weight_precision`
    None is the checkpoint's own format, `kv_precision` None the engine's `auto`.
    """

    engine: str = ""
    version: str = ""
    weight_precision: Precision | None = None
    kv_precision: Precision | None = None
    gpu_memory_utilization: float | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len_tokens: int | None = None
    enable_prefix_caching: bool | None = None


@dataclass(frozen=True, slots=True)
class ParallelismChoice:
    """How one replica is to be spread over GPUs; None is left to the planner, or 1 where nothing is searched."""

    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    expert_parallel: int | None = None

    def resolved(self) -> Parallelism:
        """The choice with 1 for everything that was left open."""
        return Parallelism(
            tensor_parallel=self.tensor_parallel or 1,
            pipeline_parallel=self.pipeline_parallel or 1,
            expert_parallel=self.expert_parallel or 1,
        )


@dataclass(frozen=True, slots=True)
class Configuration:
    """One replica's configuration with nothing left open. `accelerator` and `engine` are catalogue ids."""

    accelerator: str
    gpus_per_replica: int
    engine: str
    engine_version: str
    engine_release: str
    weight_precision: Precision
    kv_precision: Precision
    gpu_memory_utilization: float
    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len_tokens: int
    enable_prefix_caching: bool
    parallelism: Parallelism = field(default_factory=Parallelism)
