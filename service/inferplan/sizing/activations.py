"""Memory beside weights and KV cache: activation peak, non-torch memory, CUDA graphs."""

from __future__ import annotations

from inferplan.catalog.architecture import ModelArchitecture
from inferplan.catalog.engine import EngineMemory
from inferplan.sizing.parallelism import Parallelism

_SIXTEEN_BIT_BYTES = 2


def activation_bytes(
    architecture: ModelArchitecture,
    memory: EngineMemory,
    parallelism: Parallelism,
    batched_tokens: int,
    sequences: int,
) -> float:
    """Peak of activations on one GPU: that of the largest step, or of the sampler, whichever is more.

    The step: tokens x factor x (hidden + intermediate / tensor parallel) x 2, where the intermediate width of a
    mixture of experts is that of the experts a token passes through. The sampler: sequences x vocabulary x bytes a
    logit, with the step's hidden states still alive. It follows the token budget, never the context.
    """
    hidden = architecture.hidden_size
    width = hidden + widest_intermediate(architecture) / parallelism.tensor_parallel
    step = batched_tokens * memory.activation_bytes_factor * width * _SIXTEEN_BIT_BYTES
    logits = min(sequences, batched_tokens) * architecture.vocabulary_size
    sampler = logits * memory.sampler_bytes_per_logit + batched_tokens * hidden * _SIXTEEN_BIT_BYTES
    return max(step, sampler)


def widest_intermediate(architecture: ModelArchitecture) -> int:
    """Intermediate elements of one token in the widest layer: dense, or of all experts that it passes through."""
    dense = architecture.feed_forward.intermediate_size if architecture.feed_forward else 0
    experts = architecture.experts
    if experts is None:
        return dense
    sparse = experts.experts_per_token * experts.expert_intermediate_size + experts.shared_intermediate_size
    return max(dense, sparse)


def non_torch_bytes(memory: EngineMemory, parallelism: Parallelism) -> float:
    """CUDA contexts, and NCCL buffers where a replica has more than one GPU."""
    return memory.non_torch_bytes_single_gpu if parallelism.gpus == 1 else memory.non_torch_bytes_multi_gpu


def cuda_graph_bytes(architecture: ModelArchitecture, memory: EngineMemory, parallelism: Parallelism) -> float:
    """CUDA graphs of the layers of one pipeline stage."""
    layers = -(-architecture.layers // parallelism.pipeline_parallel)
    return memory.cuda_graph_fixed_bytes + layers * memory.cuda_graph_bytes_per_layer
