"""The options that describe a load, shared by the commands that play one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from inferplan.cli.configuration_options import COUNT
from inferplan.errors import InvalidInputError, Violation
from inferplan.v1 import workload_pb2

_PROCESSES = {
    "poisson": workload_pb2.Arrivals.PROCESS_POISSON,
    "constant": workload_pb2.Arrivals.PROCESS_CONSTANT,
    "gamma": workload_pb2.Arrivals.PROCESS_GAMMA,
}

_OPTIONS = (
    click.option("--input-tokens", type=COUNT, required=True, help="Prompt length, in tokens."),
    click.option("--output-tokens", type=COUNT, required=True, help="Output length, in tokens."),
    click.option("--concurrency", type=COUNT, help="Closed loop: clients that each keep one request in flight."),
    click.option("--rate", type=float, help="Open loop: arrivals, in requests a second."),
    click.option(
        "--arrival",
        default="poisson",
        show_default=True,
        metavar="poisson|constant|gamma:CV",
        help="How arrivals vary around the rate.",
    ),
    click.option("--prefix-cache-hit-ratio", type=float, help="Share of prompt tokens that the prefix cache serves."),
)


@dataclass(frozen=True, slots=True)
class TrafficOptions:
    """What the options said."""

    input_tokens: int
    output_tokens: int
    concurrency: int | None
    rate: float | None
    arrival: str
    prefix_cache_hit_ratio: float | None

    def workload(self) -> workload_pb2.Workload:
        """One traffic class. Raises InvalidInputError with all slips."""
        violations = []
        if (self.concurrency is None) == (self.rate is None):
            violations.append(Violation("--rate", "exactly one of --rate and --concurrency must be given"))
        traffic = workload_pb2.TrafficClass(
            input_tokens=workload_pb2.LengthDistribution(constant_tokens=self.input_tokens),
            output_tokens=workload_pb2.LengthDistribution(constant_tokens=self.output_tokens),
            prefix_cache_hit_ratio=self.prefix_cache_hit_ratio,
        )
        if self.concurrency is not None:
            traffic.concurrency = self.concurrency
        else:
            traffic.requests_per_second = self.rate or 0.0
            self._write_arrivals(traffic.arrivals, violations)
        if violations:
            raise InvalidInputError(violations)
        return workload_pb2.Workload(traffic_classes=[traffic])

    def _write_arrivals(self, arrivals: workload_pb2.Arrivals, violations: list[Violation]) -> None:
        name, colon, variation = self.arrival.partition(":")
        process = _PROCESSES.get(name)
        if process is None or (bool(colon) != (name == "gamma")):
            violations.append(
                Violation("--arrival", f"{self.arrival!r} is not legal; legal: poisson, constant, gamma:CV")
            )
            return
        arrivals.process = process
        if colon:
            try:
                arrivals.coefficient_of_variation = float(variation)
            except ValueError:
                violations.append(Violation("--arrival", f"{variation!r} is no coefficient of variation, such as 2.5"))


def traffic_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the command gets them together as its argument `traffic`."""

    @functools.wraps(command)
    def with_traffic(**values: Any) -> Any:
        own = {name: values.pop(name) for name in TrafficOptions.__slots__}
        return command(traffic=TrafficOptions(**own), **values)

    for option in reversed(_OPTIONS):
        option(with_traffic)
    return with_traffic
