"""The use cases of calibrations: fitting them from profiles, storing them, reading them back."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from inferplan.catalog import Catalog
from inferplan.errors import (
    AlreadyExistsError,
    BrokenRule,
    CancelledError,
    PreconditionError,
    Violation,
)
from inferplan.planning.list_request import ListRequest
from inferplan.planning.profile_checks import name_violations
from inferplan.planning.resolve import ENGINE_COLLECTION
from inferplan.profiles.calibration import (
    Calibration,
    MeasuredCase,
    UnplayableError,
    fit_calibration,
    measured_case,
)
from inferplan.profiles.profile import Profile, ProfileStatus
from inferplan.profiles.reference import BUILT_IN, builtin_calibrations
from inferplan.resources.calibration import calibration_name
from inferplan.resources.profile import profile_id_of, profile_name
from inferplan.simulation import Cancellation
from inferplan.storage.calibrations import CALIBRATION_FIELDS, CalibrationStore
from inferplan.storage.codec import document_digest
from inferplan.storage.filters import matches, parse_filter
from inferplan.storage.pages import ListQuery, Page, PageCursor, PageTokens, page_size_of
from inferplan.storage.profiles import ProfileStore

RESERVED_IDS = (BUILT_IN, "datasheet")
"""What plans may name beside stored calibrations; ids may neither be one of these nor begin with one and a hyphen."""

MOST_LISTED_POINTS = 200
"""Of those that cannot be used; a calibration must fit into a reply."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class FitRequest:
    """What is to be fitted. Empty `profiles` stands for every active profile of the engine."""

    engine: str
    profiles: tuple[str, ...] = ()
    calibration_id: str = ""
    caller: str = ""
    request_id: str = ""
    validate_only: bool = False


