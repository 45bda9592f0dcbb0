"""The gate lets in what fits, queues a little, sheds the rest, and never loses a slot."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from inferplan.errors import OverloadedError
from inferplan.rpc.gate import WorkGate


def test_no_more_than_the_slots_are_inside_and_all_that_were_let_in_finish() -> None:
    gate = WorkGate(slots=3, queue_limit=100, wait_seconds=60)
    lock = threading.Lock()
    inside = most_inside = 0

    def work(_number: int) -> None:
        nonlocal inside, most_inside
        with gate.enter():
            with lock:
                inside += 1
                most_inside = max(most_inside, inside)
            threading.Event().wait(0.002)
            with lock:
                inside -= 1

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(work, range(60)))
    assert most_inside == 3


def test_a_full_queue_is_shed_at_once_and_the_gate_recovers() -> None:
    gate = WorkGate(slots=1, queue_limit=0, wait_seconds=30)
    with gate.enter(), pytest.raises(OverloadedError) as caught, gate.enter():
        pass
    assert caught.value.retry_after_seconds > 0
    with gate.enter():
        pass


def test_a_caller_that_waited_in_vain_leaves_no_trace() -> None:
    gate = WorkGate(slots=1, queue_limit=1, wait_seconds=0.01)
    with gate.enter():
        for _ in range(3):
            with pytest.raises(OverloadedError), gate.enter():
                pass
    with gate.enter():
        pass


def test_an_error_inside_gives_the_slot_back() -> None:
    gate = WorkGate(slots=1, queue_limit=0, wait_seconds=1)
    with pytest.raises(KeyError), gate.enter():
        raise KeyError("x")
    with gate.enter():
        pass
