"""From requests and parameters to the kernel's memory, through the kernel, and back."""

from __future__ import annotations

import numpy as np

from inferplan.errors import Violation
from inferplan.simulation import layout
from inferplan.simulation.engine import Cancellation, EngineParameters, SimulationLimits
from inferplan.simulation.kernel import play, play_window
from inferplan.simulation.outcome import Ending, ReplicaTotals, SimulationOutcome
from inferplan.simulation.requests import Requests
from inferplan.simulation.step_time import StepTimeCoefficients, step_seconds

MAXIMUM_FLEET_BYTES = 2**30
"""For all replicas' slots and turns; 10,000 replicas with 256 slots and outputs of 4,000 tokens need half of it."""


def play_world(
    coefficients: StepTimeCoefficients,
    engine: EngineParameters,
    requests: Requests,
    replicas: int,
    settings: dict[str, int | float],
    limits: SimulationLimits | None,
    cancellation: Cancellation | None,
) -> SimulationOutcome:
    """Play checked input. `settings` are those of layout.SETTINGS that say how requests arrive and are routed."""
    limits = limits or SimulationLimits()
    world = build_world(coefficients, engine, requests, replicas, settings, limits, cancellation or Cancellation())
    status = play(world)
    return outcome_of(world, status, engine, requests)


def build_world(
    coefficients: StepTimeCoefficients,
    engine: EngineParameters,
    requests: Requests,
    replicas: int,
    settings: dict[str, int | float],
    limits: SimulationLimits,
    cancellation: Cancellation,
) -> layout.World:
    """The kernel's memory at the start: nothing has arrived, every slot and block is free."""
    count = requests.count
    classes = len(requests.class_names)
    slots = min(engine.maximum_sequences, count)
    ring = _ring_turns(requests)
    largest_step = engine.maximum_batched_tokens
    if not engine.chunked_prefill:  # one prompt, recomputed maybe, may exceed the budget on its own
        largest_step = max(largest_step, int(requests.prompt_tokens.max()) + int(requests.output_tokens.max()))
    arrivals = np.empty(count) if requests.arrival_seconds is None else requests.arrival_seconds
    return layout.World(
        settings=_settings(coefficients, engine, settings, limits, slots, ring),
        control=cancellation.arm(limits),
        coefficients=coefficients.as_array(),
        token_seconds=np.zeros(largest_step + 1),
        arrivals=arrivals,
        lengths=requests.lengths(),
        outcomes=np.full((count, 3), np.nan),
        preemptions=np.zeros(count, dtype=np.int32),
        replica_of=np.full(count, layout.NOBODY, dtype=np.int16),
        next_in_queue=np.empty(count, dtype=np.int32),
        replicas=_replicas(engine, replicas),
        slots=_slots(replicas, slots),
        preempted=np.zeros((replicas, slots), dtype=layout.PREEMPTED),
        finish_buckets=np.full((replicas, ring), layout.NOBODY, dtype=np.int32),
        window_exits=np.zeros((replicas, ring), dtype=np.int32),
        block_phases=np.zeros((replicas, engine.block_tokens), dtype=np.int32),
        decoders_by_class=np.zeros((replicas, classes), dtype=np.int64),
        gap_counts=np.zeros((layout.GAP_PERIODS, classes, layout.GAP_BINS), dtype=np.int64),
        gap_seconds=np.zeros((layout.GAP_PERIODS, classes, 2)),
    )


def _ring_turns(requests: Requests) -> int:
    """A sequence decodes for output - 1 turns at most; no two of them may fall into one bucket. A power of two."""
    return 1 << int(requests.output_tokens.max()).bit_length()


def memory_violations(requests: Requests, engine: EngineParameters, replicas: int) -> list[Violation]:
    """A fleet that would need more memory than any sensible question does, before any of it is taken."""
    slot_bytes = layout.SLOT.itemsize + layout.PREEMPTED.itemsize
    ring_bytes = 2 * np.dtype(np.int32).itemsize
    slots = min(engine.maximum_sequences, requests.count)
    fleet_bytes = replicas * (slots * slot_bytes + _ring_turns(requests) * ring_bytes)
    if fleet_bytes <= MAXIMUM_FLEET_BYTES:
        return []
    return [
        Violation(
            "replicas",
            f"are {replicas}, with {slots} slots and outputs of up to {requests.output_tokens.max()} tokens: too large "
            f"to simulate; at most {max(1, replicas * MAXIMUM_FLEET_BYTES // fleet_bytes)} of these",
        )
    ]


