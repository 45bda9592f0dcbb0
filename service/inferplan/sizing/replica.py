"""One replica as the simulator takes it."""

from __future__ import annotations

from dataclasses import dataclass

from inferplan.catalog import Accelerator, EngineRelease, ModelArchitecture
from inferplan.simulation import EngineParameters, StepTimeCoefficients
from inferplan.sizing.efficiency import EfficiencyCoefficients
from inferplan.sizing.kv_blocks import simulated_kv_blocks
from inferplan.sizing.memory import MemoryEstimate
from inferplan.sizing.step_time_model import step_time_coefficients


@dataclass(frozen=True, slots=True)
class ReplicaModel:
    """What the simulator needs of one replica."""

    coefficients: StepTimeCoefficients
    engine: EngineParameters
    front_end_seconds: float


def replica_model(
    served: ModelArchitecture,
    accelerator: Accelerator,
    release: EngineRelease,
    memory: MemoryEstimate,
    efficiency: EfficiencyCoefficients,
    mean_context_tokens: float | None = None,
) -> ReplicaModel:
    """The replica whose memory was estimated.

    `mean_context_tokens` is the workload's mean context while decoding; models with window or linear layers need it to
    hold as many sequences as they can (see `simulated_kv_blocks`). The prefix cache saves computation only: that its
    blocks are shared is not counted on.
    """
    configuration = memory.configuration
    coefficients = step_time_coefficients(
        served, accelerator, configuration.parallelism, configuration.kv_precision, efficiency
    )
    engine = EngineParameters(
        maximum_sequences=min(configuration.max_num_seqs, configuration.max_num_batched_tokens),
        maximum_batched_tokens=configuration.max_num_batched_tokens,
        kv_blocks=simulated_kv_blocks(served, release, memory, mean_context_tokens),
        block_tokens=memory.kv_block_tokens,
        chunked_prefill=release.defaults.prefill_with_decode,
        maximum_context_tokens=configuration.max_model_len_tokens,
    )
    return ReplicaModel(coefficients, engine, efficiency.front_end_seconds)
