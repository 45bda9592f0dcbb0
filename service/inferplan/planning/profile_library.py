"""The use cases of profiles: storing them, reading them back, taking them out of use."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection, Sequence

from inferplan.catalog import Catalog
from inferplan.errors import InvalidInputError, Violation
from inferplan.planning.list_request import ListRequest
from inferplan.planning.profile_checks import (
    header_violations,
    imported_profile,
    profile_violations,
    with_catalogue_ids,
)
from inferplan.profiles.profile import ImportHeader, Profile
from inferplan.profiles.readers import ReadResult, read_benchmark
from inferplan.profiles.sanity import checked_profile
from inferplan.resources.profile import profile_id_of, profile_name
from inferplan.storage.codec import IMPORT_HEADER_CODEC
from inferplan.storage.pages import PageTokens
from inferplan.storage.profiles import ProfileStore, StoredProfiles


class ProfileLibrary:
    """Everything that can be asked about profiles, over one catalogue and one database."""

    def __init__(self, catalog: Catalog, profiles: ProfileStore, tokens: PageTokens) -> None:
        self._catalog = catalog
        self._profiles = profiles
        self._tokens = tokens

    def profile_violations(self, profile: Profile, path: str, broken_parts: Collection[str] = ()) -> list[Violation]:
        """Everything that is wrong with a profile beyond its single fields; see profile_checks."""
        return profile_violations(self._catalog, profile, path, broken_parts)

    def checked(self, profile: Profile) -> Profile:
        """The profile as it is to be stored: catalogue ids for names, and for each point the sanity rules it breaks."""
        points = tuple(dataclasses.replace(point, broken_rules=()) for point in profile.serving_points)
        named = with_catalogue_ids(self._catalog, dataclasses.replace(profile, serving_points=points))
        return checked_profile(named, self._catalog)

    def create_profile(self, profile: Profile, *, caller: str, request_id: str = "") -> Profile:
        """Store a checked profile, or return the one that the same request, or the same raw file, made before.

        Raises AlreadyExistsError for a request id that came with another profile.
        """
        return self._profiles.create_profile(profile, created_by=caller, request_id=request_id or None)[0]

    def read_file(self, content: bytes, header: ImportHeader) -> ReadResult:
        """What a benchmark file holds, each point with the sanity rules that it breaks; stored nowhere.

        Raises InvalidInputError for a file that was changed on its way, is of no known format, or cannot be right.
        """
        sha256 = hashlib.sha256(content).hexdigest()
        stated = header.provenance.raw_sha256
        violations = header_violations(self._catalog, header, "header")
        if stated and stated != sha256:
            description = f"is {stated}, but the file that came has {sha256}; send it again"
            violations.append(Violation("header.provenance.raw_sha256", description, "DAMAGED_FILE"))
        if violations:
            raise InvalidInputError(violations)
        result = read_benchmark(content, header, self._catalog)
        return dataclasses.replace(
            result, profiles=tuple(imported_profile(self._catalog, profile) for profile in result.profiles)
        )

    def import_profiles(self, profiles: Sequence[Profile], header: ImportHeader, *, caller: str) -> StoredProfiles:
        """Store all profiles of one file, or return those that the same bytes made before."""
        # What the file is called, and whether its digest was sent along, changes nothing that was measured.
        provenance = dataclasses.replace(header.provenance, raw_sha256="")
        said = dataclasses.replace(header, filename="", provenance=provenance)
        return self._profiles.import_profiles(
            profiles, request_hash=IMPORT_HEADER_CODEC.digest(said), created_by=caller
        )

    def get_profile(self, profile_id: str) -> Profile:
        """One profile. Raises NotFoundError."""
        return self._profiles.get_profile(profile_id)

    def list_profiles(self, request: ListRequest) -> tuple[tuple[Profile, ...], str]:
        """One page of profiles of every status, newest first, and the next page's token."""
        scope = request.scope("profiles")
        page = self._profiles.list_profiles(request.query(self._tokens, scope))
        return page.items, self._tokens.encode(page.next_cursor, scope)

    def withdraw_profile(self, profile_id: str, reason: str, superseded_by: str = "") -> Profile:
        """Take a profile out of use. Raises NotFoundError, PreconditionError, InvalidInputError."""
        return self._profiles.withdraw_profile(profile_id, reason, superseded_by)

    def withdrawn(self, names: Collection[str]) -> set[str]:
        """Those of the profiles' resource names that are out of use: withdrawn, or superseded by another."""
        found = self._profiles.withdrawn_profiles([profile_id_of(name) for name in names])
        return {profile_name(profile_id) for profile_id in found}
