"""Timing on a GPU, with a stand-in for PyTorch's events: what is bracketed, and when the GPU is looked at."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from inferplan.measurement.gpu_facts import GpuState
from inferplan.measurement.timing import Repeats, time_operation


class Stream:
    """A GPU's stream whose operations take the given times; it notes what happens in which order."""

    def __init__(self, *milliseconds: float) -> None:
        self.log: list[str] = []
        self.clock = 0.0
        self._durations = iter(milliseconds)
        cuda = SimpleNamespace(device=nullcontext, synchronize=lambda: self.log.append("wait"), Event=self.event)
        self.torch = SimpleNamespace(cuda=cuda)

    def operate(self) -> None:
        self.log.append("operation")
        self.clock += next(self._durations)

    def event(self, *, enable_timing: bool) -> SimpleNamespace:
        assert enable_timing
        event = SimpleNamespace(at=None)

        def record() -> None:
            event.at = self.clock

        event.record = record
        event.elapsed_time = lambda later: later.at - event.at
        return event

    def look(self) -> GpuState:
        self.log.append("look")
        return GpuState(clock_ratio=0.9)


def test_the_median_of_the_measured_repeats_counts_and_the_gpu_is_seen_at_work() -> None:
    stream = Stream(900.0, 800.0, 2.0, 40.0, 3.0)
    timing = time_operation(stream.torch, "cuda:0", stream.operate, Repeats(warm_up=2, measured=3), stream.look)
    assert timing.seconds == pytest.approx(0.003)
    assert timing.state.clock_ratio == 0.9
    assert stream.log == ["operation"] * 2 + ["wait"] + ["operation"] * 3 + ["look", "wait"]
