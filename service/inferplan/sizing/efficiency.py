"""How much of an accelerator's datasheet an engine reaches: the coefficients that calibration fits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EfficiencyCoefficients:
    """Coefficients of the step-time model.

    `weight_bandwidth_ratio` and `attention_bandwidth_ratio` are shares of peak memory bandwidth while streaming weights
    and KV cache. `sixteen_bit_flops_ratio` and `eight_bit_flops_ratio` are shares of the matrix units' dense peak in
    GEMMs, by the format that is multiplied; `prefill_attention_flops_ratio` that of the 16-bit peak in prefill
    attention. `expert_flops_ratio` is the share of that rate which the grouped GEMMs of routed experts reach,
    `expert_layer_seconds` what routing, sorting and combining cost in each layer of experts and step.
    `gemm_padding_tokens` is how many tokens GEMMs compute in vain a step, since they work on whole tiles.
    `host_step_seconds` is paid once a step, `host_layer_seconds` once a layer and step, `host_sequence_seconds` once a
    decoding sequence and step. `allreduce_seconds` is the latency of one all-reduce, `allreduce_bandwidth_ratio` the
    share of the interconnect's one-direction rate that its bus bandwidth reaches. `elementwise_passes` counts how often
    the hidden state of a token passes through memory in a layer's norms, activations and rotary embedding.
    `roofline_sharpness` is the p of (Tw^p + Tf^p)^(1/p). `front_end_seconds` is what HTTP, tokenising and the first
    detokenising add to TTFT.
    """

    weight_bandwidth_ratio: float
    attention_bandwidth_ratio: float
    sixteen_bit_flops_ratio: float
    eight_bit_flops_ratio: float
    prefill_attention_flops_ratio: float
    host_step_seconds: float
    host_layer_seconds: float
    host_sequence_seconds: float
    allreduce_seconds: float
    allreduce_bandwidth_ratio: float
    elementwise_passes: float
    roofline_sharpness: float
    front_end_seconds: float
    expert_flops_ratio: float
    expert_layer_seconds: float
    gemm_padding_tokens: float


DATASHEET_EFFICIENCY = EfficiencyCoefficients(
    # Fitted through the simulator to Llama-3.1-70B FP8 on H100 under vLLM; kernel measurements agree (decode attention
    # reaches 0.93 of bandwidth, an all-reduce of one token 4.4 to 5.1 microseconds in a CUDA graph).
    weight_bandwidth_ratio=0.95,
    attention_bandwidth_ratio=0.95,
    # bf16 GEMM reaches 0.80 to 0.85 of peak from 1024 rows up.
    sixteen_bit_flops_ratio=0.8,
    # FP8 GEMM reaches 0.45 to 0.6; the fit gave 0.47.
    eight_bit_flops_ratio=0.47,
    prefill_attention_flops_ratio=0.8,
    host_step_seconds=1.1e-3,
    host_layer_seconds=41e-6,
    # What five builds of vLLM have in common; one of them, which the others were first fitted to, takes 50.
    host_sequence_seconds=40e-6,
    allreduce_seconds=9.2e-6,
    # 390 GB/s of the 450 GB/s that NVLink 4 gives an H100 in one direction.
    allreduce_bandwidth_ratio=390 / 450,
    elementwise_passes=5.3,
    roofline_sharpness=4.7,
    front_end_seconds=19e-3,
    # Fitted through the simulator to gpt-oss-120b (0.25) and Qwen3-235B FP8 (0.7 to 0.9) on H100.
    expert_flops_ratio=0.4,
    expert_layer_seconds=10e-6,
    # A quarter of a tile of 128 rows; the fit gave 30 to 40.
    gemm_padding_tokens=32.0,
)
