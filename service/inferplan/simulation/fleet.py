"""Replicas behind a router, fed by requests that come whether or not the fleet keeps up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from inferplan.errors import InvalidInputError, Violation
from inferplan.simulation import layout
from inferplan.simulation.engine import Cancellation, EngineParameters, SimulationLimits
from inferplan.simulation.outcome import SimulationOutcome
from inferplan.simulation.play import memory_violations, play_world
from inferplan.simulation.requests import Requests, fit_violations
from inferplan.simulation.step_time import StepTimeCoefficients

MAXIMUM_REPLICAS = 10_000


class Router(StrEnum):
    """How a request finds its replica.

    LEAST_OUTSTANDING sends it to the replica with the fewest unanswered requests (among equals, the next in turn);
    RANDOM_OF_TWO draws two replicas and takes the one with fewer.
    """

    ROUND_ROBIN = "round_robin"
    LEAST_OUTSTANDING = "least_outstanding"
    RANDOM_OF_TWO = "random_of_two"


ROUTER_CODES = {
    Router.ROUND_ROBIN: layout.ROUND_ROBIN,
    Router.LEAST_OUTSTANDING: layout.LEAST_OUTSTANDING,
    Router.RANDOM_OF_TWO: layout.RANDOM_OF_TWO,
}


@dataclass(frozen=True, slots=True)
class Fleet:
    """Equal replicas behind a router.

    failure_seconds: when one replica goes down for good (0: from the start; None: never). A step that has begun is
    completed; requests that are not answered then start again on the others, with their clock running on.
    """

    replicas: int = 1
    router: Router = Router.LEAST_OUTSTANDING
    failure_seconds: float | None = None

    def __post_init__(self) -> None:
        violations = []
        if not 1 <= self.replicas <= MAXIMUM_REPLICAS:
            violations.append(Violation("replicas", f"is {self.replicas}; must be from 1 to {MAXIMUM_REPLICAS}"))
        if self.failure_seconds is not None:
            if not (math.isfinite(self.failure_seconds) and self.failure_seconds >= 0):
                violations.append(
                    Violation("failure_seconds", f"is {self.failure_seconds}; must be finite and not negative")
                )
            if self.replicas == 1:
                violations.append(Violation("replicas", "is 1; must be at least 2 where one of them fails"))
        if violations:
            raise InvalidInputError(violations)


def simulate_fleet(
    coefficients: StepTimeCoefficients,
    engine: EngineParameters,
    requests: Requests,
    fleet: Fleet,
    seed: int = 0,
    limits: SimulationLimits | None = None,
    cancellation: Cancellation | None = None,
) -> SimulationOutcome:
    """Play requests with given arrival times. `seed` is the router's (RANDOM_OF_TWO); 0 to 2^64 - 1.

    Raises InvalidInputError if requests have no arrival times or could never be finished by a replica. Never runs for
    ever: `limits` end it, and `outcome.ending` says so.
    """
    violations = fit_violations(requests, engine) + memory_violations(requests, engine, fleet.replicas)
    if requests.arrival_seconds is None:
        violations.append(Violation("arrival_seconds", "must be set in an open loop", "REQUIRED"))
    if not 0 <= seed < 2**64:
        violations.append(Violation("seed", f"is {seed}; must be from 0 to 2^64 - 1"))
    if violations:
        raise InvalidInputError(violations)
    settings: dict[str, int | float] = {
        "mode": layout.OPEN_LOOP,
        "router": ROUTER_CODES[fleet.router],
        "router_seed": seed,
    }
    if fleet.failure_seconds is not None:
        settings |= {"failing_replica": fleet.replicas - 1, "failure_seconds": fleet.failure_seconds}
    return play_world(coefficients, engine, requests, fleet.replicas, settings, limits, cancellation)
