"""How long one operation takes on a device: warmed up, repeated, the median."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from inferplan.measurement.gpu_facts import GpuState

StateReader = Callable[[], GpuState]


def no_state() -> GpuState:
    """For devices without NVML."""
    return GpuState()


@dataclass(frozen=True, slots=True)
class Repeats:
    """How often an operation runs: `warm_up` times unmeasured, then `measured` times of which the median counts."""

    warm_up: int = 10
    measured: int = 30


@dataclass(frozen=True, slots=True)
class Timing:
    """The median, and the GPU's state while the last repeats ran."""

    seconds: float
    state: GpuState


def time_operation(
    torch: Any, device: str, operation: Callable[[], object], repeats: Repeats, read_state: StateReader = no_state
) -> Timing:
    """Median time of `operation` on `device` (`cuda:0`, `cpu`).

    On a GPU, events in the stream bracket each repeat, all of which are launched before anything is waited for: so
    neither launching nor waiting is measured, and the state is read while the GPU works.
    """
    for _ in range(repeats.warm_up):
        operation()
    if device.startswith("cuda"):
        return _time_with_events(torch, device, operation, repeats.measured, read_state)
    durations = []
    for _ in range(repeats.measured):
        start = time.perf_counter()
        operation()
        durations.append(time.perf_counter() - start)
    return Timing(statistics.median(durations), read_state())


def _time_with_events(
    torch: Any, device: str, operation: Callable[[], object], repeats: int, read_state: StateReader
) -> Timing:
    with torch.cuda.device(device):
        torch.cuda.synchronize()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
        events[0].record()
        for event in events[1:]:
            operation()
            event.record()
        state = read_state()
        torch.cuda.synchronize()
    milliseconds = [before.elapsed_time(after) for before, after in itertools.pairwise(events)]
    return Timing(statistics.median(milliseconds) / 1000, state)
