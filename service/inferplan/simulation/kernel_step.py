"""Compiled: one scheduler step of one replica: who takes part, how long it takes, what it gives."""

from __future__ import annotations

from inferplan.simulation.compiled import compiled, compiled_inline
from inferplan.simulation.kernel_gaps import record_decode_gaps
from inferplan.simulation.kernel_sequences import (
    admit,
    blocks_for,
    complete_prefill,
    finish_decoding,
    preempt_newest,
    take_blocks,
)
from inferplan.simulation.layout import CACHED, CONTROL_STEPS_LEFT, NOBODY, PROMPT, World
from inferplan.simulation.step_time import prefill_pairs, sequence_seconds, token_seconds, windowed_prefill_pairs


@compiled
def play_step(world: World, where: int) -> None:
    """Play one step that starts now. The caller has made sure that there is something to do."""
    replica = world.replicas[where]
    replica.finished_in_last_step = 0
    if world.settings[0].chunked_prefill:
        preempted = _make_room_for_decoders(world, where)
        tokens, pairs, windowed_pairs, completed = _schedule_prefill_chunks(world, where, preempted)
        _run(world, where, replica.decoders, tokens, pairs, windowed_pairs, completed)
        return
    tokens, pairs, windowed_pairs, completed = _schedule_whole_prompts(world, where)
    decoders = 0
    if tokens == 0:
        _make_room_for_decoders(world, where)
        decoders = replica.decoders
    _run(world, where, decoders, tokens, pairs, windowed_pairs, completed)


@compiled_inline
def _make_room_for_decoders(world: World, where: int) -> bool:
    """Give a block to each decoding sequence that starts a new one; preempt the newest until there are enough.

    Taking the newest first is what walking the running list from its head does as well, as vLLM does: whoever is
    preempted stands behind everyone that has been served.
    """
    replica = world.replicas[where]
    blocks = world.block_phases[where, replica.turn % world.settings[0].block_tokens]
    preempted = False
    while blocks > replica.free_blocks:
        blocks -= preempt_newest(world, where)
        preempted = True
    if blocks > 0:
        take_blocks(world, where, blocks)
    return preempted


@compiled_inline
def _schedule_prefill_chunks(world: World, where: int, preempted: bool) -> tuple[int, float, float, int]:
    """Spend what the decoders leave of the token budget: on the prompt in progress, then on whoever is next in line.

    Returns prefill tokens, pairs, pairs inside the window, and the first slot of those whose prompts are completed.
    """
    replica = world.replicas[where]
    settings = world.settings[0]
    budget = settings.maximum_batched_tokens - replica.decoders
    tokens, pairs, windowed_pairs, completed = 0, 0.0, 0.0, NOBODY
    if replica.prefilling != NOBODY and budget > 0:
        slot = world.slots[where, replica.prefilling]
        before = slot.prefilled_tokens
        take = min(slot.prefill_target - before, budget)
        blocks = blocks_for(world, before + take) - blocks_for(world, before)
        if blocks > replica.free_blocks:
            preempt_newest(world, where)  # which is the one in progress itself: nobody was admitted after it
            preempted = True
        else:
            take_blocks(world, where, blocks)
            tokens, pairs, windowed_pairs = _count_chunk(world, before, take)
            completed = _advance_prefill(world, where, replica.prefilling, take, completed)
    # As in vLLM, nobody is admitted in a step that had to preempt.
    while not preempted and tokens < budget and _somebody_waits(world, where):
        before, target, shared_blocks = _next_in_line(world, where)
        take = min(target - before, budget - tokens)
        blocks = blocks_for(world, before + take) - shared_blocks
        if blocks > replica.free_blocks:
            break
        index = admit(world, where)
        take_blocks(world, where, blocks)
        chunk = _count_chunk(world, before, take)
        tokens, pairs, windowed_pairs = tokens + chunk[0], pairs + chunk[1], windowed_pairs + chunk[2]
        completed = _advance_prefill(world, where, index, take, completed)
    return tokens, pairs, windowed_pairs, completed


@compiled_inline
def _schedule_whole_prompts(world: World, where: int) -> tuple[int, float, float, int]:
    """Old engines: whole prompts of whoever is next in line, in a step without decoding. Returns as with chunks.

    The first prompt may exceed the token budget on its own (a sequence that is recomputed can grow beyond it).
    """
    replica = world.replicas[where]
    tokens, pairs, windowed_pairs, completed = 0, 0.0, 0.0, NOBODY
    while _somebody_waits(world, where):
        before, target, shared_blocks = _next_in_line(world, where)
        take = target - before
        over_budget = tokens > 0 and tokens + take > world.settings[0].maximum_batched_tokens
        blocks = blocks_for(world, target) - shared_blocks
        if over_budget or blocks > replica.free_blocks:
            break
        index = admit(world, where)
        take_blocks(world, where, blocks)
        chunk = _count_chunk(world, before, take)
        tokens, pairs, windowed_pairs = tokens + chunk[0], pairs + chunk[1], windowed_pairs + chunk[2]
        completed = _advance_prefill(world, where, index, take, completed)
    return tokens, pairs, windowed_pairs, completed


