"""What a fleet of equal replicas does under a workload, by simulation, with a verdict on every objective.

A verdict is given only where the percentile's confidence interval clears the objective. Otherwise the simulation is
extended, and past its bound the verdict is "too close to call". A fleet whose queue grows without bound fails every
objective that the queue enters, whatever the percentile of a run that had to end says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from inferplan.errors import InvalidInputError, Violation
from inferplan.simulation import Cancellation, Metric, Router, requests_for_interval
from inferplan.simulation.step_time import step_seconds
from inferplan.sizing.fleet_performance import REPORTED_PERCENTILES, first_broken_seconds, performance_of
from inferplan.sizing.fleet_run import FleetRun, RunConditions, run_fleet
from inferplan.sizing.performance import ObjectiveVerdict, Outcome, Performance
from inferplan.sizing.replica import ReplicaModel, replica_model
from inferplan.sizing.traffic_requests import (
    clients_of,
    has_trace,
    is_closed_loop,
    requests_of_traces,
    share_of_class,
    total_requests_per_second,
)
from inferplan.sizing.workload import Objective, TrafficClass, Workload

__all__ = [
    "MAXIMUM_REQUESTS",
    "MEASURED_SHARE",
    "EvaluationSettings",
    "FleetEvaluation",
    "ReplicaModel",
    "evaluate_fleet",
    "first_run_requests",
    "replica_model",
]

FEWEST_REQUESTS = 1000
EXTENSION_FACTOR = 4
LONGEST_EXTENSION = 64
"""A run is extended to at most this many times its first length before it is too close to call."""

MAXIMUM_REQUESTS = 2_000_000
MEASURED_SHARE = 0.9
"""The first tenth of a run, while an empty fleet fills up, is not measured."""

RARE_CLASS_MARGIN = 1.1
"""How many requests of a class a run has is left to chance; with so many more, rarely too few for its interval."""

STAYS_PER_RUN = 60.0
"""A run lasts at least this many times the mean stay of a request, or its verdict is not given.

Requests that are in the system together wait for one another, so a run of few stays is one observation and not
thousands, and its interval is too narrow. Five replicas of the worked example fail; runs of 12 stays called them good
for one seed in eight, runs of 60 stays for one in forty, which is what a 95 % interval promises."""

LENGTHENING_SLACK = 1.1

UNLOADED_STAYS_IN_FIRST_RUN = 20.0

CLEARLY_BROKEN_RATIO = 1.5
"""A percentile beyond this many times its bound in a first, short run needs no longer one."""

REQUESTS_PER_CLIENT = 10
"""Of a closed loop, as benchmarks are commonly run."""


@dataclass(frozen=True, slots=True)
class EvaluationSettings:
    """How simulations are run.

    `exact_requests` plays just so many and never extends a run; `brief_requests` plays so many, and more only where
    they cannot resolve an objective's percentile; None of both plays what a verdict needs, at most `maximum_requests`,
    and recorded traces whole. `progress` gets the share that is done, 0 to 1, between runs.
    """

    seed: int = 1
    router: Router = Router.LEAST_OUTSTANDING
    maximum_requests: int | None = None
    exact_requests: int | None = None
    brief_requests: int | None = None
    cancellation: Cancellation | None = None
    progress: Callable[[float], None] | None = None


@dataclass(frozen=True, slots=True)
class FleetEvaluation:
    """What came of one fleet size. `holds` is None where it is too close to call."""

    performance: Performance
    verdicts: tuple[ObjectiveVerdict, ...]
    holds: bool | None
    saturated: bool
    first_broken_after_seconds: float | None
    simulated_requests: int


def evaluate_fleet(
    replica: ReplicaModel,
    workload: Workload,
    objectives: tuple[Objective, ...],
    replicas: int,
    settings: EvaluationSettings,
    replicas_down: int = 0,
) -> FleetEvaluation:
    """Play the workload on `replicas`, of which `replicas_down` do not serve, until every verdict is clear.

    A recorded trace is played from its first request to its last, whatever the percentiles need, and judged as a whole.

    Raises CancelledError if the run was cancelled, InvalidInputError if open and closed loops are mixed, no replica
    serves, or a trace, or the number of requests that was asked for, is too short for an objective's percentile.
    """
    _check_load(workload, replicas, replicas_down)
    conditions = RunConditions(
        replica,
        workload,
        objectives,
        replicas - replicas_down,
        settings.seed,
        settings.router,
        settings.cancellation,
    )
    count, bound = _run_lengths(replica, workload, objectives, settings)
    run = run_fleet(conditions, count)
    while (longer := min(bound, _next_count(run, count, settings))) > count:
        _tell(settings, count / longer)
        count = longer
        run = run_fleet(conditions, count)
    if run.too_few is not None:
        raise run.too_few
    _tell(settings, 1.0)
    # A recorded trace, or a number of requests that was asked for, is all that there is to judge by.
    asked_for = settings.exact_requests is not None or settings.brief_requests is not None
    may_be_short = not asked_for and not has_trace(workload)
    too_short = may_be_short and requests_for_stays(run, count) > count
    return FleetEvaluation(
        performance=performance_of(run, conditions),
        verdicts=run.verdicts,
        holds=False if run.fails else None if run.unclear or too_short else True,
        saturated=run.saturated,
        first_broken_after_seconds=first_broken_seconds(run),
        simulated_requests=run.outcome.requests.count,
    )


def _check_load(workload: Workload, replicas: int, replicas_down: int) -> None:
    violations = []
    if not 0 <= replicas_down < replicas:
        violations.append(Violation("replicas_down", f"is {replicas_down} of {replicas}; at least one must serve"))
    if len({traffic.concurrency is None for traffic in workload.traffic_classes}) > 1:
        violations.append(
            Violation(
                "workload.traffic_classes",
                "mix requests_per_second and concurrency; set the same one of the two for every class",
                "MIXED_LOADS",
            )
        )
    if violations:
        raise InvalidInputError(violations)


def _tell(settings: EvaluationSettings, share: float) -> None:
    if settings.progress is not None:
        settings.progress(share)


def _next_count(run: FleetRun, count: int, settings: EvaluationSettings) -> int:
    """Requests of the run that should follow; `count` where its verdict stands."""
    if run.too_few is not None:
        return count * EXTENSION_FACTOR
    if settings.brief_requests is not None or _is_hopeless(run):
        return count
    needed = requests_for_stays(run, count)
    if needed > count:
        return needed
    return count * EXTENSION_FACTOR if run.unclear and not run.fails else count


def _is_hopeless(run: FleetRun) -> bool:
    """Whether a longer run could only say the same: the queue grows, or a percentile is far beyond its bound."""
    return run.saturated or any(
        verdict.outcome is Outcome.FAILS
        and verdict.predicted_seconds > CLEARLY_BROKEN_RATIO * verdict.objective.maximum_seconds
        for verdict in run.verdicts
    )


def requests_for_stays(run: FleetRun, count: int) -> int:
    """Requests of a run of STAYS_PER_RUN mean stays at this run's rate; 0 for a closed loop, whose clients wait."""
    outcome = run.outcome
    mean_stay = run.report.mean(Metric.END_TO_END)
    if not outcome.open_loop or mean_stay is None or not math.isfinite(mean_stay):
        return 0
    duration = float(outcome.arrival_seconds[-1] - outcome.arrival_seconds[0])
    needed = math.ceil(count * STAYS_PER_RUN * mean_stay / duration) if duration > 0 else 0
    # The mean stay of a longer run is a little different; without slack a run would be lengthened by a few requests.
    return needed if needed <= count else math.ceil(needed * LENGTHENING_SLACK)


