"""What the simulated engine is allowed to do, how long a simulation may go on, and how it is stopped."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inferplan.errors import InvalidInputError, Violation
from inferplan.simulation.layout import CONTROL_CANCEL, CONTROL_FINISHED, CONTROL_SIZE, CONTROL_STEPS_LEFT

LONGEST_SIMULATION_SECONDS = 10 * 365 * 86400.0
"""Ten years of simulated time: float64 still resolves 0.1 microseconds there, and nobody plans further ahead."""


# The kernel keeps memory for each slot and each possible size of a step; real engines stay far below.
_HIGHEST = {
    "maximum_sequences": 2**20,
    "maximum_batched_tokens": 2**24,
    "kv_blocks": 2**31 - 1,
    "block_tokens": 2**16,
}


@dataclass(frozen=True, slots=True)
class EngineParameters:
    """One replica's scheduler, in vLLM's terms.

    maximum_sequences: `max_num_seqs`, the slots.
    maximum_batched_tokens: `max_num_batched_tokens`, a step's token budget.
    kv_blocks: the KV cache's size in blocks of `block_tokens`.
    chunked_prefill: True plays vLLM v1 (decodes first, then chunks of prompts in the same step); False plays older
        engines (a step prefills whole prompts, or decodes; prefill first).
    shared_prefix: True if the tokens that the prefix cache serves lie in blocks that all sequences share, so that a
        sequence takes no blocks of its own for them (the caller leaves the shared blocks themselves out of
        `kv_blocks`). False, the cautious default: a hit saves computation, not memory.
    maximum_context_tokens: prompt + output may not exceed it; 0 for no limit beyond the KV cache.
    """

    maximum_sequences: int
    maximum_batched_tokens: int
    kv_blocks: int
    block_tokens: int = 16
    chunked_prefill: bool = True
    shared_prefix: bool = False
    maximum_context_tokens: int = 0

    def __post_init__(self) -> None:
        violations = [
            Violation(name, f"is {getattr(self, name)}; must be from 1 to {highest}")
            for name, highest in _HIGHEST.items()
            if not 1 <= getattr(self, name) <= highest
        ]
        if self.maximum_context_tokens < 0:
            violations.append(
                Violation("maximum_context_tokens", f"is {self.maximum_context_tokens}; must be 0 or more")
            )
        if self.maximum_batched_tokens < self.maximum_sequences:
            violations.append(
                Violation(
                    "maximum_batched_tokens",
                    f"is {self.maximum_batched_tokens}; must be at least maximum_sequences {self.maximum_sequences}, "
                    "since each running sequence takes one token of a step",
                )
            )
        if violations:
            raise InvalidInputError(violations)

    @property
    def kv_capacity_tokens(self) -> int:
        """Tokens that the KV cache holds."""
        return self.kv_blocks * self.block_tokens


@dataclass(frozen=True, slots=True)
class SimulationLimits:
    """Where a simulation ends even if requests are left: it then reports so instead of running for ever.

    maximum_steps: of all replicas together. maximum_seconds: of simulated time; no step starts after it.
    """

    maximum_steps: int = 10**9
    maximum_seconds: float = LONGEST_SIMULATION_SECONDS

    def __post_init__(self) -> None:
        violations = []
        if self.maximum_steps < 1:
            violations.append(Violation("maximum_steps", f"is {self.maximum_steps}; must be at least 1"))
        if not (math.isfinite(self.maximum_seconds) and 0 < self.maximum_seconds <= LONGEST_SIMULATION_SECONDS):
            violations.append(
                Violation(
                    "maximum_seconds",
                    f"is {self.maximum_seconds}; must be above 0 and at most {LONGEST_SIMULATION_SECONDS:.0f}",
                )
            )
        if violations:
            raise InvalidInputError(violations)


class Cancellation:
    """Stops a running simulation from another thread, and tells how far it is. One per simulation.

    The kernel looks at the flag every 1,024 steps: tens of microseconds of work, with 100 ms allowed.
    """

    def __init__(self) -> None:
        self._control = np.zeros(CONTROL_SIZE, dtype=np.int64)
        self._maximum_steps = 0

    def cancel(self) -> None:
        """Ask the simulation to stop. Safe from any thread, before or during the run."""
        self._control[CONTROL_CANCEL] = 1

    @property
    def cancelled(self) -> bool:
        """Whether somebody has asked for a stop."""
        return bool(self._control[CONTROL_CANCEL])

    @property
    def steps_played(self) -> int:
        """Scheduler steps so far, all replicas together."""
        return self._maximum_steps - int(self._control[CONTROL_STEPS_LEFT])

    @property
    def requests_finished(self) -> int:
        """Requests that have got their last token so far. A progress bar divides it by the number of requests."""
        return int(self._control[CONTROL_FINISHED])

    def arm(self, limits: SimulationLimits) -> npt.NDArray[np.int64]:
        """The control words for one run, with its step allowance set. The flag stays as it is."""
        self._maximum_steps = limits.maximum_steps
        self._control[CONTROL_STEPS_LEFT] = limits.maximum_steps
        self._control[CONTROL_FINISHED] = 0
        return self._control
