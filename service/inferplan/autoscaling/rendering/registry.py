"""Targets by name. A module in `targets` with a `TARGET` is a target; nothing else need know of it."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from inferplan.autoscaling.rendering import targets
from inferplan.autoscaling.rendering.options import Option, ResolvedOptions, option_violations, resolve_options
from inferplan.autoscaling.rendering.request import Rendering, RenderingRequest, request_violations
from inferplan.errors import InvalidInputError

_MAXIMUM_SHOWN_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Target:
    """One target: its name, what it renders, the options it takes, and the pure function that renders."""

    name: str
    description: str
    options: tuple[Option, ...]
    render: Callable[[RenderingRequest, ResolvedOptions], Rendering]


@cache
def known_targets() -> Mapping[str, Target]:
    """Every target by name, in alphabetical order."""
    found = {}
    for module in pkgutil.iter_modules(targets.__path__):
        target = importlib.import_module(f"{targets.__name__}.{module.name}").TARGET
        found[target.name] = target
    return dict(sorted(found.items()))


def render(target: str, request: RenderingRequest) -> Rendering:
    """The files of `target` for `request`, and what they leave out.

    Raises InvalidInputError for an unknown target (with the nearest), unknown or bad options, a policy that contradicts
    itself, and a plan that the target cannot run at all.
    """
    found = known_targets().get(target)
    violations = request_violations(request)
    if found is None:
        raise InvalidInputError.single("target", _unknown_text(target), "UNKNOWN_TARGET")
    violations += option_violations(found.options, request.options)
    if violations:
        raise InvalidInputError(violations)
    return found.render(request, resolve_options(found.options, request.options))


def _unknown_text(target: str) -> str:
    shown = target[:_MAXIMUM_SHOWN_CHARACTERS]
    near = difflib.get_close_matches(shown.lower(), known_targets(), n=1, cutoff=0.5)
    nearest = f"nearest: {near[0]}; " if near else ""
    return f"{shown!r} is not known; {nearest}legal: {', '.join(known_targets())}"
