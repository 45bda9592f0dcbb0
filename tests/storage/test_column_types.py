from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Insert, insert, select
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import StatementError

from inferplan.storage.column_types import UtcDateTime
from inferplan.storage.database import Database
from inferplan.storage.tables import DeploymentRow

TOKYO = timezone(timedelta(hours=9))


def insert_at(time: datetime, deployment_id: str = "chat") -> Insert:
    return insert(DeploymentRow).values(
        deployment_id=deployment_id,
        display_name="",
        labels={},
        latest_revision=0,
        create_time=time,
        update_time=time,
        created_by="",
    )


def test_a_time_in_tokyo_comes_back_as_the_same_instant_in_utc(database: Database) -> None:
    time = datetime(2026, 1, 1, 3, 30, 0, 654321, tzinfo=TOKYO)
    with database.write() as session:
        session.execute(insert_at(time))
    with database.read() as session:
        read = session.scalars(select(DeploymentRow.create_time)).one()
    assert read == time
    assert read.tzinfo is UTC
    assert read.isoformat() == "2025-12-31T18:30:00.654321+00:00"


def test_a_time_without_a_zone_is_refused(database: Database) -> None:
    with pytest.raises(StatementError, match="no time zone"), database.write() as session:
        session.execute(insert_at(datetime(2026, 1, 1)))


@given(
    st.datetimes(timezones=st.sampled_from([UTC, TOKYO, timezone(timedelta(hours=-11))]), min_value=datetime(2, 1, 1))
)
def test_sqlite_keeps_any_instant(time: datetime) -> None:
    column, dialect = UtcDateTime(), sqlite.dialect()
    assert column.process_result_value(column.process_bind_param(time, dialect), dialect) == time
