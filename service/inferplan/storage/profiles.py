"""Profiles in the database: never deleted, and immutable but for their status."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from inferplan.errors import (
    BrokenRule,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    PreconditionError,
    Violation,
)
from inferplan.profiles.profile import Profile, ProfileStatus
from inferplan.resources.profile import profile_name
from inferplan.storage.codec import PROFILE_CODEC
from inferplan.storage.column_types import utc_now
from inferplan.storage.database import Database
from inferplan.storage.filters import FilterField, FilterKind
from inferplan.storage.filters.fields import field_map
from inferplan.storage.listing import RowList
from inferplan.storage.pages import EVERYTHING, MAXIMUM_PAGE_BYTES, ListQuery, Page
from inferplan.storage.requests import RequestKey, remember_profile_request, request_key, requested_profile_id
from inferplan.storage.tables import (
    CATALOGUE_ID_LENGTH,
    PRINCIPAL_LENGTH,
    SHA256_LENGTH,
    STATUS_REASON_LENGTH,
    TOOL_LENGTH,
    VERSION_LENGTH,
    ProfileRow,
)
from inferplan.storage.text_rules import refuse, text_violations

RESOURCE_TYPE = "Profile"

_ATTEMPTS = 4
"""The same file may come from many callers at once; whoever loses a race finds the winner's profiles at the next."""


@dataclass(frozen=True, slots=True)
class StoredProfiles:
    """The profiles of one file. `stored_before` is True if they were not made by this call."""

    profiles: tuple[Profile, ...]
    stored_before: bool


def draw_profile_id() -> str:
    """A new id: 64 random bits in hexadecimal."""
    return secrets.token_hex(8)


