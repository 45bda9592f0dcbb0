"""Options of targets: strings that are checked before anything is rendered."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from inferplan.errors import InvalidInputError, Violation

_MAXIMUM_SHOWN_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a target. `problem` returns what is wrong with a value and what is legal, None if it is fine."""

    key: str
    default: str
    description: str
    problem: Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class ResolvedOptions:
    """Every option of a target with its value: the caller's, or the default."""

    values: Mapping[str, str]
    given: frozenset[str]

    def text(self, key: str) -> str:
        """The value as it stands."""
        return self.values[key]

    def whole_number(self, key: str) -> int:
        """The value of an option that `whole_number` checked."""
        return int(self.values[key])


def option_violations(options: Sequence[Option], given: Mapping[str, str]) -> list[Violation]:
    """Unknown keys, each with the nearest legal one, and values that an option refuses."""
    known = {option.key: option for option in options}
    violations = []
    for key, value in given.items():
        where = f"options[{key[:_MAXIMUM_SHOWN_CHARACTERS]}]"
        if key not in known:
            near = difflib.get_close_matches(key[:_MAXIMUM_SHOWN_CHARACTERS], known, n=1, cutoff=0.5)
            nearest = f"nearest: {near[0]}; " if near else ""
            violations.append(
                Violation(where, f"is not an option; {nearest}legal: {', '.join(sorted(known))}", "UNKNOWN_OPTION")
            )
            continue
        problem = known[key].problem(value)
        if problem is not None:
            violations.append(Violation(where, f"{value[:_MAXIMUM_SHOWN_CHARACTERS]!r} {problem}"))
    return violations


def resolve_options(options: Sequence[Option], given: Mapping[str, str]) -> ResolvedOptions:
    """The values of checked options. Raises InvalidInputError with all that is wrong."""
    violations = option_violations(options, given)
    if violations:
        raise InvalidInputError(violations)
    return ResolvedOptions({option.key: given.get(option.key, option.default) for option in options}, frozenset(given))


_RFC_1123_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_RFC_1035_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


def kubernetes_name(value: str) -> str | None:
    """An RFC 1123 label, which every kind that is rendered here takes as name and namespace."""
    if _RFC_1123_LABEL.fullmatch(value):
        return None
    return (
        "is no Kubernetes name; legal: 1 to 63 of a-z, 0-9 and -, beginning and ending with a letter or digit "
        "(RFC 1123)"
    )


def optional(check: Callable[[str], str | None]) -> Callable[[str], str | None]:
    """The same check, to which the empty string is fine."""

    def problem(value: str) -> str | None:
        return None if not value else check(value)

    return problem


def service_name(suffix: str) -> Callable[[str], str | None]:
    """An RFC 1035 label that stays one when the controller appends `suffix` for the Service that it makes."""
    longest = 63 - len(suffix)

    def problem(value: str) -> str | None:
        if _RFC_1035_LABEL.fullmatch(value) and len(value) <= longest:
            return None
        return (
            f"is no name for a Service; legal: 1 to {longest} of a-z, 0-9 and -, beginning with a letter and not "
            "ending with - (RFC 1035)"
        )

    return problem


def whole_number(minimum: int, maximum: int) -> Callable[[str], str | None]:
    """A whole number within bounds."""

    def problem(value: str) -> str | None:
        if re.fullmatch(r"[0-9]{1,9}", value, re.ASCII) and minimum <= int(value) <= maximum:
            return None
        return f"is not legal; legal: a whole number from {minimum} to {maximum}"

    return problem


def one_of(*values: str) -> Callable[[str], str | None]:
    """One of some words."""

    def problem(value: str) -> str | None:
        if value in values:
            return None
        near = difflib.get_close_matches(value[:_MAXIMUM_SHOWN_CHARACTERS], values, n=1, cutoff=0.5)
        nearest = f"nearest: {near[0]}; " if near else ""
        return f"is not legal; {nearest}legal: {', '.join(shown or 'empty' for shown in values)}"

    return problem


def matching(pattern: str, legal: str) -> Callable[[str], str | None]:
    """Text that a regular expression matches as a whole; `legal` says in words what that is."""
    compiled = re.compile(pattern, re.ASCII)

    def problem(value: str) -> str | None:
        return None if compiled.fullmatch(value) else f"is not legal; legal: {legal}"

    return problem


def printable(value: str) -> str | None:
    """Any text in one line."""
    return None if value and value.isprintable() else "is not legal; legal: printable characters in one line"


KUBERNETES_VERSION = matching(r"1\.[0-9]{1,3}", "a minor version such as 1.33")


def kubernetes_minor(version: str) -> int:
    """33 of `1.33`."""
    return int(version.split(".")[1])


RESOURCE_NAME = matching(
    r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", "such as nvidia.com/gpu"
)
IMAGE = matching(r"[A-Za-z0-9][A-Za-z0-9._:/@-]*", "a container image such as vllm/vllm-openai:v0.21.0")
ADDRESS = matching(r"https?://[A-Za-z0-9._~:/?#\[\]@!$&()*+,;=%-]+", "an http or https address without spaces")
METRIC_NAME = matching(r"[a-zA-Z_:][a-zA-Z0-9_:]*", "a metric name of letters, digits, _ and :")
METRIC_PREFIX = matching(r"([a-zA-Z_:][a-zA-Z0-9_:]*)?", "empty, or letters, digits, _ and :")
URI = matching(r"[a-z][a-z0-9+.-]*://[^\s\x00-\x1f\"'\\]+", "a URI such as hf://meta-llama/Llama-3.1-8B-Instruct")


def name_options(default: str = "") -> tuple[Option, Option]:
    """Name and namespace; an empty name is the deployment's id."""
    return (
        Option("name", default, "name of the rendered objects; empty: the deployment's id", optional(kubernetes_name)),
        Option("namespace", "default", "namespace of the rendered objects", kubernetes_name),
    )


def named_service(suffix: str) -> tuple[Option, Option]:
    """Name and namespace where a controller derives Services from the name."""
    return (
        Option("name", "", "name of the rendered object; empty: the deployment's id", optional(service_name(suffix))),
        Option("namespace", "default", "namespace of the rendered object", kubernetes_name),
    )
