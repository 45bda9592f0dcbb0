"""Reading single values out of a tool's record: strings for numbers, "inf", NaN, and everything that is absent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from inferplan.errors import InvalidInputError, Violation

_ABSENT_TEXTS = frozenset({"", "n/a", "[n/a]", "na", "nan", "none", "null", "-"})
_MAXIMUM_VIOLATIONS = 100
_SHOWN_CHARACTERS = 60
MAXIMUM_TOKENS = 100_000_000
MAXIMUM_COUNT = 2**53
"""Beyond it a float no longer holds whole numbers."""


@dataclass(slots=True)
class Problems:
    """What is wrong with a file, gathered while it is read, so that all of it can be told at once."""

    violations: list[Violation] = field(default_factory=list)

    def add(self, path: str, description: str, reason: str = "INVALID_VALUE") -> None:
        """One thing more that is wrong."""
        if len(self.violations) < _MAXIMUM_VIOLATIONS:
            self.violations.append(Violation(path, description, reason))

    def raise_if_any(self) -> None:
        """Raises InvalidInputError with everything that was gathered."""
        if self.violations:
            raise InvalidInputError(self.violations)


@dataclass(frozen=True, slots=True)
class Record:
    """A JSON object or CSV row with its path in the file. What cannot be read goes to `problems` and reads as absent.

    Several keys mean: the first that is present, since tools rename their keys between versions.
    """

    values: Mapping[str, object]
    path: str
    problems: Problems

    def at(self, key: str) -> str:
        """The path of a key."""
        return f"{self.path}.{key}" if self.path else key

    def has(self, *keys: str) -> bool:
        """Whether any of the keys is present, with whatever value."""
        return any(key in self.values for key in keys)

    def record(self, *keys: str) -> Record:
        """The object under the first key that is present and not null; an empty one if there is none."""
        for key in keys:
            found = self.values.get(key)
            if isinstance(found, Mapping):
                return Record(found, self.at(key), self.problems)
            if found is not None:
                self.problems.add(self.at(key), f"is {_shown(found)}; legal is an object")
        return Record({}, self.at(keys[0]), self.problems)

    def records(self, key: str) -> Iterator[Record]:
        """The objects of the list under `key`."""
        found = self.values.get(key)
        if found is None:
            return
        if not isinstance(found, list):
            self.problems.add(self.at(key), f"is {_shown(found)}; legal is a list of objects")
            return
        for index, item in enumerate(found):
            path = f"{self.at(key)}[{index}]"
            if isinstance(item, Mapping):
                yield Record(item, path, self.problems)
            else:
                self.problems.add(path, f"is {_shown(item)}; legal is an object")

    def number(self, *keys: str) -> float | None:
        """A finite number; null, NaN, "N/A" and infinity are absent."""
        found = self.number_or_infinity(*keys)
        return None if found is not None and math.isinf(found) else found

    def number_or_infinity(self, *keys: str) -> float | None:
        """A number, where "inf" has a meaning (a request rate without limit)."""
        for key in keys:
            value = self.values.get(key)
            if value is None:
                continue
            number = _number(value)
            if number is None and not _is_absent(value):
                self.problems.add(self.at(key), f"is {_shown(value)}; legal is a number")
            if number is not None:
                return number
        return None

    def positive(self, *keys: str) -> float | None:
        """A number above 0. Tools write 0 for what they did not measure, so 0 is absent; less is wrong."""
        number = self.number(*keys)
        if number is not None and number < 0:
            self.problems.add(self.at(self._key(keys)), f"is {number:g}; legal is a number of 0 or more")
        return number if number is not None and number > 0 else None

    def count(self, *keys: str) -> int | None:
        """A whole number of 0 or more."""
        number = self.number(*keys)
        if number is None:
            return None
        if number < 0 or number > MAXIMUM_COUNT or number != int(number):
            self.problems.add(self.at(self._key(keys)), f"is {number:g}; legal is a whole number of 0 or more")
            return None
        return int(number)

    def text(self, *keys: str, maximum: int = 200) -> str:
        """Printable text of at most `maximum` characters; empty if absent."""
        for key in keys:
            value = self.values.get(key)
            if value is None or (isinstance(value, str) and not value.strip()):
                continue
            if isinstance(value, str) and len(value) <= maximum and value.isprintable():
                return value.strip()
            self.problems.add(self.at(key), f"is {_shown(value)}; legal is text of at most {maximum} characters")
        return ""

    def _key(self, keys: tuple[str, ...]) -> str:
        return next((key for key in keys if self.values.get(key) is not None), keys[0])


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return None if math.isnan(number) else number


def _is_absent(value: object) -> bool:
    if isinstance(value, float):
        return math.isnan(value)
    return isinstance(value, str) and value.strip().lower() in _ABSENT_TEXTS


def _shown(value: object) -> str:
    """A short rendering of a bad value; containers are named only, since they may be huge."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and abs(value) > MAXIMUM_COUNT:
        return "a huge number"
    return repr(value)[:_SHOWN_CHARACTERS]
