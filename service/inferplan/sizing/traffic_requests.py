"""A workload's traffic as the simulator takes it."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from inferplan import simulation
from inferplan.simulation import PrefixHits, Requests, draw_closed_loop_requests, draw_requests
from inferplan.sizing import workload as domain


def open_loop_requests(workload: domain.Workload, seed: int, request_count: int) -> Requests:
    """About `request_count` requests with arrival times; a trace gives at most what it holds."""
    return draw_requests(
        [_traffic(traffic, open_loop=True) for traffic in workload.traffic_classes], seed, request_count
    )


def closed_loop_requests(workload: domain.Workload, seed: int, request_count: int) -> Requests:
    """Requests without arrival times, mixed by the classes' concurrency."""
    return draw_closed_loop_requests(
        [_traffic(traffic, open_loop=False) for traffic in workload.traffic_classes], seed, request_count
    )


def requests_at(workload: domain.Workload, seed: int, arrival_seconds: npt.NDArray[np.float64]) -> Requests:
    """One request at each of the times, mixed by the classes' rates, with the lengths that the workload states."""
    drawn = closed_loop_requests(workload, seed, arrival_seconds.size)
    return dataclasses.replace(drawn, arrival_seconds=np.ascontiguousarray(arrival_seconds))


def is_closed_loop(workload: domain.Workload) -> bool:
    """Whether the clients of the workload wait for their answers."""
    return any(traffic.concurrency is not None for traffic in workload.traffic_classes)


def clients_of(workload: domain.Workload) -> int:
    """Clients of all classes together; 0 for an open loop."""
    return sum(traffic.concurrency or 0 for traffic in workload.traffic_classes)


def total_requests_per_second(workload: domain.Workload) -> float:
    """Arrivals of all classes together; 0 for a closed loop."""
    return sum(traffic.requests_per_second or 0.0 for traffic in workload.traffic_classes)


def share_of_class(workload: domain.Workload, traffic_class_id: str) -> float:
    """The class's share of all requests; 1 for an empty id, which means all traffic."""
    loads = [traffic.requests_per_second or float(traffic.concurrency or 0) for traffic in workload.traffic_classes]
    mine = [
        load
        for load, traffic in zip(loads, workload.traffic_classes, strict=True)
        if traffic_class_id in ("", traffic.traffic_class_id)
    ]
    return sum(mine) / sum(loads)


def has_trace(workload: domain.Workload) -> bool:
    """Whether a class plays recorded arrivals, which end where the recording does."""
    return any(traffic.arrivals.process is domain.ArrivalProcess.TRACE for traffic in workload.traffic_classes)


def requests_of_traces(workload: domain.Workload) -> int:
    """Requests of all classes until the end of the longest trace, so that no recorded peak is cut off."""
    traces = [traffic.arrivals.trace_offsets_seconds for traffic in workload.traffic_classes]
    if len(traces) == 1:
        return len(traces[0])
    last = max(offsets[-1] for offsets in traces if offsets)
    rate = sum(_arrivals(traffic).mean_rate_per_second for traffic in workload.traffic_classes)
    # One more, so that rounding does not lose the last arrival.
    return max(math.ceil(last * rate) + 1, *(len(offsets) for offsets in traces))


def _traffic(traffic: domain.TrafficClass, *, open_loop: bool) -> simulation.TrafficClass:
    ratio = traffic.prefix_cache_hit_ratio or 0.0
    return simulation.TrafficClass(
        lengths=_lengths(traffic),
        arrivals=_arrivals(traffic) if open_loop else None,
        name=traffic.traffic_class_id,
        prefix_hits=PrefixHits(probability=1.0, fraction=ratio) if ratio else PrefixHits(probability=0.0),
        share=float(traffic.concurrency or traffic.requests_per_second or 1),
    )


def _arrivals(traffic: domain.TrafficClass) -> simulation.RateArrivals | simulation.TraceArrivals:
    rate = traffic.requests_per_second or 0.0
    arrivals = traffic.arrivals
    if arrivals.process is domain.ArrivalProcess.TRACE:
        return simulation.TraceArrivals(np.asarray(arrivals.trace_offsets_seconds, dtype=np.float64))
    if arrivals.process is domain.ArrivalProcess.CONSTANT:
        return simulation.constant_arrivals(rate)
    if arrivals.process is domain.ArrivalProcess.GAMMA:
        return simulation.gamma_arrivals(rate, arrivals.coefficient_of_variation or 1.0)
    return simulation.poisson_arrivals(rate)


def _lengths(traffic: domain.TrafficClass) -> simulation.IndependentLengths | simulation.ObservedLengths:
    if traffic.length_pairs:
        pairs = tuple((pair.input_tokens, pair.output_tokens) for pair in traffic.length_pairs)
        return simulation.ObservedLengths(pairs)
    assert traffic.input_tokens is not None and traffic.output_tokens is not None, "checked by workload_violations"
    return simulation.IndependentLengths(_distribution(traffic.input_tokens), _distribution(traffic.output_tokens))


def _distribution(
    length: domain.LengthDistribution,
) -> simulation.ConstantLength | simulation.UniformLength | simulation.LognormalLength:
    if isinstance(length, domain.ConstantLength):
        return simulation.ConstantLength(length.constant_tokens)
    if isinstance(length, domain.UniformLength):
        return simulation.UniformLength(length.minimum_tokens, length.maximum_tokens)
    return simulation.LognormalLength(length.mean_tokens, length.coefficient_of_variation, length.longest_tokens)
