"""From the plain values of a YAML file to catalogue dataclasses, strictly: no unknown keys, no silent conversions."""

from __future__ import annotations

import math
import re
from enum import StrEnum
from typing import TypeVar

import cattrs
from cattrs import ClassValidationError, IterableValidationError, transform_error
from cattrs.v import format_exception

from inferplan.catalog.architecture import AttentionScope, QuantizationMethod
from inferplan.catalog.precision import Precision
from inferplan.errors import InvalidInputError, Violation

_Entry = TypeVar("_Entry")


class _IllegalValueError(ValueError):
    """Says what would be legal, in words made for the author of the file."""


def structure(value: object, kind: type[_Entry]) -> _Entry:
    """`value` as a `kind`. Raises InvalidInputError with every unknown, missing or wrongly typed key at once."""
    if not isinstance(value, dict):
        raise InvalidInputError.single("", f"holds no mapping; legal is one {kind.__name__} a file", "NOT_AN_OBJECT")
    try:
        return _CONVERTER.structure(value, kind)
    except (ClassValidationError, IterableValidationError) as error:
        raise InvalidInputError(
            _violation(message) for message in transform_error(error, format_exception=_text)
        ) from None


def _text(error: BaseException, kind: type | None) -> str:
    return str(error) if isinstance(error, _IllegalValueError) else format_exception(error, kind)


def _violation(message: str) -> Violation:
    """The message is in the form that cattrs gives it: `what is wrong @ $.path.to.key`."""
    text, _, path = message.rpartition(" @ $")
    return Violation(path.lstrip("."), re.sub(r"\s+", " ", text)[:300])


def _strict_converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True, detailed_validation=True)
    converter.register_structure_hook(int, _whole_number)
    converter.register_structure_hook(float, _number)
    converter.register_structure_hook(bool, _switch)
    converter.register_structure_hook(str, _string)
    # A hook for a class also catches its subclasses, and a StrEnum is a str: each needs its own.
    for kind in (AttentionScope, Precision, QuantizationMethod):
        converter.register_structure_hook(kind, _member)
    return converter


def _whole_number(value: object, _kind: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _IllegalValueError("legal is a whole number")


def _number(value: object, _kind: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    raise _IllegalValueError("legal is a finite number")


def _switch(value: object, _kind: object) -> bool:
    if isinstance(value, bool):
        return value
    raise _IllegalValueError("legal are true and false")


def _string(value: object, _kind: object) -> str:
    if isinstance(value, str):
        return value
    raise _IllegalValueError("legal is a string (put it in quotes)")


def _member(value: object, kind: type[StrEnum]) -> StrEnum:
    if isinstance(value, str) and value in list(kind):
        return kind(value)
    raise _IllegalValueError(f"legal are {', '.join(kind)}")


_CONVERTER = _strict_converter()
