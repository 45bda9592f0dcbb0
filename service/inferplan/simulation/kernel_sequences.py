"""Compiled: what happens to one sequence: queued, admitted, decoding, preempted, finished.

Everything here costs the same whatever the number of running sequences. A decoding sequence is not touched between its
first and its last token: its context is `context_less_turn + turn`, its blocks follow from the context, the turn of its
last token is known when it starts (it waits in that turn's bucket), and so is the turn, modulo the block size, in which
it needs another block (it is counted in that phase).
"""

from __future__ import annotations

import numpy as np

from inferplan.simulation.compiled import compiled, compiled_inline
from inferplan.simulation.kernel_gaps import record_gap
from inferplan.simulation.layout import (
    CACHED,
    CLASS,
    CLOSED_LOOP,
    CONTROL_FINISHED,
    END_TO_END,
    GAP_PERIODS,
    NOBODY,
    OUTPUT,
    PROMPT,
    QUEUE_WAIT,
    TTFT,
    World,
)


@compiled_inline
def enqueue(world: World, where: int, request: int) -> None:
    """Put a request at the end of a replica's waiting queue."""
    replica = world.replicas[where]
    world.next_in_queue[request] = NOBODY
    if replica.queued == 0:
        replica.queue_head = request
    else:
        world.next_in_queue[replica.queue_tail] = request
    replica.queue_tail = request
    replica.queued += 1


@compiled_inline
def dequeue(world: World, where: int) -> int:
    """Take the request at the head of a replica's waiting queue."""
    replica = world.replicas[where]
    request: int = replica.queue_head
    replica.queue_head = world.next_in_queue[request]
    replica.queued -= 1
    return request


@compiled
def issue(world: World, arrival_seconds: float) -> None:
    """Let the next request of a closed loop or static batch arrive at the (only) replica."""
    settings = world.settings[0]
    request = settings.requests_issued
    settings.requests_issued += 1
    world.arrivals[request] = arrival_seconds
    settings.last_issued_seconds = arrival_seconds
    world.replica_of[request] = 0
    enqueue(world, 0, request)


@compiled_inline
def client_start_seconds(world: World) -> float:
    """When the next client of a closed loop sends its first request; infinity if all have, or no request is left."""
    settings = world.settings[0]
    all_started = settings.clients_started >= settings.concurrency
    if settings.mode != CLOSED_LOOP or all_started or settings.requests_issued >= world.arrivals.size:
        return np.inf
    start_seconds: float = settings.ramp_seconds * settings.clients_started / settings.concurrency
    return start_seconds


@compiled_inline
def start_clients(world: World, now: float) -> None:
    """Let the clients of a closed loop that are due by `now` send their first requests."""
    while client_start_seconds(world) <= now:
        issue(world, client_start_seconds(world))
        world.settings[0].clients_started += 1


@compiled_inline
def blocks_for(world: World, tokens: int) -> int:
    """KV blocks that hold so many tokens."""
    block_tokens: int = world.settings[0].block_tokens
    return (tokens + block_tokens - 1) // block_tokens


@compiled_inline
def take_blocks(world: World, where: int, blocks: int) -> None:
    """Hand out free blocks; the caller has checked that there are as many."""
    replica = world.replicas[where]
    replica.free_blocks -= blocks
    replica.lowest_free_blocks = min(replica.lowest_free_blocks, replica.free_blocks)


@compiled
def admit(world: World, where: int) -> int:
    """Give a slot to the next in line, which is the last one preempted or else the head of the queue."""
    replica = world.replicas[where]
    index: int = replica.free_slot
    slot = world.slots[where, index]
    replica.free_slot = slot.newer
    if replica.preempted > 0:
        replica.preempted -= 1
        saved = world.preempted[where, replica.preempted]
        slot.request = saved.request
        slot.generated_tokens = saved.generated_tokens
        slot.last_token_seconds = saved.last_token_seconds
    else:
        request = dequeue(world, where)
        slot.request = request
        slot.generated_tokens = 0
        slot.last_token_seconds = 0.0
        world.outcomes[request, QUEUE_WAIT] = replica.now - world.arrivals[request]
        replica.period = request * GAP_PERIODS // world.arrivals.size
    request = slot.request
    cached_tokens = world.lengths[request, CACHED]
    slot.traffic_class = world.lengths[request, CLASS]
    slot.prefill_target = world.lengths[request, PROMPT] + slot.generated_tokens
    slot.prefilled_tokens = cached_tokens
    slot.shared_blocks = cached_tokens // world.settings[0].block_tokens if world.settings[0].shared_prefix else 0
    _link_as_newest(world, where, index)
    return index


@compiled_inline
def _link_as_newest(world: World, where: int, index: int) -> None:
    replica = world.replicas[where]
    slot = world.slots[where, index]
    slot.older = replica.newest
    slot.newer = NOBODY
    if replica.newest == NOBODY:
        replica.oldest = index
    else:
        world.slots[where, replica.newest].newer = index
    replica.newest = index
    replica.running += 1


@compiled_inline
def _release(world: World, where: int, index: int, held_tokens: int) -> None:
    """Take a sequence out of the running ones; its slot and its blocks are free again."""
    replica = world.replicas[where]
    slot = world.slots[where, index]
    replica.free_blocks += blocks_for(world, held_tokens) - slot.shared_blocks
    if slot.older == NOBODY:
        replica.oldest = slot.newer
    else:
        world.slots[where, slot.older].newer = slot.newer
    if slot.newer == NOBODY:
        replica.newest = slot.older
    else:
        world.slots[where, slot.newer].older = slot.older
    replica.running -= 1
    slot.newer = replica.free_slot
    replica.free_slot = index


