"""The step that a replica settles into under a steady load: mean values, for a first guess and for explanations.

What is promised never rests on this: percentiles come from simulation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inferplan.simulation.engine import EngineParameters
from inferplan.simulation.step_time import StepTimeCoefficients, step_seconds
from inferplan.sizing.bounds import RequestWork, share_of_class, value_at
from inferplan.sizing.workload import LatencyMetric, Objective

_ROUNDS = 200
_SETTLED = 1e-4


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """Means over steps. `decode_sequences` run at once, each with `context_tokens` of context on average."""

    step_seconds: float
    decode_sequences: float
    prefill_tokens: float
    context_tokens: float
    windowed_context_tokens: float
    prefill_pairs: float
    windowed_prefill_pairs: float


def operating_point(
    coefficients: StepTimeCoefficients, engine: EngineParameters, work: RequestWork, requests_per_second: float
) -> OperatingPoint | None:
    """Where the step's time and what gathers in that time agree; None if the load is more than the replica carries.

    In a step of T seconds, requests_per_second x T prompts arrive and are prefilled, and as many decode steps of each
    kind are owed: so many sequences decode at once (Little's law). The fixed point is reached from below.
    """
    array = coefficients.as_array()
    decode_steps = max(1e-9, float(np.mean(work.decode_steps)))
    context = float(np.mean(work.context_token_steps)) / decode_steps
    windowed_context = float(np.mean(work.windowed_context_token_steps)) / decode_steps
    computed = float(np.mean(work.computed_tokens))
    pairs, windowed_pairs = float(np.mean(work.prefill_pairs)), float(np.mean(work.windowed_prefill_pairs))
    step = 0.0
    for _ in range(_ROUNDS):
        gathered = requests_per_second * step
        sequences = gathered * decode_steps
        if sequences > engine.maximum_sequences or sequences * context > engine.kv_capacity_tokens:
            return None
        if gathered * computed + sequences > engine.maximum_batched_tokens:
            return None
        point = OperatingPoint(
            step_seconds=step,
            decode_sequences=sequences,
            prefill_tokens=gathered * computed,
            context_tokens=context,
            windowed_context_tokens=windowed_context,
            prefill_pairs=gathered * pairs,
            windowed_prefill_pairs=gathered * windowed_pairs,
        )
        found = _step_seconds(array, point)
        if found - step <= _SETTLED * found:
            return point
        step = found
    return None


def _step_seconds(array: npt.NDArray[np.float64], point: OperatingPoint) -> float:
    """A step is never shorter than one of a single token: an idle replica waits, and then takes that long."""
    tokens = max(1, round(point.decode_sequences + point.prefill_tokens))
    return float(
        step_seconds(
            array,
            tokens,
            max(1, round(point.decode_sequences)),
            round(max(1.0, point.decode_sequences) * point.context_tokens),
            round(max(1.0, point.decode_sequences) * point.windowed_context_tokens),
            point.prefill_pairs,
            point.windowed_prefill_pairs,
        )
    )


def meets_on_average(
    point: OperatingPoint, objectives: tuple[Objective, ...], front_end_seconds: float, work: RequestWork
) -> bool:
    """Whether steps of this length leave room for the objectives on TPOT and end-to-end latency."""
    for objective in objectives:
        if objective.metric is LatencyMetric.TPOT and point.step_seconds > objective.maximum_seconds:
            return False
        if objective.metric is LatencyMetric.END_TO_END:
            mine = share_of_class(work, objective.traffic_class_id)
            steps = 1.0 + value_at(work.decode_steps[mine], objective.percentile)
            if front_end_seconds + steps * point.step_seconds > objective.maximum_seconds:
                return False
    return True
