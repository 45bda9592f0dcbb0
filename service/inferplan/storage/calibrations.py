"""Calibrations in the database: never changed, never deleted."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from inferplan.errors import AlreadyExistsError, NotFoundError
from inferplan.profiles.calibration import Calibration
from inferplan.resources.calibration import calibration_name
from inferplan.storage.codec import CALIBRATION_CODEC
from inferplan.storage.column_types import utc_now
from inferplan.storage.database import Database
from inferplan.storage.filters import FilterField, FilterKind
from inferplan.storage.filters.fields import field_map
from inferplan.storage.listing import RowList
from inferplan.storage.pages import EVERYTHING, MAXIMUM_PAGE_BYTES, ListQuery, Page
from inferplan.storage.requests import (
    RequestKey,
    remember_calibration_request,
    request_key,
    requested_calibration_id,
)
from inferplan.storage.tables import CATALOGUE_ID_LENGTH, PRINCIPAL_LENGTH, RESOURCE_ID_LENGTH, CalibrationRow
from inferplan.storage.text_rules import refuse, text_violations

RESOURCE_TYPE = "Calibration"


def draw_suffix() -> str:
    """What tells calibrations of an engine apart that were not named: 48 random bits in hexadecimal."""
    return secrets.token_hex(6)


class CalibrationStore:
    """Creates, finds and lists calibrations. `now` is the clock, `draw_suffix` makes ids unique."""

    def __init__(
        self,
        database: Database,
        now: Callable[[], datetime] = utc_now,
        draw_suffix: Callable[[], str] = draw_suffix,
    ) -> None:
        self._database = database
        self._now = now
        self._draw_suffix = draw_suffix

    def create_calibration(
        self,
        calibration: Calibration,
        *,
        created_by: str = "",
        request_id: str | None = None,
        request_hash: str | None = None,
    ) -> Calibration:
        """Store a calibration under its name, or under one that is drawn if it has none.

        A request that was stored before returns its calibration. Raises AlreadyExistsError for a name that is taken, or
        a request id that came with another hash; InvalidInputError for content that cannot be stored.
        """
        request = request_key(request_id, request_hash)
        named = calibration if calibration.name else replace(calibration, name=self._drawn_name(calibration.engine))
        row = _new_row(named, created_by)
        try:
            with self._database.write() as session:
                made_before = requested_calibration_id(session, request) if request else None
                if made_before is not None:
                    return _calibration(session.get_one(CalibrationRow, made_before))
                row.create_time = self._now()
                session.add(row)
                session.flush()
                if request:
                    remember_calibration_request(session, request, row.id, row.create_time)
        except IntegrityError:
            made_meanwhile = self._find(request) if request else None
            if made_meanwhile is None:
                raise AlreadyExistsError(RESOURCE_TYPE, calibration_name(named.name)) from None
            return made_meanwhile
        return _calibration(row)

    def find_request(self, request_id: str, request_hash: str) -> Calibration | None:
        """The calibration that this request has made before, None if there is none.

        Raises AlreadyExistsError for a request id that came with another hash.
        """
        request = request_key(request_id, request_hash)
        return self._find(request) if request else None

    def find_calibration(self, calibration_id: str) -> Calibration | None:
        """One calibration, None if there is none of that id."""
        with self._database.read() as session:
            row = session.scalar(select(CalibrationRow).where(CalibrationRow.calibration_id == calibration_id))
        return None if row is None else _calibration(row)

    def get_calibration(self, name: str) -> Calibration:
        """The calibration of that id. Raises NotFoundError."""
        calibration = self.find_calibration(name)
        if calibration is None:
            raise NotFoundError(RESOURCE_TYPE, calibration_name(name))
        return calibration

    def newest_calibration(self, engine: str) -> Calibration | None:
        """The newest calibration of an engine, None if there is none."""
        newest_first = (CalibrationRow.create_time.desc(), CalibrationRow.id.desc())
        query = select(CalibrationRow).where(CalibrationRow.engine_id == engine).order_by(*newest_first).limit(1)
        with self._database.read() as session:
            row = session.scalar(query)
        return None if row is None else _calibration(row)

    def list_calibrations(self, request: ListQuery = EVERYTHING) -> Page[Calibration]:
        """Calibrations, newest first. Raises what RowList.page raises."""
        with self._database.read() as session:
            rows, following = CALIBRATION_LIST.page(session, select(CalibrationRow), request)
        return Page(tuple(_calibration(row) for row in rows), following)

    def _drawn_name(self, engine: str) -> str:
        return f"{engine}-{self._draw_suffix()}"

    def _find(self, request: RequestKey) -> Calibration | None:
        with self._database.read() as session:
            row_id = requested_calibration_id(session, request)
            return None if row_id is None else _calibration(session.get_one(CalibrationRow, row_id))


CALIBRATION_FIELDS = field_map(
    FilterField("calibration", FilterKind.TEXT, CalibrationRow.calibration_id, collection="calibrations/"),
    FilterField("engine", FilterKind.TEXT, CalibrationRow.engine_id, collection="engines/"),
    FilterField("points", FilterKind.NUMBER, CalibrationRow.points),
    FilterField("create_time", FilterKind.TIME, CalibrationRow.create_time),
    FilterField("created_by", FilterKind.TEXT, CalibrationRow.created_by),
)
CALIBRATION_LIST = RowList(CalibrationRow, CALIBRATION_FIELDS, MAXIMUM_PAGE_BYTES)


def _new_row(calibration: Calibration, created_by: str) -> CalibrationRow:
    payload = CALIBRATION_CODEC.encode(calibration)
    refuse(
        text_violations("calibration_id", calibration.name, RESOURCE_ID_LENGTH)
        + text_violations("calibration.engine", calibration.engine, CATALOGUE_ID_LENGTH)
        + text_violations("calibration.created_by", created_by, PRINCIPAL_LENGTH)
    )
    return CalibrationRow(
        calibration_id=calibration.name,
        created_by=created_by,
        engine_id=calibration.engine,
        points=calibration.points,
        payload_schema_version=CALIBRATION_CODEC.schema_version,
        payload=payload,
    )


def _calibration(row: CalibrationRow) -> Calibration:
    return replace(
        CALIBRATION_CODEC.decode(row.payload, row.payload_schema_version),
        create_time=row.create_time,
        created_by=row.created_by,
    )
