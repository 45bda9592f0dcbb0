"""From the names of a request to catalogue entries, with everything that is wrong told at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from dataclasses import dataclass

from inferplan.catalog import (
    Accelerator,
    Catalog,
    Engine,
    EngineRelease,
    Model,
    architecture_violations,
    read_huggingface_config,
)
from inferplan.errors import InvalidInputError, NotFoundError, Violation
from inferplan.resources.plan import Hardware, ModelSource, PlanInput, ResolvedInput
from inferplan.sizing.configuration import EngineSettings
from inferplan.sizing.workload import objective_violations, workload_violations

DEFAULT_ENGINE = "vllm"

MODEL_COLLECTION = "models/"
ACCELERATOR_COLLECTION = "accelerators/"
ENGINE_COLLECTION = "engines/"


@dataclass(frozen=True, slots=True)
class ResolvedEngine:
    """An engine with the one release whose constants hold, and the version that was meant."""

    engine: Engine
    release: EngineRelease
    version: str

    @property
    def with_one_release(self) -> Engine:
        """The engine without the releases that do not hold."""
        return dataclasses.replace(self.engine, releases=(self.release,))


def resolve_input(catalog: Catalog, plan_input: PlanInput) -> tuple[ResolvedInput, ResolvedEngine]:
    """What the names stand for. Raises InvalidInputError; call `input_violations` first to have all of them at once."""
    engine = resolve_engine(catalog, plan_input.engine)
    resolved = ResolvedInput(
        model=resolve_model(catalog, plan_input.model),
        accelerators=resolve_accelerators(catalog, plan_input.hardware),
        engine=engine.with_one_release,
    )
    return resolved, engine


def input_violations(
    catalog: Catalog, plan_input: PlanInput, path: str, broken_parts: Collection[str] = ()
) -> list[Violation]:
    """Everything that is wrong with a request beyond its single fields.

    `broken_parts` are parts of the input that hold an illegal field: what follows from a value that cannot stand would
    only confuse, so nothing is concluded from them.
    """
    checks: dict[str, Callable[[], list[Violation]]] = {
        "model": lambda: model_violations(catalog, plan_input.model, f"{path}.model"),
        "hardware": lambda: hardware_violations(catalog, plan_input.hardware, f"{path}.hardware"),
        "engine": lambda: engine_violations(catalog, plan_input.engine, f"{path}.engine"),
        "workload": lambda: workload_violations(plan_input.workload, f"{path}.workload"),
    }
    violations = [violation for part, check in checks.items() if part not in broken_parts for violation in check()]
    if not {"objectives", "workload"} & set(broken_parts):
        violations += objective_violations(plan_input.objectives, plan_input.workload, f"{path}.objectives")
    return violations


def model_violations(catalog: Catalog, source: ModelSource, path: str) -> list[Violation]:
    """What is wrong with the model of a request; a source that names none is the contract's to refuse."""
    if source.model is None and source.config_json is None and source.architecture is None:
        return []
    try:
        resolve_model(catalog, source)
    except InvalidInputError as error:
        return [violation.below(path) for violation in error.violations]
    return []


def hardware_violations(catalog: Catalog, hardware: Hardware, path: str) -> list[Violation]:
    """Accelerators that are not known, named twice under different names, or priced without being allowed."""
    violations: list[Violation] = []
    seen: dict[str, str] = {}
    for index, name in enumerate(hardware.accelerators):
        where = f"{path}.accelerators[{index}]"
        try:
            accelerator = resolve_accelerator(catalog, name)
        except InvalidInputError as error:
            violations += [violation.below(where) for violation in error.violations]
            continue
        if accelerator.id in seen:
            violations.append(
                Violation(where, f"{name!r} is {accelerator.id}, which {seen[accelerator.id]!r} names already")
            )
        seen[accelerator.id] = name
    for name in hardware.cost_usd_per_gpu_hour:
        if name not in hardware.accelerators:
            violations.append(
                Violation(
                    f"{path}.cost_usd_per_gpu_hour[{name!r}]",
                    f"prices an accelerator that is not allowed; legal: {', '.join(hardware.accelerators) or 'none'}",
                )
            )
    return violations


