"""Names of profiles. The profile itself is `inferplan.profiles.profile.Profile`."""

from __future__ import annotations

PROFILES = "profiles/"


def profile_name(profile_id: str) -> str:
    """The resource name of a profile."""
    return f"{PROFILES}{profile_id}"


def profile_id_of(name: str) -> str:
    """The id of `profiles/a` and of `a` alike."""
    return name.removeprefix(PROFILES)
