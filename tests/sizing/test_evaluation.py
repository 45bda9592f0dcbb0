"""Verdicts on fleets: what holds, what fails, what is too close to call, and what is refused."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inferplan.errors import CancelledError, InvalidInputError
from inferplan.simulation import Cancellation, EngineParameters, StepTimeCoefficients
from inferplan.sizing.evaluation import (
    EvaluationSettings,
    FleetEvaluation,
    ReplicaModel,
    evaluate_fleet,
    first_run_requests,
)
from inferplan.sizing.performance import LatencyPercentiles, Outcome
from inferplan.sizing.workload import (
    ArrivalProcess,
    Arrivals,
    ConstantLength,
    LatencyMetric,
    Objective,
    TrafficClass,
    UniformLength,
    Workload,
)

STEP_SECONDS = 0.01
SLOTS = 4
OUTPUT_TOKENS = 10
# Every step takes 10 ms whatever is in it, and a request takes ten of them.
REPLICA = ReplicaModel(
    StepTimeCoefficients(
        dense_weight_seconds=STEP_SECONDS, compute_seconds_per_token=0.0, kv_seconds_per_context_token=0.0
    ),
    EngineParameters(maximum_sequences=SLOTS, maximum_batched_tokens=4096, kv_blocks=10_000),
    front_end_seconds=0.005,
)
CAPACITY_PER_SECOND = SLOTS / (OUTPUT_TOKENS * STEP_SECONDS)
"""40 requests a second: four slots that a request each holds for 0.1 s."""


def chat(requests_per_second: float | None = None, **fields: object) -> TrafficClass:
    return dataclasses.replace(
        TrafficClass(
            requests_per_second=requests_per_second,
            input_tokens=ConstantLength(100),
            output_tokens=ConstantLength(OUTPUT_TOKENS),
        ),
        **fields,  # type: ignore[arg-type]
    )


def ttft(maximum_seconds: float, percentile: float = 95, traffic_class_id: str = "") -> Objective:
    return Objective(LatencyMetric.TTFT, percentile, maximum_seconds, traffic_class_id)


def evaluate(
    *classes: TrafficClass,
    objectives: tuple[Objective, ...] = (),
    replicas: int = 1,
    replicas_down: int = 0,
    **fields: object,
) -> FleetEvaluation:
    asked = EvaluationSettings(**fields)  # type: ignore[arg-type]
    return evaluate_fleet(REPLICA, Workload(classes), objectives, replicas, asked, replicas_down)


def latency(evaluation: FleetEvaluation, metric: LatencyMetric, traffic_class_id: str = "") -> LatencyPercentiles:
    (found,) = [
        item
        for item in evaluation.performance.latencies
        if item.metric is metric and item.traffic_class_id == traffic_class_id
    ]
    return found


def trace(*offsets: float) -> Arrivals:
    return Arrivals(ArrivalProcess.TRACE, trace_offsets_seconds=offsets)


def test_a_light_load_holds_with_every_percentile_inside_its_interval() -> None:
    found = evaluate(chat(4.0), objectives=(ttft(0.05, 97.5),))
    assert found.holds is True
    assert not found.saturated
    assert [verdict.outcome for verdict in found.verdicts] == [Outcome.HOLDS]
    assert found.first_broken_after_seconds is None
    # a step or two until the first token, then nine steps
    assert 0.015 < latency(found, LatencyMetric.TTFT).mean_seconds < 0.025
    assert latency(found, LatencyMetric.TPOT).mean_seconds == pytest.approx(STEP_SECONDS)
    for metric in LatencyMetric:
        percentiles = latency(found, metric).percentiles
        wanted = [50, 90, 95, 97.5, 99] if metric is LatencyMetric.TTFT else [50, 90, 95, 99]
        assert [item.percentile for item in percentiles] == wanted
        for item in percentiles:
            assert item.low_seconds is not None and item.high_seconds is not None
            assert item.low_seconds <= item.value_seconds <= item.high_seconds


def test_a_saturated_fleet_fails_every_bound_on_its_queue_however_loose() -> None:
    """Twice the capacity: within the run nobody waits for an hour, but the queue grows without end."""
    hour = 3600.0
    queued = (LatencyMetric.TTFT, LatencyMetric.END_TO_END, LatencyMetric.QUEUE_WAIT)
    objectives = tuple(Objective(metric, 95, hour) for metric in (*queued, LatencyMetric.TPOT))
    found = evaluate(chat(2 * CAPACITY_PER_SECOND), objectives=objectives)
    assert found.saturated and found.holds is False
    assert [verdict.outcome for verdict in found.verdicts] == [Outcome.FAILS] * 3 + [Outcome.HOLDS]
    assert found.performance.queue_growth_requests_per_second == pytest.approx(CAPACITY_PER_SECOND, rel=0.1)
    assert found.performance.requests_per_second == pytest.approx(CAPACITY_PER_SECOND, rel=0.05)


def test_saturation_fails_even_where_nothing_is_asked() -> None:
    assert evaluate(chat(2 * CAPACITY_PER_SECOND)).holds is False
    assert evaluate(chat(0.5 * CAPACITY_PER_SECOND)).holds is True


def test_overload_says_when_ttft_was_first_broken() -> None:
    """At twice the capacity, 40 requests a second more come than go: who comes after t seconds waits 40 t / 40 = t."""
    even = Arrivals(ArrivalProcess.CONSTANT)
    found = evaluate(chat(2 * CAPACITY_PER_SECOND, arrivals=even), objectives=(ttft(10.0),))
    # The run of 70 s is looked at in 27 parts.
    assert found.first_broken_after_seconds == pytest.approx(10.0, abs=2.6)


def test_a_bound_inside_the_interval_is_extended_and_then_too_close_to_call() -> None:
    load = chat(0.8 * CAPACITY_PER_SECOND)
    wide = latency(evaluate(load), LatencyMetric.TTFT).percentiles[2]
    first = first_run_requests(REPLICA, Workload((load,)), (ttft(wide.value_seconds),))
    found = evaluate(load, objectives=(ttft(wide.value_seconds),), maximum_requests=4 * first)
    assert found.simulated_requests == 4 * first
    (verdict,) = found.verdicts
    clear = verdict.outcome is not Outcome.TOO_CLOSE_TO_CALL
    # With four times the requests the estimate has moved: whichever verdict was given, its interval bears it out.
    again = latency(found, LatencyMetric.TTFT).percentiles[2]
    assert again.low_seconds is not None and again.high_seconds is not None
    assert clear == (not again.low_seconds <= wide.value_seconds < again.high_seconds)
    assert found.holds is (None if not clear else verdict.outcome is Outcome.HOLDS)


def test_no_verdict_is_given_where_the_run_may_not_be_extended() -> None:
    load = chat(0.8 * CAPACITY_PER_SECOND)
    first = evaluate(load)
    bound = latency(first, LatencyMetric.TTFT).percentiles[2].value_seconds
    found = evaluate(load, objectives=(ttft(bound),), exact_requests=first.simulated_requests)
    assert found.simulated_requests == first.simulated_requests
    assert [verdict.outcome for verdict in found.verdicts] == [Outcome.TOO_CLOSE_TO_CALL]
    assert found.holds is None


def test_a_replica_that_is_down_serves_nothing() -> None:
    load, objectives = chat(1.5 * CAPACITY_PER_SECOND), (ttft(0.5),)
    assert evaluate(load, objectives=objectives, replicas=2).holds is True
    down = evaluate(load, objectives=objectives, replicas=2, replicas_down=1)
    assert down == evaluate(load, objectives=objectives, replicas=1)
    assert down.holds is False


@pytest.mark.parametrize("down", [2, 3, -1])
def test_some_replica_must_serve(down: int) -> None:
    with pytest.raises(InvalidInputError, match="at least one must serve"):
        evaluate(chat(1.0), replicas=2, replicas_down=down)


def test_the_same_seed_gives_the_same_answer_and_another_seed_another() -> None:
    load = chat(0.7 * CAPACITY_PER_SECOND)
    assert evaluate(load, seed=5) == evaluate(load, seed=5)
    assert evaluate(load, seed=5) != evaluate(load, seed=6)


def test_a_closed_loop_divides_its_clients_over_the_replicas() -> None:
    """Each client gets an answer every 0.1 s, as long as it has a slot."""
    for clients, replicas in ((4, 1), (8, 2), (6, 2), (3, 8)):
        found = evaluate(chat(concurrency=clients), replicas=replicas)
        expected = clients / (OUTPUT_TOKENS * STEP_SECONDS)
        assert found.performance.requests_per_second == pytest.approx(expected, rel=0.05), (clients, replicas)
        assert found.performance.saturated is None
    crowded = evaluate(chat(concurrency=3 * SLOTS))
    assert crowded.performance.requests_per_second == pytest.approx(CAPACITY_PER_SECOND, rel=0.05)
    # two of three clients wait: 0.2 s for a slot, the first step, and the front end
    assert latency(crowded, LatencyMetric.TTFT).mean_seconds == pytest.approx(0.2 + STEP_SECONDS + 0.005, rel=0.1)


def test_classes_are_judged_by_their_own_objectives() -> None:
    short = chat(10.0, traffic_class_id="short")
    long = chat(5.0, traffic_class_id="long", output_tokens=ConstantLength(50))
    limit = 0.3
    objectives = tuple(Objective(LatencyMetric.END_TO_END, 95, limit, name) for name in ("short", "long"))
    found = evaluate(short, long, objectives=objectives, replicas=2)
    assert [verdict.outcome for verdict in found.verdicts] == [Outcome.HOLDS, Outcome.FAILS]
    for name, tokens in (("short", OUTPUT_TOKENS), ("long", 50)):
        assert latency(found, LatencyMetric.END_TO_END, name).mean_seconds >= tokens * STEP_SECONDS
    everything = latency(found, LatencyMetric.END_TO_END).mean_seconds
    assert everything < latency(found, LatencyMetric.END_TO_END, "long").mean_seconds


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_rare_class_gets_a_verdict_on_its_percentile_whatever_the_seed(seed: int) -> None:
    """How many requests of it come is left to chance; they must not be too few for the interval of its P99."""
    rare = chat(2.0, traffic_class_id="rare")
    found = evaluate(chat(8.0, traffic_class_id="common"), rare, objectives=(ttft(1.0, 99, "rare"),), seed=seed)
    assert found.holds is True


def test_a_rare_class_without_objectives_does_not_lengthen_the_run() -> None:
    classes = (chat(10.0, traffic_class_id="common"), chat(0.01, traffic_class_id="rare"))
    assert evaluate(*classes, objectives=(ttft(1.0),)).simulated_requests < 20_000


def test_a_trace_is_played_to_its_end_and_judged_as_a_whole() -> None:
    """A quiet hour and then a minute of twice the capacity: a run that stopped early would call it good."""
    quiet = [second * 0.25 for second in range(14_400)]
    peak = [3600.0 + index / (2 * CAPACITY_PER_SECOND) for index in range(4800)]
    recorded = chat(len(quiet + peak) / 3660.0, arrivals=trace(*quiet, *peak))
    alone = evaluate(recorded, objectives=(ttft(1.0),), maximum_requests=5000)
    assert alone.simulated_requests == len(quiet + peak)
    assert alone.holds is False
    assert alone.first_broken_after_seconds is not None and alone.first_broken_after_seconds > 3000.0
    assert evaluate(recorded, objectives=(ttft(1.0),), replicas=3).holds is True


def test_a_trace_among_other_classes_is_played_to_its_end() -> None:
    offsets = [index * 0.5 for index in range(2000)]
    classes = (
        chat(2.0, traffic_class_id="recorded", arrivals=trace(*offsets)),
        chat(5.0, traffic_class_id="drawn"),
    )
    found = evaluate(*classes, objectives=(ttft(1.0, 95, "recorded"),))
    assert found.holds is True
    # 1,000 s at five a second beside the recorded two
    assert found.simulated_requests == pytest.approx(7000, rel=0.05)


def test_a_trace_too_short_for_the_percentile_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="P95 needs at least 200 requests; there are 100"):
        evaluate(chat(1.0, arrivals=trace(*map(float, range(100)))), objectives=(ttft(1.0),))


def test_a_trace_that_would_be_played_for_minutes_is_refused() -> None:
    classes = (
        chat(1.0, traffic_class_id="recorded", arrivals=trace(0.0, 86_400.0)),
        chat(1000.0, traffic_class_id="drawn"),
    )
    with pytest.raises(InvalidInputError, match="shorten the trace"):
        evaluate(*classes)


def test_open_and_closed_loops_do_not_mix() -> None:
    with pytest.raises(InvalidInputError, match="mix requests_per_second and concurrency"):
        evaluate(chat(1.0, traffic_class_id="open"), chat(traffic_class_id="closed", concurrency=3))


def test_a_cancelled_run_ends_at_once() -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    with pytest.raises(CancelledError):
        evaluate(chat(0.5 * CAPACITY_PER_SECOND), cancellation=cancellation)


def test_progress_rises_and_ends_at_one() -> None:
    told: list[float] = []
    load = chat(0.8 * CAPACITY_PER_SECOND)
    bound = latency(evaluate(load), LatencyMetric.TTFT).percentiles[2].value_seconds
    evaluate(load, objectives=(ttft(bound),), maximum_requests=100_000, progress=told.append)
    assert told[-1] == 1.0
    assert len(told) > 1
    assert all(0 < share <= 1 for share in told)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.05, 0.9), st.sampled_from([ArrivalProcess.POISSON, ArrivalProcess.CONSTANT]), st.integers(0, 2**32))
def test_more_replicas_never_make_ttft_worse(load: float, process: ArrivalProcess, seed: int) -> None:
    traffic = chat(
        load * CAPACITY_PER_SECOND, arrivals=Arrivals(process), output_tokens=UniformLength(1, 2 * OUTPUT_TOKENS - 1)
    )
    one, two = (evaluate(traffic, replicas=replicas, seed=seed) for replicas in (1, 2))
    few, many = (latency(item, LatencyMetric.TTFT).percentiles[2] for item in (one, two))
    # The interval allows for replicas whose steps begin at other moments.
    assert many.low_seconds is not None
    assert many.low_seconds <= few.value_seconds + STEP_SECONDS


def test_a_brief_run_is_lengthened_only_where_it_cannot_judge() -> None:
    """3,000 requests hold about 270 of a class that sends one in eleven; its P90 needs 500 for an interval."""
    common, rare = chat(10.0, traffic_class_id="common"), chat(1.0, traffic_class_id="rare")
    of_common = evaluate(common, rare, objectives=(ttft(1.0, 90, "common"),), brief_requests=3000)
    assert of_common.simulated_requests == pytest.approx(3000, rel=0.05)
    of_rare = evaluate(common, rare, objectives=(ttft(1.0, 90, "rare"),), brief_requests=3000)
    assert of_rare.simulated_requests > 5000
    assert [verdict.outcome for verdict in of_rare.verdicts] == [Outcome.HOLDS]
    with pytest.raises(InvalidInputError, match="needs at least"):
        evaluate(common, rare, objectives=(ttft(1.0, 90, "rare"),), exact_requests=3000)
