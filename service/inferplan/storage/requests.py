"""Idempotent requests: what a request id has made."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy.orm import Session

from inferplan.errors import AlreadyExistsError, InvalidInputError
from inferplan.storage.tables import (
    REQUEST_HASH_LENGTH,
    CalibrationRequestRow,
    IdempotentRequestRow,
    ProfileRequestRow,
)
from inferplan.storage.text_rules import refuse, text_violations

RESOURCE_TYPE = "Request"


@dataclass(frozen=True, slots=True)
class RequestKey:
    """A request's id and the digest of all that it asks."""

    request_id: UUID
    request_hash: str


def request_key(request_id: str | None, request_hash: str | None) -> RequestKey | None:
    """The key of a request, None for one without an id. Raises InvalidInputError for an id that is no UUID."""
    if not request_id:
        return None
    if not request_hash:
        raise ValueError("a request id needs the hash of its request")
    refuse(text_violations("request_hash", request_hash, REQUEST_HASH_LENGTH))
    try:
        return RequestKey(UUID(request_id), request_hash)
    except ValueError:
        raise InvalidInputError.single(
            "request_id", "is not a UUID; legal: for example 123e4567-e89b-12d3-a456-426614174000"
        ) from None


def requested_plan_id(session: Session, request: RequestKey) -> int | None:
    """Key of the plan that the request has made. Raises AlreadyExistsError if its id came with another hash."""
    row = session.get(IdempotentRequestRow, request.request_id)
    if row is None:
        return None
    refuse_another_request(request, row.request_hash)
    return row.plan_id


def requested_profile_id(session: Session, request: RequestKey) -> int | None:
    """Key of the profile that the request was given. Raises AlreadyExistsError if its id came with another hash."""
    row = session.get(ProfileRequestRow, request.request_id)
    if row is None:
        return None
    refuse_another_request(request, row.request_hash)
    return row.profile_id


def requested_calibration_id(session: Session, request: RequestKey) -> int | None:
    """Key of the calibration that the request has made. Raises AlreadyExistsError if its id came with another hash."""
    row = session.get(CalibrationRequestRow, request.request_id)
    if row is None:
        return None
    refuse_another_request(request, row.request_hash)
    return row.calibration_id


def refuse_another_request(request: RequestKey, stored_hash: str) -> None:
    """Raise AlreadyExistsError if the id of `request` came with another hash before."""
    if stored_hash != request.request_hash:
        request_id = str(request.request_id)
        raise AlreadyExistsError(
            RESOURCE_TYPE, request_id, f"request_id {request_id} was used with another request; use a new UUID"
        )


def remember_request(session: Session, request: RequestKey, plan_id: int, create_time: datetime) -> None:
    """Note that the request has made the plan, in the plan's own transaction."""
    session.add(
        IdempotentRequestRow(
            request_id=request.request_id, request_hash=request.request_hash, plan_id=plan_id, create_time=create_time
        )
    )


def remember_profile_request(session: Session, request: RequestKey, profile_id: int, create_time: datetime) -> None:
    """Note that the request was given the profile, in the transaction that gives it."""
    session.add(
        ProfileRequestRow(
            request_id=request.request_id,
            request_hash=request.request_hash,
            profile_id=profile_id,
            create_time=create_time,
        )
    )


def remember_calibration_request(
    session: Session, request: RequestKey, calibration_id: int, create_time: datetime
) -> None:
    """Note that the request has made the calibration, in the calibration's own transaction."""
    session.add(
        CalibrationRequestRow(
            request_id=request.request_id,
            request_hash=request.request_hash,
            calibration_id=calibration_id,
            create_time=create_time,
        )
    )
