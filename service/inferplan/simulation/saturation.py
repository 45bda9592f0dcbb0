"""Does a fleet keep up with its traffic, and if not, how fast does its queue grow?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inferplan.simulation.outcome import SimulationOutcome

BLOCKS = 10
STUDENT_99_ONE_SIDED = 2.821
"""One-sided 99 % point of Student's t for 9 degrees of freedom (Abramowitz and Stegun, table 26.10)."""
SMALLEST_GROWTH_SHARE = 0.01
"""Growth below 1 % of the arrival rate is not told from chance in any run that is worth its time."""
FEWEST_ARRIVALS = 100


@dataclass(frozen=True, slots=True)
class Saturation:
    """Verdict on an open loop.

    growth_requests_per_second: of the requests in the system (waiting or running), over the later half of the arrivals;
    waiting_growth_requests_per_second: of those that wait for their first step. completion_rate_per_second: in the same
    time. `saturated` is None where there are too few arrivals (100 in the later half) for a verdict.
    """

    saturated: bool | None
    growth_requests_per_second: float
    waiting_growth_requests_per_second: float
    arrival_rate_per_second: float
    completion_rate_per_second: float
    in_system_at_end: int


def assess_saturation(outcome: SimulationOutcome) -> Saturation | None:
    """Watch the number of requests in the system over the later half of the arrivals. None for closed loops.

    The half is cut into ten blocks. Under a load that the fleet carries, the number goes up and down, and the blocks'
    changes have mean zero; the verdict is saturated if their mean is above zero at 99 % confidence (Student's t; the
    changes of a random walk are independent, so that the test also holds near the edge) and at least 1 % of the arrival
    rate. The earlier half, in which an empty fleet fills up, is left out.
    """
    if not outcome.open_loop:
        return None
    arrivals = outcome.arrival_seconds
    end = min(float(arrivals[-1]), outcome.ended_seconds)
    edges = np.linspace((float(arrivals[0]) + end) / 2, end, BLOCKS + 1)
    duration = float(edges[-1] - edges[0])
    arrived = np.searchsorted(arrivals, edges, side="right")
    finished = _events_until(arrivals, outcome.end_to_end_seconds, edges)
    scheduled = _events_until(arrivals, outcome.queue_wait_seconds, edges)
    in_system = arrived - finished
    if duration <= 0 or arrived[-1] - arrived[0] < FEWEST_ARRIVALS:
        return Saturation(None, 0.0, 0.0, 0.0, 0.0, int(in_system[-1]))
    growth = float(in_system[-1] - in_system[0]) / duration
    arrival_rate = float(arrived[-1] - arrived[0]) / duration
    changes = np.diff(in_system).astype(np.float64)
    error = float(changes.std(ddof=1)) / math.sqrt(BLOCKS)
    beyond_chance = float(changes.mean()) > STUDENT_99_ONE_SIDED * error
    return Saturation(
        saturated=bool(beyond_chance and growth >= SMALLEST_GROWTH_SHARE * arrival_rate),
        growth_requests_per_second=growth,
        waiting_growth_requests_per_second=float(np.diff((arrived - scheduled)[[0, -1]])[0]) / duration,
        arrival_rate_per_second=arrival_rate,
        completion_rate_per_second=float(finished[-1] - finished[0]) / duration,
        in_system_at_end=int(in_system[-1]),
    )


def _events_until(
    arrivals: npt.NDArray[np.float64], after_seconds: npt.NDArray[np.float64], edges: npt.NDArray[np.float64]
) -> npt.NDArray[np.int64]:
    """How many requests have come to an event by each edge; NaN never did."""
    moments = arrivals + after_seconds
    return np.array([np.count_nonzero(moments <= edge) for edge in edges], dtype=np.int64)
