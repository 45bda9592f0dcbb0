"""Hypothesis strategies for the domain's dataclasses, built from their types alone.

Every field is drawn, those with defaults too, so that a type that gains a field is covered without a change here.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

STORABLE_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
FINITE_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
_LEAVES: dict[type, st.SearchStrategy[Any]] = {
    str: STORABLE_TEXT,
    float: FINITE_FLOATS,
    int: st.integers(-(2**63), 2**63 - 1),
    bool: st.booleans(),
    types.NoneType: st.none(),
    datetime: st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.replace(fold=0)),
}


def values_of(kind: Any, most_elements: int = 2) -> st.SearchStrategy[Any]:
    """Values of a domain type: frozen dataclasses, enumerations, tuples, mappings, unions and plain values."""
    if kind in _LEAVES:
        return _LEAVES[kind]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        drawn = {each.name: values_of(hints[each.name], most_elements) for each in fields(kind)}
        return st.builds(kind, **drawn)
    return _composed_values_of(kind, most_elements)


def _composed_values_of(kind: Any, most_elements: int) -> st.SearchStrategy[Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return st.one_of(*(values_of(argument, most_elements) for argument in arguments))
    if origin is tuple and arguments[1:] == (...,):
        # Fewer elements the deeper they lie: a plan holds alternatives that hold percentiles, and so on.
        element = values_of(arguments[0], max(1, most_elements - 1))
        return st.lists(element, max_size=most_elements).map(tuple)
    if origin in (dict, Mapping):
        keys, values = (values_of(argument, most_elements) for argument in arguments)
        return st.dictionaries(keys, values, max_size=most_elements).map(lambda drawn: dict(sorted(drawn.items())))
    raise TypeError(f"no strategy for {kind!r}")