def _settings(
    coefficients: StepTimeCoefficients,
    engine: EngineParameters,
    settings: dict[str, int | float],
    limits: SimulationLimits,
    slots: int,
    ring: int,
) -> layout.RecordArray:
    record = np.zeros(1, dtype=layout.SETTINGS)
    values: dict[str, int | float] = {
        "maximum_sequences": slots,
        "maximum_batched_tokens": engine.maximum_batched_tokens,
        "kv_blocks": engine.kv_blocks,
        "block_tokens": engine.block_tokens,
        "chunked_prefill": engine.chunked_prefill,
        "shared_prefix": engine.shared_prefix,
        "window_tokens": coefficients.window_tokens if coefficients.windowed_fraction > 0 else 0,
        "ring_mask": ring - 1,
        "last_chosen": layout.NOBODY,
        "failing_replica": layout.NOBODY,
        "maximum_seconds": limits.maximum_seconds,
    }
    for name, value in (values | settings).items():
        record[name] = value
    return record


def _replicas(engine: EngineParameters, replicas: int) -> layout.RecordArray:
    records = np.zeros(replicas, dtype=layout.REPLICA)
    records["alive"] = 1
    records["free_blocks"] = engine.kv_blocks
    records["lowest_free_blocks"] = engine.kv_blocks
    for name in ("queue_head", "queue_tail", "oldest", "newest", "prefilling"):
        records[name] = layout.NOBODY
    return records


def _slots(replicas: int, slots: int) -> layout.RecordArray:
    records = np.zeros((replicas, slots), dtype=layout.SLOT)
    records["newer"] = np.arange(1, slots + 1)  # the free slots are a list through `newer`, starting at slot 0
    records["newer"][:, -1] = layout.NOBODY
    return records


def outcome_of(world: layout.World, status: int, engine: EngineParameters, requests: Requests) -> SimulationOutcome:
    """What the kernel's memory holds after it returned `status`."""
    return SimulationOutcome(
        requests=requests,
        engine=engine,
        ending=_ending(world, status),
        open_loop=requests.arrival_seconds is not None,
        arrival_seconds=world.arrivals,
        queue_wait_seconds=world.outcomes[:, layout.QUEUE_WAIT],
        ttft_seconds=world.outcomes[:, layout.TTFT],
        end_to_end_seconds=world.outcomes[:, layout.END_TO_END],
        preemptions=world.preemptions,
        replica=world.replica_of,
        replicas=_totals(world, engine),
        restarted_requests=int(world.settings["restarted"][0]),
        gap_counts=world.gap_counts,
        gap_seconds=world.gap_seconds,
    )


def _ending(world: layout.World, status: int) -> Ending:
    if status == layout.CANCELLED:
        return Ending.CANCELLED
    if status == layout.STEP_LIMIT:
        return Ending.STEP_LIMIT
    if world.control[layout.CONTROL_FINISHED] < world.arrivals.size:
        return Ending.TIME_LIMIT
    return Ending.COMPLETED


def _totals(world: layout.World, engine: EngineParameters) -> tuple[ReplicaTotals, ...]:
    requests = np.bincount(world.replica_of[world.replica_of >= 0], minlength=world.replicas.size)
    slots = int(world.settings["maximum_sequences"][0])
    return tuple(
        ReplicaTotals(
            requests=int(requests[where]),
            ended_seconds=float(replica["now"]),
            busy_seconds=float(replica["busy_seconds"]),
            steps=int(replica["steps"]),
            prefill_tokens=int(replica["prefill_tokens"]),
            decode_tokens=int(replica["decode_tokens"]),
            preemptions=int(replica["preemptions"]),
            kv_occupancy=_share(replica["block_seconds"], replica["busy_seconds"] * engine.kv_blocks),
            peak_kv_occupancy=(engine.kv_blocks - int(replica["lowest_free_blocks"])) / engine.kv_blocks,
            slot_occupancy=_share(replica["sequence_seconds"], replica["busy_seconds"] * slots),
            sequence_seconds=float(replica["sequence_seconds"]),
            preempted_seconds=float(replica["preempted_seconds"]),
        )
        for where, replica in enumerate(world.replicas)
    )


def _share(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else 0.0


def compile_kernels() -> None:
    """Compile the kernel, or load it from the cache. A server calls this before it says that it is serving."""
    one = np.ones(1, dtype=np.int32)
    none = np.zeros(1, dtype=np.int32)
    requests = Requests(np.zeros(1), one, one, none, none)
    coefficients = StepTimeCoefficients(1.0, 0.0, 0.0)
    play_world(coefficients, EngineParameters(1, 1, 1), requests, 1, {}, None, None)
    world = build_world(coefficients, EngineParameters(1, 1, 1), requests, 1, {}, SimulationLimits(), Cancellation())
    play_window(world, 0, 1, 10.0)
    step_seconds(coefficients.as_array(), 1, 1, 1, 1, 0.0, 0.0)
