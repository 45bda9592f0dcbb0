"""Refuses keys that a target would take without a word and then ignore."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from inferplan.errors import InvalidInputError, Violation

KnownFields = Mapping[str, Any]
"""Legal keys; the value is the legal keys below, or None where anything may stand."""


def require_known_fields(document: Mapping[str, Any], known: KnownFields) -> None:
    """Raises InvalidInputError with every key that is not known, each with the nearest that is."""
    violations = _violations(document, known, "")
    if violations:
        raise InvalidInputError(violations)


def _violations(value: Any, known: Any, path: str) -> list[Violation]:
    if known is None:
        return []
    if isinstance(value, list | tuple):
        return [found for index, item in enumerate(value) for found in _violations(item, known, f"{path}[{index}]")]
    if not isinstance(value, Mapping):
        return []
    violations = []
    for key, item in value.items():
        where = f"{path}.{key}" if path else str(key)
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.5)
            nearest = f"nearest: {near[0]}; " if near else ""
            violations.append(
                Violation(where, f"is no published field; {nearest}legal: {', '.join(sorted(known))}", "UNKNOWN_FIELD")
            )
        else:
            violations += _violations(item, known[key], where)
    return violations
