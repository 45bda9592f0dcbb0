"""Deployments in the database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from sqlalchemy import Dialect, Insert, select, tuple_
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from inferplan.errors import AlreadyExistsError, NotFoundError, Violation
from inferplan.resources.deployment import Deployment, deployment_name
from inferplan.storage.column_types import utc_now
from inferplan.storage.database import Database
from inferplan.storage.pages import Page, PageCursor, page_size_of
from inferplan.storage.tables import (
    DEPLOYMENT_ID_LENGTH,
    DISPLAY_NAME_LENGTH,
    PRINCIPAL_LENGTH,
    DeploymentRow,
)
from inferplan.storage.text_rules import refuse, text_violations

RESOURCE_TYPE = "Deployment"


class DeploymentStore:
    """Creates, finds and lists deployments. `now` is the clock."""

    def __init__(self, database: Database, now: Callable[[], datetime] = utc_now) -> None:
        self._database = database
        self._now = now

    def create_deployment(
        self,
        deployment_id: str,
        *,
        display_name: str = "",
        labels: Mapping[str, str] | None = None,
        created_by: str = "",
    ) -> Deployment:
        """Store a deployment without plans. Raises AlreadyExistsError, InvalidInputError."""
        labels = dict(labels or {})
        refuse(
            text_violations("deployment_id", deployment_id, DEPLOYMENT_ID_LENGTH)
            + text_violations("deployment.display_name", display_name, DISPLAY_NAME_LENGTH)
            + text_violations("deployment.created_by", created_by, PRINCIPAL_LENGTH)
            + _label_violations(labels)
        )
        with self._database.write() as session:
            created = insert_deployment(
                session, deployment_id, self._now(), display_name=display_name, labels=labels, created_by=created_by
            )
            if not created:
                raise AlreadyExistsError(RESOURCE_TYPE, deployment_name(deployment_id))
            return _deployment(_row(session, deployment_id))

    def get_deployment(self, deployment_id: str) -> Deployment:
        """One deployment, a deleted one too. Raises NotFoundError."""
        with self._database.read() as session:
            return _deployment(_row(session, deployment_id))

    def list_deployments(
        self, page_size: int = 0, cursor: PageCursor | None = None, *, show_deleted: bool = False
    ) -> Page[Deployment]:
        """Deployments, newest first. Raises InvalidInputError for a negative page size."""
        size = page_size_of(page_size)
        query = (
            select(DeploymentRow).order_by(DeploymentRow.create_time.desc(), DeploymentRow.id.desc()).limit(size + 1)
        )
        if cursor is not None:
            query = query.where(
                tuple_(DeploymentRow.create_time, DeploymentRow.id) < tuple_(cursor.create_time, cursor.id)
            )
        if not show_deleted:
            query = query.where(DeploymentRow.delete_time.is_(None))
        with self._database.read() as session:
            rows = session.scalars(query).all()
        shown = rows[:size]
        following = PageCursor(shown[-1].create_time, shown[-1].id) if len(rows) > size else None
        return Page(tuple(_deployment(row) for row in shown), following)


def insert_deployment(
    session: Session,
    deployment_id: str,
    create_time: datetime,
    *,
    display_name: str = "",
    labels: Mapping[str, str] | None = None,
    created_by: str = "",
) -> bool:
    """Insert a deployment unless one of that id is there; False if it is. Waits for another insert of the same id."""
    statement = _insert(session.get_bind().dialect).values(
        deployment_id=deployment_id,
        display_name=display_name,
        labels=dict(labels or {}),
        latest_revision=0,
        create_time=create_time,
        update_time=create_time,
        created_by=created_by,
    )
    return session.execute(statement).first() is not None


def _insert(dialect: Dialect) -> Insert:
    if dialect.name == "sqlite":
        return sqlite.insert(DeploymentRow).on_conflict_do_nothing().returning(DeploymentRow.id)
    return postgresql.insert(DeploymentRow).on_conflict_do_nothing().returning(DeploymentRow.id)


def _row(session: Session, deployment_id: str) -> DeploymentRow:
    row = session.scalar(select(DeploymentRow).where(DeploymentRow.deployment_id == deployment_id))
    if row is None:
        raise NotFoundError(RESOURCE_TYPE, deployment_name(deployment_id))
    return row


def _deployment(row: DeploymentRow) -> Deployment:
    return Deployment(
        deployment_id=row.deployment_id,
        create_time=row.create_time,
        update_time=row.update_time,
        display_name=row.display_name,
        labels=row.labels,
        latest_revision=row.latest_revision,
        created_by=row.created_by,
        delete_time=row.delete_time,
    )


def _label_violations(labels: Mapping[str, str]) -> list[Violation]:
    violations: list[Violation] = []
    for key, value in labels.items():
        violations += text_violations("deployment.labels", key)
        violations += text_violations(f"deployment.labels[{key!r}]", value)
    return violations
