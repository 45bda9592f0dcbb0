"""Settings that every test shares."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# No deadline: the machines that run the tests are shared, and a test must never depend on the wall clock.
settings.register_profile("default", deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
# In CI the examples are the same in every run, and a failure prints how to repeat it.
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide INFERPLAN_… variables of whoever runs the tests, but for the test database's URL."""
    for name in list(os.environ):
        if name.startswith("INFERPLAN_") and not name.startswith("INFERPLAN_TEST_"):
            monkeypatch.delenv(name)
