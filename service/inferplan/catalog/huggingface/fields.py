"""Reading typed values out of a JSON object while noting everything that is wrong with it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from inferplan.errors import Violation

# Upper bounds far above every published model: a slip of the pen is refused here, not by exhausting memory later.
MAXIMUM_LAYERS = 1_000
MAXIMUM_HEADS = 4_096
MAXIMUM_WIDTH = 4_194_304
MAXIMUM_EXPERTS = 65_536
MAXIMUM_VOCABULARY = 16_777_216
MAXIMUM_TOKENS = 1_000_000_000

_NO_DEFAULTS: Mapping[str, int] = MappingProxyType({})


class ConfigFields:
    """One object of the config, the path to it, and the list that its violations go to.

    Every reader method returns a value of its type even when the field is wrong (0, False, empty), after noting the
    violation; the caller makes no architecture once anything was noted. So one pass finds all that is wrong. Absent and
    null are the same unless a method says otherwise, as in the `transformers` library. `defaults` are values that the
    family's config class fills in where published files leave the key out.
    """

    def __init__(
        self,
        values: Mapping[str, object],
        path: str,
        violations: list[Violation],
        defaults: Mapping[str, int] = _NO_DEFAULTS,
    ) -> None:
        self.values = values
        self.path = path
        self.violations = violations
        self._defaults = defaults

    def note(self, name: str, description: str, reason: str = "INVALID_VALUE") -> None:
        """Adds a violation at the field `name` of this object."""
        self.violations.append(Violation(self.path_of(name), description, reason))

    def path_of(self, name: str) -> str:
        """The path of the field `name` from the request's root."""
        return f"{self.path}.{name}" if self.path else name

    def has(self, name: str) -> bool:
        """Whether the field is present and not null."""
        return self.values.get(name) is not None

    def integer(self, *names: str, maximum: int, minimum: int = 1, default: int | None = None) -> int:
        """The first of `names` that is present, a whole number from `minimum` to `maximum`; 0 where it is wrong."""
        found = self.optional_integer(*names, maximum=maximum, minimum=minimum)
        if found is not None:
            return found
        if default is None:
            default = next((self._defaults[name] for name in names if name in self._defaults), None)
        if default is not None:
            return default
        spellings = f" (also spelled {', '.join(names[1:])})" if len(names) > 1 else ""
        self.note(names[0], f"is missing; needed is a whole number from {minimum} to {maximum}{spellings}", "MISSING")
        return 0

    def optional_integer(self, *names: str, maximum: int, minimum: int = 1) -> int | None:
        """As `integer`, but None where the field is absent or null."""
        name = next((name for name in names if self.has(name)), None)
        if name is None:
            return None
        value = as_integer(self.values[name])
        if value is not None and minimum <= value <= maximum:
            return value
        self.note(name, f"is {describe(self.values[name])}; legal is a whole number from {minimum} to {maximum}")
        return 0

    def positive_number(self, name: str) -> float | None:
        """A finite number above zero, None where the field is absent, null or wrong."""
        if not self.has(name):
            return None
        value = self.values[name]
        # The upper bound also keeps integers out that no float can hold; NaN fails both comparisons.
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= MAXIMUM_TOKENS:
            return float(value)
        self.note(name, f"is {describe(value)}; legal is a number above 0 and up to {MAXIMUM_TOKENS}")
        return None

    def flag(self, name: str, default: bool) -> bool:
        """True or false; `default` where the field is absent, null or wrong."""
        value = self.values.get(name)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        self.note(name, f"is {describe(value)}; legal are true and false")
        return default

    def text(self, name: str) -> str | None:
        """A string; None where the field is absent, null or wrong."""
        value = self.values.get(name)
        if value is None or isinstance(value, str):
            return value
        self.note(name, f"is {describe(value)}; legal is a string")
        return None

    def integers(self, name: str, maximum: int) -> list[int] | None:
        """A list of whole numbers from 0 to `maximum`; None where the field is absent, null or wrong."""
        values = self._list(name)
        if values is None:
            return None
        numbers = [as_integer(value) for value in values]
        sound = [number for number in numbers if number is not None and 0 <= number <= maximum]
        if len(sound) == len(values):
            return sound
        self.note(name, f"holds something else than whole numbers from 0 to {maximum}")
        return None

    def texts(self, name: str) -> list[str] | None:
        """A list of strings; None where the field is absent, null or wrong."""
        values = self._list(name)
        if values is None:
            return None
        sound = [value for value in values if isinstance(value, str)]
        if len(sound) == len(values):
            return sound
        self.note(name, "holds something else than strings")
        return None

    def child(self, name: str, defaults: Mapping[str, int] = _NO_DEFAULTS) -> ConfigFields | None:
        """The object under `name`; None where the field is absent, null or wrong."""
        value = self.values.get(name)
        if value is None:
            return None
        if isinstance(value, dict):
            return ConfigFields(value, self.path_of(name), self.violations, defaults)
        self.note(name, f"is {describe(value)}; legal is an object")
        return None

    def with_defaults(self, defaults: Mapping[str, int]) -> ConfigFields:
        """The same object with other class defaults."""
        return ConfigFields(self.values, self.path, self.violations, defaults)

    def _list(self, name: str) -> Sequence[object] | None:
        value = self.values.get(name)
        if value is None or isinstance(value, list):
            return value
        self.note(name, f"is {describe(value)}; legal is a list")
        return None


def as_integer(value: object) -> int | None:
    """`value` if it is a whole number in JSON's sense (4096.0 is one, true is none), else None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        return int(value)
    return None


def describe(value: object) -> str:
    """A short spelling of a wrong value. Containers are only named: a deeply nested one has no printable form."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    spelled = repr(value)
    return spelled if len(spelled) <= 60 else f"{spelled[:57]}..."
