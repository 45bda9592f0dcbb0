"""A fleet that is played in pieces does what the same fleet does in one go."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferplan.errors import CancelledError, InvalidInputError
from inferplan.simulation import (
    Cancellation,
    EngineParameters,
    Fleet,
    FleetSession,
    Requests,
    Router,
    StepTimeCoefficients,
    make_requests,
    simulate_fleet,
)

COEFFICIENTS = StepTimeCoefficients(
    dense_weight_seconds=5e-3,
    compute_seconds_per_token=2e-5,
    kv_seconds_per_context_token=2e-7,
    host_seconds_per_step=1e-3,
)
ENGINE = EngineParameters(maximum_sequences=16, maximum_batched_tokens=512, kv_blocks=400)


def some_requests(count: int, seed: int, rate_per_second: float = 40.0) -> Requests:
    generator = np.random.default_rng(seed)
    arrivals = np.cumsum(generator.exponential(1 / rate_per_second, count))
    return make_requests(generator.integers(1, 300, count), generator.integers(1, 60, count), arrivals)


@settings(max_examples=30)
@given(
    replicas=st.integers(1, 4),
    seed=st.integers(0, 10_000),
    router=st.sampled_from(Router),
    pieces=st.lists(st.floats(0.001, 20.0), max_size=12),
)
def test_pieces_add_up_to_the_whole(replicas: int, seed: int, router: Router, pieces: list[float]) -> None:
    requests = some_requests(120, seed)
    whole = simulate_fleet(COEFFICIENTS, ENGINE, requests, Fleet(replicas, router), seed=seed)
    session = FleetSession(COEFFICIENTS, ENGINE, requests, replicas, router, seed)
    for place in range(replicas):
        session.start(place, 0.0)
    for until in sorted(pieces):
        session.play_until(until)
    session.play_until(float("inf"))
    played = session.outcome()
    assert session.requests_left == 0
    np.testing.assert_array_equal(played.replica, whole.replica)
    np.testing.assert_allclose(played.ttft_seconds, whole.ttft_seconds)
    np.testing.assert_allclose(played.end_to_end_seconds, whole.end_to_end_seconds)


def test_a_replica_that_drains_finishes_what_it_has_and_gets_nothing_new() -> None:
    requests = some_requests(400, seed=3)
    session = FleetSession(COEFFICIENTS, ENGINE, requests, 2, seed=3)
    session.start(0, 0.0)
    session.start(1, 0.0)
    session.play_until(2.0)
    assert not session.is_idle(1)
    session.drain(1)
    session.play_until(float("inf"))
    assert session.is_idle(1)
    played = session.outcome()
    assert requests.arrival_seconds is not None
    assert set(played.replica[requests.arrival_seconds > 2.0].tolist()) == {0}
    assert set(played.replica[requests.arrival_seconds < 2.0].tolist()) == {0, 1}
    assert played.finished.all()


def test_what_a_scrape_shows() -> None:
    """Forty prompts at once on sixteen slots: sixteen run, the others wait."""
    requests = make_requests([10] * 40, [1000 // 20] * 40, np.zeros(40))
    session = FleetSession(COEFFICIENTS, ENGINE, requests, 1)
    session.start(0, 0.0)
    session.play_until(0.05)
    state = session.state(0)
    assert (state.running, state.waiting) == (16, 24)
    # At most two blocks of 16 tokens each by then, of 400.
    assert 16 / 400 <= state.kv_cache_ratio <= 32 / 400


def test_it_can_be_cancelled() -> None:
    cancellation = Cancellation()
    session = FleetSession(COEFFICIENTS, ENGINE, some_requests(50, 1), 1, cancellation=cancellation)
    session.start(0, 0.0)
    cancellation.cancel()
    with pytest.raises(CancelledError):
        session.play_until(10.0)


def test_requests_without_arrivals_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="arrival_seconds"):
        FleetSession(COEFFICIENTS, ENGINE, make_requests([10], [10]), 1)
