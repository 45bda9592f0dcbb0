from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from inferplan.errors import InvalidInputError
from inferplan.simulation import (
    Cancellation,
    ConstantLength,
    Ending,
    EngineParameters,
    Fleet,
    IndependentLengths,
    Requests,
    Router,
    SimulationLimits,
    StepTimeCoefficients,
    TrafficClass,
    compile_kernels,
    draw_requests,
    make_requests,
    poisson_arrivals,
    simulate_closed_loop,
    simulate_fleet,
    simulate_static_batches,
)

SERVING = StepTimeCoefficients(4.5e-3, 2e-5, 1.7e-7, 3e-10, host_seconds_per_step=2e-3, host_seconds_per_sequence=2e-5)
ENGINE = EngineParameters(
    maximum_sequences=128, maximum_batched_tokens=2048, kv_blocks=7000, maximum_context_tokens=4096
)
SMALL = EngineParameters(maximum_sequences=1, maximum_batched_tokens=9, kv_blocks=4)
HUGE = EngineParameters(maximum_sequences=256, maximum_batched_tokens=2048, kv_blocks=10**6)
LOOK_EVERY_STEPS = 1024


def chat(rate_per_second: float, count: int, seed: int = 1) -> Requests:
    lengths = IndependentLengths(ConstantLength(500), ConstantLength(200))
    return draw_requests([TrafficClass(lengths, poisson_arrivals(rate_per_second))], seed, request_count=count)


def test_one_request_alone_by_hand() -> None:
    """Prompt 3000 in two chunks of the 2048 budget, then 2 decode steps: 4 steps in all, each known."""
    coefficients = StepTimeCoefficients(0.0, 0.001, 0.0, host_seconds_per_step=1.0)
    outcome = simulate_fleet(coefficients, ENGINE, make_requests(3000, 3, [5.0]), Fleet(1))
    assert outcome.queue_wait_seconds[0] == 0
    assert outcome.ttft_seconds[0] == pytest.approx(2 * 1.0 + 3.0)
    assert outcome.end_to_end_seconds[0] == pytest.approx(2 * 1.0 + 3.0 + 2 * 1.001)
    assert outcome.steps == 4


def test_a_prefix_hit_saves_its_share_of_the_prefill() -> None:
    coefficients = StepTimeCoefficients(0.0, 0.001, 0.0, host_seconds_per_step=1.0)
    outcome = simulate_fleet(coefficients, ENGINE, make_requests(1000, 1, [0.0], cached_tokens=750), Fleet(1))
    assert outcome.ttft_seconds[0] == pytest.approx(1.0 + 0.25)


def test_decoding_sequences_wait_for_prefill_in_old_engines_only() -> None:
    """A second prompt of 1 s: chunked, the first sequence gets a token in the same step; else it waits a step more."""
    coefficients = StepTimeCoefficients(0.0, 0.001, 0.0, host_seconds_per_step=0.1)
    requests = make_requests([10, 1000], [11, 1], [0.0, 0.15])
    chunked = simulate_fleet(coefficients, ENGINE, requests, Fleet(1))
    old = EngineParameters(128, 2048, 7000, chunked_prefill=False)
    prefill_first = simulate_fleet(coefficients, old, requests, Fleet(1))
    assert prefill_first.steps == chunked.steps + 1
    assert chunked.gap_seconds[:, :, 1].max() == pytest.approx(1.101)
    assert prefill_first.gap_seconds[:, :, 1].max() == pytest.approx(1.1 + 0.101)


def test_the_newest_is_preempted_when_blocks_run_out() -> None:
    """Two sequences that together outgrow 5 blocks of 4 tokens: the second is preempted, the first never waits."""
    coefficients = StepTimeCoefficients(0.0, 0.0, 0.0, host_seconds_per_step=1.0)
    engine = EngineParameters(8, 64, kv_blocks=5, block_tokens=4)
    outcome = simulate_fleet(coefficients, engine, make_requests([8, 8], [8, 8], [0.0, 0.0]), Fleet(1))
    assert outcome.preemptions.tolist() == [0, 1]
    assert outcome.end_to_end_seconds[0] == 8
    # Step 2: both need their third block, one is left. The second comes back in step 9, with 1 of its 8 tokens done.
    assert outcome.end_to_end_seconds[1] == 8 + 7
    # The first ends with 15 tokens, the second too: 4 blocks of 5, as the two prompts took.
    assert outcome.replicas[0].peak_kv_occupancy == pytest.approx(0.8)


