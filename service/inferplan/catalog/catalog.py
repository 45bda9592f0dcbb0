"""Everything that is known before measuring, looked up by id or alias."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from inferplan.catalog.accelerator import Accelerator
from inferplan.catalog.architecture import Model
from inferplan.catalog.engine import Engine
from inferplan.errors import InvalidInputError, NotFoundError, Violation

MAXIMUM_NAME_CHARACTERS = 200
"""No known name is longer, and comparing names for likeness takes time with the square of their length."""


class CatalogEntry(Protocol):
    """What models, accelerators and engines have in common: the names that they are found by."""

    @property
    def id(self) -> str:
        """The resource id."""
        ...

    @property
    def aliases(self) -> tuple[str, ...]:
        """Other names."""
        ...


_Entry = TypeVar("_Entry", bound=CatalogEntry)


class Catalog:
    """Models, accelerators and engines. Names are ids or aliases and are compared without regard to case.

    Raises InvalidInputError when two entries of a kind share an id or an alias.
    """

    def __init__(self, models: Iterable[Model], accelerators: Iterable[Accelerator], engines: Iterable[Engine]) -> None:
        violations: list[Violation] = []
        self._models = _Index("Model", models, violations)
        self._accelerators = _Index("Accelerator", accelerators, violations)
        self._engines = _Index("Engine", engines, violations)
        if violations:
            raise InvalidInputError(violations)

    def models(self) -> tuple[Model, ...]:
        """All models in the order of their ids."""
        return self._models.entries

    def model(self, name: str) -> Model:
        """The model of that id or alias. Raises NotFoundError naming the nearest known names."""
        return self._models.find(name)

    def accelerators(self) -> tuple[Accelerator, ...]:
        """All accelerators in the order of their ids."""
        return self._accelerators.entries

    def accelerator(self, name: str) -> Accelerator:
        """The accelerator of that id or alias. Raises NotFoundError naming the nearest known names."""
        return self._accelerators.find(name)

    def engines(self) -> tuple[Engine, ...]:
        """All engines in the order of their ids."""
        return self._engines.entries

    def engine(self, name: str) -> Engine:
        """The engine of that id or alias. Raises NotFoundError naming the nearest known names."""
        return self._engines.find(name)

    def with_entries(self, other: Catalog) -> Catalog:
        """A catalogue with the entries of both, those of `other` taking the place of entries with the same id."""
        return Catalog(
            _merged(self.models(), other.models()),
            _merged(self.accelerators(), other.accelerators()),
            _merged(self.engines(), other.engines()),
        )


class _Index(Generic[_Entry]):
    """Entries of one kind with the names that lead to them."""

    def __init__(self, kind: str, entries: Iterable[_Entry], violations: list[Violation]) -> None:
        self._kind = kind
        self.entries = tuple(sorted(entries, key=lambda entry: entry.id))
        self._by_name: dict[str, _Entry] = {}
        for entry in self.entries:
            for name in dict.fromkeys(name.lower() for name in (entry.id, *entry.aliases)):
                other = self._by_name.setdefault(name, entry)
                if other is not entry:
                    violations.append(
                        Violation(
                            f"{kind.lower()}s",
                            f"{name!r} names both {other.id!r} and {entry.id!r}; legal is one",
                            "AMBIGUOUS",
                        )
                    )

    def find(self, name: str) -> _Entry:
        found = self._by_name.get(name.strip().lower())
        if found is not None:
            return found
        raise NotFoundError(self._kind, name[:MAXIMUM_NAME_CHARACTERS], self._not_found_text(name))

    def _not_found_text(self, name: str) -> str:
        shown = name[:MAXIMUM_NAME_CHARACTERS]
        near = difflib.get_close_matches(shown.strip().lower(), self._by_name, n=5, cutoff=0.5)
        ids = list(dict.fromkeys(self._by_name[match].id for match in near))
        if ids:
            return f"{self._kind} {shown!r} is not known; nearest known: {', '.join(ids)}"
        known = ", ".join(entry.id for entry in self.entries) or "none"
        return f"{self._kind} {shown!r} is not known; known are: {known}"


def _merged(first: Iterable[_Entry], second: Iterable[_Entry]) -> list[_Entry]:
    by_id = {entry.id: entry for entry in first}
    by_id.update((entry.id, entry) for entry in second)
    return list(by_id.values())
