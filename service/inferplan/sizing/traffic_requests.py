"""A workload's traffic as the simulator takes it."""

from __future__ import annotations

import numpy as np

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


def is_closed_loop(workload: domain.Workload) -> bool:
    """Whether the clients of the workload wait for their answers."""
    return any(traffic.concurrency is not None for traffic in workload.traffic_classes)


def total_requests_per_second(workload: domain.Workload) -> float:
    """Arrivals of all classes together; 0 for a closed loop."""
    return sum(traffic.requests_per_second or 0.0 for traffic in workload.traffic_classes)


def _traffic(traffic: domain.TrafficClass, *, open_loop: bool) -> simulation.TrafficClass:
    ratio = traffic.prefix_cache_hit_ratio or 0.0
    return simulation.TrafficClass(
        lengths=_lengths(traffic),
        arrivals=_arrivals(traffic) if open_loop else None,
        name=traffic.traffic_class_id,
        prefix_hits=PrefixHits(probability=1.0, fraction=ratio) if ratio else PrefixHits(probability=0.0),
        share=float(traffic.concurrency or 1),
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
