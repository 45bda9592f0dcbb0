"""How many calls may compute at once.

Simulations keep a core busy each, so as many run as there are cores; a few more may wait for a short time, and the rest
are shed at once. Reads and health checks pass no gate and stay fast meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from inferplan.errors import OverloadedError


class WorkGate:
    """Lets `slots` callers in at once; `queue_limit` more wait, each at most `wait_seconds`."""

    def __init__(self, slots: int, queue_limit: int, wait_seconds: float) -> None:
        self._slots = slots
        self._queue_limit = queue_limit
        self._wait_seconds = wait_seconds
        self._changed = threading.Condition()
        self._inside = 0
        self._waiting = 0

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Hold a slot for the block. Raises OverloadedError if the queue is full, or no slot came free in time."""
        self._take()
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify()

    def _take(self) -> None:
        with self._changed:
            if self._inside < self._slots and not self._waiting:
                self._inside += 1
                return
            if self._waiting >= self._queue_limit:
                raise self._overloaded()
            self._waiting += 1
            try:
                if not self._changed.wait_for(lambda: self._inside < self._slots, self._wait_seconds):
                    raise self._overloaded()
                self._inside += 1
            finally:
                self._waiting -= 1

    def _overloaded(self) -> OverloadedError:
        return OverloadedError(
            f"{self._slots} calls are computing and {self._waiting} wait; try again, or ask another replica",
            retry_after_seconds=self._wait_seconds,
        )
