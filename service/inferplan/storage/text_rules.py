"""What text and numbers both databases can hold.

PostgreSQL refuses NUL in text, NaN in JSON and over-long text; SQLite takes them all. Checked here, both behave alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from inferplan.errors import InvalidInputError, Violation


def text_violations(path: str, value: str, maximum_characters: int | None = None) -> list[Violation]:
    """What keeps `value` from being stored: its length, NUL characters, or halves of surrogate pairs."""
    violations: list[Violation] = []
    if maximum_characters is not None and len(value) > maximum_characters:
        violations.append(
            Violation(path, f"has {len(value)} characters; legal: at most {maximum_characters}", "TOO_LONG")
        )
    if "\0" in value:
        violations.append(
            Violation(path, "holds a NUL character, which cannot be stored; leave it out", "ILLEGAL_TEXT")
        )
    if any("\ud800" <= character <= "\udfff" for character in value):
        violations.append(Violation(path, "holds half a surrogate pair; legal: Unicode text", "ILLEGAL_TEXT"))
    return violations


def document_violations(document: Any, path: str = "") -> list[Violation]:
    """What keeps a document of plain data (dicts, lists, text, numbers, booleans, None) from being stored as JSON."""
    if isinstance(document, str):
        return text_violations(path, document)
    if isinstance(document, float):
        if math.isfinite(document):
            return []
        return [Violation(path, f"is {document}; legal: finite numbers", "NOT_FINITE")]
    violations: list[Violation] = []
    if isinstance(document, Mapping):
        for key, value in document.items():
            where = f"{path}.{key}" if path else key
            violations += text_violations(path, key)
            violations += document_violations(value, where)
    elif isinstance(document, list | tuple):
        for index, value in enumerate(document):
            violations += document_violations(value, f"{path}[{index}]")
    return violations


def refuse(violations: list[Violation]) -> None:
    """Raise InvalidInputError if there are any violations."""
    if violations:
        raise InvalidInputError(violations)
