"""A replay's question on the wire: the policy, the trace, and whether this is a replay at all."""

from __future__ import annotations

import dataclasses

import numpy as np

from inferplan.autoscaling.policy import (
    AutoscalingPolicy,
    ColdStart,
    MissingMetricBehavior,
    SignalOrigin,
    StatedColdStart,
    WarmKind,
)
from inferplan.autoscaling.replay.traces import LoadTrace, recorded_trace
from inferplan.errors import Violation
from inferplan.planning.replay import PolicySource, ReplayQuestion
from inferplan.rpc.convert.mapping import from_message, seconds_from_duration
from inferplan.sizing.workload import Workload
from inferplan.v1 import autoscaling_pb2, plan_service_pb2

REPLAY_FIELDS = frozenset({"policy", "trace", "target", "duration", "policy_source", "suggest", "recorded_trace"})
MICROSECONDS_PER_SECOND = 1e6


def is_replay(message: plan_service_pb2.SimulatePlanRequest) -> bool:
    """Whether the load or the number of replicas changes over time."""
    return any(field.name in REPLAY_FIELDS for field, _value in message.ListFields())


def policy_gaps(policy: autoscaling_pb2.AutoscalingPolicy, path: str) -> list[Violation]:
    """Parts of a policy that must be there."""
    return [
        Violation(f"{path}.{name}.cooldown", "must be set, 0s for none", "REQUIRED")
        for name in ("scale_up", "scale_down")
        if not getattr(policy, name).HasField("cooldown")
    ]


def replay_question_from_wire(message: plan_service_pb2.SimulatePlanRequest) -> ReplayQuestion:
    """What is to be played. Raises InvalidInputError for a recorded trace that is none."""
    source = {
        plan_service_pb2.POLICY_SOURCE_PLAN: PolicySource.PLAN,
        plan_service_pb2.POLICY_SOURCE_FORECAST: PolicySource.FORECAST,
    }
    return ReplayQuestion(
        trace=message.trace,
        recorded=_recorded(message.recorded_trace) if message.HasField("recorded_trace") else None,
        policy=policy_from_wire(message.policy) if message.HasField("policy") else None,
        policy_source=source.get(message.policy_source),
        target=message.target,
        replicas=message.replicas if message.HasField("replicas") else None,
        workload=from_message(message.workload, Workload) if message.HasField("workload") else None,
        duration_seconds=seconds_from_duration(message.duration) if message.HasField("duration") else None,
        seed=message.seed if message.HasField("seed") else None,
        suggest=message.suggest,
    )


def policy_from_wire(message: autoscaling_pb2.AutoscalingPolicy) -> AutoscalingPolicy:
    """A policy that a caller wrote, with what the contract says of fields that are not set."""
    policy = from_message(message, AutoscalingPolicy)
    return dataclasses.replace(
        policy,
        warm_kind=policy.warm_kind or WarmKind.HOT_FLOOR,
        missing_metrics=policy.missing_metrics or MissingMetricBehavior.HOLD,
        signals=tuple(
            dataclasses.replace(signal, origin=signal.origin or SignalOrigin.ENGINE) for signal in policy.signals
        ),
        cold_start=_cold_start(message.cold_start) if message.HasField("cold_start") else None,
    )


def _cold_start(message: autoscaling_pb2.ColdStart) -> ColdStart | None:
    """Its total, or the sum of its parts; None if it states neither."""
    stated = from_message(message, StatedColdStart)
    parts = {name: value for name, value in dataclasses.asdict(stated).items() if value is not None}
    total = parts.pop("total_seconds", None)
    if total is None and not parts:
        return None
    return ColdStart(total_seconds=sum(parts.values()) if total is None else total, **parts)


def _recorded(message: plan_service_pb2.RecordedTrace) -> LoadTrace:
    gaps = np.fromiter(message.arrival_gap_microseconds, dtype=np.float64)
    inputs = np.fromiter(message.input_tokens, dtype=np.int64) if message.input_tokens else None
    outputs = np.fromiter(message.output_tokens, dtype=np.int64) if message.output_tokens else None
    return recorded_trace(message.title, np.cumsum(gaps) / MICROSECONDS_PER_SECOND, inputs, outputs)
