"""The algorithms of autoscalers, on numbers that their documentation settles."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferplan.autoscaling.policy import (
    AutoscalingPolicy,
    AutoscalingSignal,
    MissingMetricBehavior,
    ScalingRule,
    SignalKind,
    WarmKind,
)
from inferplan.autoscaling.replay.controllers import CONTROLLERS, Controller, FleetMetrics, controller_for, floor_of
from inferplan.errors import InvalidInputError

QUEUE_20 = AutoscalingSignal(SignalKind.QUEUE_DEPTH, 20.0, per_replica=True)
RUNNING_50 = AutoscalingSignal(SignalKind.RUNNING, 50.0, per_replica=True)
ONGOING_10 = AutoscalingSignal(SignalKind.ONGOING, 10.0, per_replica=True)


def policy(
    *signals: AutoscalingSignal, up: float = 0.0, down: float = 300.0, down_step: int | None = None, warm: int = 0
) -> AutoscalingPolicy:
    return AutoscalingPolicy(
        minimum_replicas=1,
        maximum_replicas=100,
        allow_zero=False,
        warm_replicas=warm,
        warm_kind=WarmKind.HOT_FLOOR,
        signals=signals,
        scale_up=ScalingRule(cooldown_seconds=up),
        scale_down=ScalingRule(cooldown_seconds=down, maximum_step_replicas=down_step),
        missing_metrics=MissingMetricBehavior.HOLD,
        derivations=(),
    )


def metrics(
    replicas: int, waiting: int = 0, running: int = 0, ttft: float | None = None, kv: float = 0.0
) -> FleetMetrics:
    return FleetMetrics(replicas, waiting, running, 0.0, kv, ttft)


@pytest.mark.parametrize(("queue", "wanted"), [(43, 2), (44, 2), (45, 3), (60, 3), (61, 4), (36, 2), (40, 2)])
@pytest.mark.parametrize("target", ["hpa", "keda", "kserve-llm"])
def test_hpa_divides_the_fleets_queue_by_the_target(target: str, queue: int, wanted: int) -> None:
    """AverageValue 20 with a tolerance of 10 %: 44 / (2 x 20) = 1.1 holds, 45 asks for ceil(45 / 20)."""
    controller = controller_for(target, policy(QUEUE_20))
    assert controller.desired(15.0, 2, metrics(2, waiting=queue)) == wanted


def test_hpa_takes_the_largest_of_all_signals() -> None:
    controller = controller_for("hpa", policy(QUEUE_20, RUNNING_50))
    assert controller.desired(15.0, 2, metrics(2, waiting=0, running=190)) == 4


def test_hpa_compares_ratios_and_latencies_by_value() -> None:
    """ceil(3 x 0.95 / 0.6) = 5; P95 TTFT twice its target doubles the replicas; a missing one holds."""
    ratio = AutoscalingSignal(SignalKind.KV_CACHE_RATIO, 0.6, per_replica=True)
    assert controller_for("hpa", policy(ratio)).desired(15.0, 3, metrics(3, kv=0.95)) == 5
    latency = AutoscalingSignal(SignalKind.TTFT_P95, 0.5, per_replica=False)
    assert controller_for("hpa", policy(latency)).desired(15.0, 3, metrics(3, ttft=1.0)) == 6
    assert controller_for("hpa", policy(latency)).desired(15.0, 3, metrics(3)) == 3


def test_hpa_removes_what_no_proposal_of_the_window_needed() -> None:
    controller = controller_for("hpa", policy(QUEUE_20))
    assert controller.desired(0.0, 8, metrics(8, waiting=100)) == 8
    for step in range(1, 21):
        assert controller.desired(15.0 * step, 8, metrics(8, waiting=60 if step == 10 else 0)) in (8, 5)
    # What was there before the first scrape has left the window of 300 s, and the 100; the 60 of 150 s have not.
    assert controller.desired(315.0, 5, metrics(5)) == 3
    assert controller.desired(465.0, 3, metrics(3)) == 0  # the bounds are the caller's


def test_hpa_at_most_doubles_within_a_cooldown() -> None:
    controller = controller_for("hpa", policy(QUEUE_20, up=180.0))
    assert controller.desired(15.0, 2, metrics(2, waiting=900)) == 4
    assert controller.desired(30.0, 4, metrics(2, waiting=900)) == 4
    assert controller.desired(200.0, 4, metrics(4, waiting=900)) == 8


def test_the_policys_own_rules_rest_after_they_acted() -> None:
    controller = controller_for("", policy(QUEUE_20, up=90.0))
    assert controller.desired(15.0, 2, metrics(2, waiting=60)) == 3
    assert controller.desired(30.0, 3, metrics(2, waiting=200)) == 3
    assert controller.desired(105.0, 3, metrics(2, waiting=200)) == 10


def test_a_short_lull_removes_nothing_that_was_needed_before() -> None:
    controller = controller_for("", policy(RUNNING_50))
    for step in range(20):
        assert controller.desired(15.0 * step, 4, metrics(4, running=160)) == 4
    # One low scrape among 300 s of three-and-a-bit replicas' work.
    assert controller.desired(300.0, 4, metrics(4, running=20)) == 4


def test_scale_down_steps_are_bounded() -> None:
    controller = controller_for("", policy(RUNNING_50, down_step=1))
    found = [controller.desired(15.0 * step, 6, metrics(6, running=10)) for step in range(22)]
    assert min(found) == 5


def test_knative_panics_at_twice_its_target() -> None:
    controller = controller_for("knative", policy(ONGOING_10, down=0.0))
    for step in range(30):
        assert controller.desired(2.0 * step, 2, metrics(2, running=16)) == 2
    # 6 s of 60 in flight: 60 / 10 = 6 is at least twice the two replicas, long before the mean of 60 s says so.
    for step in range(30, 33):
        wanted = controller.desired(2.0 * step, 2, metrics(2, running=60))
    assert wanted == 6
    # In panic nothing is removed.
    assert controller.desired(70.0, 6, metrics(6, running=0)) == 6


def test_ray_serve_waits_for_its_delay() -> None:
    controller = controller_for("ray-serve", policy(ONGOING_10, up=30.0, down=600.0))
    found = [controller.desired(10.0 * step, 1, metrics(1, running=45)) for step in range(1, 5)]
    assert found == [1, 1, 1, 5]


def test_sagemaker_needs_three_periods_to_add_and_fifteen_to_remove() -> None:
    controller = controller_for("sagemaker", policy(ONGOING_10, down=0.0))
    assert [controller.desired(60.0 * step, 2, metrics(2, running=50)) for step in range(3)] == [2, 2, 5]
    found = [controller.desired(60.0 * step, 5, metrics(5, running=10)) for step in range(3, 20)]
    assert found.index(1) == 14


@pytest.mark.parametrize("target", ["knative", "ray-serve", "sagemaker"])
def test_a_target_that_counts_requests_in_flight_needs_such_a_signal(target: str) -> None:
    with pytest.raises(InvalidInputError, match="requests in flight"):
        controller_for(target, policy(QUEUE_20))


def test_an_unknown_target_is_refused_with_the_legal_ones() -> None:
    with pytest.raises(InvalidInputError, match="ray-serve"):
        controller_for("nomad", policy(QUEUE_20))


def test_warm_replicas_that_are_hot_raise_the_floor() -> None:
    assert floor_of(policy(QUEUE_20, warm=2)) == 3
    cold = dataclasses.replace(policy(QUEUE_20, warm=2), warm_kind=WarmKind.NODE_PLACEHOLDER)
    assert floor_of(cold) == 1


@given(
    target=st.sampled_from(sorted(CONTROLLERS)),
    scrapes=st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=1, max_size=60),
)
def test_no_controller_loses_its_way(target: str, scrapes: list[tuple[int, int]]) -> None:
    """Whatever it sees, what it wants stays a bounded number, and a load that fits exactly is left alone."""
    found: Controller = controller_for(target, policy(ONGOING_10, up=30.0))
    current, now = 3, 0.0
    for waiting, running in scrapes:
        now += found.period_seconds
        wanted = found.desired(now, current, metrics(current, waiting, running))
        assert 0 <= wanted <= max(current, 2 * current, 200)
        current = max(1, min(wanted, 100))
    for _ in range(600):
        now += found.period_seconds
        current = max(1, min(found.desired(now, current, metrics(current, 0, 70)), 100))
    assert current == 7
