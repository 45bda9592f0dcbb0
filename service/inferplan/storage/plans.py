"""Plans in the database."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Literal

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from inferplan.errors import InvalidInputError, NotFoundError
from inferplan.resources.deployment import deployment_name
from inferplan.resources.plan import Plan, PlanContent, PlanMethod, plan_name
from inferplan.storage.codec import PAYLOAD_SCHEMA_VERSION, decode_plan_content, encode_plan_content
from inferplan.storage.column_types import utc_now
from inferplan.storage.database import Database
from inferplan.storage.deployments import RESOURCE_TYPE as DEPLOYMENT_TYPE
from inferplan.storage.deployments import insert_deployment
from inferplan.storage.filters import FilterField, FilterKind
from inferplan.storage.filters.fields import field_map
from inferplan.storage.listing import RowList
from inferplan.storage.pages import EVERYTHING, MAXIMUM_PAGE_BYTES, ListQuery, Page
from inferplan.storage.requests import RequestKey, remember_request, request_key, requested_plan_id
from inferplan.storage.tables import (
    CATALOGUE_ID_LENGTH,
    DEPLOYMENT_ID_LENGTH,
    MODEL_ID_LENGTH,
    PRINCIPAL_LENGTH,
    DeploymentRow,
    PlanRow,
)
from inferplan.storage.text_rules import refuse, text_violations

RESOURCE_TYPE = "Plan"

_LARGEST_REVISION = 2**63 - 1


class PlanStore:
    """Creates, finds and lists plans. `now` is the clock.

    Inside a deployment create times never fall, even if the clock does, and revisions are 1, 2, 3 … without gaps or
    duplicates.
    """

    def __init__(self, database: Database, now: Callable[[], datetime] = utc_now) -> None:
        self._database = database
        self._now = now

    def create_plan(
        self,
        deployment_id: str,
        content: PlanContent,
        *,
        created_by: str = "",
        request_id: str | None = None,
        request_hash: str | None = None,
        allow_missing_deployment: bool = False,
    ) -> Plan:
        """Store `content` as the deployment's next revision, or return the plan that this request has made before.

        `request_id` is a UUID, `request_hash` a digest of the whole request, the deployment included; both or none are
        given. Raises NotFoundError for a deployment that does not exist or was deleted, AlreadyExistsError for a
        request id that came with another hash, InvalidInputError for content that cannot be stored.
        """
        request = request_key(request_id, request_hash)
        row = _new_row(deployment_id, content, created_by)
        try:
            with self._database.write() as session:
                deployment = self._locked_deployment(session, deployment_id, allow_missing_deployment, created_by)
                made_before = requested_plan_id(session, request) if request else None
                if made_before is not None:
                    return _plan(session.get_one(PlanRow, made_before))
                row.revision = deployment.latest_revision + 1
                row.create_time = max(self._now(), deployment.update_time)
                session.add(row)
                session.flush()
                if request:
                    remember_request(session, request, row.id, row.create_time)
                deployment.latest_revision = row.revision
                deployment.update_time = row.create_time
        except IntegrityError:
            # The deployment's lock is held, so only a race for one request id from another deployment can end here.
            made_meanwhile = self._find(request) if request else None
            if made_meanwhile is None:
                raise
            return made_meanwhile
        return Plan(deployment_id, row.revision, content, row.created_by, row.create_time)

    def find_request(self, request_id: str, request_hash: str) -> Plan | None:
        """The plan that this request has made before, None if there is none.

        Raises AlreadyExistsError for a request id that came with another hash.
        """
        request = request_key(request_id, request_hash)
        return self._find(request) if request else None

    def get_plan(self, deployment_id: str, revision: int | Literal["latest"]) -> Plan:
        """One plan, of a deleted deployment too. Raises NotFoundError."""
        query = select(PlanRow).where(PlanRow.deployment_id == deployment_id)
        if revision == "latest":
            query = query.order_by(PlanRow.revision.desc()).limit(1)
        elif 0 < revision <= _LARGEST_REVISION:
            query = query.where(PlanRow.revision == revision)
        else:
            raise NotFoundError(RESOURCE_TYPE, plan_name(deployment_id, revision))
        with self._database.read() as session:
            row = session.scalar(query)
            if row is None:
                _require_deployment(session, deployment_id)
                raise NotFoundError(RESOURCE_TYPE, plan_name(deployment_id, revision))
        return _plan(row)

    def list_plans(self, deployment_id: str | None = None, request: ListQuery = EVERYTHING) -> Page[Plan]:
        """Plans of one deployment, or of all for None, newest first unless another order is asked for.

        Raises NotFoundError for a deployment that does not exist, and what RowList.page raises.
        """
        query = select(PlanRow)
        if deployment_id is not None:
            query = query.where(PlanRow.deployment_id == deployment_id)
        if not request.show_deleted:
            query = query.where(PlanRow.delete_time.is_(None))
        with self._database.read() as session:
            rows, following = PLAN_LIST.page(session, query, request)
            if not rows and deployment_id is not None:
                _require_deployment(session, deployment_id)
        return Page(tuple(_plan(row) for row in rows), following)

    def _find(self, request: RequestKey) -> Plan | None:
        with self._database.read() as session:
            plan_id = requested_plan_id(session, request)
            return None if plan_id is None else _plan(session.get_one(PlanRow, plan_id))

    def _locked_deployment(
        self, session: Session, deployment_id: str, allow_missing: bool, created_by: str
    ) -> DeploymentRow:
        """The deployment's row, locked until the transaction ends. On SQLite BEGIN IMMEDIATE has locked everything."""
        query = select(DeploymentRow).where(DeploymentRow.deployment_id == deployment_id).with_for_update()
        deployment = session.scalar(query)
        if deployment is None and allow_missing:
            insert_deployment(session, deployment_id, self._now(), created_by=created_by)
            deployment = session.scalar(query)
        if deployment is None:
            raise NotFoundError(DEPLOYMENT_TYPE, deployment_name(deployment_id))
        if deployment.delete_time is not None:
            name = deployment_name(deployment_id)
            raise NotFoundError(DEPLOYMENT_TYPE, name, f"{DEPLOYMENT_TYPE} {name!r} was deleted; choose another id")
        return deployment


