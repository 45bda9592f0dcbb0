"""Sanity rules: what no measurement can be. A point that breaks one is kept, with the rule and the figures, and unused.

docs/profiles.md lists the rules.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator

from inferplan.catalog import Catalog
from inferplan.profiles.calibration.cases import (
    UnplayableError,
    measured_figures,
    memory_question,
    playable_memory,
)
from inferplan.profiles.physical_limits import faster_than_memory
from inferplan.profiles.profile import BrokenSanityRule, Profile, ProfileProvenance, ServingPoint
from inferplan.sizing.workload import LatencyMetric

TOLERANCE = 0.10
"""Means of rounded figures, and tools that leave warm-up out of some of them, differ by a few per cent."""

LEAST_BUSY_SHARE = 0.5
"""A closed loop runs empty at its end and fills up at its start; below half of its clients on average it was no closed
loop of that many."""


def checked_profile(profile: Profile, catalog: Catalog) -> Profile:
    """The profile with what each serving point breaks. What a reader found wrong itself stays."""
    points = tuple(
        dataclasses.replace(
            point,
            broken_rules=tuple(dict.fromkeys((*point.broken_rules, *broken_rules(point, profile.provenance, catalog)))),
        )
        for point in profile.serving_points
    )
    return dataclasses.replace(profile, serving_points=points)


def broken_rules(point: ServingPoint, provenance: ProfileProvenance, catalog: Catalog) -> tuple[BrokenSanityRule, ...]:
    """Every rule that a point breaks."""
    found = [rule for check in _RULES for rule in check(point)]
    try:
        question = memory_question(catalog, provenance.accelerator, provenance.engine, provenance.engine_version, point)
        too_fast = faster_than_memory(question, playable_memory(question), point, measured_figures(point))
    except UnplayableError:
        too_fast = ""  # what is not known, or does not start, is told where it is used
    if too_fast:
        found.append(BrokenSanityRule("FASTER_THAN_PHYSICS", too_fast))
    return tuple(found)


def _parts_make_the_whole(point: ServingPoint) -> Iterator[BrokenSanityRule]:
    ttft, tpot, end_to_end = (
        point.latency_seconds(metric) for metric in (LatencyMetric.TTFT, LatencyMetric.TPOT, LatencyMetric.END_TO_END)
    )
    if ttft is None or tpot is None or end_to_end is None:
        return
    steps = max(point.load.mean_output_tokens - 1, 0)
    whole = ttft + tpot * steps
    if abs(whole - end_to_end) > TOLERANCE * end_to_end:
        yield BrokenSanityRule(
            "PARTS_CONTRADICT_WHOLE",
            f"TTFT {ttft:.4g} s + TPOT {tpot:.4g} s x {steps:.4g} = {whole:.4g} s, but end to end is "
            f"{end_to_end:.4g} s; legal is a difference of {TOLERANCE:.0%}",
        )


def _first_token_before_last(point: ServingPoint) -> Iterator[BrokenSanityRule]:
    for latency in point.latencies:
        if latency.metric is not LatencyMetric.TTFT:
            continue
        whole = point.latency_seconds(LatencyMetric.END_TO_END, latency.percentile)
        if whole is not None and latency.value_seconds > whole:
            which = "mean" if latency.percentile is None else f"P{latency.percentile:g}"
            yield BrokenSanityRule(
                "TTFT_ABOVE_END_TO_END", f"{which} TTFT is {latency.value_seconds:.4g} s, end to end {whole:.4g} s"
            )


def _percentiles_rise(point: ServingPoint) -> Iterator[BrokenSanityRule]:
    for metric in LatencyMetric:
        mine = [item for item in point.latencies if item.metric is metric and item.percentile is not None]
        ordered = sorted(mine, key=lambda item: item.percentile or 0.0)
        for lower, higher in itertools.pairwise(ordered):
            if higher.value_seconds < lower.value_seconds:
                yield BrokenSanityRule(
                    "PERCENTILES_FALL",
                    f"P{higher.percentile:g} of {metric.value} is {higher.value_seconds:.4g} s, below "
                    f"P{lower.percentile:g}, {lower.value_seconds:.4g} s",
                )


def _littles_law(point: ServingPoint) -> Iterator[BrokenSanityRule]:
    """Requests in flight = throughput x time in the system: at most the clients of a closed loop, and not far fewer."""
    clients = point.static_batch_sequences or point.load.concurrency
    end_to_end = point.latency_seconds(LatencyMetric.END_TO_END)
    if clients is None or end_to_end is None or point.requests_per_second is None:
        return
    in_flight = point.requests_per_second * end_to_end
    if not LEAST_BUSY_SHARE * clients <= in_flight <= (1 + TOLERANCE) * clients:
        yield BrokenSanityRule(
            "LITTLES_LAW",
            f"{point.requests_per_second:.4g} requests/s x {end_to_end:.4g} s = {in_flight:.4g} in flight, but there "
            f"were {clients} clients; legal is {LEAST_BUSY_SHARE:.0%} to {1 + TOLERANCE:.0%} of them",
        )


def _count_over_duration(point: ServingPoint) -> Iterator[BrokenSanityRule]:
    if not point.completed_requests or not point.duration_seconds or point.requests_per_second is None:
        return
    rate = point.completed_requests / point.duration_seconds
    if abs(rate - point.requests_per_second) > TOLERANCE * rate:
        yield BrokenSanityRule(
            "THROUGHPUT_CONTRADICTS_COUNT",
            f"{point.completed_requests} requests in {point.duration_seconds:.4g} s are {rate:.4g} requests/s, but "
            f"{point.requests_per_second:.4g} are stated; legal is a difference of {TOLERANCE:.0%}",
        )


def _tokens_over_requests(point: ServingPoint) -> Iterator[BrokenSanityRule]:
    if point.requests_per_second is None or point.output_tokens_per_second is None:
        return
    expected = point.requests_per_second * point.load.mean_output_tokens
    if abs(expected - point.output_tokens_per_second) > 2 * TOLERANCE * expected:
        yield BrokenSanityRule(
            "TOKENS_CONTRADICT_REQUESTS",
            f"{point.requests_per_second:.4g} requests/s of {point.load.mean_output_tokens:.4g} tokens are "
            f"{expected:.4g} tokens/s, but {point.output_tokens_per_second:.4g} are stated; legal is a difference of "
            f"{2 * TOLERANCE:.0%}",
        )


_RULES: tuple[Callable[[ServingPoint], Iterator[BrokenSanityRule]], ...] = (
    _parts_make_the_whole,
    _first_token_before_last,
    _percentiles_rise,
    _littles_law,
    _count_over_duration,
    _tokens_over_requests,
)