def test_shared_prefix_blocks_leave_room_for_more_sequences() -> None:
    coefficients = StepTimeCoefficients(0.0, 0.0, 0.0, host_seconds_per_step=1.0)
    requests = make_requests(np.full(4, 64), 1, np.zeros(4), cached_tokens=48)
    own = simulate_fleet(coefficients, EngineParameters(8, 64, kv_blocks=4), requests, Fleet(1))
    shared = simulate_fleet(coefficients, EngineParameters(8, 64, kv_blocks=4, shared_prefix=True), requests, Fleet(1))
    assert own.end_to_end_seconds.tolist() == [1, 2, 3, 4]
    assert shared.end_to_end_seconds.tolist() == [1, 1, 1, 1]


def test_static_batches_start_together() -> None:
    coefficients = StepTimeCoefficients(0.0, 0.0, 0.0, host_seconds_per_step=1.0)
    outcome = simulate_static_batches(coefficients, ENGINE, make_requests([5] * 5, [3, 1, 2, 4, 1]), batch_size=2)
    assert outcome.arrival_seconds.tolist() == [0, 0, 3, 3, 7]
    assert outcome.ended_seconds == 8


def test_a_closed_loop_keeps_its_concurrency_and_ramps_up() -> None:
    outcome = simulate_closed_loop(SERVING, ENGINE, make_requests(np.full(300, 50), 20), 10, ramp_seconds=1.0)
    arrivals, finish = outcome.arrival_seconds, outcome.arrival_seconds + outcome.end_to_end_seconds
    assert arrivals[100] > 1.0
    for moment in arrivals[100:290]:  # the last clients find no request left
        assert np.count_nonzero((arrivals <= moment) & (finish > moment)) == 10
    assert np.array_equal(np.sort(arrivals), arrivals)
    assert arrivals[0] == 0.0
    first_starts = [start for start in np.arange(10) / 10 if np.any(np.isclose(arrivals, start))]
    assert len(first_starts) == 10


def test_round_robin_is_the_same_as_separate_replicas() -> None:
    requests = chat(20.0, 3000)
    assert requests.arrival_seconds is not None
    together = simulate_fleet(SERVING, ENGINE, requests, Fleet(3, Router.ROUND_ROBIN))
    for where in range(3):
        mine = slice(where, None, 3)
        alone = simulate_fleet(SERVING, ENGINE, make_requests(500, 200, requests.arrival_seconds[mine]), Fleet(1))
        assert np.array_equal(together.end_to_end_seconds[mine], alone.end_to_end_seconds)


def test_looking_at_the_queues_beats_taking_turns() -> None:
    """Outputs of very different lengths, near the edge: the better a router looks, the less is waited."""
    random = np.random.default_rng(0)
    arrivals = np.cumsum(random.exponential(1 / 90.0, 20_000))
    outputs = random.choice([20, 1500], 20_000, p=[0.9, 0.1])
    requests = make_requests(300, outputs, arrivals)
    means = [
        simulate_fleet(SERVING, ENGINE, requests, Fleet(4, router)).ttft_seconds.mean()
        for router in (Router.LEAST_OUTSTANDING, Router.RANDOM_OF_TWO, Router.ROUND_ROBIN)
    ]
    assert means[0] < means[1] < means[2] / 5


def test_a_fleet_with_one_replica_down_from_the_start_is_a_smaller_fleet() -> None:
    requests = chat(20.0, 2000)
    down = simulate_fleet(SERVING, ENGINE, requests, Fleet(3, failure_seconds=0.0))
    smaller = simulate_fleet(SERVING, ENGINE, requests, Fleet(2))
    assert np.array_equal(down.end_to_end_seconds, smaller.end_to_end_seconds)
    assert down.replicas[2].steps == 0


def test_requests_of_a_replica_that_fails_are_answered_by_the_others() -> None:
    requests = chat(20.0, 2000)
    outcome = simulate_fleet(SERVING, ENGINE, requests, Fleet(3, failure_seconds=50.0))
    assert outcome.finished.all()
    assert outcome.restarted_requests > 0
    assert not np.any(outcome.replica[outcome.arrival_seconds >= 50.0] == 2)
    before = outcome.arrival_seconds + outcome.end_to_end_seconds <= 50.0
    whole = simulate_fleet(SERVING, ENGINE, requests, Fleet(3))
    assert np.array_equal(outcome.end_to_end_seconds[before], whole.end_to_end_seconds[before])


def test_nobody_starts_on_another_replica_before_the_failure() -> None:
    """The other replica has been idle since 1 s; what the failed one leaves reaches it at 10.5 s, not before."""
    coefficients = StepTimeCoefficients(0.0, 0.0, 0.0, host_seconds_per_step=1.0)
    requests = make_requests(5, [1, 100], [0.0, 0.0])
    outcome = simulate_fleet(coefficients, ENGINE, requests, Fleet(2, Router.ROUND_ROBIN, failure_seconds=10.5))
    assert outcome.replica.tolist() == [0, 0]
    assert outcome.queue_wait_seconds.tolist() == [0, 10.5]
    assert outcome.end_to_end_seconds.tolist() == [1, 110.5]


