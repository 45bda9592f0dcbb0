"""From an architecture, an accelerator and efficiency coefficients to the numbers that a step's time depends on."""

from __future__ import annotations

from inferplan.catalog.accelerator import Accelerator
from inferplan.catalog.architecture import AttentionScope, GroupedAttention, ModelArchitecture
from inferplan.catalog.precision import Precision
from inferplan.simulation import StepTimeCoefficients
from inferplan.sizing.efficiency import EfficiencyCoefficients
from inferplan.sizing.kv_cache import nominal_kv_bytes_per_token
from inferplan.sizing.parallelism import Parallelism
from inferplan.sizing.parameters import ModelPart, PartParameters, count_parameters
from inferplan.sizing.weights import matrix_bytes_per_element

_NOT_IN_A_STEP = frozenset({ModelPart.VISION, ModelPart.EMBEDDING})
_SIXTEEN_BIT_BYTES = 2
_ALL_REDUCES_PER_LAYER = 2


def step_time_coefficients(
    served: ModelArchitecture,
    accelerator: Accelerator,
    parallelism: Parallelism,
    kv_precision: Precision,
    efficiency: EfficiencyCoefficients,
) -> StepTimeCoefficients:
    """The coefficients of one replica's steps.

    Pipeline stages are taken one after the other, with the hidden state handed on between them: no overlap, which is
    what one request sees and cautious for throughput.
    """
    degree = parallelism.tensor_parallel
    one_stage = Parallelism(degree, 1, parallelism.expert_parallel)
    bandwidth = accelerator.memory_bandwidth_bytes_per_second
    weight_rate = bandwidth * efficiency.weight_bandwidth_ratio
    experts = served.experts
    windowed_fraction, window_tokens = _windows(served)
    return StepTimeCoefficients(
        dense_weight_seconds=_streamed_dense_bytes(served, degree) / weight_rate,
        compute_seconds_per_token=_compute_seconds_per_token(served, accelerator, efficiency) / degree,
        kv_seconds_per_context_token=nominal_kv_bytes_per_token(served, kv_precision, one_stage)
        / (bandwidth * efficiency.attention_bandwidth_ratio),
        prefill_attention_seconds_per_pair=_attention_flops_per_pair(served)
        / degree
        / (accelerator.sixteen_bit_flops_per_second * efficiency.prefill_attention_flops_ratio),
        allreduce_seconds_per_step=_communication_seconds_per_step(served, parallelism, efficiency),
        allreduce_seconds_per_token=_communication_seconds_per_token(served, accelerator, parallelism, efficiency),
        elementwise_seconds_per_token=served.layers
        * served.hidden_size
        * _SIXTEEN_BIT_BYTES
        * efficiency.elementwise_passes
        / bandwidth,
        host_seconds_per_step=efficiency.host_step_seconds
        + served.layers * efficiency.host_layer_seconds
        + (experts.layers * efficiency.expert_layer_seconds if experts else 0.0),
        host_seconds_per_sequence=efficiency.host_sequence_seconds,
        roofline_sharpness=efficiency.roofline_sharpness,
        gemm_padding_tokens=efficiency.gemm_padding_tokens,
        expert_weight_seconds=_expert_bytes(served) / degree / weight_rate,
        expert_count=experts.experts if experts else 0,
        experts_per_token=experts.experts_per_token if experts else 0,
        window_tokens=window_tokens,
        windowed_fraction=windowed_fraction,
    )


def _streamed_dense_bytes(served: ModelArchitecture, degree: int) -> float:
    """Bytes that one GPU reads in every step: all weights but the experts' and the embedding's untouched rows.

    A tied embedding is read whole, as the LM head.
    """
    total = 0.0
    for part in count_parameters(served).parts:
        is_head = part.part is ModelPart.EMBEDDING and served.tied_embeddings
        if part.part is ModelPart.EXPERTS or (part.part in _NOT_IN_A_STEP and not is_head):
            continue
        total += _bytes_per_gpu(served, part, degree)
    return total