class ProfileStore:
    """Creates, finds, lists and withdraws profiles. `now` is the clock, `draw_id` makes ids."""

    def __init__(
        self,
        database: Database,
        now: Callable[[], datetime] = utc_now,
        draw_id: Callable[[], str] = draw_profile_id,
    ) -> None:
        self._database = database
        self._now = now
        self._draw_id = draw_id

    def create_profile(
        self, profile: Profile, *, created_by: str = "", request_id: str | None = None
    ) -> tuple[Profile, bool]:
        """Store a profile, or return the one that this request, or this raw file, has made before, with True.

        Raises AlreadyExistsError for a request id that came with another profile, InvalidInputError for content that
        cannot be stored.
        """
        digest = PROFILE_CODEC.digest(profile)
        stored = self._store([profile], digest, created_by, request_key(request_id, digest))
        return stored.profiles[0], stored.stored_before

    def import_profiles(
        self, profiles: Sequence[Profile], *, request_hash: str, created_by: str = ""
    ) -> StoredProfiles:
        """Store all profiles of one file, or none, or return those that the same bytes have made before.

        All have the file's `raw_sha256`. `request_hash` is a digest of what was said beside the file: a file whose
        profiles were all withdrawn makes new ones if that is another now.
        """
        if len({profile.provenance.raw_sha256 for profile in profiles}) != 1 or not profiles[0].provenance.raw_sha256:
            raise ValueError("the profiles of one file have the file's SHA-256 in common")
        return self._store(profiles, request_hash, created_by, None)

    def find_profile(self, profile_id: str) -> Profile | None:
        """One profile, None if there is none of that id."""
        with self._database.read() as session:
            row = session.scalar(select(ProfileRow).where(ProfileRow.profile_id == profile_id))
        return None if row is None else _profile(row)

    def get_profile(self, profile_id: str) -> Profile:
        """One profile, whatever its status. Raises NotFoundError."""
        profile = self.find_profile(profile_id)
        if profile is None:
            raise NotFoundError(RESOURCE_TYPE, profile_name(profile_id))
        return profile

    def active_profiles(self, engine_id: str) -> tuple[Profile, ...]:
        """Every active profile of an engine, oldest first."""
        query = (
            select(ProfileRow)
            .where(ProfileRow.engine_id == engine_id, ProfileRow.status == ProfileStatus.ACTIVE)
            .order_by(ProfileRow.create_time, ProfileRow.id)
        )
        with self._database.read() as session:
            return tuple(_profile(row) for row in session.scalars(query))

    def withdrawn_profiles(self, profile_ids: Collection[str]) -> set[str]:
        """Those of the ids whose profiles are out of use: withdrawn, or superseded."""
        if not profile_ids:
            return set()
        query = select(ProfileRow.profile_id).where(
            ProfileRow.profile_id.in_(sorted(set(profile_ids))), ProfileRow.status != ProfileStatus.ACTIVE
        )
        with self._database.read() as session:
            return set(session.scalars(query))

    def list_profiles(self, request: ListQuery = EVERYTHING) -> Page[Profile]:
        """Profiles of every status, newest first unless another order is asked for. Raises what RowList.page raises."""
        with self._database.read() as session:
            rows, following = PROFILE_LIST.page(session, select(ProfileRow), request)
        return Page(tuple(_profile(row) for row in rows), following)

    def withdraw_profile(self, profile_id: str, reason: str, superseded_by: str = "") -> Profile:
        """Take a profile out of use; with `superseded_by`, the id of an active profile, in favour of that one.

        Doing it again with the same reason changes nothing. Raises NotFoundError, PreconditionError for a profile that
        was withdrawn for another reason, InvalidInputError for a reason or a replacement that cannot stand.
        """
        refuse(text_violations("reason", reason, STATUS_REASON_LENGTH))
        wanted = {profile_id, superseded_by} - {""}
        # Both rows are locked in the order of their ids: two profiles that supersede each other must not deadlock.
        query = select(ProfileRow).where(ProfileRow.profile_id.in_(wanted)).order_by(ProfileRow.id).with_for_update()
        with self._database.write() as session:
            rows = {row.profile_id: row for row in session.scalars(query)}
            row = rows.get(profile_id)
            if row is None:
                raise NotFoundError(RESOURCE_TYPE, profile_name(profile_id))
            if row.status == ProfileStatus.ACTIVE:
                if superseded_by:
                    _require_replacement(profile_id, superseded_by, rows.get(superseded_by))
                row.status = ProfileStatus.SUPERSEDED if superseded_by else ProfileStatus.WITHDRAWN
                row.status_reason = reason
                row.superseded_by = superseded_by or None
            elif (row.status_reason, row.superseded_by) != (reason, superseded_by or None):
                raise _already_withdrawn(row)
            return _profile(row)

    def _store(
        self, profiles: Sequence[Profile], request_hash: str, created_by: str, request: RequestKey | None
    ) -> StoredProfiles:
        refuse(text_violations("profile.created_by", created_by, PRINCIPAL_LENGTH))
        contents = [_new_columns(profile) for profile in profiles]
        for _ in range(_ATTEMPTS):
            try:
                with self._database.write() as session:
                    return self._store_once(session, contents, request_hash, created_by, request)
            except IntegrityError:
                # Another caller stored the same file, or used the same request id, since this one looked.
                continue
        raise ConflictError("the same file is being stored by others; try again")

    def _store_once(
        self,
        session: Session,
        contents: Sequence[dict[str, object]],
        request_hash: str,
        created_by: str,
        request: RequestKey | None,
    ) -> StoredProfiles:
        """One transaction's work. Raises IntegrityError if another transaction came in between."""
        made_before = requested_profile_id(session, request) if request else None
        if made_before is not None:
            return StoredProfiles((_profile(session.get_one(ProfileRow, made_before)),), True)
        create_time = self._now()
        earlier = _rows_of_file(session, contents[0]["raw_sha256"])
        rows = _first_import(earlier, request_hash)
        stored_before = bool(rows)
        if not rows:
            first_part = earlier[-1].part + 1 if earlier else 0
            rows = [
                ProfileRow(
                    **columns,
                    profile_id=self._draw_id(),
                    part=first_part + index,
                    create_time=create_time,
                    created_by=created_by,
                    status=ProfileStatus.ACTIVE.value,
                    status_reason="",
                    request_hash=request_hash,
                )
                for index, columns in enumerate(contents)
            ]
            session.add_all(rows)
            session.flush()
        if request:
            remember_profile_request(session, request, rows[0].id, create_time)
            session.flush()
        return StoredProfiles(tuple(_profile(row) for row in rows), stored_before)


