"""What a list is ordered by, and the keyset condition that goes on after an entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, or_, tuple_

from inferplan.errors import InvalidInputError, Violation
from inferplan.storage.filters.fields import FilterField, unknown_field

MOST_ORDER_FIELDS = 3


@dataclass(frozen=True, slots=True)
class SortKey:
    """One column of an order."""

    name: str
    column: Any
    descending: bool


def parse_order(text: str, fields: Mapping[str, FilterField], path: str = "order_by") -> tuple[SortKey, ...]:
    """The keys of `cost_per_hour desc, revision`; none for an empty text.

    Raises InvalidInputError with every part that is no field, is repeated, or has a direction that is none.
    """
    keys: list[SortKey] = []
    violations: list[Violation] = []
    parts = [part.split() for part in text.split(",")] if text.strip() else []
    legal = [name for name, field in fields.items() if field.orders]
    for words in parts:
        name = words[0] if words else ""
        if not words or len(words) > 2 or (len(words) == 2 and words[1] not in ("asc", "desc")):
            shown = " ".join(words)[:60]
            violations.append(Violation(path, f"{shown!r} cannot be read; legal: FIELD, FIELD asc or FIELD desc"))
        elif name not in legal:
            violations.append(unknown_field(path, name, legal))
        elif name in {key.name for key in keys}:
            violations.append(Violation(path, f"{name!r} is given twice"))
        else:
            keys.append(SortKey(name, fields[name].column, words[-1] == "desc"))
    if len(parts) > MOST_ORDER_FIELDS:
        violations.append(Violation(path, f"has {len(parts)} fields; legal: at most {MOST_ORDER_FIELDS}"))
    if violations:
        raise InvalidInputError(violations)
    return tuple(keys)


def order_clauses(keys: Sequence[SortKey]) -> list[Any]:
    """ORDER BY."""
    return [key.column.desc() if key.descending else key.column.asc() for key in keys]


def after(keys: Sequence[SortKey], values: Sequence[Any]) -> ColumnElement[bool]:
    """The entries that follow the one that has these values. The last key must be unique.

    With one direction it is one comparison of rows, which an index on the keys answers; with several it is written out.
    """
    if len({key.descending for key in keys}) == 1:
        left, right = tuple_(*(key.column for key in keys)), tuple_(*values)
        return left < right if keys[0].descending else left > right
    alternatives = []
    for index, (key, value) in enumerate(zip(keys, values, strict=True)):
        equal = [before.column == known for before, known in zip(keys[:index], values[:index], strict=True)]
        beyond = key.column < value if key.descending else key.column > value
        alternatives.append(and_(*equal, beyond))
    return or_(*alternatives)


def key_value(value: Any) -> str | int | float:
    """A column's value as a page token holds it."""
    return value.isoformat() if isinstance(value, datetime) else value