def _bytes_per_gpu(served: ModelArchitecture, part: PartParameters, degree: int) -> float:
    attention = served.attention
    kv_split = min(degree, attention.kv_heads) if isinstance(attention, GroupedAttention) else 1
    matrices = part.sharded / degree + part.kv_sharded / kv_split + part.replicated
    vectors = part.vectors * served.checkpoint_precision.bytes_per_element
    return matrices * matrix_bytes_per_element(served, part.part) + vectors


def _expert_bytes(served: ModelArchitecture) -> float:
    return sum(
        part.total * matrix_bytes_per_element(served, part.part)
        for part in count_parameters(served).parts
        if part.part is ModelPart.EXPERTS
    )


def _compute_seconds_per_token(
    served: ModelArchitecture, accelerator: Accelerator, efficiency: EfficiencyCoefficients
) -> float:
    """2 FLOP a weight that a token passes through, but for the LM head, which is computed for sampled tokens only."""
    seconds = 0.0
    for part in count_parameters(served).parts:
        if part.part in _NOT_IN_A_STEP or part.part is ModelPart.LM_HEAD:
            continue
        precision = _multiplied_precision(served, part, accelerator)
        ratio = efficiency.sixteen_bit_flops_ratio if precision.is_sixteen_bit else efficiency.eight_bit_flops_ratio
        if part.part is ModelPart.EXPERTS:
            ratio *= efficiency.expert_flops_ratio
        seconds += 2.0 * part.active / (accelerator.peak_flops_per_second(precision) * ratio)
    return seconds


def _multiplied_precision(served: ModelArchitecture, part: PartParameters, accelerator: Accelerator) -> Precision:
    """The format that the matrix units work in: 16-bit where the weights' own has none (weight-only quantisation)."""
    quantised = matrix_bytes_per_element(served, part.part) < _SIXTEEN_BIT_BYTES
    if quantised and accelerator.has_matrix_unit_for(served.weight_precision):
        return served.weight_precision
    return Precision.FLOAT16


def _attention_flops_per_pair(served: ModelArchitecture) -> float:
    """Scores and weighted values of one query-key pair, all layers that attend."""
    layers = sum(group.layers for group in served.layer_groups if group.scope is not AttentionScope.LINEAR)
    attention = served.attention
    if isinstance(attention, GroupedAttention):
        return 4.0 * layers * attention.query_heads * attention.head_dim
    width = attention.qk_nope_head_dim + attention.qk_rope_head_dim + attention.value_head_dim
    return 2.0 * layers * attention.query_heads * width


def _windows(served: ModelArchitecture) -> tuple[float, int]:
    """Share of the attending layers that have a window, and the window (their mean where they differ)."""
    attending = [group for group in served.layer_groups if group.scope is not AttentionScope.LINEAR]
    windowed = [group for group in attending if group.window_tokens is not None]
    if not windowed:
        return 0.0, 0
    layers = sum(group.layers for group in windowed)
    mean_window = sum(group.layers * (group.window_tokens or 0) for group in windowed) / layers
    return layers / sum(group.layers for group in attending), round(mean_window)


def _communication_seconds_per_step(
    served: ModelArchitecture, parallelism: Parallelism, efficiency: EfficiencyCoefficients
) -> float:
    exchanges = parallelism.pipeline_parallel - 1
    if parallelism.tensor_parallel > 1:
        exchanges += _ALL_REDUCES_PER_LAYER * served.layers
    return exchanges * efficiency.allreduce_seconds


def _communication_seconds_per_token(
    served: ModelArchitecture, accelerator: Accelerator, parallelism: Parallelism, efficiency: EfficiencyCoefficients
) -> float:
    """All-reduces move 2 (tp - 1) / tp of the hidden state each; a pipeline hands it on once between two stages."""
    degree = parallelism.tensor_parallel
    state_bytes = served.hidden_size * _SIXTEEN_BIT_BYTES
    moved = _ALL_REDUCES_PER_LAYER * served.layers * 2 * (degree - 1) / degree * state_bytes
    moved += (parallelism.pipeline_parallel - 1) * state_bytes
    return moved / (accelerator.interconnect_bytes_per_second * efficiency.allreduce_bandwidth_ratio)
