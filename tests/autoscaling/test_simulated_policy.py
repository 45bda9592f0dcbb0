"""The policy that follows from a simulated plan, value by value."""

from __future__ import annotations

import dataclasses

import pytest

from inferplan.autoscaling.cold_start import FETCH_BYTES_PER_SECOND, VOLUME_BYTES_PER_SECOND, expected_cold_start
from inferplan.autoscaling.derivation import SimulatedLoad, simulated_policy, target_rate_ratio
from inferplan.autoscaling.policy import (
    AutoscalingPolicy,
    ColdStart,
    PolicyDerivation,
    SignalKind,
    StatedColdStart,
    WarmKind,
)

LOAD = SimulatedLoad(
    active_replicas=6,
    spare_replicas=1,
    completions_per_second=18.0,
    running_sequences=70.0,
    maximum_sequences=1024,
    unloaded_ttft_seconds=0.03,
    longest_stream_seconds=21.3,
    ttft_objective_seconds=0.5,
)
COLD_START = ColdStart(180.0)
COLD_START_SOURCE = PolicyDerivation("cold_start.total", "180 s, as stated")


def policy(**changes: object) -> AutoscalingPolicy:
    load = dataclasses.replace(LOAD, **changes)  # type: ignore[arg-type]
    return simulated_policy(load, COLD_START, COLD_START_SOURCE)


def formula(found: AutoscalingPolicy, field: str) -> str:
    return next(derivation.formula for derivation in found.derivations if derivation.field == field)


def test_the_queue_is_what_can_still_start_in_time() -> None:
    """floor((0.5 - 0.03) x 18) = floor(8.46)."""
    found = policy()
    assert found.signals[0].kind is SignalKind.QUEUE_DEPTH
    assert found.signals[0].target == 8
    assert "(0.5 s TTFT objective - 0.030 s unloaded) x 18.00 completions/s) = 8" in formula(found, "signals[0].target")


@pytest.mark.parametrize(
    ("changes", "target"),
    [
        ({"ttft_objective_seconds": 0.02}, 1),
        ({"ttft_objective_seconds": None}, 1),
        ({"ttft_objective_seconds": 60.0}, 1024),
        ({"ttft_objective_seconds": 60.0, "maximum_sequences": 32}, 32),
    ],
)
def test_the_queue_target_stays_between_one_and_the_slots(changes: dict[str, object], target: float) -> None:
    assert policy(**changes).signals[0].target == target


def test_the_queue_has_a_running_companion_that_can_fire() -> None:
    found = policy()
    assert found.signals[1].kind is SignalKind.RUNNING
    assert found.signals[1].target == pytest.approx(70.0)
    assert "70.0 running at 0.83 x 18.00/s" in formula(found, "signals[1].target")
    assert policy(maximum_sequences=16).signals[1].target == 16
    assert policy(running_sequences=0.2).signals[1].target == 1


@pytest.mark.parametrize(("active", "ratio"), [(1, 0.7), (2, 0.7), (4, 0.75), (5, 0.8), (100, 0.85)])
def test_the_others_can_carry_the_load_when_one_goes(active: int, ratio: float) -> None:
    """(N - 1) / N, within what published guides use."""
    assert target_rate_ratio(active) == pytest.approx(ratio)


def test_the_floor_the_spares_and_the_ceiling() -> None:
    found = policy()
    assert (found.minimum_replicas, found.maximum_replicas, found.warm_replicas) == (6, 12, 1)
    assert found.warm_kind is WarmKind.HOT_FLOOR
    assert not found.allow_zero


def test_quota_and_budget_bound_the_ceiling() -> None:
    found = policy(allowed_replicas=9)
    assert found.maximum_replicas == 9
    assert "quota and budget allow 9" in formula(found, "maximum_replicas")
    assert policy(allowed_replicas=40).maximum_replicas == 12


def test_a_scale_up_waits_for_the_replica_that_starts() -> None:
    found = simulated_policy(LOAD, ColdStart(239.2), COLD_START_SOURCE)
    assert found.scale_up.cooldown_seconds == 240.0
    assert found.cold_start == ColdStart(239.2)


@pytest.mark.parametrize(("stream_seconds", "stabilisation_seconds"), [(21.3, 300.0), (299.5, 300.0), (640.2, 641.0)])
def test_a_scale_down_waits_for_the_longest_stream(stream_seconds: float, stabilisation_seconds: float) -> None:
    found = policy(longest_stream_seconds=stream_seconds)
    assert found.scale_down.cooldown_seconds == stabilisation_seconds
    assert found.drain_seconds is not None
    assert stream_seconds <= found.drain_seconds < stream_seconds + 1
    assert found.pre_stop_seconds == 15.0


def test_every_value_has_its_formula() -> None:
    fields = {derivation.field for derivation in policy().derivations}
    assert fields == {
        "signals[0].target",
        "signals[1].target",
        "cold_start.total",
        "scale_up.cooldown",
        "scale_down.cooldown",
        "drain",
        "pre_stop",
        "warm_replicas",
        "minimum_replicas",
        "maximum_replicas",
    }


def test_a_cold_start_reads_the_weights_as_fast_as_was_measured() -> None:
    """67.7 GiB came from a volume into GPU memory in 30.47 s; fetch and load together are that time."""
    found, source = expected_cold_start(67.7 * 2**30, routed_experts=False)
    assert found.weights_fetch_seconds is not None
    assert found.weights_load_seconds is not None
    assert found.weights_fetch_seconds + found.weights_load_seconds == pytest.approx(30.47, rel=0.01)
    parts = (
        found.node_boot_seconds,
        found.image_pull_seconds,
        found.weights_fetch_seconds,
        found.weights_load_seconds,
        found.compile_and_capture_seconds,
    )
    assert found.total_seconds == pytest.approx(sum(part or 0.0 for part in parts))
    assert "72.7 GB of weights" in source.formula
    assert "assumed" in source.formula
    assert FETCH_BYTES_PER_SECOND > VOLUME_BYTES_PER_SECOND


def test_a_sites_own_times_go_before_the_defaults() -> None:
    stated = StatedColdStart(node_boot_seconds=0.0, weights_fetch_seconds=5.0)
    found, source = expected_cold_start(1e10, routed_experts=True, stated=stated)
    assert (found.node_boot_seconds, found.weights_fetch_seconds) == (0.0, 5.0)
    assert found.total_seconds == pytest.approx(0.0 + 30.0 + 5.0 + 1e10 / 5.25e9 + 195.0)
    assert "node_boot 0 s (stated)" in source.formula
    whole, source = expected_cold_start(1e10, routed_experts=True, stated=StatedColdStart(total_seconds=77.0))
    assert whole.total_seconds == 77.0
    assert source.formula == "77 s, as stated"