@compiled_inline
def _somebody_waits(world: World, where: int) -> bool:
    """Whether a slot is free and somebody is there to take it."""
    replica = world.replicas[where]
    if replica.running >= world.settings[0].maximum_sequences:
        return False
    if replica.preempted > 0:
        return True
    return bool(replica.queued > 0 and world.arrivals[replica.queue_head] <= replica.now)


@compiled_inline
def _next_in_line(world: World, where: int) -> tuple[int, int, int]:
    """Of who would be admitted next: tokens that the prefix cache serves, tokens to have in all, and shared blocks."""
    replica = world.replicas[where]
    if replica.preempted > 0:
        saved = world.preempted[where, replica.preempted - 1]
        request = int(saved.request)
        generated_tokens = int(saved.generated_tokens)
    else:
        request = int(replica.queue_head)
        generated_tokens = 0
    cached_tokens = int(world.lengths[request, CACHED])
    target: int = world.lengths[request, PROMPT] + generated_tokens
    shared_blocks = cached_tokens // world.settings[0].block_tokens if world.settings[0].shared_prefix else 0
    return cached_tokens, target, shared_blocks


@compiled_inline
def _count_chunk(world: World, before: int, take: int) -> tuple[int, float, float]:
    pairs = prefill_pairs(before, take)
    window_tokens = world.settings[0].window_tokens
    if window_tokens == 0:
        return take, pairs, pairs
    return take, pairs, windowed_prefill_pairs(before, take, window_tokens)


@compiled_inline
def _advance_prefill(world: World, where: int, index: int, take: int, completed: int) -> int:
    """Note a chunk. Returns the list of slots whose prompts are completed, with this one in front if it is."""
    replica = world.replicas[where]
    slot = world.slots[where, index]
    slot.prefilled_tokens += take
    if slot.prefilled_tokens < slot.prefill_target:
        replica.prefilling = index
        return completed
    replica.prefilling = NOBODY
    slot.completed_next = completed
    return index


@compiled_inline
def _run(
    world: World, where: int, decoders: int, prefill_tokens: int, pairs: float, windowed_pairs: float, completed: int
) -> None:
    """Let the step's time pass, then hand out its tokens."""
    replica = world.replicas[where]
    settings = world.settings[0]
    if decoders > 0:
        replica.context_tokens += decoders
        replica.windowed_context_tokens += replica.inside_window
    context, windowed_context = (replica.context_tokens, replica.windowed_context_tokens) if decoders > 0 else (0, 0)
    seconds = _token_seconds(world, decoders + prefill_tokens) + sequence_seconds(
        world.coefficients, decoders, context, windowed_context, pairs, windowed_pairs
    )
    replica.now += seconds
    replica.busy_seconds += seconds
    replica.block_seconds += seconds * (settings.kv_blocks - replica.free_blocks)
    replica.sequence_seconds += seconds * replica.running
    replica.preempted_seconds += seconds * replica.preempted
    replica.prefill_tokens += prefill_tokens
    replica.decode_tokens += decoders
    replica.steps += 1
    world.control[CONTROL_STEPS_LEFT] -= 1
    if decoders > 0 or settings.chunked_prefill:
        _end_turn(world, where)
    while completed != NOBODY:
        following = world.slots[where, completed].completed_next
        complete_prefill(world, where, completed)
        completed = following


@compiled_inline
def _end_turn(world: World, where: int) -> None:
    """Every decoding sequence has got a token."""
    replica = world.replicas[where]
    record_decode_gaps(world, where)
    replica.last_decode_end = replica.now
    replica.turn += 1
    if world.settings[0].window_tokens > 0:
        bucket = replica.turn & world.settings[0].ring_mask
        replica.inside_window -= world.window_exits[where, bucket]
        world.window_exits[where, bucket] = 0
    finish_decoding(world, where)


@compiled_inline
def _token_seconds(world: World, tokens: int) -> float:
    """`token_seconds()`, worked out once for each number of tokens: its powers cost more than the rest of a step."""
    seconds: float = world.token_seconds[tokens]
    if seconds == 0.0:
        seconds = token_seconds(world.coefficients, tokens)
        world.token_seconds[tokens] = seconds
    return seconds