@compiled
def complete_prefill(world: World, where: int, index: int) -> None:
    """The step that ends now finished the prompt of a sequence, and so gave it a token."""
    replica = world.replicas[where]
    slot = world.slots[where, index]
    request = slot.request
    if slot.generated_tokens == 0:
        world.outcomes[request, TTFT] = replica.now - world.arrivals[request]
    else:
        record_gap(world, where, slot.traffic_class, replica.now - slot.last_token_seconds, 1)
    slot.generated_tokens += 1
    slot.last_token_seconds = replica.now
    if slot.generated_tokens >= world.lengths[request, OUTPUT]:
        _finish(world, where, index, slot.prefill_target)
    else:
        _start_decoding(world, where, index)


@compiled_inline
def _start_decoding(world: World, where: int, index: int) -> None:
    replica = world.replicas[where]
    slot = world.slots[where, index]
    settings = world.settings[0]
    context = slot.prefill_target
    slot.context_less_turn = context - replica.turn
    slot.finish_turn = replica.turn + world.lengths[slot.request, OUTPUT] - slot.generated_tokens
    bucket = slot.finish_turn & settings.ring_mask
    first = world.finish_buckets[where, bucket]
    slot.bucket_previous = NOBODY
    slot.bucket_next = first
    if first != NOBODY:
        world.slots[where, first].bucket_previous = index
    world.finish_buckets[where, bucket] = index
    world.block_phases[where, (-slot.context_less_turn) % settings.block_tokens] += 1
    world.decoders_by_class[where, slot.traffic_class] += 1
    replica.decoders += 1
    replica.context_tokens += context
    if settings.window_tokens > 0:
        replica.windowed_context_tokens += min(context, settings.window_tokens)
        if context < settings.window_tokens:
            replica.inside_window += 1
            window_turn = settings.window_tokens - slot.context_less_turn
            if window_turn <= slot.finish_turn:
                world.window_exits[where, window_turn & settings.ring_mask] += 1


@compiled
def _stop_decoding(world: World, where: int, index: int) -> int:
    """Take a sequence out of all the sums over decoding ones. Returns its context."""
    replica = world.replicas[where]
    slot = world.slots[where, index]
    settings = world.settings[0]
    context: int = slot.context_less_turn + replica.turn
    if slot.bucket_previous == NOBODY:
        world.finish_buckets[where, slot.finish_turn & settings.ring_mask] = slot.bucket_next
    else:
        world.slots[where, slot.bucket_previous].bucket_next = slot.bucket_next
    if slot.bucket_next != NOBODY:
        world.slots[where, slot.bucket_next].bucket_previous = slot.bucket_previous
    world.block_phases[where, (-slot.context_less_turn) % settings.block_tokens] -= 1
    world.decoders_by_class[where, slot.traffic_class] -= 1
    replica.decoders -= 1
    replica.context_tokens -= context
    if settings.window_tokens > 0:
        replica.windowed_context_tokens -= min(context, settings.window_tokens)
        if context < settings.window_tokens:
            replica.inside_window -= 1
            window_turn = settings.window_tokens - slot.context_less_turn
            if window_turn <= slot.finish_turn:
                world.window_exits[where, window_turn & settings.ring_mask] -= 1
    return context


@compiled_inline
def finish_decoding(world: World, where: int) -> None:
    """The turn that ends now gave some sequences their last token."""
    bucket = world.replicas[where].turn & world.settings[0].ring_mask
    while world.finish_buckets[where, bucket] != NOBODY:
        index = world.finish_buckets[where, bucket]
        context = _stop_decoding(world, where, index)
        _finish(world, where, index, context)


@compiled
def _finish(world: World, where: int, index: int, held_tokens: int) -> None:
    replica = world.replicas[where]
    request = world.slots[where, index].request
    world.outcomes[request, END_TO_END] = replica.now - world.arrivals[request]
    world.control[CONTROL_FINISHED] += 1
    replica.finished_in_last_step += 1
    _release(world, where, index, held_tokens)
    if world.settings[0].mode == CLOSED_LOOP:
        start_clients(world, replica.now)
        if world.settings[0].requests_issued < world.arrivals.size:
            # One process sends for all clients, one request after another.
            sent = max(replica.now, world.settings[0].last_issued_seconds) + world.settings[0].client_seconds
            issue(world, sent)


@compiled
def preempt_newest(world: World, where: int) -> int:
    """Take the newest sequence's blocks and slot away; it will be recomputed: prompt and tokens so far as one prompt.

    Returns the number of blocks (0 or 1) that it would have needed in this turn.
    """
    replica = world.replicas[where]
    index = replica.newest
    slot = world.slots[where, index]
    blocks_not_needed = 0
    if index == replica.prefilling:
        replica.prefilling = NOBODY
        held_tokens = slot.prefilled_tokens
    else:
        slot.generated_tokens = world.lengths[slot.request, OUTPUT] - (slot.finish_turn - replica.turn)
        slot.last_token_seconds = max(slot.last_token_seconds, replica.last_decode_end)
        held_tokens = _stop_decoding(world, where, index)
        if held_tokens % world.settings[0].block_tokens == 0:
            blocks_not_needed = 1
    saved = world.preempted[where, replica.preempted]
    saved.request = slot.request
    saved.generated_tokens = slot.generated_tokens
    saved.last_token_seconds = slot.last_token_seconds
    replica.preempted += 1
    replica.preemptions += 1
    world.preemptions[slot.request] += 1
    _release(world, where, index, held_tokens)
    return blocks_not_needed
