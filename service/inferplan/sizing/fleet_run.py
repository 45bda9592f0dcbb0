"""One simulation of a fleet under a workload, and how it stands to the objectives."""

from __future__ import annotations

import math
from dataclasses import dataclass

from inferplan.errors import CancelledError, InvalidInputError
from inferplan.simulation import (
    Cancellation,
    Ending,
    Fleet,
    LatencyObjective,
    LatencyReport,
    Metric,
    Router,
    Saturation,
    SimulationOutcome,
    Verdict,
    assess_saturation,
    simulate_closed_loop,
    simulate_fleet,
)
from inferplan.sizing.performance import ObjectiveVerdict, Outcome
from inferplan.sizing.replica import ReplicaModel
from inferplan.sizing.traffic_requests import clients_of, closed_loop_requests, has_trace, open_loop_requests
from inferplan.sizing.workload import LatencyMetric, Objective, Workload

WARM_UP_PERIODS = 2
"""Of the twenty periods of a run: the first tenth, while an empty fleet fills up, is not measured."""

_QUEUED_METRICS = (LatencyMetric.TTFT, LatencyMetric.END_TO_END, LatencyMetric.QUEUE_WAIT)


@dataclass(frozen=True, slots=True)
class FleetRun:
    """What one simulation showed.

    `too_few` is set, and there are no verdicts, where the requests cannot resolve an objective's percentile.
    """

    outcome: SimulationOutcome
    report: LatencyReport
    saturation: Saturation | None
    saturated: bool
    verdicts: tuple[ObjectiveVerdict, ...]
    too_few: InvalidInputError | None = None

    @property
    def fails(self) -> bool:
        """Whether the queue grows or an objective is broken for certain."""
        return self.saturated or any(verdict.outcome is Outcome.FAILS for verdict in self.verdicts)

    @property
    def unclear(self) -> bool:
        """Whether an objective lies within its percentile's interval."""
        return any(verdict.outcome is Outcome.TOO_CLOSE_TO_CALL for verdict in self.verdicts)


@dataclass(frozen=True, slots=True)
class RunConditions:
    """What a run shares with every other of the same evaluation."""

    replica: ReplicaModel
    workload: Workload
    objectives: tuple[Objective, ...]
    serving_replicas: int
    seed: int
    router: Router
    cancellation: Cancellation | None = None


def clients_per_replica(conditions: RunConditions) -> int:
    """Clients of a closed loop that one replica serves, rounded up."""
    return max(1, math.ceil(clients_of(conditions.workload) / conditions.serving_replicas))


def run_fleet(conditions: RunConditions, request_count: int) -> FleetRun:
    """Play about `request_count` requests. Raises CancelledError if the run was cancelled."""
    outcome = _play(conditions, request_count)
    # A trace starts as it did when it was recorded; drawn traffic meets an empty fleet only in the simulation.
    warm_up = 0 if has_trace(conditions.workload) else WARM_UP_PERIODS
    report = LatencyReport(outcome, conditions.replica.front_end_seconds, warm_up)
    saturation = assess_saturation(outcome)
    saturated = bool(saturation and saturation.saturated) or outcome.ending is not Ending.COMPLETED
    try:
        verdicts = tuple(_verdict(report, objective, saturated) for objective in conditions.objectives)
    except InvalidInputError as error:
        return FleetRun(outcome, report, saturation, saturated, (), error)
    return FleetRun(outcome, report, saturation, saturated, verdicts)


def latency_objective(objective: Objective) -> LatencyObjective:
    """The objective as the simulation's reports take it."""
    return LatencyObjective(
        Metric(objective.metric.value), objective.percentile, objective.maximum_seconds, objective.traffic_class_id
    )


def _play(conditions: RunConditions, request_count: int) -> SimulationOutcome:
    replica, workload = conditions.replica, conditions.workload
    if clients_of(workload):
        requests = closed_loop_requests(
            workload, conditions.seed, max(1, math.ceil(request_count / conditions.serving_replicas))
        )
        outcome = simulate_closed_loop(
            replica.coefficients,
            replica.engine,
            requests,
            clients_per_replica(conditions),
            cancellation=conditions.cancellation,
        )
    else:
        outcome = simulate_fleet(
            replica.coefficients,
            replica.engine,
            open_loop_requests(workload, conditions.seed, request_count),
            Fleet(conditions.serving_replicas, conditions.router),
            seed=conditions.seed,
            cancellation=conditions.cancellation,
        )
    if outcome.ending is Ending.CANCELLED:
        raise CancelledError("the simulation was cancelled")
    return outcome


def _verdict(report: LatencyReport, objective: Objective, saturated: bool) -> ObjectiveVerdict:
    result = report.judge(latency_objective(objective))
    outcome = {
        Verdict.HOLDS: Outcome.HOLDS,
        Verdict.BREAKS: Outcome.FAILS,
        Verdict.UNCLEAR: Outcome.TOO_CLOSE_TO_CALL,
    }[result.verdict]
    if saturated and objective.metric in _QUEUED_METRICS:
        # A queue that grows for ever breaks every bound on it, though this run may have ended before.
        outcome = Outcome.FAILS
    return ObjectiveVerdict(objective, result.measured_seconds, outcome)
