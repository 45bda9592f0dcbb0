"""A filter as a SQL condition. Values are always bound parameters."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, and_, false, func, not_, or_, true

from inferplan.storage.filters.fields import FilterKind
from inferplan.storage.filters.resolve import Condition, ConditionTree


def filter_condition(tree: ConditionTree) -> ColumnElement[bool]:
    """The condition. A field that is absent makes a comparison false, and its negation true, as in AIP-160."""
    if tree.condition is not None:
        return _leaf(tree.condition)
    parts = [filter_condition(part) for part in tree.parts]
    if tree.joined_by == "not":
        return not_(parts[0])
    return and_(*parts) if tree.joined_by == "all" else or_(*parts)


def _leaf(condition: Condition) -> ColumnElement[bool]:
    field = condition.field
    column: Any = field.column
    nullable = field.nullable
    if field.kind is FilterKind.LABELS:
        column, nullable = column[condition.key].as_string(), True
    if condition.value is None:
        if nullable:
            return column.is_not(None)  # type: ignore[no-any-return]
        return column != "" if field.kind is FilterKind.TEXT else true()
    compared = _compared(column, condition)
    if not nullable:
        return compared
    return func.coalesce(compared, false() if condition.operator != "!=" else column.is_(None))


def _compared(column: Any, condition: Condition) -> ColumnElement[bool]:
    operator, value = condition.operator, condition.value
    if isinstance(value, str):
        return _text(column, operator, value)
    comparisons = {
        "=": column == value,
        "!=": column != value,
        "<": column < value,
        "<=": column <= value,
        ">": column > value,
        ">=": column >= value,
    }
    found: ColumnElement[bool] = comparisons[operator]
    return found


def _text(column: Any, operator: str, value: str) -> ColumnElement[bool]:
    found: ColumnElement[bool]
    if operator == ":":
        found = func.lower(column).contains(value.lower(), autoescape=True)
    elif "*" in value:
        # LIKE with the caller's own % and _ as plain text; * is the only wildcard. SQLite ignores case, so both do.
        pattern = value.lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_").replace("*", "%")
        found = func.lower(column).like(pattern, escape="\\")
        found = not_(found) if operator == "!=" else found
    else:
        found = column == value if operator == "=" else column != value
    return found
