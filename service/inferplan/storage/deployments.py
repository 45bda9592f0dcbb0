"""Deployments in the database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from sqlalchemy import Dialect, Insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from inferplan.errors import AlreadyExistsError, BrokenRule, NotFoundError, PreconditionError, Violation
from inferplan.resources.deployment import Deployment, deployment_name
from inferplan.storage.column_types import utc_now
from inferplan.storage.database import Database
from inferplan.storage.filters import FilterField, FilterKind
from inferplan.storage.filters.fields import field_map
from inferplan.storage.listing import RowList
from inferplan.storage.pages import EVERYTHING, MAXIMUM_PAGE_BYTES, ListQuery, Page
from inferplan.storage.tables import (
    DEPLOYMENT_ID_LENGTH,
    DISPLAY_NAME_LENGTH,
    PRINCIPAL_LENGTH,
    DeploymentRow,
    PlanRow,
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

    def list_deployments(self, request: ListQuery = EVERYTHING) -> Page[Deployment]:
        """Deployments, newest first unless another order is asked for. Raises what RowList.page raises."""
        query = select(DeploymentRow)
        if not request.show_deleted:
            query = query.where(DeploymentRow.delete_time.is_(None))
        with self._database.read() as session:
            rows, following = DEPLOYMENT_LIST.page(session, query, request)
        return Page(tuple(_deployment(row) for row in rows), following)

    def delete_deployment(self, deployment_id: str, *, force: bool = False) -> Deployment:
        """Delete a deployment, with all its plans if `force` is set; both stay, marked, for audit, and the id is taken.

        Raises NotFoundError for one that is not there or was deleted, PreconditionError for one that has plans.
        """
        with self._database.write() as session:
            # Locked before its plans are counted, so that none is created meanwhile.
            row = session.scalar(
                select(DeploymentRow).where(DeploymentRow.deployment_id == deployment_id).with_for_update()
            )
            name = deployment_name(deployment_id)
            if row is None or row.delete_time is not None:
                detail = None if row is None else f"{RESOURCE_TYPE} {name!r} was deleted before"
                raise NotFoundError(RESOURCE_TYPE, name, *([detail] if detail else []))
            if row.latest_revision and not force:
                description = f"has {row.latest_revision} plans; force deletes them with it and keeps them for audit"
                raise PreconditionError(BrokenRule("DEPLOYMENT_HAS_PLANS", name, description))
            row.delete_time = max(self._now(), row.update_time)
            row.update_time = row.delete_time
            session.execute(
                update(PlanRow)
                .where(PlanRow.deployment_id == deployment_id, PlanRow.delete_time.is_(None))
                .values(delete_time=row.delete_time)
            )
            return _deployment(row)


DEPLOYMENT_FIELDS = field_map(
    FilterField("deployment", FilterKind.TEXT, DeploymentRow.deployment_id, collection="deployments/"),
    FilterField("display_name", FilterKind.TEXT, DeploymentRow.display_name),
    FilterField("labels", FilterKind.LABELS, DeploymentRow.labels),
    FilterField("latest_revision", FilterKind.NUMBER, DeploymentRow.latest_revision),
    FilterField("create_time", FilterKind.TIME, DeploymentRow.create_time),
    FilterField("update_time", FilterKind.TIME, DeploymentRow.update_time),
    FilterField("created_by", FilterKind.TEXT, DeploymentRow.created_by),
)
DEPLOYMENT_LIST = RowList(DeploymentRow, DEPLOYMENT_FIELDS, maximum_page_bytes=MAXIMUM_PAGE_BYTES)


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
