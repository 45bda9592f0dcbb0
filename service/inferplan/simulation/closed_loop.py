"""One replica under a benchmark's load: clients that each wait for their answer, or batches one after another."""

from __future__ import annotations

import math

from inferplan.errors import InvalidInputError, Violation
from inferplan.simulation import layout
from inferplan.simulation.engine import Cancellation, EngineParameters, SimulationLimits
from inferplan.simulation.outcome import SimulationOutcome
from inferplan.simulation.play import play_world
from inferplan.simulation.requests import Requests, fit_violations
from inferplan.simulation.step_time import StepTimeCoefficients


def simulate_closed_loop(
    coefficients: StepTimeCoefficients,
    engine: EngineParameters,
    requests: Requests,
    concurrency: int,
    ramp_seconds: float = 0.0,
    client_seconds: float = 0.0,
    limits: SimulationLimits | None = None,
    cancellation: Cancellation | None = None,
) -> SimulationOutcome:
    """`concurrency` clients; each sends its next request when its last one is answered, until none is left.

    All clients start at once, or evenly spread over `ramp_seconds`. Requests are taken in order. `client_seconds` is
    what sending one takes: load tools are one process, so that clients that were answered by the same step do not come
    back in the same step.
    Raises InvalidInputError if requests have arrival times, could never be finished, or the load is not valid.
    """
    violations = _load_violations(requests, engine, concurrency, "concurrency")
    if not (math.isfinite(ramp_seconds) and ramp_seconds >= 0):
        violations.append(Violation("ramp_seconds", f"is {ramp_seconds}; must be finite and not negative"))
    if not (math.isfinite(client_seconds) and client_seconds >= 0):
        violations.append(Violation("client_seconds", f"is {client_seconds}; must be finite and not negative"))
    if violations:
        raise InvalidInputError(violations)
    settings = {
        "mode": layout.CLOSED_LOOP,
        "concurrency": concurrency,
        "ramp_seconds": ramp_seconds,
        "client_seconds": client_seconds,
    }
    return play_world(coefficients, engine, requests, 1, settings, limits, cancellation)


def simulate_static_batches(
    coefficients: StepTimeCoefficients,
    engine: EngineParameters,
    requests: Requests,
    batch_size: int,
    limits: SimulationLimits | None = None,
    cancellation: Cancellation | None = None,
) -> SimulationOutcome:
    """`batch_size` requests are sent together, and the next ones when all of them are answered, as old benchmarks did.

    Raises InvalidInputError as `simulate_closed_loop` does.
    """
    violations = _load_violations(requests, engine, batch_size, "batch_size")
    if violations:
        raise InvalidInputError(violations)
    settings: dict[str, int | float] = {"mode": layout.STATIC_BATCHES, "concurrency": batch_size}
    return play_world(coefficients, engine, requests, 1, settings, limits, cancellation)


def _load_violations(requests: Requests, engine: EngineParameters, clients: int, path: str) -> list[Violation]:
    violations = fit_violations(requests, engine)
    if requests.arrival_seconds is not None:
        violations.append(Violation("arrival_seconds", "must not be set: a request is sent when another is answered"))
    if not 1 <= clients < 2**31:
        violations.append(Violation(path, f"is {clients}; must be from 1 to {2**31 - 1}"))
    return violations
