"""The fields that a list may be filtered and ordered by."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement
from sqlalchemy.orm import InstrumentedAttribute

from inferplan.errors import Violation


class FilterKind(StrEnum):
    """What a field holds, which decides the legal operators and values."""

    TEXT = "text"
    NUMBER = "number"
    TIME = "time"
    LABELS = "labels"


@dataclass(frozen=True, slots=True)
class FilterField:
    """One field. `collection`, such as `models/`, may stand before its values; `choices` are all that it can hold."""

    name: str
    kind: FilterKind
    column: InstrumentedAttribute[Any] | ColumnElement[Any]
    collection: str = ""
    choices: tuple[str, ...] = ()
    nullable: bool = False
    sortable: bool = True

    @property
    def orders(self) -> bool:
        """Whether lists can be ordered by it."""
        return self.sortable and not self.nullable and self.kind is not FilterKind.LABELS


def field_map(*fields: FilterField) -> Mapping[str, FilterField]:
    """The fields by name."""
    return {field.name: field for field in fields}


def unknown_field(path: str, name: str, legal: list[str], position: int | None = None) -> Violation:
    """That there is no such field, with the nearest one."""
    near = difflib.get_close_matches(name, legal, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    where = "" if position is None else f" at character {position}"
    return Violation(path, f"{name[:60]!r}{where} is no field of it; {hint}legal: {', '.join(legal)}", "UNKNOWN_FIELD")
