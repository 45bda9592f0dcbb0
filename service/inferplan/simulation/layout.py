"""The memory that the kernel works on: flat arrays of records, no Python objects.

`World` is everything of one simulation. Numba passes it by its members, so a function that takes a world takes arrays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

NOBODY = -1
"""End of a linked list, or no request, slot or replica at all."""

# How requests come about.
OPEN_LOOP = 0
CLOSED_LOOP = 1
STATIC_BATCHES = 2

# Where the router sends the next request.
ROUND_ROBIN = 0
LEAST_OUTSTANDING = 1
RANDOM_OF_TWO = 2

# Words that another thread may write (the flag) or read (the progress) while the kernel runs.
CONTROL_CANCEL = 0
CONTROL_STEPS_LEFT = 1
CONTROL_FINISHED = 2
CONTROL_SIZE = 3

# Why the kernel returned.
ALL_PLAYED = 0
CANCELLED = 1
STEP_LIMIT = 2

# Columns of `lengths` and of `outcomes`.
PROMPT = 0
OUTPUT = 1
CACHED = 2
CLASS = 3
QUEUE_WAIT = 0
TTFT = 1
END_TO_END = 2

# Inter-token latencies are counted in bins by the upper bits of their float64: 128 bins to each doubling, so that a
# bin's middle is less than 0.4 % from everything in it. From 2^-20 s (1 microsecond) to 2^12 s (more than an hour).
GAP_BINS_PER_OCTAVE = 128
GAP_LOWEST_EXPONENT = -20
GAP_OCTAVES = 32
GAP_BINS = GAP_BINS_PER_OCTAVE * GAP_OCTAVES
GAP_SHIFT = 52 - 7
GAP_OFFSET = (1023 + GAP_LOWEST_EXPONENT) * GAP_BINS_PER_OCTAVE
GAP_PERIODS = 20
"""The requests are numbered in order; every twentieth of them is a period with its own counts, so that a warm-up can be
cut off and confidence intervals drawn by batch means, as for the other latencies."""

SETTINGS = np.dtype(
    [
        ("mode", np.int64),
        ("router", np.int64),
        ("router_seed", np.uint64),
        ("maximum_sequences", np.int64),
        ("maximum_batched_tokens", np.int64),
        ("kv_blocks", np.int64),
        ("block_tokens", np.int64),
        ("chunked_prefill", np.int64),
        ("shared_prefix", np.int64),
        ("window_tokens", np.int64),
        ("ring_mask", np.int64),
        ("concurrency", np.int64),
        ("clients_started", np.int64),
        ("requests_issued", np.int64),
        ("last_chosen", np.int64),
        ("failing_replica", np.int64),
        ("restarted", np.int64),
        ("ramp_seconds", np.float64),
        ("client_seconds", np.float64),
        ("last_issued_seconds", np.float64),
        ("failure_seconds", np.float64),
        ("maximum_seconds", np.float64),
    ],
    align=True,
)

REPLICA = np.dtype(
    [
        ("now", np.float64),  # end of the last step, so the earliest start of the next
        ("last_decode_end", np.float64),
        ("busy_seconds", np.float64),
        ("block_seconds", np.float64),  # integral of the KV blocks in use over time; the next two likewise
        ("sequence_seconds", np.float64),
        ("preempted_seconds", np.float64),
        ("alive", np.int64),
        ("turn", np.int64),  # counts the steps in which decoding sequences advanced
        ("decoders", np.int64),
        ("context_tokens", np.int64),  # sum of the decoders' contexts; the next likewise, each cut at the window
        ("windowed_context_tokens", np.int64),
        ("inside_window", np.int64),  # decoders whose context is still shorter than the window
        ("free_blocks", np.int64),
        ("lowest_free_blocks", np.int64),
        ("queue_head", np.int64),  # requests that were routed here and wait for their first admission
        ("queue_tail", np.int64),
        ("queued", np.int64),
        ("preempted", np.int64),  # height of the stack of preempted sequences
        ("free_slot", np.int64),
        ("oldest", np.int64),  # both ends of the running sequences in order of admission
        ("newest", np.int64),
        ("running", np.int64),
        ("prefilling", np.int64),  # the slot whose prompt is not finished after a step, or NOBODY
        ("finished_in_last_step", np.int64),
        ("period", np.int64),
        ("steps", np.int64),
        ("prefill_tokens", np.int64),
        ("decode_tokens", np.int64),
        ("preemptions", np.int64),
    ],
    align=True,
)

SLOT = np.dtype(
    [
        ("last_token_seconds", np.float64),
        ("finish_turn", np.int64),
        ("context_less_turn", np.int64),  # context = this + turn: a decoder's context grows by one each turn
        ("request", np.int32),
        ("traffic_class", np.int32),
        ("generated_tokens", np.int32),  # up to date while prefilling; a decoder's follows from finish_turn
        ("prefill_target", np.int32),
        ("prefilled_tokens", np.int32),
        ("shared_blocks", np.int32),
        ("older", np.int32),
        ("newer", np.int32),
        ("bucket_previous", np.int32),
        ("bucket_next", np.int32),
        ("completed_next", np.int32),
    ],
    align=True,
)

PREEMPTED = np.dtype(
    [("last_token_seconds", np.float64), ("request", np.int32), ("generated_tokens", np.int32)], align=True
)

RecordArray = np.ndarray[tuple[int, ...], np.dtype[np.void]]


class World(NamedTuple):
    """All of one simulation. N requests, R replicas, S slots, K traffic classes."""

    settings: RecordArray  # [1]
    control: npt.NDArray[np.int64]  # [CONTROL_SIZE]
    coefficients: npt.NDArray[np.float64]
    token_seconds: npt.NDArray[np.float64]  # [token budget + 1], filled as needed; 0 where not yet known
    arrivals: npt.NDArray[np.float64]  # [N] seconds; the kernel writes them in a closed loop
    lengths: npt.NDArray[np.int32]  # [N, 4]
    outcomes: npt.NDArray[np.float64]  # [N, 3] seconds after the arrival; NaN where it has not come to that
    preemptions: npt.NDArray[np.int32]  # [N]
    replica_of: npt.NDArray[np.int16]  # [N]
    next_in_queue: npt.NDArray[np.int32]  # [N]
    replicas: RecordArray  # [R]
    slots: RecordArray  # [R, S]
    preempted: RecordArray  # [R, S] a stack for each replica: the last one preempted is the first one resumed
    finish_buckets: npt.NDArray[np.int32]  # [R, ring] first slot of those that finish in a turn
    window_exits: npt.NDArray[np.int32]  # [R, ring] how many contexts reach the window in a turn
    block_phases: npt.NDArray[np.int32]  # [R, block tokens] decoders by the turn (modulo block) that needs a block
    decoders_by_class: npt.NDArray[np.int64]  # [R, K]
    gap_counts: npt.NDArray[np.int64]  # [GAP_PERIODS, K, GAP_BINS]
    gap_seconds: npt.NDArray[np.float64]  # [GAP_PERIODS, K, 2] sum and largest