PROFILE_FIELDS = field_map(
    FilterField("accelerator", FilterKind.TEXT, ProfileRow.accelerator_id, collection="accelerators/"),
    FilterField("engine", FilterKind.TEXT, ProfileRow.engine_id, collection="engines/"),
    FilterField("engine_version", FilterKind.TEXT, ProfileRow.engine_version),
    FilterField("tool", FilterKind.TEXT, ProfileRow.tool),
    FilterField("status", FilterKind.TEXT, ProfileRow.status, choices=tuple(ProfileStatus)),
    FilterField("labels", FilterKind.LABELS, ProfileRow.labels),
    FilterField("measure_time", FilterKind.TIME, ProfileRow.measure_time, nullable=True),
    FilterField("create_time", FilterKind.TIME, ProfileRow.create_time),
    FilterField("created_by", FilterKind.TEXT, ProfileRow.created_by),
)
PROFILE_LIST = RowList(ProfileRow, PROFILE_FIELDS, MAXIMUM_PAGE_BYTES)


def _rows_of_file(session: Session, raw_sha256: object) -> Sequence[ProfileRow]:
    if raw_sha256 is None:
        return ()
    return session.scalars(
        select(ProfileRow).where(ProfileRow.raw_sha256 == raw_sha256).order_by(ProfileRow.part)
    ).all()


def _first_import(rows: Sequence[ProfileRow], request_hash: str) -> list[ProfileRow]:
    """The profiles that stand for the file; empty if it is to make new ones.

    They are those of the import that still has a profile in use. If there is none, they are those of the same request:
    repeating an import never brings a withdrawn profile back, while one with a corrected header is a new import.
    """
    in_use = [row.request_hash for row in rows if row.status != ProfileStatus.WITHDRAWN]
    standing = in_use[0] if in_use else request_hash
    return [row for row in rows if row.request_hash == standing]


def _new_columns(profile: Profile) -> dict[str, object]:
    provenance = profile.provenance
    payload = PROFILE_CODEC.encode(profile)
    refuse(
        text_violations("profile.provenance.accelerator", provenance.accelerator, CATALOGUE_ID_LENGTH)
        + text_violations("profile.provenance.engine", provenance.engine, CATALOGUE_ID_LENGTH)
        + text_violations("profile.provenance.engine_version", provenance.engine_version, VERSION_LENGTH)
        + text_violations("profile.provenance.tool", provenance.tool, TOOL_LENGTH)
        + text_violations("profile.provenance.raw_sha256", provenance.raw_sha256, SHA256_LENGTH)
    )
    return {
        "accelerator_id": provenance.accelerator,
        "engine_id": provenance.engine,
        "engine_version": provenance.engine_version,
        "tool": provenance.tool,
        "measure_time": provenance.measure_time,
        "labels": dict(profile.labels),
        "raw_sha256": provenance.raw_sha256 or None,
        "payload_schema_version": PROFILE_CODEC.schema_version,
        "payload": payload,
    }


def _require_replacement(profile_id: str, superseded_by: str, replacement: ProfileRow | None) -> None:
    name = profile_name(superseded_by)
    if superseded_by == profile_id:
        problem = f"{name} cannot replace itself"
    elif replacement is None:
        problem = f"{name} does not exist"
    elif replacement.status != ProfileStatus.ACTIVE:
        problem = f"{name} is {replacement.status}"
    else:
        return
    raise InvalidInputError(
        [Violation("superseded_by", f"{problem}; legal: another active profile", "NOT_A_REPLACEMENT")]
    )


def _already_withdrawn(row: ProfileRow) -> PreconditionError:
    replacement = f", superseded by {profile_name(row.superseded_by)}" if row.superseded_by else ""
    return PreconditionError(
        BrokenRule(
            "ALREADY_WITHDRAWN",
            profile_name(row.profile_id),
            f"is {row.status} already{replacement}, with the reason {row.status_reason!r}; that cannot be changed",
        )
    )


def _profile(row: ProfileRow) -> Profile:
    return replace(
        PROFILE_CODEC.decode(row.payload, row.payload_schema_version),
        name=profile_name(row.profile_id),
        status=ProfileStatus(row.status),
        status_reason=row.status_reason,
        superseded_by=profile_name(row.superseded_by) if row.superseded_by else "",
        create_time=row.create_time,
        created_by=row.created_by,
    )
