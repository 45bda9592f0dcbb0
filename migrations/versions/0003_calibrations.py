"""Calibrations, and the requests that made them.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# A migration describes the past: it names types itself instead of importing those of the present.
BIG_INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "calibrations",
        sa.Column("id", BIG_INTEGER, autoincrement=True, nullable=False),
        sa.Column("calibration_id", sa.String(63), nullable=False),
        sa.Column("create_time", INSTANT, nullable=False),
        sa.Column("created_by", sa.String(200), nullable=False),
        sa.Column("engine_id", sa.String(100), nullable=False),
        sa.Column("points", BIG_INTEGER, nullable=False),
        sa.Column("payload_schema_version", sa.Integer(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_calibrations"),
        sa.UniqueConstraint("calibration_id", name="uq_calibrations_calibration_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_calibrations_create_time_id", "calibrations", ["create_time", "id"])
    op.create_index("ix_calibrations_engine_id_create_time_id", "calibrations", ["engine_id", "create_time", "id"])
    op.create_table(
        "calibration_requests",
        sa.Column("request_id", sa.Uuid(), nullable=False),
        sa.Column("request_hash", sa.String(128), nullable=False),
        sa.Column("calibration_id", BIG_INTEGER, nullable=False),
        sa.Column("create_time", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("request_id", name="pk_calibration_requests"),
        sa.ForeignKeyConstraint(
            ["calibration_id"],
            ["calibrations.id"],
            name="fk_calibration_requests_calibration_id_calibrations",
            ondelete="CASCADE",
        ),
    )
    op.create_index("ix_calibration_requests_calibration_id", "calibration_requests", ["calibration_id"])


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("calibration_requests")
    op.drop_table("calibrations")
