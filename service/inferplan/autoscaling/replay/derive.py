"""A policy for a load whose course is known: floor, warm count and maximum from the forecast, thresholds by search."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from inferplan.autoscaling.policy import AutoscalingPolicy, AutoscalingSignal, PolicyDerivation, SignalKind
from inferplan.autoscaling.replay.replay import DEFAULT_COLD_START_SECONDS
from inferplan.autoscaling.replay.report import ReplayReport
from inferplan.autoscaling.replay.traces import INTERVAL_SECONDS, LoadTrace

SMOOTHING_SECONDS = 600.0
"""Recorded arrivals are averaged over ten minutes, so that Poisson noise is not taken for growth."""

RUNNING_RATIOS = (1.2, 1.0, 0.85, 0.7, 0.55)
"""Factors on the running target that the search tries, from cheap to safe."""
FEWER_WARM, MORE_WARM = 1, 2
"""How far from the derived warm count the search goes."""
MOST_POLICIES = (FEWER_WARM + 1 + MORE_WARM) * len(RUNNING_RATIOS)


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a trace says beforehand: lowest and highest rate, and the steepest growth of it, in requests a second."""

    trough_per_second: float
    peak_per_second: float
    growth_per_second_squared: float


def forecast_of(trace: LoadTrace) -> Forecast:
    """The trace's own course. A sudden step grows over one interval."""
    rates = trace.course_per_second(SMOOTHING_SECONDS)
    interval = INTERVAL_SECONDS if trace.minute_rates_per_second is not None else SMOOTHING_SECONDS
    growth = float(np.diff(rates).max()) / interval if rates.size > 1 else 0.0
    return Forecast(float(rates.min()), float(rates.max()), max(0.0, growth))


def policy_for(
    policy: AutoscalingPolicy,
    forecast: Forecast,
    capacity_per_second: float,
    spares: int,
    allowed_replicas: int | None = None,
) -> AutoscalingPolicy:
    """The policy with floor, warm count and maximum from the forecast; each with its formula.

    `capacity_per_second` is what one replica carries within the objectives, `spares` the failures to survive,
    `allowed_replicas` what quota and budget allow.
    """
    cold_start = policy.cold_start.total_seconds if policy.cold_start else DEFAULT_COLD_START_SECONDS
    floor = max(1, math.ceil(forecast.trough_per_second / capacity_per_second))
    growth = math.ceil(forecast.growth_per_second_squared * cold_start / capacity_per_second - 1e-9)
    warm = max(spares, growth)
    needed = max(floor, math.ceil(forecast.peak_per_second / capacity_per_second)) + warm
    # Without quota and budget a plan's maximum is a guess from its peak; the forecast knows better.
    most = needed if allowed_replicas is None else max(floor, min(needed, allowed_replicas))
    warm = min(warm, most - floor)
    limit = "" if most == needed else f", of which quota and budget allow {most}"
    replaced = {
        "minimum_replicas": f"ceil({forecast.trough_per_second:.1f} requests/s at the trough / "
        f"{capacity_per_second:.2f} of a replica) = {floor}",
        "warm_replicas": f"max(failures to survive {spares}, ceil(growth {forecast.growth_per_second_squared:.3g} "
        f"requests/s a second x cold start {cold_start:g} s / {capacity_per_second:.2f})) = {warm}",
        "maximum_replicas": f"ceil({forecast.peak_per_second:.1f} requests/s at the peak / "
        f"{capacity_per_second:.2f}) + {warm} warm = {needed}{limit}",
    }
    kept = tuple(item for item in policy.derivations if item.field not in replaced)
    return dataclasses.replace(
        policy,
        minimum_replicas=floor,
        warm_replicas=warm,
        maximum_replicas=most,
        derivations=(*kept, *(PolicyDerivation(name, formula) for name, formula in replaced.items())),
    )


@dataclass(frozen=True, slots=True)
class Suggestion:
    """The cheapest policy of a search that holds the objectives; `policies_played` counts those that were tried."""

    policy: AutoscalingPolicy
    report: ReplayReport
    policies_played: int


def suggest(
    policy: AutoscalingPolicy,
    play: Callable[[AutoscalingPolicy], ReplayReport],
    known: ReplayReport,
    maximum_sequences: int,
) -> Suggestion | None:
    """Search warm counts and running targets for the least GPU-hours that hold; None if none of them holds.

    It is a search: `policy`, whose report is `known`, and others around it are played, and the cheapest that holds is
    kept. For one warm count, a lower target only starts replicas sooner, so that the first that holds is its cheapest.
    """
    best = Suggestion(policy, known, 1) if known.holds else None
    played = 1
    for extra in range(-FEWER_WARM, MORE_WARM + 1):
        for ratio in RUNNING_RATIOS:
            candidate = _candidate(policy, extra, ratio, maximum_sequences)
            if candidate is None:
                continue
            report = known
            if candidate != policy:
                report = play(candidate)
                played += 1
            if report.holds:
                if best is None or report.gpu_hours < best.report.gpu_hours:
                    best = Suggestion(candidate, report, played)
                break
    return dataclasses.replace(best, policies_played=played) if best is not None else None


def _candidate(
    policy: AutoscalingPolicy, extra_warm: int, ratio: float, maximum_sequences: int
) -> AutoscalingPolicy | None:
    """The policy with more or fewer warm replicas and another running target; None where that is no policy."""
    warm = policy.warm_replicas + extra_warm
    if warm < 0 or policy.minimum_replicas + warm > policy.maximum_replicas:
        return None
    signals = tuple(_scaled(signal, ratio) for signal in policy.signals)
    if any(signal.kind is SignalKind.RUNNING and signal.target > maximum_sequences for signal in signals):
        return None
    if (extra_warm, ratio) == (0, 1.0):
        return policy
    changed = [PolicyDerivation("warm_replicas", f"{policy.warm_replicas} {extra_warm:+d}, by search on the trace")]
    changed += [
        PolicyDerivation(f"signals[{index}].target", f"{before.target:.1f} x {ratio:g}, by search on the trace")
        for index, (before, after) in enumerate(zip(policy.signals, signals, strict=True))
        if before != after
    ]
    fields = {derivation.field for derivation in changed}
    kept = [derivation for derivation in policy.derivations if derivation.field not in fields]
    return dataclasses.replace(policy, warm_replicas=warm, signals=signals, derivations=(*kept, *changed))


def _scaled(signal: AutoscalingSignal, ratio: float) -> AutoscalingSignal:
    if signal.kind not in (SignalKind.RUNNING, SignalKind.ONGOING):
        return signal
    return dataclasses.replace(signal, target=max(1.0, signal.target * ratio))
