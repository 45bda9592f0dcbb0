"""The largest load that one replica carries, and what keeps it from carrying more."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

from inferplan.sizing.bounds import RequestWork, least_service_seconds
from inferplan.sizing.evaluation import (
    EvaluationSettings,
    FleetEvaluation,
    evaluate_fleet,
    first_run_requests,
)
from inferplan.sizing.fleet import LimitingFactor, ReplicaCapacity
from inferplan.sizing.operating_point import operating_point
from inferplan.sizing.performance import Outcome
from inferplan.sizing.replica import ReplicaModel
from inferplan.sizing.sample import offered_requests_per_second
from inferplan.sizing.step_terms import step_terms
from inferplan.sizing.traffic_requests import is_closed_loop
from inferplan.sizing.workload import LatencyMetric, Objective, Workload

TOLERANCE = 0.02
"""Relative width of the bracket at which the bisection ends."""

LOWEST_SHARE = 1e-3
"""Loads below a thousandth of what closed form allows are taken for no load at all."""

RUN_FACTOR = 2
"""Length of the runs over that of the shortest. Near the edge every run is close to call, so none is extended: what is
too close to call counts as too much."""

MOST_CLIENTS_FACTOR = 4
"""Clients over slots up to which a closed loop is tried; more only wait longer."""

OVERLOAD_FACTOR = 2.0

_FULL = 0.95
_QUEUED_METRICS = (LatencyMetric.TTFT, LatencyMetric.END_TO_END, LatencyMetric.QUEUE_WAIT)


@dataclass(frozen=True, slots=True)
class MeasuredCapacity:
    """`holding` is the evaluation at the capacity, `breaking` that of the smallest load that was seen to break."""

    capacity: ReplicaCapacity
    holding: FleetEvaluation
    breaking: FleetEvaluation | None


def replica_capacity(
    replica: ReplicaModel,
    workload: Workload,
    objectives: tuple[Objective, ...],
    work: RequestWork,
    settings: EvaluationSettings,
) -> MeasuredCapacity | None:
    """Bisect over the load, all classes scaled together, with the same randomness throughout.

    The load counts as carried where every objective holds at its percentile and the queue does not grow. `work` is a
    sample of the requests. Returns None if not even the lowest load is carried.
    """
    count = RUN_FACTOR * first_run_requests(replica, workload, objectives)
    brief = dataclasses.replace(settings, brief_requests=min(count, settings.maximum_requests or count))

    def evaluate(load: float) -> FleetEvaluation:
        return evaluate_fleet(replica, scaled_workload(workload, load), objectives, 1, brief)

    overloaded = None
    if is_closed_loop(workload):
        clients = sum(traffic.concurrency or 0 for traffic in workload.traffic_classes)
        highest = MOST_CLIENTS_FACTOR * replica.engine.maximum_sequences / clients
        lowest = 1.0 / clients
    else:
        rate = offered_requests_per_second(workload)
        highest = 1.0 / least_service_seconds(replica.coefficients, replica.engine, work) / rate
        lowest = LOWEST_SHARE * highest
        if not bounds_the_queue(objectives):
            overloaded = overloaded_replica(replica, workload, work, settings)
            highest = min(highest, (1.0 - TOLERANCE) * overloaded.performance.requests_per_second / rate)
    bracket = _largest_holding(evaluate, lowest, highest)
    if bracket is None:
        return None
    holding, breaking = bracket
    breaking = breaking or overloaded
    factor, detail = limiting_factor(replica, work, holding, breaking)
    capacity = ReplicaCapacity(
        requests_per_second=holding.performance.requests_per_second,
        output_tokens_per_second=holding.performance.output_tokens_per_second,
        limiting_factor=factor,
        limiting_detail=detail,
        # An open loop was tried up to what no schedule can beat.
        censored=breaking is None and is_closed_loop(workload),
    )
    return MeasuredCapacity(capacity, holding, breaking)


def bounds_the_queue(objectives: tuple[Objective, ...]) -> bool:
    """Whether an objective breaks where a queue grows, however slowly."""
    return any(objective.metric in _QUEUED_METRICS for objective in objectives)


def overloaded_replica(
    replica: ReplicaModel, workload: Workload, work: RequestWork, settings: EvaluationSettings
) -> FleetEvaluation:
    """One replica under an open loop of twice what it can complete: it shows how much it does complete.

    Where no objective bounds the queue, a run tells a small overload from chance only if it is very long; the rate that
    an overloaded replica completes tells it at once.
    """
    most = 1.0 / least_service_seconds(replica.coefficients, replica.engine, work)
    factor = OVERLOAD_FACTOR * most / offered_requests_per_second(workload)
    return evaluate_fleet(replica, scaled_workload(workload, factor), (), 1, settings)


def scaled_workload(workload: Workload, factor: float) -> Workload:
    """The same traffic, played `factor` times as fast; of a closed loop, with as many times the clients."""
    classes = []
    for traffic in workload.traffic_classes:
        rate, clients = traffic.requests_per_second, traffic.concurrency
        offsets = traffic.arrivals.trace_offsets_seconds
        classes.append(
            dataclasses.replace(
                traffic,
                requests_per_second=None if rate is None else rate * factor,
                concurrency=None if clients is None else max(1, round(clients * factor)),
                arrivals=dataclasses.replace(
                    traffic.arrivals, trace_offsets_seconds=tuple(offset / factor for offset in offsets)
                ),
            )
        )
    return Workload(tuple(classes))


def _largest_holding(
    evaluate: Callable[[float], FleetEvaluation], lowest: float, highest: float
) -> tuple[FleetEvaluation, FleetEvaluation | None] | None:
    """Evaluations at the largest load that holds and at the smallest that does not, `TOLERANCE` apart."""
    breaking = evaluate(highest)
    if breaking.holds:
        return breaking, None
    high, low, share = highest, 0.0, 0.5
    holding: FleetEvaluation | None = None
    while holding is None:
        low = max(lowest, high * share)
        trial = evaluate(low)
        if trial.holds:
            holding = trial
        elif low <= lowest:
            return None
        else:
            high, breaking, share = low, trial, share * share
    while high / low > 1.0 + TOLERANCE:
        middle = math.sqrt(low * high)
        trial = evaluate(middle)
        if trial.holds:
            low, holding = middle, trial
        else:
            high, breaking = middle, trial
    return holding, breaking


def limiting_factor(
    replica: ReplicaModel, work: RequestWork, holding: FleetEvaluation, breaking: FleetEvaluation | None
) -> tuple[LimitingFactor, str]:
    """What gives way just above the capacity, with a sentence that says so in numbers."""
    engine = replica.engine
    performance = (breaking or holding).performance
    running = performance.mean_running_sequences or 0.0
    occupancy = performance.mean_kv_cache_occupancy or 0.0
    spent = _spent_on(replica, work, holding.performance.requests_per_second)
    if occupancy >= _FULL or (performance.preemptions_per_request or 0.0) > 1.0 - _FULL:
        return (
            LimitingFactor.KV_CAPACITY,
            f"the KV cache of {engine.kv_capacity_tokens:,} tokens is {occupancy:.0%} full, with "
            f"{performance.preemptions_per_request or 0.0:.2g} preemptions a request; {spent[1]}",
        )
    if running >= _FULL * engine.maximum_sequences:
        return (
            LimitingFactor.SEQUENCE_SLOTS,
            f"{running:.0f} sequences run at once, of max_num_seqs {engine.maximum_sequences}; {spent[1]}",
        )
    broken = [
        verdict.objective.label
        for verdict in (breaking.verdicts if breaking else ())
        if verdict.outcome in (Outcome.FAILS, Outcome.TOO_CLOSE_TO_CALL)
    ]
    if breaking is not None and not breaking.saturated and broken:
        return LimitingFactor.OBJECTIVE, f"{' and '.join(broken)} would break before the queue grows; {spent[1]}"
    return spent


def _spent_on(replica: ReplicaModel, work: RequestWork, requests_per_second: float) -> tuple[LimitingFactor, str]:
    """The resource that takes most of a step's time at that load."""
    share = 1.0
    point = None
    # Mean values carry a little less than the simulation now and then; the mix of terms is the same just below.
    while point is None:
        point = operating_point(replica.coefficients, replica.engine, work, share * requests_per_second)
        share *= 0.95
    terms = step_terms(replica.coefficients, point)
    seconds = terms.by_resource[terms.dominant]
    name = terms.dominant.value.replace("_", " ")
    return terms.dominant, f"{name} takes {seconds / terms.total:.0%} of a step of {terms.total * 1e3:.3g} ms"
