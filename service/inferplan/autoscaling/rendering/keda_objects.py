"""KEDA triggers, fallback and behaviour, which ScaledObject and LLMInferenceService share.

Field facts: keda.sh/v1alpha1 ScaledObject. Trigger metadata are strings. `cooldownPeriod` acts only on the drop to
zero; the way between floor and ceiling is the generated autoscaler's behaviour. Missing data counts as 0 unless
`ignoreNullValues` is "false", which makes it an error, and an error without a fallback leaves replicas as they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from inferplan.autoscaling.policy import AutoscalingPolicy, MissingMetricBehavior
from inferplan.autoscaling.rendering.behavior import KUBERNETES_OPTION, hpa_behavior
from inferplan.autoscaling.rendering.documents import Commented
from inferplan.autoscaling.rendering.losses import shown_missing
from inferplan.autoscaling.rendering.metrics import MetricDialect
from inferplan.autoscaling.rendering.options import ADDRESS, Option, ResolvedOptions, whole_number
from inferplan.autoscaling.rendering.replicas import ReplicaBounds, replica_bounds
from inferplan.autoscaling.rendering.request import RenderingLoss, RenderingRequest
from inferplan.autoscaling.rendering.signals import SIGNAL_OPTIONS, RenderedSignal, plain_number, rendered_signals

PROMETHEUS_ADDRESS_OPTION = Option(
    "prometheus_address",
    "http://prometheus-operated.monitoring.svc:9090",
    "address of the Prometheus that holds the metrics",
    ADDRESS,
)

KEDA_OPTIONS = (
    PROMETHEUS_ADDRESS_OPTION,
    Option("polling_interval_seconds", "15", "seconds between looks at the triggers", whole_number(1, 3600)),
    Option("failure_threshold", "4", "failed looks in a row before the fallback acts", whole_number(1, 1000)),
    KUBERNETES_OPTION,
    *SIGNAL_OPTIONS,
)


@dataclass(frozen=True, slots=True)
class KedaScaling:
    """What KEDA needs but for the object around it. `idle_zero`: zero without load, the floor with any."""

    floor: int
    most: int
    idle_zero: bool
    bounds: ReplicaBounds
    fields: dict[str, Any]
    losses: list[RenderingLoss]


def keda_scaling(
    request: RenderingRequest,
    options: ResolvedOptions,
    *,
    read_at: MetricDialect | None = None,
    labels: tuple[tuple[str, str], ...] = (),
    zero_refused_because: str = "",
) -> KedaScaling:
    """Bounds, polling, fallback, behaviour and triggers.

    `zero_refused_because` says why this target never goes to zero; empty where it may.
    """
    policy = request.policy
    bounds = replica_bounds(policy, can_run_ahead=True)
    signals, signal_losses = rendered_signals(
        request, options, ahead_replicas=bounds.ahead, read_at=read_at, labels=labels
    )
    floor, idle_zero, zero_losses = _zero(policy, bounds, signals, zero_refused_because)
    behavior, behavior_losses = hpa_behavior(policy, options.text("kubernetes_version"))
    fields: dict[str, Any] = {"pollingInterval": options.whole_number("polling_interval_seconds")}
    to_zero = idle_zero or floor == 0
    if to_zero:
        fields["cooldownPeriod"] = math.ceil(policy.scale_down.cooldown_seconds)
    fallback, fallback_losses = _fallback(policy, options, max(1, floor), signals)
    if fallback is not None:
        fields["fallback"] = fallback
    fields["advanced"] = {
        "restoreToOriginalReplicaCount": False,
        "horizontalPodAutoscalerConfig": {"behavior": behavior},
    }
    fields["triggers"] = [_trigger(signal, options, bounds.ahead, to_zero=to_zero) for signal in signals]
    losses = [*bounds.losses, *signal_losses, *zero_losses, *behavior_losses, *fallback_losses]
    if to_zero:
        losses += _engine_at_zero_losses(signals)
    return KedaScaling(floor, bounds.most, idle_zero, bounds, fields, losses)


def _zero(
    policy: AutoscalingPolicy, bounds: ReplicaBounds, signals: list[RenderedSignal], refused_because: str
) -> tuple[int, bool, list[RenderingLoss]]:
    """Floor, whether idle means zero, and the loss where nothing would wake the fleet again."""
    if not policy.allow_zero:
        return bounds.floor, False, []
    survives = any(signal.dialect.is_gateway and signal.is_average for signal in signals)
    if refused_because or not survives:
        floor = max(1, bounds.floor)
        why = refused_because or (
            "the engine's metrics vanish with the last replica, so that nothing would wake it again; a signal of the "
            "gateway would"
        )
        return floor, False, [RenderingLoss("allow_zero", f"{why}; at least {floor} stay")]
    return bounds.floor, bounds.floor > 0, []


def _fallback(
    policy: AutoscalingPolicy, options: ResolvedOptions, floor: int, signals: list[RenderedSignal]
) -> tuple[dict[str, Any] | None, list[RenderingLoss]]:
    """KEDA's fallback, which works on averages only: None where no trigger is one."""
    if not any(signal.is_average for signal in signals):
        return None, [
            RenderingLoss(
                "missing_metrics", f"{shown_missing(policy)}: KEDA has no fallback where no metric is an average"
            )
        ]
    behavior = {
        MissingMetricBehavior.HOLD: "currentReplicas",
        MissingMetricBehavior.HOLD_OR_RAISE: "currentReplicasIfHigher",
        MissingMetricBehavior.FIXED: "static",
    }[policy.missing_metrics]
    losses = []
    replicas = policy.missing_metrics_replicas
    if replicas is None:
        replicas = floor
        if policy.missing_metrics is not MissingMetricBehavior.HOLD:
            losses.append(
                RenderingLoss("missing_metrics_replicas", f"no number is stated; the floor of {floor} is rendered")
            )
    elif policy.missing_metrics is MissingMetricBehavior.HOLD:
        losses.append(RenderingLoss("missing_metrics_replicas", f"{replicas}: has no meaning while replicas are held"))
    losses += [
        RenderingLoss(
            "missing_metrics",
            f"KEDA applies no fallback to {signal.signal.kind.value}, since its metric is a Value; releases whose "
            "admission webhook refuses a fallback beside a Value need that trigger taken out",
        )
        for signal in signals
        if not signal.is_average
    ]
    threshold = options.whole_number("failure_threshold")
    return {"failureThreshold": threshold, "replicas": replicas, "behavior": behavior}, losses


def _engine_at_zero_losses(signals: list[RenderedSignal]) -> list[RenderingLoss]:
    return [
        RenderingLoss(
            "missing_metrics",
            f"missing {signal.signal.kind.value} of the engine counts as 0: with no replica there is none, and an "
            "error would start the fallback; the gateway's signals still do",
        )
        for signal in signals
        if not signal.dialect.is_gateway
    ]


def _trigger(signal: RenderedSignal, options: ResolvedOptions, ahead: int, *, to_zero: bool) -> dict[str, Any]:
    metadata = Commented(
        {
            "serverAddress": options.text("prometheus_address"),
            "query": signal.query,
            "threshold": signal.threshold,
            "ignoreNullValues": "true" if to_zero and not signal.dialect.is_gateway else "false",
        },
        {"threshold": signal.comment},
    )
    if to_zero:
        # Replicas ahead raise the query even without load, so that activation starts above them.
        metadata["activationThreshold"] = plain_number(ahead * signal.signal.target) if signal.is_average else "0"
    return {
        "type": "prometheus",
        "name": signal.signal.kind.value.replace("_", "-"),
        "metricType": "AverageValue" if signal.is_average else "Value",
        "metadata": metadata,
    }
