"""The tables. migrations/ builds them; a test compares the two on both databases.

A `payload` is the truth. The columns beside it are a projection that lists can filter and sort by, or what may change.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import Double, ForeignKey, Index, LargeBinary, MetaData, String, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from inferplan.storage.column_types import BIG_INTEGER, JSON_DOCUMENT, UtcDateTime

NAMING_CONVENTION = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}

DEPLOYMENT_ID_LENGTH = 63
DISPLAY_NAME_LENGTH = 200
PRINCIPAL_LENGTH = 200
MODEL_ID_LENGTH = 200
CATALOGUE_ID_LENGTH = 100
METHOD_LENGTH = 32
REQUEST_HASH_LENGTH = 128
RESOURCE_ID_LENGTH = 63
VERSION_LENGTH = 100
TOOL_LENGTH = 100
STATUS_LENGTH = 32
STATUS_REASON_LENGTH = 1000
SHA256_LENGTH = 64


class Base(DeclarativeBase):
    """Base of all tables; names every constraint, so that migrations can name them too."""

    metadata = MetaData(naming_convention=NAMING_CONVENTION)


class DeploymentRow(Base):
    """A deployment. Its row is locked while a plan's revision is given out, which keeps revisions free of gaps."""

    __tablename__ = "deployments"
    __table_args__ = (
        UniqueConstraint("deployment_id"),
        Index(None, "create_time", "id"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BIG_INTEGER, primary_key=True)
    deployment_id: Mapped[str] = mapped_column(String(DEPLOYMENT_ID_LENGTH))
    display_name: Mapped[str] = mapped_column(String(DISPLAY_NAME_LENGTH))
    labels: Mapped[dict[str, str]] = mapped_column(JSON_DOCUMENT)
    latest_revision: Mapped[int] = mapped_column(BIG_INTEGER)
    create_time: Mapped[datetime] = mapped_column(UtcDateTime)
    update_time: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str] = mapped_column(String(PRINCIPAL_LENGTH))
    delete_time: Mapped[datetime | None] = mapped_column(UtcDateTime)


class PlanRow(Base):
    """A plan. `id` rises with the revision inside a deployment, so (create_time, id) orders lists without ties."""

    __tablename__ = "plans"
    __table_args__ = (
        UniqueConstraint("deployment_id", "revision"),
        Index(None, "create_time", "id"),
        Index(None, "deployment_id", "create_time", "id"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BIG_INTEGER, primary_key=True)
    deployment_id: Mapped[str] = mapped_column(
        String(DEPLOYMENT_ID_LENGTH), ForeignKey(DeploymentRow.deployment_id, ondelete="RESTRICT")
    )
    revision: Mapped[int] = mapped_column(BIG_INTEGER)
    create_time: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str] = mapped_column(String(PRINCIPAL_LENGTH))
    delete_time: Mapped[datetime | None] = mapped_column(UtcDateTime)
    method: Mapped[str] = mapped_column(String(METHOD_LENGTH))
    model_id: Mapped[str] = mapped_column(String(MODEL_ID_LENGTH))
    accelerator_id: Mapped[str] = mapped_column(String(CATALOGUE_ID_LENGTH))
    engine_id: Mapped[str] = mapped_column(String(CATALOGUE_ID_LENGTH))
    active_replicas: Mapped[int] = mapped_column(BIG_INTEGER)
    spare_replicas: Mapped[int] = mapped_column(BIG_INTEGER)
    gpus: Mapped[int] = mapped_column(BIG_INTEGER)
    cost_usd_per_hour: Mapped[float] = mapped_column(Double)
    payload_schema_version: Mapped[int]
    payload: Mapped[bytes] = mapped_column(LargeBinary)


class IdempotentRequestRow(Base):
    """A request that made a plan, written in the plan's transaction: one request id makes one plan."""

    __tablename__ = "idempotent_requests"
    __table_args__ = (Index(None, "plan_id"),)

    request_id: Mapped[UUID] = mapped_column(primary_key=True)
    request_hash: Mapped[str] = mapped_column(String(REQUEST_HASH_LENGTH))
    plan_id: Mapped[int] = mapped_column(BIG_INTEGER, ForeignKey(PlanRow.id, ondelete="CASCADE"))
    create_time: Mapped[datetime] = mapped_column(UtcDateTime)


