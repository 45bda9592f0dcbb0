"""What simulations of a request run under: the seed, the router, and how much is played."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from inferplan import simulation
from inferplan.errors import Violation
from inferplan.resources.plan import Router
from inferplan.simulation import requests_for_interval
from inferplan.sizing.evaluation import MAXIMUM_REQUESTS, MEASURED_SHARE
from inferplan.sizing.workload import Objective, Workload

MAXIMUM_REQUESTS_PER_SECOND = 20_000.0
"""A minute of stays at this rate is as much as one simulation plays; larger sites run several deployments anyway."""

MAXIMUM_CLIENTS = 20_000
"""Clients of a closed loop that are simulated, for the same reason."""


def seed_from(question: object) -> int:
    """A seed from the content of a frozen dataclass: the same question gives the same draws, today and years later."""
    digest = hashlib.sha256(repr(question).encode()).digest()
    return int.from_bytes(digest[:6], "big") or 1


def simulation_router(router: Router | None) -> simulation.Router:
    """The simulator's router; requests go to the replica with the fewest outstanding unless another is asked for."""
    return simulation.Router(router.value) if router is not None else simulation.Router.LEAST_OUTSTANDING


def percentile_violations(objectives: Sequence[Objective], requests: int | None, path: str) -> list[Violation]:
    """Objectives whose percentile the requests that are played cannot resolve; None means the service's own bound."""
    most = int((requests or MAXIMUM_REQUESTS) * MEASURED_SHARE)
    return [
        Violation(
            f"{path}[{index}].percentile",
            f"P{objective.percentile:g} needs {requests_for_interval(objective.percentile):,} measured requests for "
            f"its confidence interval; {most:,} are measured, since the first tenth of a run is left out",
            "PERCENTILE_NOT_RESOLVED",
        )
        for index, objective in enumerate(objectives)
        if requests_for_interval(objective.percentile) > most
    ]


def load_violations(workload: Workload, path: str) -> list[Violation]:
    """Loads that would be simulated for minutes; refused, since a caller waits for the answer."""
    violations = []
    rate = sum(traffic.requests_per_second or 0.0 for traffic in workload.traffic_classes)
    clients = sum(traffic.concurrency or 0 for traffic in workload.traffic_classes)
    if rate > MAXIMUM_REQUESTS_PER_SECOND:
        text = f"asks {rate:,.0f} requests/s in all; at most {MAXIMUM_REQUESTS_PER_SECOND:,.0f} are simulated at once"
        violations.append(Violation(f"{path}.traffic_classes", f"{text}; divide the load", "LOAD_TOO_LARGE"))
    if clients > MAXIMUM_CLIENTS:
        text = f"has {clients:,} clients in all; at most {MAXIMUM_CLIENTS:,} are simulated at once"
        violations.append(Violation(f"{path}.traffic_classes", f"{text}; divide the load", "LOAD_TOO_LARGE"))
    return violations
