"""Column types that behave alike on SQLite and PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, DateTime, Dialect, Integer
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeDecorator, TypeEngine

BIG_INTEGER = BigInteger().with_variant(Integer(), "sqlite")
"""64-bit integers; SQLite gives out row ids only to columns that are spelt INTEGER, which holds 64 bits there."""

JSON_DOCUMENT = JSON().with_variant(JSONB(), "postgresql")


class UtcDateTime(TypeDecorator[datetime]):
    """An instant. Naive datetimes are refused; what is read back is aware and in UTC.

    SQLite has no time zones: the text that it keeps is always UTC, so that it also sorts by time.
    """

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """The value for the driver. Raises ValueError for a naive datetime."""
        if value is None:
            return None
        if value.tzinfo is None or value.utcoffset() is None:
            raise ValueError(f"{value!r} has no time zone; an instant is needed")
        in_utc = value.astimezone(UTC)
        return in_utc.replace(tzinfo=None) if dialect.name == "sqlite" else in_utc

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """The driver's value as an aware datetime in UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if dialect.name == "sqlite" else value.astimezone(UTC)

    def coerce_compared_value(self, op: Any, value: Any) -> TypeEngine[Any]:  # noqa: ARG002 - SQLAlchemy's signature
        """What the column is compared with is an instant too."""
        return self


def utc_now() -> datetime:
    """The clock that stores use unless they are given another."""
    return datetime.now(UTC)
