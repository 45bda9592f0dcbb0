"""Compiled: the gap before each token but the first, counted in bins for each traffic class and period."""

from __future__ import annotations

import numpy as np

from inferplan.simulation.compiled import compiled_inline
from inferplan.simulation.layout import GAP_BINS, GAP_OFFSET, GAP_SHIFT, NOBODY, World


@compiled_inline
def record_gap(world: World, where: int, traffic_class: int, gap_seconds: float, tokens: int) -> None:
    """Count `tokens` tokens that came `gap_seconds` after the ones before them."""
    period = world.replicas[where].period
    bits = np.float64(gap_seconds).view(np.int64)
    bin_of_gap = int(bits >> GAP_SHIFT) - GAP_OFFSET
    bin_of_gap = min(max(bin_of_gap, 0), GAP_BINS - 1)
    world.gap_counts[period, traffic_class, bin_of_gap] += tokens
    world.gap_seconds[period, traffic_class, 0] += gap_seconds * tokens
    world.gap_seconds[period, traffic_class, 1] = max(world.gap_seconds[period, traffic_class, 1], gap_seconds)


@compiled_inline
def record_decode_gaps(world: World, where: int) -> None:
    """Count the gap of every sequence that got a token in the turn that ends now.

    All of them had their token before in the last turn, except those whose prefill ended after it in a step of its own
    (old engines): these are the newest ones, are looked at one by one, once each, and left out of the common count.
    """
    replica = world.replicas[where]
    _count_newcomers(world, where, -1)
    for traffic_class in range(world.decoders_by_class.shape[1]):
        decoders = world.decoders_by_class[where, traffic_class]
        if decoders > 0:
            record_gap(world, where, traffic_class, replica.now - replica.last_decode_end, decoders)
    _count_newcomers(world, where, 1)


@compiled_inline
def _count_newcomers(world: World, where: int, change: int) -> None:
    """Take those that had a token since the last turn out of the decoders' count (recording their gaps), or back in."""
    replica = world.replicas[where]
    if world.settings[0].chunked_prefill:
        return
    index = replica.newest
    while index != NOBODY and world.slots[where, index].last_token_seconds > replica.last_decode_end:
        slot = world.slots[where, index]
        world.decoders_by_class[where, slot.traffic_class] += change
        if change < 0:
            record_gap(world, where, slot.traffic_class, replica.now - slot.last_token_seconds, 1)
        index = slot.older
