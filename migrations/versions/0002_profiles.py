"""Profiles, and the requests that made them.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# A migration describes the past: it names types itself instead of importing those of the present.
BIG_INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON_DOCUMENT = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "profiles",
        sa.Column("id", BIG_INTEGER, autoincrement=True, nullable=False),
        sa.Column("profile_id", sa.String(63), nullable=False),
        sa.Column("create_time", INSTANT, nullable=False),
        sa.Column("created_by", sa.String(200), nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("status_reason", sa.String(1000), nullable=False),
        sa.Column("superseded_by", sa.String(63), nullable=True),
        sa.Column("accelerator_id", sa.String(100), nullable=False),
        sa.Column("engine_id", sa.String(100), nullable=False),
        sa.Column("engine_version", sa.String(100), nullable=False),
        sa.Column("tool", sa.String(100), nullable=False),
        sa.Column("measure_time", INSTANT, nullable=True),
        sa.Column("labels", JSON_DOCUMENT, nullable=False),
        sa.Column("raw_sha256", sa.String(64), nullable=True),
        sa.Column("part", BIG_INTEGER, nullable=False),
        sa.Column("request_hash", sa.String(128), nullable=False),
        sa.Column("payload_schema_version", sa.Integer(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_profiles"),
        sa.UniqueConstraint("profile_id", name="uq_profiles_profile_id"),
        sa.UniqueConstraint("raw_sha256", "part", name="uq_profiles_raw_sha256_part"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_profiles_create_time_id", "profiles", ["create_time", "id"])
    for column in ("accelerator_id", "engine_id", "tool", "status"):
        op.create_index(f"ix_profiles_{column}_create_time_id", "profiles", [column, "create_time", "id"])
    op.create_index("ix_profiles_measure_time", "profiles", ["measure_time"])
    op.create_table(
        "profile_requests",
        sa.Column("request_id", sa.Uuid(), nullable=False),
        sa.Column("request_hash", sa.String(128), nullable=False),
        sa.Column("profile_id", BIG_INTEGER, nullable=False),
        sa.Column("create_time", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("request_id", name="pk_profile_requests"),
        sa.ForeignKeyConstraint(
            ["profile_id"], ["profiles.id"], name="fk_profile_requests_profile_id_profiles", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_profile_requests_profile_id", "profile_requests", ["profile_id"])


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("profile_requests")
    op.drop_table("profiles")
