"""Playing a measured case under candidate coefficients."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from inferplan.profiles.calibration.cases import SEED, MeasuredCase
from inferplan.simulation import (
    Fleet,
    Router,
    SimulationOutcome,
    StepTimeCoefficients,
    simulate_closed_loop,
    simulate_fleet,
    simulate_static_batches,
)
from inferplan.sizing.efficiency import EfficiencyCoefficients
from inferplan.sizing.replica import ReplicaModel, replica_model

CLIENT_SECONDS = 1e-3
"""Load tools are one process: it takes about this long to send the next request of each client that was answered. So
clients that were answered in the same step do not come back in the same step, as they would if sending took no time."""

WARM_UP_SHARE = 0.1
"""Of an open loop's requests, the first meet an empty engine and are left out."""


def step_coefficients(case: MeasuredCase, efficiency: EfficiencyCoefficients) -> StepTimeCoefficients:
    """The numbers that a step's time depends on."""
    return _model(case, efficiency).coefficients


def play_case(case: MeasuredCase, efficiency: EfficiencyCoefficients) -> dict[str, float]:
    """Mean ttft, tpot, e2e in seconds and throughput in requests a second, as the harness would have measured them."""
    replica = _model(case, efficiency)
    if case.is_static_batch:
        outcome = simulate_static_batches(replica.coefficients, replica.engine, case.requests, case.clients)
    elif case.clients:
        outcome = simulate_closed_loop(
            replica.coefficients,
            replica.engine,
            case.requests,
            case.clients,
            ramp_seconds=CLIENT_SECONDS * case.clients,
            client_seconds=CLIENT_SECONDS,
        )
    else:
        outcome = simulate_fleet(
            replica.coefficients, replica.engine, case.requests, Fleet(1, Router.ROUND_ROBIN), seed=SEED
        )
    return _figures(case, outcome, efficiency.front_end_seconds)


def _model(case: MeasuredCase, efficiency: EfficiencyCoefficients) -> ReplicaModel:
    return replica_model(case.served, case.accelerator, case.release, case.memory, efficiency, case.mean_context_tokens)


def _figures(case: MeasuredCase, outcome: SimulationOutcome, front_end_seconds: float) -> dict[str, float]:
    first = 0 if case.clients else int(case.requests.count * WARM_UP_SHARE)
    ttft = outcome.ttft_seconds[first:] + front_end_seconds
    end_to_end = outcome.end_to_end_seconds[first:] + front_end_seconds
    gaps = outcome.requests.output_tokens[first:] - 1
    decode = (end_to_end - ttft)[gaps > 0] / gaps[gaps > 0]
    figures = {"ttft": _mean(ttft), "e2e": _mean(end_to_end)}
    if decode.size:
        figures["tpot"] = _mean(decode)
    if case.clients:
        figures["throughput"] = case.requests.count / (outcome.ended_seconds + front_end_seconds)
    return figures


def _mean(values: npt.NDArray[np.float64]) -> float:
    return float(values.mean())
