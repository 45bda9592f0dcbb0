"""What no hardware can do: figures below the time that the memory alone takes."""

from __future__ import annotations

from collections.abc import Mapping

from inferplan.profiles.profile import ServingPoint
from inferplan.sizing.efficiency import EfficiencyCoefficients
from inferplan.sizing.memory import MemoryEstimate, MemoryQuestion
from inferplan.sizing.replica import replica_model

_PERFECT = EfficiencyCoefficients(
    weight_bandwidth_ratio=1.0,
    attention_bandwidth_ratio=1.0,
    sixteen_bit_flops_ratio=1.0,
    eight_bit_flops_ratio=1.0,
    prefill_attention_flops_ratio=1.0,
    host_step_seconds=0.0,
    host_layer_seconds=0.0,
    host_sequence_seconds=0.0,
    allreduce_seconds=0.0,
    allreduce_bandwidth_ratio=1.0,
    elementwise_passes=0.0,
    roofline_sharpness=1000.0,
    front_end_seconds=0.0,
    expert_flops_ratio=1.0,
    expert_layer_seconds=0.0,
    gemm_padding_tokens=0.0,
)


def faster_than_memory(
    question: MemoryQuestion, memory: MemoryEstimate, point: ServingPoint, measured: Mapping[str, float]
) -> str:
    """Why a point is impossible; empty if it is not.

    TPOT may not be below the time that weights and KV cache take to stream at full bandwidth, with as many sequences as
    Little's law says were decoding.
    """
    clients = point.static_batch_sequences or point.load.concurrency
    if clients is None or not {"ttft", "tpot"} <= measured.keys():
        return ""
    decode = measured["tpot"] * max(point.load.mean_output_tokens - 1, 1)
    running = max(1.0, clients * decode / (measured["ttft"] + decode))
    coefficients = replica_model(
        question.served, question.accelerator, question.release, memory, _PERFECT, 0.0
    ).coefficients
    weights = coefficients.dense_weight_seconds
    if coefficients.expert_count:
        untouched = (1.0 - coefficients.experts_per_token / coefficients.expert_count) ** running
        weights += coefficients.expert_weight_seconds * (1.0 - untouched)
    context = point.load.mean_input_tokens * (1.0 - coefficients.windowed_fraction)
    least = weights + running * context * coefficients.kv_seconds_per_context_token
    if measured["tpot"] >= least:
        return ""
    return (
        f"TPOT of {measured['tpot'] * 1e3:.3g} ms is impossible: streaming the weights and the KV cache of the "
        f"{running:.0f} sequences that were decoding takes {least * 1e3:.3g} ms at full bandwidth"
    )
