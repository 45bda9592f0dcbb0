"""Stateless memory questions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from inferplan.catalog import Catalog
from inferplan.errors import InvalidInputError, Violation
from inferplan.planning.resolve import (
    engine_violations,
    model_violations,
    resolve_accelerator,
    resolve_engine,
    resolve_model,
)
from inferplan.resources.plan import ModelSource
from inferplan.sizing.configuration import EngineSettings, ParallelismChoice
from inferplan.sizing.memory import MeasuredMemory, MemoryEstimate, MemoryQuestion, estimate_memory
from inferplan.sizing.memory import memory_question_violations as question_violations


@dataclass(frozen=True, slots=True)
class MemoryRequest:
    """A memory question in a caller's terms: names instead of catalogue entries."""

    model: ModelSource
    accelerator: str
    parallelism: ParallelismChoice = field(default_factory=ParallelismChoice)
    engine: EngineSettings = field(default_factory=EngineSettings)
    gpus_per_node: int | None = None
    workload_context_tokens: int | None = None
    measured: MeasuredMemory = field(default_factory=MeasuredMemory)


def memory_violations(catalog: Catalog, request: MemoryRequest, broken_parts: Collection[str] = ()) -> list[Violation]:
    """Everything that is wrong with a request beyond its single fields; nothing is concluded from `broken_parts`."""
    checks: dict[str, Callable[[], list[Violation]]] = {
        "model": lambda: model_violations(catalog, request.model, "model"),
        "accelerator": lambda: _accelerator_violations(catalog, request.accelerator),
        "engine": lambda: engine_violations(catalog, request.engine, "engine"),
    }
    violations = [violation for part, check in checks.items() if part not in broken_parts for violation in check()]
    if violations or broken_parts:
        return violations
    return [_in_request(violation) for violation in question_violations(_question(catalog, request))]


def estimate_memory_for(catalog: Catalog, request: MemoryRequest) -> MemoryEstimate:
    """Where a GPU's memory goes. A configuration that does not fit is an answer, not an error."""
    return estimate_memory(_question(catalog, request))


def _question(catalog: Catalog, request: MemoryRequest) -> MemoryQuestion:
    accelerator = resolve_accelerator(catalog, request.accelerator)
    if request.gpus_per_node is not None:
        accelerator = dataclasses.replace(accelerator, gpus_per_node=request.gpus_per_node)
    return MemoryQuestion(
        architecture=resolve_model(catalog, request.model).architecture,
        accelerator=accelerator,
        engine=resolve_engine(catalog, request.engine).engine,
        settings=request.engine,
        parallelism=request.parallelism.resolved(),
        workload_context_tokens=request.workload_context_tokens,
        measured=request.measured,
    )


def _accelerator_violations(catalog: Catalog, name: str) -> list[Violation]:
    if not name:
        return []
    try:
        resolve_accelerator(catalog, name)
    except InvalidInputError as error:
        return [violation.below("accelerator") for violation in error.violations]
    return []


def _in_request(violation: Violation) -> Violation:
    return dataclasses.replace(violation, field=violation.field.replace("settings.", "engine.", 1))
