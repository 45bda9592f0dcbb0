"""A filter's comparisons with their fields looked up and their values read: all that is wrong is told at once."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from inferplan.errors import InvalidInputError, Violation
from inferplan.storage.filters.fields import FilterField, FilterKind, unknown_field
from inferplan.storage.filters.language import AllOf, AnyOf, Comparison, Expression, Negation, comparisons, parse

_OPERATORS = {
    FilterKind.TEXT: ("=", "!=", ":"),
    FilterKind.NUMBER: ("=", "!=", "<", "<=", ">", ">="),
    FilterKind.TIME: ("=", "!=", "<", "<=", ">", ">=", ":"),
    FilterKind.LABELS: ("=", "!=", ":"),
}
_LABEL_KEY = re.compile(r"[A-Za-z0-9_./-]{1,253}")


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison as it is carried out. `value` None asks whether the field, or the label `key`, is there."""

    field: FilterField
    key: str | None
    operator: str
    value: str | float | datetime | None


@dataclass(frozen=True, slots=True)
class ConditionTree:
    """`all`, `any` or `not` of the parts; a leaf has a condition and no parts."""

    joined_by: str
    parts: tuple[ConditionTree, ...] = ()
    condition: Condition | None = None


def parse_filter(text: str, fields: Mapping[str, FilterField], path: str = "filter") -> ConditionTree | None:
    """The filter as conditions; None for an empty one. Raises InvalidInputError with everything that is wrong."""
    if not text.strip():
        return None
    expression = parse(text, path)
    conditions: dict[int, Condition] = {}
    violations: list[Violation] = []
    for comparison in comparisons(expression):
        condition = _condition(comparison, fields, path, violations)
        if condition is not None:
            conditions[id(comparison)] = condition
    if violations:
        raise InvalidInputError(violations)
    return _tree(expression, conditions)


def _tree(expression: Expression, conditions: Mapping[int, Condition]) -> ConditionTree:
    if isinstance(expression, Comparison):
        return ConditionTree("leaf", condition=conditions[id(expression)])
    if isinstance(expression, Negation):
        return ConditionTree("not", (_tree(expression.term, conditions),))
    joined_by = {AllOf: "all", AnyOf: "any"}[type(expression)]
    return ConditionTree(joined_by, tuple(_tree(term, conditions) for term in expression.terms))


def _condition(
    comparison: Comparison, fields: Mapping[str, FilterField], path: str, violations: list[Violation]
) -> Condition | None:
    field = fields.get(comparison.field)
    if field is None:
        violations.append(unknown_field(path, comparison.field, list(fields), comparison.position))
        return None
    where = f"{comparison.field!r} at character {comparison.position}"
    problem = _shape_problem(comparison, field)
    if problem:
        violations.append(Violation(path, f"{where} {problem}"))
        return None
    if field.kind is FilterKind.LABELS and comparison.key is None:
        # `labels:team` asks for the label `team`, whatever its value.
        return Condition(field, comparison.value, ":", None)
    if comparison.operator == ":" and comparison.value == "*" and not comparison.quoted:
        return Condition(field, comparison.key, ":", None)
    value, problem = _value(comparison, field)
    if problem or value is None:
        violations.append(Violation(path, f"{where} {problem}"))
        return None
    return Condition(field, comparison.key, comparison.operator, value)


def _shape_problem(comparison: Comparison, field: FilterField) -> str:
    """What is wrong with the field's key and operator; empty if nothing is."""
    legal = _OPERATORS[field.kind]
    if comparison.operator not in legal:
        return f"is compared with {comparison.operator}; legal for {field.kind}: {' '.join(legal)}"
    if field.kind is not FilterKind.LABELS:
        return "" if comparison.key is None else "has no parts; only labels have, such as labels.team"
    key = comparison.value if comparison.key is None else comparison.key
    if comparison.key is None and comparison.operator != ":":
        return f"needs a key: labels.team {comparison.operator} search, or labels:team for any value"
    if not _LABEL_KEY.fullmatch(key):
        return f"has the key {key[:60]!r}; legal are letters, digits, and any of _ . / -"
    return ""


def _value(comparison: Comparison, field: FilterField) -> tuple[str | float | datetime | None, str]:
    """The value, or what is wrong with it."""
    text = comparison.value
    if field.kind is FilterKind.NUMBER:
        number = _number(text)
        return number, "" if number is not None else f"is compared with {text[:40]!r}; legal is a number"
    if field.kind is FilterKind.TIME:
        moment = _moment(text)
        legal = "legal is a time such as 2026-03-01T12:00:00Z, or a day such as 2026-03-01"
        return moment, "" if moment is not None else f"is compared with {text[:40]!r}; {legal}"
    if "\0" in text:
        return None, "is compared with text that holds NUL"
    text = text.removeprefix(field.collection)
    if field.choices and comparison.operator != ":":
        text = text.lower()
        if text not in field.choices:
            return None, f"is compared with {text[:40]!r}; legal: {', '.join(field.choices)}"
    return text, ""


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    try:
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError:
        return None
