"""HorizontalPodAutoscaler behaviour from the policy's rules; KEDA and KServe hand it on."""

from __future__ import annotations

import math
from typing import Any

from inferplan.autoscaling.policy import AutoscalingPolicy, ScalingRule
from inferplan.autoscaling.rendering.documents import Commented, formula
from inferplan.autoscaling.rendering.options import KUBERNETES_VERSION, Option, kubernetes_minor
from inferplan.autoscaling.rendering.request import RenderingLoss
from inferplan.autoscaling.rendering.signals import plain_number

MAXIMUM_WINDOW_SECONDS = 3600
MAXIMUM_PERIOD_SECONDS = 1800
"""Bounds of stabilizationWindowSeconds and periodSeconds, from the Kubernetes API's validation."""

TOLERANCE_SINCE_MINOR = 33
"""`tolerance` is alpha in Kubernetes 1.33; older API servers drop it."""

KUBERNETES_OPTION = Option(
    "kubernetes_version", "1.32", "version of the cluster; `tolerance` is rendered from 1.33 on", KUBERNETES_VERSION
)


def hpa_behavior(policy: AutoscalingPolicy, kubernetes_version: str) -> tuple[dict[str, Any], list[RenderingLoss]]:
    """`behavior`: sustain and the scale-down rest as windows, cooldowns as the period of a policy."""
    minor = kubernetes_minor(kubernetes_version)
    up, up_losses = _rules(policy, "scale_up", policy.scale_up, minor)
    down, down_losses = _rules(policy, "scale_down", policy.scale_down, minor)
    return {"scaleUp": up, "scaleDown": down}, [*up_losses, *down_losses]


def window_seconds(direction: str, rule: ScalingRule) -> tuple[int, list[RenderingLoss]]:
    """How long the signal must hold (stabilizationWindowSeconds); on the way down at least the cooldown."""
    wanted = rule.sustain_seconds or 0.0
    losses: list[RenderingLoss] = []
    if direction == "scale_down":
        wanted, losses = one_delay(direction, rule)
    window, window_losses = _bounded(f"{direction}.sustain", "window", wanted, 0, MAXIMUM_WINDOW_SECONDS)
    return window, [*losses, *window_losses]


def one_delay(direction: str, rule: ScalingRule) -> tuple[float, list[RenderingLoss]]:
    """The longer of sustain and cooldown in seconds, for a target with one time, and the loss of the shorter one."""
    sustain, cooldown = rule.sustain_seconds, rule.cooldown_seconds
    if sustain is None:
        return cooldown, []
    field, shorter = ("sustain", sustain) if sustain <= cooldown else ("cooldown", cooldown)
    longer = max(sustain, cooldown)
    text = f"{shorter:g} s: there is one time for sustain and cooldown; the longer, {longer:g} s, is rendered"
    return longer, [RenderingLoss(f"{direction}.{field}", text)] if shorter < longer else []


def _rules(
    policy: AutoscalingPolicy, direction: str, rule: ScalingRule, minor: int
) -> tuple[dict[str, Any], list[RenderingLoss]]:
    window, losses = window_seconds(direction, rule)
    rules: dict[str, Any] = {"stabilizationWindowSeconds": window}
    period, period_losses = _bounded(
        f"{direction}.cooldown", "period", rule.cooldown_seconds, 1, MAXIMUM_PERIOD_SECONDS
    )
    step = rule.maximum_step_replicas
    if rule.cooldown_seconds > 0 or step is not None:
        losses += period_losses
        kind, value = ("Pods", step) if step is not None else ("Percent", 100)
        limit = Commented(
            {"type": kind, "value": value, "periodSeconds": period},
            {"periodSeconds": formula(policy, f"{direction}.cooldown")},
        )
        rules["policies"] = [limit]
    if step is None and rule.cooldown_seconds > 0:
        losses.append(_no_rest(direction, rule))
    if rule.tolerance is not None and minor >= TOLERANCE_SINCE_MINOR:
        rules["tolerance"] = plain_number(rule.tolerance)
    elif rule.tolerance is not None:
        losses.append(
            RenderingLoss(
                f"{direction}.tolerance",
                f"{rule.tolerance:g}: Kubernetes 1.{minor} has no tolerance of one autoscaler (1.33 and later do: "
                "option kubernetes_version); the cluster's, usually 0.1, acts",
            )
        )
    return rules, losses


def _no_rest(direction: str, rule: ScalingRule) -> RenderingLoss:
    most = "at most a doubling" if direction == "scale_up" else "no limit but the floor"
    return RenderingLoss(
        f"{direction}.cooldown",
        f"{rule.cooldown_seconds:g} s: an autoscaler of Kubernetes does not rest after it acted, it bounds the change "
        f"within a period; without maximum_step_replicas that is {most} in any {rule.cooldown_seconds:g} s",
    )


def _bounded(field: str, what: str, seconds: float, least: int, most: int) -> tuple[int, list[RenderingLoss]]:
    whole = math.ceil(seconds)
    if whole <= most:
        return max(least, whole), []
    return most, [RenderingLoss(field, f"{seconds:g} s: a {what} may be {least} to {most} s; {most} s are rendered")]
