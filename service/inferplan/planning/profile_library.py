"""The use cases of profiles: storing them, reading them back, taking them out of use."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from inferplan.catalog import Catalog
from inferplan.errors import Violation
from inferplan.planning.list_request import ListRequest
from inferplan.planning.profile_checks import profile_violations, with_catalogue_ids
from inferplan.profiles.profile import Profile
from inferplan.resources.profile import profile_id_of, profile_name
from inferplan.storage.pages import ListScope, PageTokens
from inferplan.storage.profiles import ProfileStore


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
        """The profile as it is to be stored: catalogue ids for names, and what the caller does not decide left out."""
        points = tuple(dataclasses.replace(point, broken_rules=()) for point in profile.serving_points)
        return with_catalogue_ids(self._catalog, dataclasses.replace(profile, serving_points=points))

    def create_profile(self, profile: Profile, *, caller: str, request_id: str = "") -> Profile:
        """Store a checked profile, or return the one that the same request, or the same raw file, made before.

        Raises AlreadyExistsError for a request id that came with another profile.
        """
        return self._profiles.create_profile(profile, created_by=caller, request_id=request_id or None)[0]

    def get_profile(self, profile_id: str) -> Profile:
        """One profile. Raises NotFoundError."""
        return self._profiles.get_profile(profile_id)

    def list_profiles(self, request: ListRequest) -> tuple[tuple[Profile, ...], str]:
        """One page of profiles of every status, newest first, and the next page's token."""
        scope = ListScope("profiles")
        page = self._profiles.list_profiles(request.page_size, self._tokens.decode(request.page_token, scope))
        return page.items, self._tokens.encode(page.next_cursor, scope)

    def withdraw_profile(self, profile_id: str, reason: str, superseded_by: str = "") -> Profile:
        """Take a profile out of use. Raises NotFoundError, PreconditionError, InvalidInputError."""
        return self._profiles.withdraw_profile(profile_id, reason, superseded_by)

    def withdrawn(self, names: Collection[str]) -> set[str]:
        """Those of the profiles' resource names that are out of use: withdrawn, or superseded by another."""
        found = self._profiles.withdrawn_profiles([profile_id_of(name) for name in names])
        return {profile_name(profile_id) for profile_id in found}
