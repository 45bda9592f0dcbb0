"""Compiled: a fleet of replicas behind a router, played until every request is finished or a limit is met.

Replicas do not know of each other: each plays its own steps. They are brought to the same moment only when the router
has to look at them, that is at each arrival under least outstanding requests (all) and random of two (the two).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from inferplan.simulation import compiled as compiled_module
from inferplan.simulation import kernel_gaps, kernel_sequences, kernel_step, layout, step_time
from inferplan.simulation.compiled import compiled, compiled_entry_point, compiled_inline, source_digest
from inferplan.simulation.kernel_sequences import client_start_seconds, dequeue, enqueue, issue, start_clients
from inferplan.simulation.kernel_step import play_step
from inferplan.simulation.layout import (
    ALL_PLAYED,
    CANCELLED,
    CONTROL_CANCEL,
    CONTROL_STEPS_LEFT,
    LEAST_OUTSTANDING,
    NOBODY,
    OPEN_LOOP,
    ROUND_ROBIN,
    STATIC_BATCHES,
    STEP_LIMIT,
    World,
)

CHECK_MASK = 1023
"""Steps and arrivals between two looks at the cancellation flag, less one."""


@compiled
def _advance(world: World, where: int, until_seconds: float) -> int:
    """Play the steps of one replica that start before `until_seconds`."""
    replica = world.replicas[where]
    until_seconds = min(until_seconds, world.settings[0].maximum_seconds)
    while True:
        start_clients(world, replica.now)
        if replica.running == 0 and replica.preempted == 0:
            _wait_for_work(world, where)
            if replica.queued == 0:
                return ALL_PLAYED
        if replica.now >= until_seconds:
            return ALL_PLAYED
        steps_left = world.control[CONTROL_STEPS_LEFT]
        if steps_left <= 0:
            return STEP_LIMIT
        if steps_left & CHECK_MASK == 0 and world.control[CONTROL_CANCEL] != 0:
            return CANCELLED
        play_step(world, where)


@compiled_inline
def _wait_for_work(world: World, where: int) -> None:
    """An idle replica sleeps until its next request arrives, if there is one to come."""
    replica = world.replicas[where]
    settings = world.settings[0]
    if replica.queued == 0 and settings.mode != OPEN_LOOP:
        if settings.mode == STATIC_BATCHES:
            requests_left = world.arrivals.size - settings.requests_issued
            for _ in range(min(settings.concurrency, requests_left)):
                issue(world, replica.now)
        elif client_start_seconds(world) < np.inf:
            start_clients(world, client_start_seconds(world))
    if replica.queued > 0:
        replica.now = max(replica.now, world.arrivals[replica.queue_head])


@compiled_inline
def _outstanding(world: World, where: int, now: float) -> int:
    """Requests that a replica has not answered by `now`; what its step in progress is about to finish still counts."""
    replica = world.replicas[where]
    outstanding: int = replica.queued + replica.running + replica.preempted
    if replica.now > now:
        outstanding += replica.finished_in_last_step
    return outstanding


@compiled
def _random_bits(seed: np.uint64, index: int) -> np.uint64:
    """The index-th output of splitmix64 (Steele, Lea and Flood, 2014): random access, no state, no memory."""
    bits = seed + np.uint64(index + 1) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@compiled
def _choose(world: World, request: int, now: float) -> tuple[int, int]:
    """Where the router sends a request that comes at `now`, and how playing on until then went."""
    settings = world.settings[0]
    replicas = world.replicas.size
    if settings.router == LEAST_OUTSTANDING:
        return _choose_least_outstanding(world, now)
    if settings.router == ROUND_ROBIN:
        return _next_alive(world, settings.last_chosen), ALL_PLAYED
    alive = 0
    for where in range(replicas):
        alive += world.replicas[where].alive
    bits = _random_bits(settings.router_seed, request)
    first = int(np.int64((bits & np.uint64(0xFFFFFFFF)) % np.uint64(alive)))
    if alive == 1:
        return _nth_alive(world, first), ALL_PLAYED
    second = (first + 1 + int(np.int64((bits >> np.uint64(32)) % np.uint64(alive - 1)))) % alive
    first, second = _nth_alive(world, first), _nth_alive(world, second)
    status = max(_advance(world, first, now), _advance(world, second, now))
    return (second if _outstanding(world, second, now) < _outstanding(world, first, now) else first), status


@compiled
def _choose_least_outstanding(world: World, now: float) -> tuple[int, int]:
    """Bring all replicas to `now` and find the one with the least to do; of equals the next after the last chosen."""
    replicas = world.replicas.size
    best, least = NOBODY, 0
    where = world.settings[0].last_chosen
    for _ in range(replicas):
        where = where + 1 if where + 1 < replicas else 0
        replica = world.replicas[where]
        if not replica.alive:
            continue
        if replica.now < now:
            status = _advance(world, where, now)
            if status != ALL_PLAYED:
                return where, status
        outstanding = _outstanding(world, where, now)
        if best == NOBODY or outstanding < least:
            best, least = where, outstanding
    return best, ALL_PLAYED


@compiled
def _next_alive(world: World, where: int) -> int:
    while True:
        where = where + 1 if where + 1 < world.replicas.size else 0
        if world.replicas[where].alive:
            return where


@compiled
def _nth_alive(world: World, position: int) -> int:
    for where in range(world.replicas.size):
        if world.replicas[where].alive:
            if position == 0:
                return where
            position -= 1
    return NOBODY


@compiled
def _route(world: World, request: int, now: float) -> int:
    where, status = _choose(world, request, now)
    world.settings[0].last_chosen = where
    world.replica_of[request] = where
    enqueue(world, where, request)
    return status


@compiled
def _fail_replica(world: World) -> int:
    """One replica goes down. What it has not answered starts again elsewhere, its clock running since its arrival.

    A step that has begun is still completed. The requests keep their order: running, preempted, waiting.
    """
    failing = world.settings[0].failing_replica
    at_seconds = world.settings[0].failure_seconds
    for where in range(world.replicas.size):
        status = _advance(world, where, at_seconds)
        if status != ALL_PLAYED:
            return status
        world.replicas[where].now = max(world.replicas[where].now, at_seconds)
    replica = world.replicas[failing]
    replica.alive = 0
    index = replica.oldest
    while index != NOBODY:
        status = max(status, _restart(world, world.slots[failing, index].request, at_seconds))
        index = world.slots[failing, index].newer
    for height in range(replica.preempted - 1, -1, -1):
        status = max(status, _restart(world, world.preempted[failing, height].request, at_seconds))
    while replica.queued > 0:
        status = max(status, _route(world, dequeue(world, failing), at_seconds))
    replica.running = 0
    replica.preempted = 0
    return status


@compiled
def _restart(world: World, request: int, now: float) -> int:
    for column in range(world.outcomes.shape[1]):
        world.outcomes[request, column] = np.nan
    world.settings[0].restarted += 1
    return _route(world, request, now)


@compiled
def _play_open_loop(world: World) -> int:
    settings = world.settings[0]
    failure_pending = settings.failing_replica != NOBODY
    for request in range(world.arrivals.size):
        if request & CHECK_MASK == 0 and world.control[CONTROL_CANCEL] != 0:
            return CANCELLED
        now = world.arrivals[request]
        if failure_pending and now >= settings.failure_seconds:
            failure_pending = False
            status = _fail_replica(world)
            if status != ALL_PLAYED:
                return status
        status = _route(world, request, now)
        if status != ALL_PLAYED:
            return status
    if failure_pending:
        status = _fail_replica(world)
        if status != ALL_PLAYED:
            return status
    return _finish_all(world)


@compiled
def _finish_all(world: World) -> int:
    for where in range(world.replicas.size):
        if world.replicas[where].alive:
            status = _advance(world, where, np.inf)
            if status != ALL_PLAYED:
                return status
    return ALL_PLAYED


def _entry_point(kernel_digest: str) -> Callable[[World], int]:
    def play(world: World) -> int:
        """Play everything. Returns ALL_PLAYED, CANCELLED or STEP_LIMIT; the rest is in the world's arrays."""
        kernel_digest  # noqa: B018 - held only to be part of the cache key
        if world.control[CONTROL_CANCEL] != 0:
            return CANCELLED
        if world.settings[0].mode == OPEN_LOOP:
            return _play_open_loop(world)
        return _finish_all(world)

    return compiled_entry_point(play)


