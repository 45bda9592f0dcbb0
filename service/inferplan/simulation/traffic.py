"""Traffic of one or several classes, turned into requests by a seed.

Each class draws from streams of its own: numpy's PCG64 seeded by SeedSequence(seed, spawn_key=(class, purpose)), where
purpose is 0 for arrivals, 1 for prompt lengths, 2 for output lengths, 3 for prefix-cache hits; spawn_key (0, 4) says
which class a closed loop's next request is of. A change of one class or purpose leaves all other draws as they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inferplan.errors import InvalidInputError, Violation
from inferplan.simulation.arrivals import ArrivalProcess
from inferplan.simulation.lengths import PairDistribution
from inferplan.simulation.requests import MAXIMUM_CLASSES, MAXIMUM_REQUESTS, Requests, make_requests

ARRIVALS, PROMPTS, OUTPUTS, HITS, CLASSES = range(5)


@dataclass(frozen=True, slots=True)
class PrefixHits:
    """What the prefix cache serves: with `probability`, `tokens` plus `fraction` of the prompt (cut at prompt - 1)."""

    probability: float = 1.0
    tokens: int = 0
    fraction: float = 0.0

    def __post_init__(self) -> None:
        violations = [
            Violation(name, f"is {value}; must be from 0 to 1")
            for name, value in (("probability", self.probability), ("fraction", self.fraction))
            if not 0 <= value <= 1
        ]
        if self.tokens < 0:
            violations.append(Violation("tokens", f"is {self.tokens}; must be 0 or more"))
        if violations:
            raise InvalidInputError(violations)


NO_HITS = PrefixHits(probability=0.0)


@dataclass(frozen=True, slots=True)
class TrafficClass:
    """Requests of one kind.

    arrivals: needed in an open loop. share: of a closed loop's requests, relative to the other classes' shares.
    """

    lengths: PairDistribution
    arrivals: ArrivalProcess | None = None
    name: str = ""
    prefix_hits: PrefixHits = NO_HITS
    share: float = 1.0


def draw_requests(
    classes: Sequence[TrafficClass],
    seed: int,
    request_count: int | None = None,
    duration_seconds: float | None = None,
) -> Requests:
    """Requests of an open loop: `request_count` of them (of several classes: about as many), or those of a duration.

    Raises InvalidInputError unless exactly one of the two is set and valid, each class has arrivals, and names differ.
    """
    violations = _class_violations(classes, seed)
    violations += [
        Violation(f"classes[{index}].arrivals", "must be set in an open loop", "REQUIRED")
        for index, traffic in enumerate(classes)
        if traffic.arrivals is None
    ]
    if (request_count is None) == (duration_seconds is None):
        violations.append(Violation("request_count", "set exactly one of request_count and duration_seconds"))
    if request_count is not None:
        violations += _count_violations(request_count)
    if duration_seconds is not None and not (math.isfinite(duration_seconds) and duration_seconds > 0):
        violations.append(Violation("duration_seconds", f"is {duration_seconds}; must be finite and above 0"))
    if violations:
        raise InvalidInputError(violations)
    arrivals = [_arrivals_of(classes, index, seed, request_count, duration_seconds) for index in range(len(classes))]
    counts = [times.size for times in arrivals]
    if sum(counts) == 0:
        raise InvalidInputError.single("duration_seconds", "is too short for a single arrival at these rates")
    if len(classes) == 1:
        return _with_lengths(classes, seed, arrivals[0], [np.s_[:]], counts)
    merged = np.concatenate(arrivals)
    order = np.argsort(merged, kind="stable")
    positions = np.empty_like(order)
    positions[order] = np.arange(order.size)
    places = np.split(positions, np.cumsum(counts)[:-1])
    return _with_lengths(classes, seed, merged[order], list(places), counts)


def draw_closed_loop_requests(classes: Sequence[TrafficClass], seed: int, request_count: int) -> Requests:
    """Requests without arrival times, for a closed loop or static batches; classes mixed at random by their shares."""
    violations = _class_violations(classes, seed) + _count_violations(request_count)
    violations += [
        Violation(f"classes[{index}].share", f"is {traffic.share}; must be finite and above 0")
        for index, traffic in enumerate(classes)
        if not (math.isfinite(traffic.share) and traffic.share > 0)
    ]
    if violations:
        raise InvalidInputError(violations)
    if len(classes) == 1:
        return _with_lengths(classes, seed, None, [np.s_[:]], [request_count])
    shares = np.array([traffic.share for traffic in classes])
    labels = _stream(seed, 0, CLASSES).choice(len(classes), request_count, p=shares / shares.sum())
    places = [np.flatnonzero(labels == index) for index in range(len(classes))]
    return _with_lengths(classes, seed, None, list(places), [place.size for place in places])


def _stream(seed: int, class_index: int, purpose: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(class_index, purpose))))


def _class_violations(classes: Sequence[TrafficClass], seed: int) -> list[Violation]:
    violations = []
    if not 1 <= len(classes) <= MAXIMUM_CLASSES:
        violations.append(Violation("classes", f"are {len(classes)}; must be from 1 to {MAXIMUM_CLASSES}", "REQUIRED"))
    if len({traffic.name for traffic in classes}) < len(classes):
        violations.append(Violation("classes", "must have different names"))
    if not 0 <= seed < 2**64:
        violations.append(Violation("seed", f"is {seed}; must be from 0 to 2^64 - 1"))
    return violations


def _count_violations(request_count: int) -> list[Violation]:
    if 1 <= request_count <= MAXIMUM_REQUESTS:
        return []
    return [Violation("request_count", f"is {request_count}; must be from 1 to {MAXIMUM_REQUESTS}")]


def _arrivals_of(
    classes: Sequence[TrafficClass], index: int, seed: int, request_count: int | None, duration_seconds: float | None
) -> npt.NDArray[np.float64]:
    processes = [traffic.arrivals for traffic in classes if traffic.arrivals is not None]
    generator = _stream(seed, index, ARRIVALS)
    if duration_seconds is not None:
        return processes[index].until(duration_seconds, generator)
    assert request_count is not None, "checked by draw_requests"
    if len(processes) == 1:
        return processes[0].first(request_count, generator)
    # All classes end at the same moment; scaling all rates together leaves every class's count as it is.
    duration_seconds = request_count / sum(process.mean_rate_per_second for process in processes)
    return processes[index].until(duration_seconds, generator)


def _with_lengths(
    classes: Sequence[TrafficClass],
    seed: int,
    arrivals: npt.NDArray[np.float64] | None,
    places: Sequence[slice | npt.NDArray[np.int64]],
    counts: Sequence[int],
) -> Requests:
    """Draw each class's lengths and put them where its requests stand among all."""
    total = sum(counts)
    prompts, outputs, cached, labels = (np.zeros(total, dtype=np.int32) for _ in range(4))
    for index, traffic in enumerate(classes):
        place, count = places[index], counts[index]
        prompt_tokens, output_tokens = traffic.lengths.sample(
            count, _stream(seed, index, PROMPTS), _stream(seed, index, OUTPUTS)
        )
        prompts[place], outputs[place], labels[place] = prompt_tokens, output_tokens, index
        if traffic.prefix_hits.probability > 0:
            cached[place] = _hits(traffic.prefix_hits, prompt_tokens, _stream(seed, index, HITS))
    names = tuple(traffic.name for traffic in classes)
    return make_requests(prompts, outputs, arrivals, cached, labels, names)


def _hits(
    hits: PrefixHits, prompt_tokens: npt.NDArray[np.int32], generator: np.random.Generator
) -> npt.NDArray[np.int64]:
    served: npt.NDArray[np.int64] = np.minimum(
        hits.tokens + np.floor(hits.fraction * prompt_tokens).astype(np.int64), prompt_tokens - 1
    )
    if hits.probability < 1:
        served[generator.random(prompt_tokens.size) >= hits.probability] = 0
    return served