def engine_violations(catalog: Catalog, settings: EngineSettings, path: str) -> list[Violation]:
    """An engine or a version that is not known."""
    try:
        resolve_engine(catalog, settings)
    except InvalidInputError as error:
        return [violation.below(path) for violation in error.violations]
    return []


def resolve_model(catalog: Catalog, source: ModelSource) -> Model:
    """The model that a source stands for; one that is not in the catalogue has no id.

    Raises InvalidInputError with paths below the source.
    """
    model = _named_model(catalog, source)
    if source.headline_parameters is None:
        return model
    return dataclasses.replace(model, headline_parameters=source.headline_parameters)


def _named_model(catalog: Catalog, source: ModelSource) -> Model:
    if source.model is not None:
        try:
            return catalog.model(source.model.removeprefix(MODEL_COLLECTION))
        except NotFoundError as error:
            raise InvalidInputError.single("model", str(error), "UNKNOWN_MODEL") from None
    if source.config_json is not None:
        architecture = read_huggingface_config(source.config_json)
        return Model(
            id="",
            display_name=f"{architecture.family} of the given config.json",
            architecture=architecture,
            source="config.json of the request",
        )
    if source.architecture is None:
        raise InvalidInputError.single("", "names no model: set one of model, config_json, architecture", "REQUIRED")
    violations = architecture_violations(source.architecture)
    if violations:
        raise InvalidInputError(violation.below("architecture") for violation in violations)
    return Model(
        id="",
        display_name=source.architecture.family or "given architecture",
        architecture=source.architecture,
        source="dimensions of the request",
    )


def resolve_accelerators(catalog: Catalog, hardware: Hardware) -> tuple[Accelerator, ...]:
    """The allowed accelerators in the request's order, at the request's prices where it gives any."""
    accelerators = []
    for name in hardware.accelerators:
        accelerator = resolve_accelerator(catalog, name)
        price = hardware.cost_usd_per_gpu_hour.get(name)
        if price is not None:
            sources = {**accelerator.sources, "cost_usd_per_gpu_hour": "the request"}
            accelerator = dataclasses.replace(accelerator, cost_usd_per_gpu_hour=price, sources=sources)
        if hardware.gpus_per_node is not None:
            sources = {**accelerator.sources, "gpus_per_node": "the request"}
            accelerator = dataclasses.replace(accelerator, gpus_per_node=hardware.gpus_per_node, sources=sources)
        accelerators.append(accelerator)
    return tuple(accelerators)


def resolve_accelerator(catalog: Catalog, name: str) -> Accelerator:
    """The accelerator of an id, alias or resource name. Raises InvalidInputError with an empty path."""
    try:
        return catalog.accelerator(name.removeprefix(ACCELERATOR_COLLECTION))
    except NotFoundError as error:
        raise InvalidInputError.single("", str(error), "UNKNOWN_ACCELERATOR") from None


def resolve_engine(catalog: Catalog, settings: EngineSettings) -> ResolvedEngine:
    """The engine and the release that holds for the version. Raises InvalidInputError with paths below the settings."""
    name = settings.engine.removeprefix(ENGINE_COLLECTION) or DEFAULT_ENGINE
    try:
        engine = catalog.engine(name)
    except NotFoundError as error:
        raise InvalidInputError.single("engine", str(error), "UNKNOWN_ENGINE") from None
    try:
        release = engine.release_for(settings.version)
    except InvalidInputError as error:
        raise InvalidInputError.single("version", error.violations[0].description, "UNKNOWN_VERSION") from None
    return ResolvedEngine(engine, release, settings.version or release.since)
