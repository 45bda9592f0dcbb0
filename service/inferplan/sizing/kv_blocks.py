"""The KV cache of a replica in the simulator's unit: blocks of tokens that all sequences fill alike."""

from __future__ import annotations

import math

from inferplan.catalog import EngineRelease, ModelArchitecture
from inferplan.sizing.kv_cache import WindowAwareness, kv_bytes_for_sequence
from inferplan.sizing.memory import MemoryEstimate


def simulated_kv_blocks(
    served: ModelArchitecture, release: EngineRelease, memory: MemoryEstimate, mean_context_tokens: float | None
) -> int:
    """Blocks that hold as many sequences of `mean_context_tokens` as the replica's memory does.

    The simulator counts a block for every 16 (or so) tokens of a sequence. That is what a model takes whose layers all
    keep every token. Layers with a window stop growing, and linear layers keep a state from the first token on, so such
    a model has room for more, or fewer, sequences than its blocks say. Which of them depends on the context; the mean
    while decoding (prompt and half of the output) is what the sequences of a busy replica hold together. Without it,
    windows are not counted on and every slot is taken to hold a state: fewer blocks than there are, never more.
    """
    longest = math.ceil(memory.configuration.max_model_len_tokens / memory.kv_block_tokens)
    if mean_context_tokens is None:
        states = memory.configuration.max_num_seqs * memory.state_bytes_per_sequence
        tokens = (memory.kv_cache_bytes - states) / memory.kv_bytes_per_token if memory.kv_bytes_per_token else 0.0
        blocks = min(memory.kv_blocks, math.floor(tokens / memory.kv_block_tokens))
        return max(1, blocks, min(longest, memory.kv_blocks))
    blocks_of_one = math.ceil(max(1.0, mean_context_tokens) / memory.kv_block_tokens)
    held = kv_bytes_for_sequence(
        served,
        memory.configuration.kv_precision,
        memory.configuration.parallelism,
        blocks_of_one * memory.kv_block_tokens,
        WindowAwareness(release.memory.window_aware_kv_cache, release.memory.chunk_aware_kv_cache),
    )
    blocks = math.floor(memory.kv_cache_bytes / held * blocks_of_one)
    # What the memory model lets start may also be sent: one sequence of the longest context always has room.
    return max(1, blocks, longest if memory.fits else 0)
