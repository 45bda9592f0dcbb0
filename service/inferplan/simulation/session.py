"""A fleet that is played piece by piece, so that replicas can come and go in between as a controller decides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inferplan.errors import CancelledError, InvalidInputError, Violation
from inferplan.simulation import layout
from inferplan.simulation.engine import Cancellation, EngineParameters, SimulationLimits
from inferplan.simulation.fleet import ROUTER_CODES, Router
from inferplan.simulation.kernel import play_window
from inferplan.simulation.outcome import SimulationOutcome
from inferplan.simulation.play import build_world, memory_violations, outcome_of
from inferplan.simulation.requests import Requests, fit_violations
from inferplan.simulation.step_time import StepTimeCoefficients


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """What a metrics scrape of one replica would show. `waiting` counts preempted sequences too."""

    waiting: int
    running: int
    kv_cache_ratio: float


class FleetSession:
    """`places` replicas at most; none serves until it is started. Time moves forward only.

    Raises InvalidInputError for requests without arrival times, or that a replica could never finish.
    """

    def __init__(
        self,
        coefficients: StepTimeCoefficients,
        engine: EngineParameters,
        requests: Requests,
        places: int,
        router: Router = Router.LEAST_OUTSTANDING,
        seed: int = 0,
        cancellation: Cancellation | None = None,
    ) -> None:
        violations = fit_violations(requests, engine) + memory_violations(requests, engine, places)
        if requests.arrival_seconds is None:
            violations.append(Violation("arrival_seconds", "must be set: a replay plays arrivals", "REQUIRED"))
        if violations:
            raise InvalidInputError(violations)
        settings: dict[str, int | float] = {
            "mode": layout.OPEN_LOOP,
            "router": ROUTER_CODES[router],
            "router_seed": seed,
            "last_chosen": places - 1,
        }
        self._requests, self._engine = requests, engine
        self._world = build_world(
            coefficients, engine, requests, places, settings, SimulationLimits(10**12), cancellation or Cancellation()
        )
        self._world.replicas["alive"] = 0
        self._next_request = 0

    def start(self, place: int, now_seconds: float) -> None:
        """The replica takes requests from now on."""
        self._world.replicas["alive"][place] = 1
        self._world.replicas["now"][place] = max(float(self._world.replicas["now"][place]), now_seconds)

    def drain(self, place: int) -> None:
        """The replica gets no more requests and finishes those that it has."""
        self._world.replicas["alive"][place] = 0

    def is_idle(self, place: int) -> bool:
        """Whether the replica has nothing left to do."""
        replica = self._world.replicas[place]
        return int(replica["running"]) + int(replica["queued"]) + int(replica["preempted"]) == 0

    def state(self, place: int) -> ReplicaState:
        """The replica at the end of the last window."""
        replica = self._world.replicas[place]
        blocks = self._engine.kv_blocks
        return ReplicaState(
            waiting=int(replica["queued"]) + int(replica["preempted"]),
            running=int(replica["running"]),
            kv_cache_ratio=(blocks - int(replica["free_blocks"])) / blocks,
        )

    def play_until(self, until_seconds: float) -> int:
        """Play on; returns how many requests arrived. At least one replica must serve. Raises CancelledError."""
        first = self._next_request
        last = int(np.searchsorted(self._world.arrivals, until_seconds, side="left"))
        status = play_window(self._world, first, last, until_seconds)
        if status == layout.CANCELLED:
            raise CancelledError("the replay was cancelled")
        self._next_request = last
        return last - first

    @property
    def requests_left(self) -> int:
        """Requests that have not arrived yet."""
        return self._requests.count - self._next_request

    def ttft_seconds_of_arrivals(self, from_seconds: float, to_seconds: float) -> npt.NDArray[np.float64]:
        """TTFT of the requests that arrived in a span and have their first token, without the front end's constant."""
        first, last = np.searchsorted(self._world.arrivals, (from_seconds, to_seconds))
        values = self._world.outcomes[first:last, layout.TTFT]
        found: npt.NDArray[np.float64] = values[~np.isnan(values)]
        return found

    def outcome(self) -> SimulationOutcome:
        """Every request's times so far."""
        return outcome_of(self._world, layout.ALL_PLAYED, self._engine, self._requests)
