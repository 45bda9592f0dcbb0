"""A clock for tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta


@dataclass
class MovableClock:
    """A clock that stands still until it is moved."""

    time: datetime = field(default_factory=lambda: datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC))

    def __call__(self) -> datetime:
        return self.time

    def move(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)
