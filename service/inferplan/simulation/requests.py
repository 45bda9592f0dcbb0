"""The requests that a simulation plays, as arrays, and whether they can be played at all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inferplan.errors import InvalidInputError, Violation
from inferplan.simulation.engine import LONGEST_SIMULATION_SECONDS, EngineParameters

MAXIMUM_REQUESTS = 50_000_000
"""About 2.8 GB of arrays; six days at 100 requests a second."""
LONGEST_LENGTH_TOKENS = 10_000_000
"""The longest context that any model offers. The kernel keeps some memory for each token of the longest output."""
MAXIMUM_CLASSES = 64


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests in the order in which they are sent.

    arrival_seconds: rising, from 0 on; None for a closed loop or static batches: sent when another one ends.
    prompt_tokens, output_tokens: at least 1 each. cached_tokens: of the prompt, served by the prefix cache (cut at
    prompt - 1, since the last token is always computed). class_index: position in `class_names`.
    """

    arrival_seconds: npt.NDArray[np.float64] | None
    prompt_tokens: npt.NDArray[np.int32]
    output_tokens: npt.NDArray[np.int32]
    cached_tokens: npt.NDArray[np.int32]
    class_index: npt.NDArray[np.int32]
    class_names: tuple[str, ...] = ("",)

    @property
    def count(self) -> int:
        """Number of requests."""
        return int(self.prompt_tokens.size)

    def lengths(self) -> npt.NDArray[np.int32]:
        """Prompt, output, cached tokens and class as the kernel reads them: one row of 16 bytes a request."""
        lengths = np.empty((self.count, 4), dtype=np.int32)
        lengths[:, 0] = self.prompt_tokens
        lengths[:, 1] = self.output_tokens
        np.minimum(self.cached_tokens, self.prompt_tokens - 1, out=lengths[:, 2])
        lengths[:, 3] = self.class_index
        return lengths


def make_requests(
    prompt_tokens: npt.ArrayLike,
    output_tokens: npt.ArrayLike,
    arrival_seconds: npt.ArrayLike | None = None,
    cached_tokens: npt.ArrayLike = 0,
    class_index: npt.ArrayLike = 0,
    class_names: tuple[str, ...] = ("",),
) -> Requests:
    """Check and pack requests; single values stand for all of them.

    Raises InvalidInputError with every column that is wrong: no requests, or more than MAXIMUM_REQUESTS; lengths that
    are not whole, zero or negative; arrivals that are negative, not finite, fall, or lie more than ten years ahead.
    """
    violations: list[Violation] = []
    columns = {
        "prompt_tokens": _whole_numbers("prompt_tokens", prompt_tokens, 1, LONGEST_LENGTH_TOKENS, violations),
        "output_tokens": _whole_numbers("output_tokens", output_tokens, 1, LONGEST_LENGTH_TOKENS, violations),
        "cached_tokens": _whole_numbers("cached_tokens", cached_tokens, 0, LONGEST_LENGTH_TOKENS, violations),
        "class_index": _whole_numbers("class_index", class_index, 0, len(class_names) - 1, violations),
    }
    if not 1 <= len(class_names) <= MAXIMUM_CLASSES:
        violations.append(Violation("class_names", f"are {len(class_names)}; must be from 1 to {MAXIMUM_CLASSES}"))
    arrivals = None
    if arrival_seconds is not None:
        arrivals = np.ascontiguousarray(arrival_seconds, dtype=np.float64)
        violations += arrival_violations(arrivals)
    sizes = {name: column.size for name, column in columns.items() if column.ndim == 1}
    if arrivals is not None:
        sizes["arrival_seconds"] = arrivals.size
    count = max(sizes.values(), default=1)
    violations += [
        Violation(name, f"holds {size} values; must hold {count}, as many as the others, or a single number")
        for name, size in sizes.items()
        if size != count
    ]
    if not violations and not 1 <= count <= MAXIMUM_REQUESTS:
        violations.append(Violation("requests", f"are {count}; must be from 1 to {MAXIMUM_REQUESTS}"))
    if violations:
        raise InvalidInputError(violations)
    full = {name: np.broadcast_to(column.astype(np.int32, copy=False), (count,)) for name, column in columns.items()}
    return Requests(arrival_seconds=arrivals, class_names=class_names, **full)


def _whole_numbers(
    name: str, values: npt.ArrayLike, lowest: int, highest: int, violations: list[Violation]
) -> npt.NDArray[np.generic]:
    column = np.asarray(values)
    if column.ndim > 1 or column.dtype.kind not in "iuf":
        violations.append(Violation(name, "must be whole numbers in one dimension"))
        return np.zeros(0, dtype=np.int32)
    if column.dtype.kind == "f" and not np.all(np.isfinite(column) & (column == np.floor(column))):
        violations.append(Violation(name, "must be whole numbers"))
    elif column.size and (column.min() < lowest or column.max() > highest):
        worst = column.min() if column.min() < lowest else column.max()
        violations.append(Violation(name, f"holds {worst}; must be from {lowest} to {highest}"))
    return column


def arrival_violations(arrivals: npt.NDArray[np.float64], path: str = "arrival_seconds") -> list[Violation]:
    """What is wrong with a list of arrival times."""
    if arrivals.ndim != 1 or arrivals.size == 0:
        return [Violation(path, "must not be empty", "REQUIRED")]
    if not np.all(np.isfinite(arrivals)):
        return [Violation(path, "must be finite")]
    violations = []
    if arrivals.min() < 0:
        violations.append(Violation(path, f"holds {arrivals.min():g} s; must not be negative"))
    falling = np.flatnonzero(np.diff(arrivals) < 0)
    if falling.size:
        index = int(falling[0]) + 1
        violations.append(
            Violation(f"{path}[{index}]", f"is {arrivals[index]:g} s, earlier than the one before; must rise")
        )
    if arrivals.max() > LONGEST_SIMULATION_SECONDS:
        violations.append(
            Violation(
                path, f"reach {arrivals.max():g} s; must end within {LONGEST_SIMULATION_SECONDS:.0f} s (ten years)"
            )
        )
    return violations


def fit_violations(requests: Requests, engine: EngineParameters) -> list[Violation]:
    """Requests that one replica could never finish, each as one violation for the largest of its kind."""
    violations = []
    context = requests.prompt_tokens.astype(np.int64) + requests.output_tokens
    longest = int(context.argmax())
    if engine.maximum_context_tokens and context[longest] > engine.maximum_context_tokens:
        violations.append(
            Violation(
                f"prompt_tokens[{longest}]",
                f"prompt {requests.prompt_tokens[longest]} + output {requests.output_tokens[longest]} tokens exceed "
                f"the context; together at most {engine.maximum_context_tokens}",
            )
        )
    shared = np.zeros(1, dtype=np.int64)
    if engine.shared_prefix:
        cached = np.minimum(requests.cached_tokens, requests.prompt_tokens - 1)
        shared = cached.astype(np.int64) // engine.block_tokens
    # The last output token is never fed back, so its KV is never stored.
    blocks = -(-(context - 1) // engine.block_tokens) - shared
    largest = int(blocks.argmax())
    if blocks[largest] > engine.kv_blocks:
        violations.append(
            Violation(
                f"prompt_tokens[{largest}]",
                f"prompt {requests.prompt_tokens[largest]} + output {requests.output_tokens[largest]} tokens need "
                f"{blocks[largest]} KV blocks; the cache has {engine.kv_blocks} ({engine.kv_capacity_tokens} tokens)",
            )
        )
    return violations
