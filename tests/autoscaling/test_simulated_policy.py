"""The policy that follows from a simulated plan, value by value."""

from __future__ import annotations

import dataclasses

import pytest

from inferplan.autoscaling.policy import AutoscalingPolicy, SignalKind, SimulatedLoad, WarmKind, simulated_policy

LOAD = SimulatedLoad(
    active_replicas=6,
    spare_replicas=1,
    completions_per_second=18.0,
    running_sequences=70.0,
    maximum_sequences=1024,
    unloaded_ttft_seconds=0.03,
    ttft_objective_seconds=0.5,
)


def policy(**changes: object) -> AutoscalingPolicy:
    return simulated_policy(dataclasses.replace(LOAD, **changes))  # type: ignore[arg-type]


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
    assert found.signals[1].target == pytest.approx(56.0)
    assert policy(maximum_sequences=16).signals[1].target == 16
    assert policy(running_sequences=0.2).signals[1].target == 1


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
    found = simulated_policy(LOAD, cold_start_seconds=240.0)
    assert found.scale_up.cooldown_seconds == 240.0
    assert found.cold_start is not None
    assert found.cold_start.total_seconds == 240.0
    assert found.scale_down.cooldown_seconds >= 300.0
