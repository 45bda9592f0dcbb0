"""How many bytes the weights take, in all and on one GPU."""

from __future__ import annotations

import dataclasses
import math

from inferplan.catalog.architecture import GroupedAttention, ModelArchitecture, QuantizationMethod, WeightQuantization
from inferplan.catalog.engine import EngineMemory
from inferplan.catalog.precision import Precision
from inferplan.sizing.parallelism import Parallelism, rounded_up
from inferplan.sizing.parameters import ModelPart, PartParameters, count_parameters

_ALWAYS_SIXTEEN_BIT = frozenset(
    {ModelPart.EMBEDDING, ModelPart.LM_HEAD, ModelPart.ROUTER, ModelPart.NORMS, ModelPart.VISION}
)
_OUTSIDE_LAYERS = frozenset({ModelPart.EMBEDDING, ModelPart.LM_HEAD, ModelPart.VISION})

_QUANTIZED_ON_LOAD = {
    # One scale a tensor or output channel: too small to count.
    Precision.FP8: WeightQuantization(QuantizationMethod.FP8, Precision.FP8),
    Precision.INT8: WeightQuantization(QuantizationMethod.INT8, Precision.INT8),
    # Group sizes that published checkpoints of the format have.
    # GPTQ and AWQ files hold packed zero points even where they are all the same.
    Precision.INT4: WeightQuantization(
        QuantizationMethod.GPTQ, Precision.INT4, group_size_elements=128, zero_point_bytes=0.5
    ),
    Precision.MXFP4: WeightQuantization(
        QuantizationMethod.MXFP4, Precision.MXFP4, group_size_elements=32, scale_bytes=1.0
    ),
    Precision.NVFP4: WeightQuantization(
        QuantizationMethod.NVFP4, Precision.NVFP4, group_size_elements=16, scale_bytes=1.0
    ),
}


def served_architecture(architecture: ModelArchitecture, weight_precision: Precision | None) -> ModelArchitecture:
    """The architecture as it is served: with its weights in `weight_precision` instead of the checkpoint's own format.

    None, or the checkpoint's own format, changes nothing. FP8 and INT8 get one scale a channel, INT4 groups of 128.
    Engines keep 32-bit checkpoints at 16 bit unless float32 is asked for.
    """
    if weight_precision is None:
        wide = architecture.checkpoint_precision is Precision.FLOAT32
        return dataclasses.replace(architecture, checkpoint_precision=Precision.BFLOAT16) if wide else architecture
    if weight_precision is architecture.weight_precision:
        return architecture
    quantization = _QUANTIZED_ON_LOAD.get(weight_precision)
    if quantization is not None:
        return dataclasses.replace(served_architecture(architecture, None), quantization=quantization)
    return dataclasses.replace(architecture, quantization=None, checkpoint_precision=weight_precision)


def weight_bytes(architecture: ModelArchitecture) -> float:
    """Bytes of all weights, every expert resident, scales included, nothing padded or replicated."""
    return sum(
        (part.total - part.vectors) * matrix_bytes_per_element(architecture, part.part)
        + part.vectors * architecture.checkpoint_precision.bytes_per_element
        for part in count_parameters(architecture).parts
    )


def matrix_bytes_per_element(architecture: ModelArchitecture, part: ModelPart) -> float:
    """Bytes of one element of a part's matrices with its share of the scales."""
    quantization = architecture.quantization
    if quantization is None or not _is_quantized(quantization, part):
        return architecture.checkpoint_precision.bytes_per_element
    scales = 0.0
    if quantization.group_size_elements is not None:
        scales = (quantization.scale_bytes + quantization.zero_point_bytes) / quantization.group_size_elements
    elif quantization.block_size_elements is not None:
        scales = quantization.scale_bytes / quantization.block_size_elements**2
    return quantization.precision.bytes_per_element + scales


def weight_bytes_per_gpu(architecture: ModelArchitecture, parallelism: Parallelism, memory: EngineMemory) -> float:
    """Bytes of the weights on the fullest GPU.

    Projections of keys and values are divided up to the number of KV heads and replicated beyond, routers, norms and
    the down-projections of latent attention on every GPU. With pipeline parallelism the fullest stage has ceil(layers
    / stages) layers and the larger of embedding and LM head.
    """
    stage_share = math.ceil(architecture.layers / parallelism.pipeline_parallel) / architecture.layers
    in_layers = 0.0
    outside = dict.fromkeys(_OUTSIDE_LAYERS, 0.0)
    for part in count_parameters(architecture).parts:
        found = _part_bytes_per_gpu(architecture, part, parallelism, memory)
        if part.part in _OUTSIDE_LAYERS:
            outside[part.part] = found
        else:
            in_layers += found * stage_share
    if parallelism.pipeline_parallel == 1:
        return in_layers + sum(outside.values())
    # The first stage embeds text and images, the last holds the LM head, or a second copy of the tied embedding.
    first = outside[ModelPart.EMBEDDING] + outside[ModelPart.VISION]
    last = outside[ModelPart.LM_HEAD] or outside[ModelPart.EMBEDDING]
    return in_layers + max(first, last)


def _is_quantized(quantization: WeightQuantization, part: ModelPart) -> bool:
    if quantization.experts_only:
        return part is ModelPart.EXPERTS
    return part not in _ALWAYS_SIXTEEN_BIT


def _part_bytes_per_gpu(
    architecture: ModelArchitecture, part: PartParameters, parallelism: Parallelism, memory: EngineMemory
) -> float:
    tensor_parallel = parallelism.tensor_parallel
    element_bytes = matrix_bytes_per_element(architecture, part.part)
    vector_bytes = part.vectors * architecture.checkpoint_precision.bytes_per_element
    if part.part is ModelPart.EXPERTS:
        share = _expert_share(architecture, parallelism, memory)
        return part.sharded * share * element_bytes + vector_bytes * share
    sharded = float(part.sharded)
    if part.part in (ModelPart.EMBEDDING, ModelPart.LM_HEAD):
        padded = rounded_up(architecture.vocabulary_size, memory.vocabulary_multiple_elements)
        sharded *= padded / architecture.vocabulary_size
    attention = architecture.attention
    kv_split = min(tensor_parallel, attention.kv_heads) if isinstance(attention, GroupedAttention) else 1
    elements = sharded / tensor_parallel + part.kv_sharded / kv_split + part.replicated
    return elements * element_bytes + vector_bytes


def _expert_share(architecture: ModelArchitecture, parallelism: Parallelism, memory: EngineMemory) -> float:
    """Share of all experts' weights that one GPU holds, padding included, so possibly more than 1 / GPUs."""
    experts = architecture.experts
    assert experts is not None
    share = math.ceil(experts.experts / parallelism.expert_parallel) / experts.experts
    share /= parallelism.expert_tensor_parallel
    quantization = architecture.quantization
    if quantization is not None and quantization.method is QuantizationMethod.MXFP4:
        hidden = architecture.hidden_size
        width = math.ceil(experts.expert_intermediate_size / parallelism.expert_tensor_parallel)
        share *= rounded_up(hidden, memory.mxfp4_hidden_multiple_elements) / hidden
        share *= rounded_up(width, memory.mxfp4_intermediate_multiple_elements) / width
    return share
