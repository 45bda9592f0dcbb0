"""Deployments, plans, idempotent requests, the page-token key.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# A migration describes the past: it names types itself instead of importing those of the present.
BIG_INTEGER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON_DOCUMENT = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
INSTANT = sa.DateTime(timezone=True)

PAGE_TOKEN_KEY_BYTES = 32


def upgrade() -> None:
    """Create the tables and the key."""
    _create_deployments()
    _create_plans()
    _create_idempotent_requests()
    service_secrets = op.create_table(
        "service_secrets",
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_service_secrets"),
    )
    op.bulk_insert(service_secrets, [{"name": "page_token_key", "value": secrets.token_bytes(PAGE_TOKEN_KEY_BYTES)}])


def downgrade() -> None:
    """Drop everything."""
    op.drop_table("service_secrets")
    op.drop_table("idempotent_requests")
    op.drop_table("plans")
    op.drop_table("deployments")


def _create_deployments() -> None:
    op.create_table(
        "deployments",
        sa.Column("id", BIG_INTEGER, autoincrement=True, nullable=False),
        sa.Column("deployment_id", sa.String(63), nullable=False),
        sa.Column("display_name", sa.String(200), nullable=False),
        sa.Column("labels", JSON_DOCUMENT, nullable=False),
        sa.Column("latest_revision", BIG_INTEGER, nullable=False),
        sa.Column("create_time", INSTANT, nullable=False),
        sa.Column("update_time", INSTANT, nullable=False),
        sa.Column("created_by", sa.String(200), nullable=False),
        sa.Column("delete_time", INSTANT, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_deployments"),
        sa.UniqueConstraint("deployment_id", name="uq_deployments_deployment_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_deployments_create_time_id", "deployments", ["create_time", "id"])


def _create_plans() -> None:
    op.create_table(
        "plans",
        sa.Column("id", BIG_INTEGER, autoincrement=True, nullable=False),
        sa.Column("deployment_id", sa.String(63), nullable=False),
        sa.Column("revision", BIG_INTEGER, nullable=False),
        sa.Column("create_time", INSTANT, nullable=False),
        sa.Column("created_by", sa.String(200), nullable=False),
        sa.Column("delete_time", INSTANT, nullable=True),
        sa.Column("method", sa.String(32), nullable=False),
        sa.Column("model_id", sa.String(200), nullable=False),
        sa.Column("accelerator_id", sa.String(100), nullable=False),
        sa.Column("engine_id", sa.String(100), nullable=False),
        sa.Column("active_replicas", BIG_INTEGER, nullable=False),
        sa.Column("spare_replicas", BIG_INTEGER, nullable=False),
        sa.Column("gpus", BIG_INTEGER, nullable=False),
        sa.Column("cost_usd_per_hour", sa.Double(), nullable=False),
        sa.Column("payload_schema_version", sa.Integer(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_plans"),
        sa.UniqueConstraint("deployment_id", "revision", name="uq_plans_deployment_id_revision"),
        sa.ForeignKeyConstraint(
            ["deployment_id"],
            ["deployments.deployment_id"],
            name="fk_plans_deployment_id_deployments",
            ondelete="RESTRICT",
        ),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_plans_create_time_id", "plans", ["create_time", "id"])
    op.create_index("ix_plans_deployment_id_create_time_id", "plans", ["deployment_id", "create_time", "id"])


def _create_idempotent_requests() -> None:
    op.create_table(
        "idempotent_requests",
        sa.Column("request_id", sa.Uuid(), nullable=False),
        sa.Column("request_hash", sa.String(128), nullable=False),
        sa.Column("plan_id", BIG_INTEGER, nullable=False),
        sa.Column("create_time", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("request_id", name="pk_idempotent_requests"),
        sa.ForeignKeyConstraint(
            ["plan_id"], ["plans.id"], name="fk_idempotent_requests_plan_id_plans", ondelete="CASCADE"
        ),
    )
    op.create_index("ix_idempotent_requests_plan_id", "idempotent_requests", ["plan_id"])