_LABELS = select(DeploymentRow.labels).where(DeploymentRow.deployment_id == PlanRow.deployment_id).scalar_subquery()

PLAN_FIELDS = field_map(
    FilterField("model", FilterKind.TEXT, PlanRow.model_id, collection="models/"),
    FilterField("accelerator", FilterKind.TEXT, PlanRow.accelerator_id, collection="accelerators/"),
    FilterField("engine", FilterKind.TEXT, PlanRow.engine_id, collection="engines/"),
    FilterField("method", FilterKind.TEXT, PlanRow.method, choices=tuple(PlanMethod)),
    FilterField("deployment", FilterKind.TEXT, PlanRow.deployment_id, collection="deployments/"),
    FilterField("labels", FilterKind.LABELS, _LABELS),
    FilterField("revision", FilterKind.NUMBER, PlanRow.revision),
    FilterField("replicas", FilterKind.NUMBER, PlanRow.active_replicas),
    FilterField("spare_replicas", FilterKind.NUMBER, PlanRow.spare_replicas),
    FilterField("gpus", FilterKind.NUMBER, PlanRow.gpus),
    FilterField("cost_per_hour", FilterKind.NUMBER, PlanRow.cost_usd_per_hour),
    FilterField("create_time", FilterKind.TIME, PlanRow.create_time),
    FilterField("created_by", FilterKind.TEXT, PlanRow.created_by),
)
PLAN_LIST = RowList(PlanRow, PLAN_FIELDS, MAXIMUM_PAGE_BYTES)


def _new_row(deployment_id: str, content: PlanContent, created_by: str) -> PlanRow:
    payload = encode_plan_content(content)
    method = content.input.method
    if method is None:
        raise InvalidInputError.single("plan.input.method", "must name the method that made the plan", "REQUIRED")
    model_id = content.resolved.model.id
    configuration = content.configuration
    refuse(
        text_violations("deployment_id", deployment_id, DEPLOYMENT_ID_LENGTH)
        + text_violations("plan.created_by", created_by, PRINCIPAL_LENGTH)
        + text_violations("plan.resolved.model.id", model_id, MODEL_ID_LENGTH)
        + text_violations("plan.configuration.accelerator", configuration.accelerator, CATALOGUE_ID_LENGTH)
        + text_violations("plan.configuration.engine", configuration.engine, CATALOGUE_ID_LENGTH)
    )
    return PlanRow(
        deployment_id=deployment_id,
        created_by=created_by,
        method=method,
        model_id=model_id,
        accelerator_id=configuration.accelerator,
        engine_id=configuration.engine,
        active_replicas=content.fleet.active_replicas,
        spare_replicas=content.fleet.spare_replicas,
        gpus=content.fleet.gpus,
        cost_usd_per_hour=content.fleet.cost_usd_per_hour,
        payload_schema_version=PAYLOAD_SCHEMA_VERSION,
        payload=payload,
    )


def _require_deployment(session: Session, deployment_id: str) -> None:
    if session.scalar(select(DeploymentRow.id).where(DeploymentRow.deployment_id == deployment_id)) is None:
        raise NotFoundError(DEPLOYMENT_TYPE, deployment_name(deployment_id))


def _plan(row: PlanRow) -> Plan:
    return Plan(
        deployment_id=row.deployment_id,
        revision=row.revision,
        content=decode_plan_content(row.payload, row.payload_schema_version),
        created_by=row.created_by,
        create_time=row.create_time,
        delete_time=row.delete_time,
    )
