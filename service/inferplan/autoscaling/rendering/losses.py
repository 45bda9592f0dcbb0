"""Losses of values that a target has no place for, one for each value that the policy states."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields

from inferplan.autoscaling.policy import (
    AutoscalingPolicy,
    AutoscalingSignal,
    MissingMetricBehavior,
    ScalingRule,
    SignalKind,
)
from inferplan.autoscaling.rendering.request import RenderingLoss

_ALWAYS_RENDERED = ("derivations", "cold_start", "missing_metrics_replicas")
"""In the header comment, or told together with another field."""


def policy_losses(policy: AutoscalingPolicy, expressed: Collection[str], reason: str) -> list[RenderingLoss]:
    """A loss for every field of the policy that states something and is not among `expressed`."""
    losses = []
    for item in fields(policy):
        if item.name in _ALWAYS_RENDERED or item.name in expressed:
            continue
        shown = _shown(policy, item.name)
        if shown:
            losses.append(RenderingLoss(item.name, f"{shown}: {reason}"))
    return losses


def rule_losses(policy: AutoscalingPolicy, expressed: Collection[str], reason: str) -> list[RenderingLoss]:
    """A loss for every part of the two scaling rules that is stated and not among `expressed` (`scale_up.cooldown`)."""
    losses = []
    for direction in ("scale_up", "scale_down"):
        for name, shown in _rule_parts(getattr(policy, direction)).items():
            if f"{direction}.{name}" not in expressed:
                losses.append(RenderingLoss(f"{direction}.{name}", f"{shown}: {reason}"))
    return losses


def drain_losses(policy: AutoscalingPolicy, expressed: Collection[str] = ()) -> list[RenderingLoss]:
    """A loss for each stated time of the stop sequence, which autoscalers do not hold."""
    return [
        RenderingLoss(name, f"{seconds:g} s belong to the pods and not to this object; render `drain` beside it")
        for name, seconds in (("pre_stop_seconds", policy.pre_stop_seconds), ("drain_seconds", policy.drain_seconds))
        if seconds is not None and name not in expressed
    ]


def concurrency_loss(policy: AutoscalingPolicy) -> list[RenderingLoss]:
    """The loss of the limit on requests that one replica may hold."""
    most = policy.maximum_concurrency_per_replica
    if most is None:
        return []
    return [
        RenderingLoss(
            "maximum_concurrency_per_replica",
            f"{most} requests: this object limits no requests; set it at the gateway",
        )
    ]


def _shown(policy: AutoscalingPolicy, name: str) -> str:
    value = getattr(policy, name)
    if name == "signals":
        return ", ".join(shown_signal(signal) for signal in policy.signals)
    if isinstance(value, ScalingRule):
        return ", ".join(f"{part} {shown}" for part, shown in _rule_parts(value).items())
    if name == "missing_metrics":
        return shown_missing(policy)
    if name == "warm_kind":
        return value.value if policy.warm_replicas else ""
    return _shown_scalar(name, value)


def _shown_scalar(name: str, value: float | bool | None) -> str:
    if value is None or value is False or (name == "warm_replicas" and value == 0):
        return ""
    if value is True:
        return "allowed"
    return f"{value:g} s" if name.endswith("_seconds") else str(value)


def shown_missing(policy: AutoscalingPolicy) -> str:
    """The behaviour when metrics are missing, in words."""
    if policy.missing_metrics is MissingMetricBehavior.HOLD:
        unused = "" if policy.missing_metrics_replicas is None else f" ({policy.missing_metrics_replicas} is not used)"
        return f"hold the number of replicas{unused}"
    number = policy.missing_metrics_replicas
    fixed = "the fixed number (none is stated)" if number is None else f"{number} replicas"
    return f"run {fixed}" if policy.missing_metrics is MissingMetricBehavior.FIXED else f"hold, or raise to {fixed}"


def shown_signal(signal: AutoscalingSignal) -> str:
    """A signal in words."""
    unit = {
        SignalKind.TTFT_P95: " s",
        SignalKind.KV_CACHE_RATIO: "",
        SignalKind.QUEUED_TOKENS: " tokens",
    }.get(signal.kind, " requests")
    share = "a replica" if signal.per_replica else "of the fleet"
    return f"{signal.kind.value} {signal.target:g}{unit} {share} ({signal.origin.value})"


def _rule_parts(rule: ScalingRule) -> dict[str, str]:
    parts = {"cooldown": f"{rule.cooldown_seconds:g} s"}
    if rule.sustain_seconds is not None:
        parts["sustain"] = f"{rule.sustain_seconds:g} s"
    if rule.maximum_step_replicas is not None:
        parts["maximum_step_replicas"] = str(rule.maximum_step_replicas)
    if rule.tolerance is not None:
        parts["tolerance"] = f"{rule.tolerance:g}"
    return parts
