from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferplan.errors import InvalidInputError
from inferplan.simulation import (
    ConstantLength,
    IndependentLengths,
    LognormalLength,
    ObservedLengths,
    PrefixHits,
    RateArrivals,
    TraceArrivals,
    TrafficClass,
    UniformLength,
    VaryingArrivals,
    draw_closed_loop_requests,
    draw_requests,
    make_requests,
)

CHAT = IndependentLengths(LognormalLength(500, 1.0, 8000), UniformLength(100, 200))


def gaps_of(arrivals: np.ndarray) -> np.ndarray:
    return np.diff(arrivals, prepend=0.0)


@pytest.mark.parametrize("variation", [0.0, 0.5, 1.0, 3.0])
def test_gaps_have_the_mean_and_the_variation_that_were_asked_for(variation: float) -> None:
    requests = draw_requests([TrafficClass(CHAT, RateArrivals(20.0, variation))], 1, request_count=200_000)
    assert requests.arrival_seconds is not None
    gaps = gaps_of(requests.arrival_seconds)
    assert gaps.mean() == pytest.approx(1 / 20, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(variation, rel=0.03, abs=1e-6)


def test_poisson_counts_have_the_variance_of_their_mean() -> None:
    arrivals = RateArrivals(10.0).until(20_000.0, np.random.default_rng(5))
    counts = np.bincount(arrivals.astype(int))
    assert counts.mean() == pytest.approx(10, rel=0.02)
    assert counts.var() == pytest.approx(10, rel=0.05)


@given(st.integers(0, 2**32), st.floats(0.01, 1e4), st.floats(0.01, 1e4), st.sampled_from([0.0, 0.5, 1.0, 2.0]))
def test_two_rates_see_the_same_randomness(seed: int, slow: float, fast: float, variation: float) -> None:
    def arrivals_and_lengths(scale: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        classes = [
            TrafficClass(CHAT, RateArrivals(scale, variation), "chat"),
            TrafficClass(CHAT, RateArrivals(3 * scale), "batch"),
        ]
        requests = draw_requests(classes, seed, request_count=100)
        assert requests.arrival_seconds is not None
        return requests.arrival_seconds * scale, requests.prompt_tokens, requests.class_index

    for left, right in zip(arrivals_and_lengths(slow), arrivals_and_lengths(fast), strict=True):
        assert left == pytest.approx(right, rel=1e-9)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    def draw(seed: int) -> bytes:
        requests = draw_requests([TrafficClass(CHAT, RateArrivals(5.0))], seed, request_count=500)
        assert requests.arrival_seconds is not None
        return requests.arrival_seconds.tobytes() + requests.lengths().tobytes()

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_a_change_of_the_outputs_leaves_arrivals_and_prompts_alone() -> None:
    first = draw_requests([TrafficClass(CHAT, RateArrivals(5.0))], 9, request_count=300)
    other = IndependentLengths(CHAT.prompt, ConstantLength(7))
    second = draw_requests([TrafficClass(other, RateArrivals(5.0))], 9, request_count=300)
    assert np.array_equal(first.prompt_tokens, second.prompt_tokens)
    assert np.array_equal(first.arrival_seconds, second.arrival_seconds)  # type: ignore[arg-type]


def test_classes_keep_their_rates_lengths_and_hits() -> None:
    classes = [
        TrafficClass(
            IndependentLengths(ConstantLength(100), ConstantLength(10)),
            RateArrivals(30.0),
            "chat",
            PrefixHits(0.25, 64),
        ),
        TrafficClass(IndependentLengths(ConstantLength(900), ConstantLength(5)), RateArrivals(10.0), "documents"),
    ]
    requests = draw_requests(classes, 4, request_count=40_000)
    assert requests.arrival_seconds is not None
    assert np.all(np.diff(requests.arrival_seconds) >= 0)
    chat = requests.class_index == 0
    assert chat.mean() == pytest.approx(0.75, abs=0.01)
    assert set(requests.prompt_tokens[chat]) == {100}
    assert set(requests.prompt_tokens[~chat]) == {900}
    assert set(requests.cached_tokens[chat]) == {0, 64}
    assert (requests.cached_tokens[chat] > 0).mean() == pytest.approx(0.25, abs=0.02)
    assert not requests.cached_tokens[~chat].any()


def test_a_prefix_hit_never_covers_the_whole_prompt() -> None:
    traffic = TrafficClass(IndependentLengths(ConstantLength(10), ConstantLength(1)), prefix_hits=PrefixHits(1.0, 64))
    assert set(draw_closed_loop_requests([traffic], 0, 5).cached_tokens) == {9}
    half = TrafficClass(
        IndependentLengths(ConstantLength(10), ConstantLength(1)), prefix_hits=PrefixHits(fraction=0.55)
    )
    assert set(draw_closed_loop_requests([half], 0, 5).cached_tokens) == {5}


def test_a_closed_loop_mixes_classes_by_their_shares() -> None:
    classes = [
        TrafficClass(IndependentLengths(ConstantLength(1), ConstantLength(1)), name="a", share=3.0),
        TrafficClass(IndependentLengths(ConstantLength(2), ConstantLength(1)), name="b", share=1.0),
    ]
    requests = draw_closed_loop_requests(classes, 0, 20_000)
    assert requests.arrival_seconds is None
    assert (requests.prompt_tokens == 2).mean() == pytest.approx(0.25, abs=0.01)
    assert np.array_equal(requests.prompt_tokens == 2, requests.class_index == 1)


def test_lengths_have_the_moments_that_were_asked_for() -> None:
    generator = np.random.default_rng(3)
    draws = LognormalLength(400, 0.8).sample(300_000, generator)
    assert draws.mean() == pytest.approx(400, rel=0.01)
    assert draws.std() / draws.mean() == pytest.approx(0.8, rel=0.03)
    assert LognormalLength(400, 5.0, 1000).sample(10_000, generator).max() == 1000
    assert LognormalLength(2, 10.0).sample(10_000, generator).min() == 1
    uniform = UniformLength.up_to_nominal(1000, 0.8).sample(100_000, generator)
    assert (uniform.min(), uniform.max()) == (800, 1000)
    assert uniform.mean() == pytest.approx(900, rel=0.01)


def test_observed_pairs_stay_together() -> None:
    pairs = ((10, 1), (20, 2), (30, 3))
    requests = draw_closed_loop_requests([TrafficClass(ObservedLengths(pairs))], 0, 3000)
    assert {(int(p), int(o)) for p, o in zip(requests.prompt_tokens, requests.output_tokens, strict=True)} == set(pairs)
    assert np.all(np.bincount(requests.output_tokens)[1:] > 800)


def test_a_rate_that_varies_is_followed() -> None:
    varying = VaryingArrivals(1000.0, (1.0, 0.0, 10.0))
    arrivals = varying.until(math.inf, np.random.default_rng(0))
    counts = np.histogram(arrivals, bins=[0, 1000, 2000, 3000])[0]
    assert counts[0] == pytest.approx(1000, rel=0.15)
    assert counts[1] == 0
    assert counts[2] == pytest.approx(10_000, rel=0.05)
    assert varying.mean_rate_per_second == pytest.approx(11 / 3)
    assert varying.until(500.0, np.random.default_rng(0)).max() <= 500.0


def test_a_trace_is_played_as_recorded() -> None:
    times = np.array([0.0, 0.5, 0.5, 7.25])
    trace = TrafficClass(ObservedLengths(((8, 2),)), TraceArrivals(times))
    requests = draw_requests([trace], 0, duration_seconds=10.0)
    assert requests.arrival_seconds is not None
    assert requests.arrival_seconds.tolist() == times.tolist()
    assert draw_requests([trace], 0, request_count=3).count == 3


@pytest.mark.parametrize(
    ("times", "field"),
    [
        ([], "arrival_seconds"),
        ([1.0, 0.5], "arrival_seconds[1]"),
        ([-1.0, 2.0], "arrival_seconds"),
        ([0.0, math.nan], "arrival_seconds"),
        ([0.0, math.inf], "arrival_seconds"),
        ([0.0, 1e12], "arrival_seconds"),
    ],
)
def test_bad_traces_are_refused(times: list[float], field: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        TraceArrivals(np.array(times))
    assert [violation.field for violation in caught.value.violations] == [field]
    with pytest.raises(InvalidInputError):
        make_requests(1, 1, times)


@pytest.mark.parametrize(
    "build",
    [
        lambda: RateArrivals(0.0),
        lambda: RateArrivals(-1.0),
        lambda: RateArrivals(math.inf),
        lambda: RateArrivals(math.nan),
        lambda: RateArrivals(1.0, -0.5),
        lambda: VaryingArrivals(1.0, ()),
        lambda: VaryingArrivals(1.0, (0.0, 0.0)),
        lambda: VaryingArrivals(0.0, (1.0,)),
        lambda: VaryingArrivals(1.0, (1.0, -1.0)),
        lambda: ConstantLength(0),
        lambda: UniformLength(0, 5),
        lambda: UniformLength(6, 5),
        lambda: UniformLength.up_to_nominal(10, 0.0),
        lambda: LognormalLength(0.5, 1.0),
        lambda: LognormalLength(100, math.nan),
        lambda: ObservedLengths(()),
        lambda: ObservedLengths(((5, 0),)),
        lambda: PrefixHits(1.5),
        lambda: PrefixHits(tokens=-1),
        lambda: draw_requests([], 0, 10),
        lambda: draw_requests([TrafficClass(CHAT)], 0, 10),
        lambda: draw_requests([TrafficClass(CHAT, RateArrivals(1.0))], 0),
        lambda: draw_requests([TrafficClass(CHAT, RateArrivals(1.0))], 0, 10, 10.0),
        lambda: draw_requests([TrafficClass(CHAT, RateArrivals(1.0))], 0, 0),
        lambda: draw_requests([TrafficClass(CHAT, RateArrivals(1.0))], -1, 10),
        lambda: draw_requests([TrafficClass(CHAT, RateArrivals(1.0))], 0, duration_seconds=math.inf),
        lambda: draw_requests([TrafficClass(CHAT, RateArrivals(1e-9))], 0, duration_seconds=1.0),
        lambda: draw_requests([TrafficClass(CHAT, RateArrivals(1e9))], 0, duration_seconds=1e6),
        lambda: draw_requests([TrafficClass(CHAT, RateArrivals(1e-300))], 0, request_count=5),
        lambda: draw_requests([TrafficClass(CHAT, RateArrivals(1.0))] * 2, 0, 10),
        lambda: draw_closed_loop_requests([TrafficClass(CHAT, share=0.0)], 0, 10),
    ],
)
def test_bad_traffic_is_refused(build: Callable[[], object]) -> None:
    with pytest.raises(InvalidInputError):
        build()


def test_all_wrong_columns_are_named_at_once() -> None:
    with pytest.raises(InvalidInputError) as caught:
        make_requests([0, 5, 5], [1, 2.5, 3], [0.0, 2.0, 1.0], -1)
    fields = {violation.field for violation in caught.value.violations}
    assert fields == {"prompt_tokens", "output_tokens", "cached_tokens", "arrival_seconds[2]"}


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="must hold 3"):
        make_requests([5, 5, 5], [1, 2])
