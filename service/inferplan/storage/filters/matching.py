"""A filter on an entry in memory: for lists that hold more than rows, and as a second opinion on the SQL."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from inferplan.storage.filters.fields import FilterKind
from inferplan.storage.filters.resolve import Condition, ConditionTree

_COMPARISONS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def matches(tree: ConditionTree | None, entry: Mapping[str, Any]) -> bool:
    """Whether an entry, as values by field name, passes the filter; None passes everything."""
    if tree is None:
        return True
    if tree.condition is not None:
        return _holds(tree.condition, entry)
    found = (matches(part, entry) for part in tree.parts)
    if tree.joined_by == "not":
        return not next(found)
    return all(found) if tree.joined_by == "all" else any(found)


def _holds(condition: Condition, entry: Mapping[str, Any]) -> bool:
    value: Any = entry.get(condition.field.name)
    if condition.field.kind is FilterKind.LABELS:
        value = (value or {}).get(condition.key)
    wanted = condition.value
    if wanted is None:
        return value is not None and value != ""
    if value is None:
        return condition.operator == "!="
    if not isinstance(wanted, str):
        return bool(_COMPARISONS[condition.operator](value, wanted))
    assert not isinstance(value, datetime), "times are compared with times"
    if condition.operator == ":":
        return wanted.lower() in value.lower()
    equal = value == wanted
    if "*" in wanted:
        pattern = ".*".join(re.escape(part) for part in wanted.lower().split("*"))
        equal = re.fullmatch(pattern, value.lower(), re.DOTALL) is not None
    return equal if condition.operator == "=" else not equal