class CalibrationLibrary:
    """Everything that can be asked about calibrations, over one catalogue and one database."""

    def __init__(
        self, catalog: Catalog, calibrations: CalibrationStore, profiles: ProfileStore, tokens: PageTokens
    ) -> None:
        self._catalog = catalog
        self._calibrations = calibrations
        self._profiles = profiles
        self._tokens = tokens

    def fit_violations(self, request: FitRequest) -> list[Violation]:
        """Everything that is wrong with a request beyond its single fields."""
        engine = request.engine.removeprefix(ENGINE_COLLECTION)
        violations = name_violations(self._catalog.engine, engine, "engine")
        for reserved in RESERVED_IDS:
            if request.calibration_id == reserved or request.calibration_id.startswith(f"{reserved}-"):
                description = f"begins with {reserved!r}, which is the service's own; choose another id"
                violations.append(Violation("calibration_id", description, "RESERVED"))
        engine_id = "" if violations else self._catalog.engine(engine).id
        for index, name in enumerate(request.profiles):
            violations += self._profile_violations(name, engine_id, f"profiles[{index}]")
        return violations

    def find_fit(self, request: FitRequest) -> Calibration | None:
        """The calibration that the same request made before, None if there is none.

        Raises AlreadyExistsError for a request id that came with another request.
        """
        if not request.request_id or request.validate_only:
            return None
        return self._calibrations.find_request(request.request_id, self._digest(request))

    def fit_calibration(self, request: FitRequest, cancellation: Cancellation | None = None) -> Calibration:
        """Fit the coefficients of an engine and store them, unless `validate_only` is set.

        Call `find_fit` and `fit_violations` first. Raises AlreadyExistsError for an id that is taken, PreconditionError
        if there is nothing to fit, CancelledError.
        """
        if request.calibration_id and self._calibrations.find_calibration(request.calibration_id) is not None:
            raise AlreadyExistsError("Calibration", calibration_name(request.calibration_id))
        fitted = self._fit(request, cancellation or Cancellation())
        if request.validate_only:
            return dataclasses.replace(fitted, name="", created_by=request.caller)
        return self._calibrations.create_calibration(
            fitted,
            created_by=request.caller,
            request_id=request.request_id or None,
            request_hash=self._digest(request) if request.request_id else None,
        )

    def get_calibration(self, calibration_id: str) -> Calibration:
        """One calibration, stored or built in. Raises NotFoundError."""
        for calibration in builtin_calibrations().values():
            if calibration.name == calibration_id:
                return calibration
        return self._calibrations.get_calibration(calibration_id)

    def list_calibrations(self, request: ListRequest) -> tuple[tuple[Calibration, ...], str]:
        """One page of calibrations, newest first, and the next page's token; those that are built in come last."""
        scope = request.scope("calibrations")
        page = self._page(request.query(self._tokens, scope))
        return page.items, self._tokens.encode(page.next_cursor, scope)

    def _page(self, request: ListQuery) -> Page[Calibration]:
        """Built-in calibrations have no time of creation: their positions are those of a list that begins at 1970."""
        size = page_size_of(request.page_size)
        tree = parse_filter(request.filter, CALIBRATION_FIELDS)
        ordered = sorted(builtin_calibrations().values(), key=lambda calibration: calibration.name)
        built_in = [calibration for calibration in ordered if matches(tree, _filtered_by(calibration))]
        stored: Page[Calibration] = Page(())
        first = 0
        if request.cursor is not None and request.cursor.create_time == _EPOCH:
            first = request.cursor.id
        else:
            stored = self._calibrations.list_calibrations(request)
            if stored.next_cursor is not None:
                return stored
        end = first + size - len(stored.items)
        following = PageCursor(_EPOCH, end) if end < len(built_in) else None
        return Page((*stored.items, *built_in[first:end]), following)

    def _digest(self, request: FitRequest) -> str:
        engine = request.engine.removeprefix(ENGINE_COLLECTION).lower()
        names = sorted({profile_id_of(name) for name in request.profiles})
        return document_digest({"engine": engine, "profiles": names, "calibration_id": request.calibration_id})

    def _profile_violations(self, name: str, engine_id: str, path: str) -> list[Violation]:
        profile = self._profiles.find_profile(profile_id_of(name))
        if profile is None:
            return [Violation(path, f"{profile_name(profile_id_of(name))} does not exist", "UNKNOWN_PROFILE")]
        if profile.status is not ProfileStatus.ACTIVE:
            description = f"{profile.name} is {profile.status}: {profile.status_reason}; legal: active profiles"
            return [Violation(path, description, "PROFILE_NOT_ACTIVE")]
        if engine_id and profile.provenance.engine != engine_id:
            description = (
                f"{profile.name} is of {profile.provenance.engine or 'no engine'}; legal: profiles of {engine_id}"
            )
            return [Violation(path, description, "PROFILE_OF_ANOTHER_ENGINE")]
        return []

    def _fit(self, request: FitRequest, cancellation: Cancellation) -> Calibration:
        engine_id = self._catalog.engine(request.engine.removeprefix(ENGINE_COLLECTION)).id
        if request.profiles:
            names = dict.fromkeys(profile_id_of(name) for name in request.profiles)
            profiles: Sequence[Profile] = [self._profiles.get_profile(name) for name in names]
        else:
            profiles = self._profiles.active_profiles(engine_id)
        cases, unused = self._cases(profiles)
        if not cases:
            raise _nothing_to_fit(engine_id, unused)

        def check() -> None:
            if cancellation.cancelled:
                raise CancelledError("the fit was stopped; nothing was stored")

        fitted = fit_calibration([case for _, case in cases], request.calibration_id, check=check)
        used = dict.fromkeys(name for name, _ in cases)
        return dataclasses.replace(fitted, profiles=tuple(used), outliers=(*fitted.outliers, *_listed(unused)))

    def _cases(self, profiles: Sequence[Profile]) -> tuple[list[tuple[str, MeasuredCase]], list[str]]:
        """Every point that can be played, with its profile's name; and why the others cannot."""
        cases: list[tuple[str, MeasuredCase]] = []
        unused: list[str] = []
        for profile in profiles:
            provenance = profile.provenance
            for index, point in enumerate(profile.serving_points):
                label = f"{profile.name} point {index}"
                try:
                    case = measured_case(
                        self._catalog,
                        provenance.accelerator,
                        provenance.engine,
                        provenance.engine_version,
                        provenance.tool,
                        label,
                        point,
                    )
                except UnplayableError as error:
                    unused.append(f"{label}: not used: {error}")
                    continue
                cases.append((profile.name, case))
        return cases, unused


def _filtered_by(calibration: Calibration) -> dict[str, object]:
    """What a built-in calibration has of the fields of a filter: it was created by nobody, at no time."""
    return {"calibration": calibration.name, "engine": calibration.engine, "points": float(calibration.points)}


def _nothing_to_fit(engine_id: str, unused: Sequence[str]) -> PreconditionError:
    description = "no active profile holds a serving point that can be played; import a benchmark file first"
    if unused:
        description = f"none of {len(unused)} serving points can be used: {'; '.join(_listed(unused))}"
    return PreconditionError(BrokenRule("NOTHING_TO_FIT", f"engines/{engine_id}", description))


def _listed(unused: Sequence[str]) -> list[str]:
    more = len(unused) - MOST_LISTED_POINTS
    return [*unused[:MOST_LISTED_POINTS], *([f"{more} more points: not used"] if more > 0 else [])]