def _window_entry_point(kernel_digest: str) -> Callable[[World, int, int, float], int]:
    def play_window(world: World, first: int, last: int, until_seconds: float) -> int:
        """Let the requests from `first` up to `last` arrive, then play all replicas on until `until_seconds`.

        Replicas that are not alive get no new requests and finish what they have. May be called again and again on one
        world, with other replicas alive each time. Returns ALL_PLAYED, CANCELLED or STEP_LIMIT.
        """
        kernel_digest  # noqa: B018 - held only to be part of the cache key
        if world.control[CONTROL_CANCEL] != 0:
            return CANCELLED
        for request in range(first, last):
            if request & CHECK_MASK == 0 and world.control[CONTROL_CANCEL] != 0:
                return CANCELLED
            status = _route(world, request, world.arrivals[request])
            if status != ALL_PLAYED:
                return status
        for where in range(world.replicas.size):
            status = _advance(world, where, until_seconds)
            if status != ALL_PLAYED:
                return status
        return ALL_PLAYED

    return compiled_entry_point(play_window)


_KERNEL_MODULES = (compiled_module, layout, step_time, kernel_gaps, kernel_sequences, kernel_step)
_DIGEST = source_digest([__file__, *(str(module.__file__) for module in _KERNEL_MODULES)])
play = _entry_point(_DIGEST)
play_window = _window_entry_point(_DIGEST)
