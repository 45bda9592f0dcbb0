"""What a simulation returns: every request's times, every replica's totals, and why it ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from inferplan.simulation.engine import EngineParameters
from inferplan.simulation.requests import Requests


class Ending(StrEnum):
    """Why a simulation ended."""

    COMPLETED = "completed"
    """Every request was finished."""
    CANCELLED = "cancelled"
    STEP_LIMIT = "step_limit"
    TIME_LIMIT = "time_limit"


@dataclass(frozen=True, slots=True)
class ReplicaTotals:
    """One replica's work over the whole run.

    ended_seconds: when its last step ended. busy_seconds: time in steps. kv_occupancy, slot_occupancy: means over
    busy time, 0 to 1; peak_kv_occupancy likewise. sequence_seconds, preempted_seconds: the number of running, and of
    preempted and not yet resumed, sequences integrated over time.
    """

    requests: int
    ended_seconds: float
    busy_seconds: float
    steps: int
    prefill_tokens: int
    decode_tokens: int
    preemptions: int
    kv_occupancy: float
    peak_kv_occupancy: float
    slot_occupancy: float
    sequence_seconds: float
    preempted_seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class SimulationOutcome:
    """The raw results of one run. `summarize()` turns them into percentiles and verdicts.

    arrival_seconds: absolute. queue_wait_seconds (until the first step that works on the request), ttft_seconds,
    end_to_end_seconds: after the arrival, as the engine sees them, without the front end's constant; NaN where the
    simulation ended before it came to that. gap_counts, gap_seconds: inter-token latencies (see `gaps`).
    """

    requests: Requests
    engine: EngineParameters
    ending: Ending
    open_loop: bool
    arrival_seconds: npt.NDArray[np.float64]
    queue_wait_seconds: npt.NDArray[np.float64]
    ttft_seconds: npt.NDArray[np.float64]
    end_to_end_seconds: npt.NDArray[np.float64]
    preemptions: npt.NDArray[np.int32]
    replica: npt.NDArray[np.int16]
    replicas: tuple[ReplicaTotals, ...]
    restarted_requests: int
    gap_counts: npt.NDArray[np.int64]
    gap_seconds: npt.NDArray[np.float64]

    @property
    def finished(self) -> npt.NDArray[np.bool_]:
        """Which requests got all their tokens."""
        return ~np.isnan(self.end_to_end_seconds)

    @property
    def steps(self) -> int:
        """Scheduler steps of all replicas."""
        return sum(replica.steps for replica in self.replicas)

    @property
    def ended_seconds(self) -> float:
        """When the last step of any replica ended."""
        return max(replica.ended_seconds for replica in self.replicas)