class ProfileRow(Base):
    """A profile. `status`, `status_reason` and `superseded_by` may change, nothing else ever does.

    `raw_sha256` is None for a profile that came without a file. A file may hold several profiles, which `part` counts.
    A file whose profiles were all withdrawn may come again with another `request_hash`, such as for a header that was
    wrong; its parts then go on from the highest.
    """

    __tablename__ = "profiles"
    __table_args__ = (
        UniqueConstraint("profile_id"),
        UniqueConstraint("raw_sha256", "part"),
        Index(None, "create_time", "id"),
        Index(None, "accelerator_id", "create_time", "id"),
        Index(None, "engine_id", "create_time", "id"),
        Index(None, "tool", "create_time", "id"),
        Index(None, "status", "create_time", "id"),
        Index(None, "measure_time"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BIG_INTEGER, primary_key=True)
    profile_id: Mapped[str] = mapped_column(String(RESOURCE_ID_LENGTH))
    create_time: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str] = mapped_column(String(PRINCIPAL_LENGTH))
    status: Mapped[str] = mapped_column(String(STATUS_LENGTH))
    status_reason: Mapped[str] = mapped_column(String(STATUS_REASON_LENGTH))
    superseded_by: Mapped[str | None] = mapped_column(String(RESOURCE_ID_LENGTH))
    accelerator_id: Mapped[str] = mapped_column(String(CATALOGUE_ID_LENGTH))
    engine_id: Mapped[str] = mapped_column(String(CATALOGUE_ID_LENGTH))
    engine_version: Mapped[str] = mapped_column(String(VERSION_LENGTH))
    tool: Mapped[str] = mapped_column(String(TOOL_LENGTH))
    measure_time: Mapped[datetime | None] = mapped_column(UtcDateTime)
    labels: Mapped[dict[str, str]] = mapped_column(JSON_DOCUMENT)
    raw_sha256: Mapped[str | None] = mapped_column(String(SHA256_LENGTH))
    part: Mapped[int] = mapped_column(BIG_INTEGER)
    request_hash: Mapped[str] = mapped_column(String(REQUEST_HASH_LENGTH))
    payload_schema_version: Mapped[int]
    payload: Mapped[bytes] = mapped_column(LargeBinary)


class ProfileRequestRow(Base):
    """A request that made a profile, or was given the one that its file had made before."""

    __tablename__ = "profile_requests"
    __table_args__ = (Index(None, "profile_id"),)

    request_id: Mapped[UUID] = mapped_column(primary_key=True)
    request_hash: Mapped[str] = mapped_column(String(REQUEST_HASH_LENGTH))
    profile_id: Mapped[int] = mapped_column(BIG_INTEGER, ForeignKey(ProfileRow.id, ondelete="CASCADE"))
    create_time: Mapped[datetime] = mapped_column(UtcDateTime)


class CalibrationRow(Base):
    """A calibration: nothing of it ever changes."""

    __tablename__ = "calibrations"
    __table_args__ = (
        UniqueConstraint("calibration_id"),
        Index(None, "create_time", "id"),
        Index(None, "engine_id", "create_time", "id"),
        {"sqlite_autoincrement": True},
    )

    id: Mapped[int] = mapped_column(BIG_INTEGER, primary_key=True)
    calibration_id: Mapped[str] = mapped_column(String(RESOURCE_ID_LENGTH))
    create_time: Mapped[datetime] = mapped_column(UtcDateTime)
    created_by: Mapped[str] = mapped_column(String(PRINCIPAL_LENGTH))
    engine_id: Mapped[str] = mapped_column(String(CATALOGUE_ID_LENGTH))
    points: Mapped[int] = mapped_column(BIG_INTEGER)
    payload_schema_version: Mapped[int]
    payload: Mapped[bytes] = mapped_column(LargeBinary)


class CalibrationRequestRow(Base):
    """A request that made a calibration."""

    __tablename__ = "calibration_requests"
    __table_args__ = (Index(None, "calibration_id"),)

    request_id: Mapped[UUID] = mapped_column(primary_key=True)
    request_hash: Mapped[str] = mapped_column(String(REQUEST_HASH_LENGTH))
    calibration_id: Mapped[int] = mapped_column(BIG_INTEGER, ForeignKey(CalibrationRow.id, ondelete="CASCADE"))
    create_time: Mapped[datetime] = mapped_column(UtcDateTime)


class ServiceSecretRow(Base):
    """Keys that all replicas of the service share, made by the migration. They protect integrity, never access."""

    __tablename__ = "service_secrets"

    name: Mapped[str] = mapped_column(String(63), primary_key=True)
    value: Mapped[bytes] = mapped_column(LargeBinary)