def test_a_flag_that_is_set_before_stops_the_run_at_once() -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    outcome = simulate_fleet(SERVING, ENGINE, chat(20.0, 100), Fleet(2), cancellation=cancellation)
    assert outcome.ending is Ending.CANCELLED
    assert outcome.steps == 0


def test_a_flag_from_another_thread_stops_a_run_within_some_steps() -> None:
    """Counted in steps, since a clock says nothing on a shared machine: 1,024 steps are tens of microseconds."""
    compile_kernels()
    requests = make_requests(np.full(2_000_000, 10), 1)
    cancellation = Cancellation()
    outcomes = []
    run = threading.Thread(
        target=lambda: outcomes.append(simulate_closed_loop(SERVING, ENGINE, requests, 1, cancellation=cancellation))
    )
    run.start()
    while cancellation.steps_played == 0 and run.is_alive():
        pass  # the kernel releases the GIL, or this would never see a step
    cancellation.cancel()
    steps_when_set = cancellation.steps_played
    run.join()
    assert outcomes[0].ending is Ending.CANCELLED
    assert cancellation.steps_played <= steps_when_set + LOOK_EVERY_STEPS
    assert outcomes[0].finished.sum() == cancellation.requests_finished


def test_a_run_that_would_go_on_and_on_ends_with_a_verdict() -> None:
    limits = SimulationLimits(maximum_steps=5000)
    outcome = simulate_fleet(SERVING, ENGINE, chat(1000.0, 5000), Fleet(1), limits=limits)
    assert outcome.ending is Ending.STEP_LIMIT
    assert outcome.steps == 5000
    late = simulate_fleet(
        SERVING, ENGINE, make_requests(5, 5, [0.0, 1e6]), Fleet(1), limits=SimulationLimits(10**6, 1e3)
    )
    assert late.ending is Ending.TIME_LIMIT
    assert late.finished.tolist() == [True, False]


def test_ten_years_between_two_requests_cost_no_steps() -> None:
    outcome = simulate_fleet(SERVING, ENGINE, make_requests(5, 1, [0.0, 3e8]), Fleet(1))
    assert (outcome.ending, outcome.steps) == (Ending.COMPLETED, 2)


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: EngineParameters(0, 10, 10), "maximum_sequences"),
        (lambda: EngineParameters(20, 10, 10), "maximum_batched_tokens"),
        (lambda: EngineParameters(2, 10, 0), "kv_blocks"),
        (lambda: EngineParameters(2, 10, 10, block_tokens=0), "block_tokens"),
        (lambda: EngineParameters(2, 10**9, 10), "maximum_batched_tokens"),
        (lambda: simulate_fleet(SERVING, HUGE, make_requests(5, 10**6, [0.0]), Fleet(10_000)), "replicas"),
        (lambda: Fleet(0), "replicas"),
        (lambda: Fleet(1, failure_seconds=3.0), "replicas"),
        (lambda: Fleet(2, failure_seconds=float("nan")), "failure_seconds"),
        (lambda: SimulationLimits(0), "maximum_steps"),
        (lambda: SimulationLimits(1, float("inf")), "maximum_seconds"),
        (lambda: simulate_fleet(SERVING, ENGINE, make_requests(4000, 97, [0.0]), Fleet(1)), "prompt_tokens[0]"),
        (lambda: simulate_fleet(SERVING, ENGINE, make_requests(5, 5), Fleet(1)), "arrival_seconds"),
        (lambda: simulate_fleet(SERVING, ENGINE, make_requests(5, 5, [0.0]), Fleet(1), seed=-1), "seed"),
        (lambda: simulate_closed_loop(SERVING, ENGINE, make_requests(5, 5, [0.0]), 4), "arrival_seconds"),
        (lambda: simulate_closed_loop(SERVING, ENGINE, make_requests(5, 5), 0), "concurrency"),
        (lambda: simulate_closed_loop(SERVING, ENGINE, make_requests(5, 5), 1, ramp_seconds=-1.0), "ramp_seconds"),
        (lambda: simulate_static_batches(SERVING, ENGINE, make_requests(5, 5), 0), "batch_size"),
        (lambda: simulate_fleet(SERVING, SMALL, make_requests(64, 2, [0.0]), Fleet(1)), "prompt_tokens[0]"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(build: Callable[[], object], field: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        build()
    assert field in [violation.field for violation in caught.value.violations]


def test_a_request_that_just_fits_the_cache_is_played() -> None:
    """Prompt 64 and one token: the token's own KV is never stored, so 4 blocks of 16 are enough."""
    outcome = simulate_fleet(SERVING, EngineParameters(1, 9, 4), make_requests(64, 1, [0.0]), Fleet(1))
    assert outcome.ending is Ending.COMPLETED
