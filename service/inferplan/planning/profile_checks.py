"""What is wrong with a profile beyond its single fields, and the catalogue ids that its names stand for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection

from inferplan.catalog import Catalog
from inferplan.errors import InvalidInputError, NotFoundError, Violation
from inferplan.planning.resolve import ACCELERATOR_COLLECTION, ENGINE_COLLECTION, MODEL_COLLECTION
from inferplan.profiles.profile import (
    BrokenSanityRule,
    ImportHeader,
    Profile,
    ProfileProvenance,
    ServingPoint,
)
from inferplan.sizing.workload import traffic_violations


def profile_violations(
    catalog: Catalog, profile: Profile, path: str, broken_parts: Collection[str] = ()
) -> list[Violation]:
    """Names that the catalogue does not know, loads without lengths, and a profile that measured nothing.

    `broken_parts` are fields of the profile that hold an illegal value; nothing is concluded from them.
    """
    violations: list[Violation] = []
    if "provenance" not in broken_parts:
        violations += _provenance_violations(catalog, profile.provenance, f"{path}.provenance")
        if not profile.provenance.engine and (profile.serving_points or profile.step_measurements):
            description = "must be set for serving points and steps: they are the engine's"
            violations.append(Violation(f"{path}.provenance.engine", description, "REQUIRED"))
    if "serving_points" not in broken_parts:
        for index, point in enumerate(profile.serving_points):
            violations += _point_violations(catalog, point, f"{path}.serving_points[{index}]")
    measured = {"device_measurements", "step_measurements", "serving_points"}
    if not measured & set(broken_parts) and not any(getattr(profile, name) for name in measured):
        description = "holds no measurement: set device_measurements, step_measurements or serving_points"
        violations.append(Violation(path, description, "REQUIRED"))
    return violations


def header_violations(catalog: Catalog, header: ImportHeader, path: str) -> list[Violation]:
    """Names of a file's header that the catalogue does not know."""
    violations = _provenance_violations(catalog, header.provenance, f"{path}.provenance")
    if header.engine.engine:
        violations += name_violations(catalog.engine, header.engine.engine, f"{path}.engine.engine")
    if header.model:
        violations += name_violations(catalog.model, header.model, f"{path}.model")
    return violations


def imported_profile(catalog: Catalog, profile: Profile) -> Profile:
    """A profile that was read from a file, with catalogue ids for the names that the file has.

    A point of a model that is not known is kept and not used, like one that breaks a sanity rule: the file may hold
    others. Raises InvalidInputError for an accelerator or an engine that is not known, since no point could be used.
    """
    violations = _provenance_violations(catalog, profile.provenance, "file")
    if violations:
        raise InvalidInputError(violations)
    return dataclasses.replace(
        profile,
        provenance=_provenance_with_ids(catalog, profile.provenance),
        serving_points=tuple(_imported_point(catalog, point) for point in profile.serving_points),
    )


def _imported_point(catalog: Catalog, point: ServingPoint) -> ServingPoint:
    try:
        return dataclasses.replace(point, model=catalog.model(point.model).id)
    except NotFoundError as error:
        unknown = BrokenSanityRule("UNKNOWN_MODEL", str(error))
        return dataclasses.replace(point, broken_rules=(*point.broken_rules, unknown))


def with_catalogue_ids(catalog: Catalog, profile: Profile) -> Profile:
    """The profile with every alias replaced by its id. Raises NotFoundError: call `profile_violations` first."""
    return dataclasses.replace(
        profile,
        provenance=_provenance_with_ids(catalog, profile.provenance),
        serving_points=tuple(
            dataclasses.replace(point, model=catalog.model(point.model.removeprefix(MODEL_COLLECTION)).id)
            for point in profile.serving_points
        ),
    )


def _provenance_with_ids(catalog: Catalog, provenance: ProfileProvenance) -> ProfileProvenance:
    engine = provenance.engine.removeprefix(ENGINE_COLLECTION)
    return dataclasses.replace(
        provenance,
        accelerator=catalog.accelerator(provenance.accelerator.removeprefix(ACCELERATOR_COLLECTION)).id,
        engine=catalog.engine(engine).id if engine else "",
    )


def _provenance_violations(catalog: Catalog, provenance: ProfileProvenance, path: str) -> list[Violation]:
    accelerator = provenance.accelerator.removeprefix(ACCELERATOR_COLLECTION)
    violations = name_violations(catalog.accelerator, accelerator, f"{path}.accelerator")
    if provenance.engine:
        engine = provenance.engine.removeprefix(ENGINE_COLLECTION)
        violations += name_violations(catalog.engine, engine, f"{path}.engine")
    return violations


def _point_violations(catalog: Catalog, point: ServingPoint, path: str) -> list[Violation]:
    model = point.model.removeprefix(MODEL_COLLECTION)
    return name_violations(catalog.model, model, f"{path}.model") + traffic_violations(point.load, f"{path}.load")


def name_violations(find: Callable[[str], object], name: str, path: str) -> list[Violation]:
    """What is wrong with a catalogue name: nothing, or that it is not known, with the nearest that are."""
    try:
        find(name)
    except NotFoundError as error:
        return [Violation(path, str(error), f"UNKNOWN_{error.resource_type.upper()}")]
    return []
