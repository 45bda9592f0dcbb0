"""A measured serving point as the simulator can play it again: the same load on the same configuration."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from inferplan.catalog import Accelerator, Catalog, Engine, EngineRelease, ModelArchitecture, Precision
from inferplan.errors import InvalidInputError, NotFoundError
from inferplan.profiles.physical_limits import faster_than_memory
from inferplan.profiles.profile import ServingPoint
from inferplan.simulation import Requests
from inferplan.simulation.requests import fit_violations
from inferplan.sizing.configuration import EngineSettings, ParallelismChoice
from inferplan.sizing.efficiency import DATASHEET_EFFICIENCY
from inferplan.sizing.memory import MemoryEstimate, MemoryQuestion, estimate_memory, memory_question_violations
from inferplan.sizing.parallelism import Parallelism
from inferplan.sizing.replica import replica_model
from inferplan.sizing.traffic_requests import closed_loop_requests, open_loop_requests
from inferplan.sizing.workload import LatencyMetric, Workload

REQUESTS_PER_CLIENT = 10
"""Of a closed loop whose number of requests was not recorded: what the published harnesses send."""

FEWEST_OPEN_LOOP_REQUESTS = 400
MOST_OPEN_LOOP_REQUESTS = 4000
STAYS_PER_RUN = 6.0
"""An open loop is played for this many stays of a request, within the two bounds above."""

SEED = 1
"""All points are played with the same draws, so that differences come from the coefficients alone."""


class UnplayableError(Exception):
    """The point cannot be played; the text says why."""


@dataclass(frozen=True, slots=True)
class Stack:
    """What coefficients other than the hardware's belong to: an engine version, on a kind of host, under a harness.

    Any part may be empty, for not recorded.
    """

    engine: str
    version: str = ""
    harness: str = ""

    @property
    def label(self) -> str:
        """`vllm 0.12.0, aic-gap-analysis`."""
        engine = f"{self.engine} {self.version}".strip()
        return f"{engine}, {self.harness}" if self.harness else engine


@dataclass(frozen=True, slots=True)
class MeasuredCase:
    """One point, ready to be played. `measured` holds figures by name: ttft, tpot, e2e in seconds, requests a second.

    `clients` is 0 in an open loop. `is_static_batch` sends all requests together, once.
    """

    label: str
    stack: Stack
    model: str
    served: ModelArchitecture
    accelerator: Accelerator
    release: EngineRelease
    parallelism: Parallelism
    kv_precision: Precision
    memory: MemoryEstimate
    requests: Requests
    clients: int
    is_static_batch: bool
    mean_context_tokens: float
    measured: dict[str, float]

    @property
    def group(self) -> str:
        """`h100-sxm-80gb / vllm / llama-3.1-70b`."""
        return f"{self.accelerator.id} / {self.stack.engine} / {self.model}"


def measured_case(
    catalog: Catalog, accelerator: str, engine: str, version: str, harness: str, label: str, point: ServingPoint
) -> MeasuredCase:
    """Resolve a point. Raises UnplayableError with the reason if it was rejected, or cannot be understood or played."""
    if point.broken_rules:
        raise UnplayableError("; ".join(rule.description for rule in point.broken_rules))
    question = memory_question(catalog, accelerator, engine, version, point)
    memory = playable_memory(question)
    measured = measured_figures(point)
    if not measured:
        raise UnplayableError("neither TTFT, TPOT, end-to-end latency nor throughput was measured")
    too_fast = faster_than_memory(question, memory, point, measured)
    if too_fast:
        raise UnplayableError(too_fast)
    workload = Workload((point.load,))
    case = MeasuredCase(
        label=label,
        stack=Stack(question.engine.id, version, harness),
        model=catalog.model(point.model).id,
        served=question.served,
        accelerator=question.accelerator,
        release=question.release,
        parallelism=question.parallelism,
        kv_precision=memory.configuration.kv_precision,
        memory=memory,
        requests=_requests(point, measured),
        clients=point.load.concurrency or 0 if point.static_batch_sequences is None else point.static_batch_sequences,
        is_static_batch=point.static_batch_sequences is not None,
        mean_context_tokens=workload.mean_context_tokens,
        measured=measured,
    )
    _check_requests(case)
    return case


def memory_question(
    catalog: Catalog, accelerator: str, engine: str, version: str, point: ServingPoint
) -> MemoryQuestion:
    """What a point ran on, as a question to the memory model. Raises UnplayableError for names that are not known."""
    try:
        model = catalog.model(point.model)
        gpu = catalog.accelerator(accelerator)
        served_by = catalog.engine(engine)
    except NotFoundError as error:
        raise UnplayableError(str(error)) from None
    longest = min(model.architecture.maximum_context_tokens, math.ceil(point.load.longest_context_tokens))
    return MemoryQuestion(
        architecture=model.architecture,
        accelerator=gpu,
        engine=served_by,
        settings=EngineSettings(
            engine=served_by.id,
            version=_known_version(served_by, version),
            weight_precision=point.weight_precision,
            kv_precision=point.kv_precision,
            max_num_seqs=point.max_num_seqs,
            max_num_batched_tokens=point.max_num_batched_tokens,
            max_model_len_tokens=longest,
        ),
        parallelism=(point.parallelism or ParallelismChoice()).resolved(),
        workload_context_tokens=max(1, round(Workload((point.load,)).mean_context_tokens)),
    )


def playable_memory(question: MemoryQuestion) -> MemoryEstimate:
    """The memory of a replica that starts. Raises UnplayableError with every reason why it does not."""
    violations = memory_question_violations(question)
    if violations:
        raise UnplayableError("; ".join(f"{item.field} {item.description}" for item in violations))
    memory = estimate_memory(question)
    if not memory.fits:
        raise UnplayableError("; ".join(rule.description for rule in memory.broken_rules))
    return memory


def _check_requests(case: MeasuredCase) -> None:
    """Requests that the replica could never finish, as the tail of a drawn length may be."""
    replica = replica_model(
        case.served, case.accelerator, case.release, case.memory, DATASHEET_EFFICIENCY, case.mean_context_tokens
    )
    violations = fit_violations(case.requests, replica.engine)
    if violations:
        raise UnplayableError("; ".join(item.description for item in violations))


def _known_version(engine: Engine, version: str) -> str:
    """The version where the catalogue has constants for it, else the nearest that it has."""
    try:
        engine.release_for(version)
    except InvalidInputError:
        return engine.releases[0].since if version else ""
    return version


def measured_figures(point: ServingPoint) -> dict[str, float]:
    """Means in seconds by figure; medians where no mean was measured; throughput where the load does not fix it."""
    figures: dict[str, float] = {}
    for name, metric in (
        ("ttft", LatencyMetric.TTFT),
        ("tpot", LatencyMetric.TPOT),
        ("e2e", LatencyMetric.END_TO_END),
    ):
        value = point.latency_seconds(metric)
        if value is None:
            value = point.latency_seconds(metric, 50.0)
        if value is not None:
            figures[name] = value
    if point.requests_per_second and point.load.requests_per_second is None:
        figures["throughput"] = point.requests_per_second
    elif point.output_tokens_per_second and point.load.requests_per_second is None:
        figures["throughput"] = point.output_tokens_per_second / point.load.mean_output_tokens
    return figures


def _requests(point: ServingPoint, measured: dict[str, float]) -> Requests:
    workload = Workload((point.load,))
    if point.static_batch_sequences is not None:
        return closed_loop_requests(workload, SEED, point.static_batch_sequences)
    if point.load.concurrency is not None:
        count = point.completed_requests or REQUESTS_PER_CLIENT * point.load.concurrency
        return closed_loop_requests(workload, SEED, max(1, count))
    rate = point.load.requests_per_second or 0.0
    stay = measured.get("e2e") or measured.get("ttft", 1.0) + point.load.mean_output_tokens * measured.get("tpot", 0.02)
    count = int(np.clip(rate * stay * STAYS_PER_RUN, FEWEST_OPEN_LOOP_REQUESTS, MOST_OPEN_LOOP_REQUESTS))
    return open_loop_requests(workload, SEED, count)
