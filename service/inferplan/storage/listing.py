"""Lists of rows: filtered, ordered, and cut into pages by keyset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import Select, func
from sqlalchemy.orm import Session

from inferplan.errors import InvalidInputError
from inferplan.storage.filters import FilterField, filter_condition, parse_filter, parse_order
from inferplan.storage.filters.ordering import SortKey, after, key_value, order_clauses
from inferplan.storage.pages import ListQuery, PageCursor, page_size_of, within_bytes

RowT = TypeVar("RowT")

CREATE_TIME = "create_time"


class RowList:
    """One list of one table: the fields that callers may name, and its own columns of time, id and payload."""

    def __init__(self, row_type: type[Any], fields: Mapping[str, FilterField], maximum_page_bytes: int) -> None:
        self._row_type = row_type
        self._fields = fields
        self.maximum_page_bytes = maximum_page_bytes

    def page(self, session: Session, query: Select[Any], request: ListQuery) -> tuple[Sequence[Any], PageCursor | None]:
        """One page of rows of `query`, a SELECT of the whole row, and where the next one begins; None on the last.

        A page ends early, but never empty, where its payloads would take more than the most bytes. Raises
        InvalidInputError for a negative page size, and for a filter or an order that cannot be.
        """
        size = page_size_of(request.page_size)
        keys = parse_order(request.order_by, self._fields)
        order = self._whole_order(keys)
        tree = parse_filter(request.filter, self._fields)
        selected = query if tree is None else query.where(filter_condition(tree))
        if request.cursor is not None:
            selected = selected.where(after(order, self._values(keys, order, request.cursor)))
        row_type = self._row_type
        positions = session.execute(
            selected.order_by(*order_clauses(order))
            .limit(size + 1)
            .with_only_columns(row_type.id, self._payload_bytes())
        ).all()
        shown = within_bytes(positions[:size], self.maximum_page_bytes)
        rows = session.scalars(query.where(row_type.id.in_(shown)).order_by(*order_clauses(order))).all()
        is_last = len(shown) == len(positions) or not rows
        return rows, None if is_last else self._cursor(rows[-1], keys)

    def _payload_bytes(self) -> Any:
        payload = getattr(self._row_type, "payload", None)
        return func.length(payload) if payload is not None else 0 * self._row_type.id

    def _whole_order(self, keys: Sequence[SortKey]) -> list[SortKey]:
        """The caller's keys, then time and id, newest first, so that no two rows share a place."""
        row_type = self._row_type
        times = [key for key in keys if key.name == CREATE_TIME]
        if times:
            return [*keys, SortKey("id", row_type.id, times[0].descending)]
        return [*keys, SortKey(CREATE_TIME, row_type.create_time, True), SortKey("id", row_type.id, True)]

    def _values(self, keys: Sequence[SortKey], order: Sequence[SortKey], cursor: PageCursor) -> list[Any]:
        """The cursor's values in the order's sequence."""
        own = [key for key in keys if key.name != CREATE_TIME]
        if len(own) != len(cursor.keys):
            raise InvalidInputError.single("page_token", "is of another order; begin with an empty token")
        values = dict(zip((key.name for key in own), cursor.keys, strict=True))
        known: dict[str, Any] = {**values, CREATE_TIME: cursor.create_time, "id": cursor.id}
        return [
            datetime.fromisoformat(known[key.name]) if self._is_time(key.name) and key in own else known[key.name]
            for key in order
        ]

    def _is_time(self, name: str) -> bool:
        field = self._fields.get(name)
        return field is not None and field.kind.value == "time"

    def _cursor(self, row: Any, keys: Sequence[SortKey]) -> PageCursor:
        values = tuple(key_value(getattr(row, key.column.key)) for key in keys if key.name != CREATE_TIME)
        return PageCursor(row.create_time, row.id, values)
