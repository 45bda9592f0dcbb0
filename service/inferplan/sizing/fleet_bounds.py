"""What a candidate's fleet costs at least, and what it can never hold: closed form, before anything is simulated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from inferplan.errors import BrokenRule
from inferplan.sizing.bounds import RequestWork, least_latency_seconds, least_service_seconds
from inferplan.sizing.candidates import CandidateReplica
from inferplan.sizing.fleet import replicas_for
from inferplan.sizing.operating_point import meets_on_average, operating_point
from inferplan.sizing.ranking import RANKED_PERCENTILE, CandidateFigures
from inferplan.sizing.search_question import FleetLimits
from inferplan.sizing.workload import LatencyMetric, Objective


@dataclass(frozen=True, slots=True)
class BoundedCandidate:
    """A candidate with what it needs at least.

    `fewest_replicas` are active ones that could complete the load, `likely_replicas` what mean values suggest, where a
    search by simulation starts, and `most_replicas` active ones that the limits allow, None without a limit. `floor` is
    what no fleet of this candidate gets below. `requests_per_second` is what one replica completes at most.
    """

    replica: CandidateReplica
    requests_per_second: float
    fewest_replicas: int
    likely_replicas: int
    most_replicas: int | None
    floor: CandidateFigures


def bound_candidate(
    replica: CandidateReplica,
    work: RequestWork,
    requests_per_second: float | None,
    objectives: tuple[Objective, ...],
    limits: FleetLimits,
) -> BoundedCandidate:
    """Bounds of a candidate. `requests_per_second` None is a closed loop, whose load follows the fleet."""
    model = replica.model
    most_rate = 1.0 / least_service_seconds(model.coefficients, model.engine, work)
    fewest = 1 if requests_per_second is None else replicas_for(requests_per_second, most_rate)
    allowed = limits.most_replicas(replica.gpus, replica.accelerator.cost_usd_per_gpu_hour)
    replicas = fewest + limits.failures_to_survive
    floor = CandidateFigures(
        cost_usd_per_hour=replicas * replica.cost_usd_per_hour,
        ttft_seconds=_least(Objective(LatencyMetric.TTFT, RANKED_PERCENTILE, 1.0), replica, work),
        tpot_seconds=_least(Objective(LatencyMetric.TPOT, RANKED_PERCENTILE, 1.0), replica, work),
        gpus=replicas * replica.gpus,
    )
    most = None if allowed is None else allowed - limits.failures_to_survive
    likely = fewest
    if requests_per_second is not None:
        likely = _likely_replicas(replica, work, requests_per_second, objectives, fewest)
    return BoundedCandidate(replica, most_rate, fewest, likely, most, floor)


def broken_bounds(
    bounded: BoundedCandidate, work: RequestWork, objectives: tuple[Objective, ...], limits: FleetLimits
) -> Iterator[BrokenRule]:
    """Every rule that the candidate breaks whatever its fleet is."""
    replica = bounded.replica
    for objective in objectives:
        least = _least(objective, replica, work)
        if least > objective.maximum_seconds:
            yield BrokenRule(
                "OBJECTIVE_OUT_OF_REACH",
                replica.label,
                f"{objective.label} may be {objective.maximum_seconds * 1e3:.4g} ms, and takes at least "
                f"{least * 1e3:.4g} ms on an idle replica",
            )
    if bounded.most_replicas is not None and bounded.most_replicas < bounded.fewest_replicas:
        yield limit_rule(bounded, limits, bounded.fewest_replicas, "the load alone takes at least")


def limit_rule(bounded: BoundedCandidate, limits: FleetLimits, active_replicas: int, why: str) -> BrokenRule:
    """The quota or the budget that a fleet with so many active replicas breaks."""
    replica = bounded.replica
    replicas = active_replicas + limits.failures_to_survive
    gpus, cost = replicas * replica.gpus, replicas * replica.cost_usd_per_hour
    spares = f" + {limits.failures_to_survive} spare" if limits.failures_to_survive else ""
    fleet = f"{why} {active_replicas}{spares} replicas, {gpus} GPUs at ${cost:,.2f} an hour"
    if limits.maximum_gpus is not None and gpus > limits.maximum_gpus:
        return BrokenRule("GPU_QUOTA", replica.label, f"{fleet}; maximum_gpus is {limits.maximum_gpus}")
    budget = limits.maximum_cost_usd_per_hour
    shown = "not limited" if budget is None else f"{budget:,.2f}"
    return BrokenRule("COST_BUDGET", replica.label, f"{fleet}; maximum_cost_usd_per_hour is {shown}")


def _likely_replicas(
    replica: CandidateReplica,
    work: RequestWork,
    requests_per_second: float,
    objectives: tuple[Objective, ...],
    fewest: int,
) -> int:
    """The fewest replicas at which mean values meet the load and the objectives, up to eight times `fewest`."""
    model = replica.model

    def suffices(replicas: int) -> bool:
        point = operating_point(model.coefficients, model.engine, work, requests_per_second / replicas)
        return point is not None and meets_on_average(point, objectives, model.front_end_seconds, work)

    low, high = fewest - 1, 8 * fewest
    while high - low > 1:
        middle = (low + high) // 2 if low >= fewest else min(high - 1, low + 1 + fewest // 2)
        if suffices(middle):
            high = middle
        else:
            low = middle
    return high


def _least(objective: Objective, replica: CandidateReplica, work: RequestWork) -> float:
    model = replica.model
    return least_latency_seconds(objective, model.coefficients, model.engine, model.front_end_seconds, work)