def _run_lengths(
    replica: ReplicaModel, workload: Workload, objectives: tuple[Objective, ...], settings: EvaluationSettings
) -> tuple[int, int]:
    """Requests of the first run, and of the longest that it may be extended to."""
    if settings.exact_requests is not None:
        return settings.exact_requests, settings.exact_requests
    if has_trace(workload):
        count = _trace_length(workload)
        return count, count
    count = settings.brief_requests or first_run_requests(replica, workload, objectives)
    bound = min(settings.maximum_requests or MAXIMUM_REQUESTS, count * LONGEST_EXTENSION)
    return min(count, bound), bound


def _trace_length(workload: Workload) -> int:
    """A trace that was cut short would be judged without its peak, so a longer one than can be played is refused."""
    count = requests_of_traces(workload)
    if count > MAXIMUM_REQUESTS:
        raise InvalidInputError.single(
            "workload.traffic_classes",
            f"would send about {count:,} requests by the end of the longest trace; at most {MAXIMUM_REQUESTS:,} are "
            "played: shorten the trace",
            "TRACE_TOO_LONG",
        )
    return count


def first_run_requests(replica: ReplicaModel, workload: Workload, objectives: tuple[Objective, ...]) -> int:
    """Requests of the shortest run: enough for every interval, and for the fleet to fill up long before its end.

    The percentiles that are only reported get an interval for all traffic, those of an objective for its class.
    """
    needed = [requests_for_interval(percentile) for percentile in REPORTED_PERCENTILES]
    needed += [_requests_for_objective(objective, workload) for objective in objectives]
    count = max(FEWEST_REQUESTS, math.ceil(max(needed) / MEASURED_SHARE))
    if is_closed_loop(workload):
        return max(count, clients_of(workload) * REQUESTS_PER_CLIENT)
    stay = UNLOADED_STAYS_IN_FIRST_RUN * _longest_stay_seconds(replica, workload) * total_requests_per_second(workload)
    return max(count, math.ceil(stay))


def _requests_for_objective(objective: Objective, workload: Workload) -> int:
    """Requests of all classes that give an interval to an objective on one of them."""
    share = share_of_class(workload, objective.traffic_class_id)
    margin = RARE_CLASS_MARGIN if share < 1.0 else 1.0
    return math.ceil(requests_for_interval(objective.percentile) * margin / share)


def _longest_stay_seconds(replica: ReplicaModel, workload: Workload) -> float:
    """Longest of the classes' mean stays on an idle replica: a prefill, then one step a token."""
    return max(_stay_seconds(replica, traffic) for traffic in workload.traffic_classes)


def _stay_seconds(replica: ReplicaModel, traffic: TrafficClass) -> float:
    context = max(1, round(traffic.mean_input_tokens))
    step = float(step_seconds(replica.coefficients.as_array(), 1, 1, context, context, 0.0, 0.0))
    prefill = context * replica.coefficients.compute_seconds_per_token
    return prefill + traffic.mean_output_tokens * step
