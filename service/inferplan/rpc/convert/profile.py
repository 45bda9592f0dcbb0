"""Profiles on the wire."""

from __future__ import annotations

import dataclasses

from inferplan.profiles.profile import ImportHeader, Profile, ProfileProvenance, ProfileStatus, ServingPoint
from inferplan.rpc.convert.common import ACCELERATORS, ENGINES, MODELS, bare_id, resource_name_codec
from inferplan.rpc.convert.mapping import from_message, register_field, to_message
from inferplan.v1 import profile_pb2, profile_service_pb2

register_field(ProfileProvenance, "accelerator", resource_name_codec("accelerator", ACCELERATORS))
register_field(ProfileProvenance, "engine", resource_name_codec("engine", ENGINES))
register_field(ServingPoint, "model", resource_name_codec("model", MODELS))


def profile_from_wire(message: profile_pb2.Profile) -> Profile:
    """What a caller measured, without what only the service sets; not yet validated."""
    return dataclasses.replace(
        from_message(message, Profile),
        name="",
        status=ProfileStatus.ACTIVE,
        status_reason="",
        superseded_by="",
        create_time=None,
        created_by="",
    )


def profile_to_wire(profile: Profile) -> profile_pb2.Profile:
    """A profile as a message."""
    return to_message(profile, profile_pb2.Profile)


def import_header_from_wire(message: profile_service_pb2.ImportProfileHeader) -> ImportHeader:
    """What was said beside a file; not yet validated."""
    header = from_message(message, ImportHeader)
    engine = dataclasses.replace(header.engine, engine=bare_id(header.engine.engine, ENGINES))
    return dataclasses.replace(header, model=bare_id(header.model, MODELS), engine=engine)
