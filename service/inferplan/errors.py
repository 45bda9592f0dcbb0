"""The errors that every room may raise.

They carry data, not prose for one transport: rpc/ turns each into a gRPC status with details, cli/ into an exit code.
Nothing here may ever hold a secret: messages are shown to callers as they stand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

MAXIMUM_REPORTED_VIOLATIONS = 50
"""Status details travel in an HTTP/2 header of 8 KiB, so a longer list would break the call that reports it."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is wrong with an input.

    `field` is the path from the request's root (`hardware.tensor_parallel`, `objectives[1].percentile`), `description`
    says what is wrong and what would be legal, `reason` is a stable UPPER_SNAKE_CASE code.
    """

    field: str
    description: str
    reason: str = "INVALID_VALUE"

    def below(self, prefix: str) -> Violation:
        """The same violation seen from a message that holds this one under `prefix`."""
        if not prefix:
            return self
        path = f"{prefix}.{self.field}" if self.field and not self.field.startswith("[") else f"{prefix}{self.field}"
        return Violation(path, self.description, self.reason)


class InferplanError(Exception):
    """Base of every error that a caller is meant to see."""

    reason = "INTERNAL"


class InvalidInputError(InferplanError):
    """The request is wrong; `violations` holds all that is wrong with it, never only the first."""

    reason = "INVALID_INPUT"

    def __init__(self, violations: Iterable[Violation]) -> None:
        self.violations = tuple(violations)
        if not self.violations:
            raise ValueError("InvalidInputError needs at least one violation")
        super().__init__(
            "; ".join(f"{v.field}: {v.description}" if v.field else v.description for v in self.violations)
        )

    @classmethod
    def single(cls, path: str, description: str, reason: str = "INVALID_VALUE") -> InvalidInputError:
        """The error of one violation."""
        return cls([Violation(path, description, reason)])


class NotFoundError(InferplanError):
    """A named resource does not exist. `resource_type` is its kind (`Model`), `resource_name` its full name."""

    reason = "RESOURCE_NOT_FOUND"

    def __init__(self, resource_type: str, resource_name: str, description: str = "") -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        super().__init__(description or f"{resource_type} {resource_name!r} does not exist")


class AlreadyExistsError(InferplanError):
    """A resource of that name, or a request of that id with other content, is already there."""

    reason = "RESOURCE_ALREADY_EXISTS"

    def __init__(self, resource_type: str, resource_name: str, description: str = "") -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        super().__init__(description or f"{resource_type} {resource_name!r} already exists")


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """One rule that one candidate configuration broke. `subject` names the candidate, `rule` is a stable code."""

    rule: str
    subject: str
    description: str


class NothingFitsError(InferplanError):
    """A well-formed question without an answer: the rule that each candidate broke, and the nearest that would fit."""

    reason = "NOTHING_FITS"

    def __init__(self, message: str, broken_rules: Iterable[BrokenRule], nearest: str = "") -> None:
        self.broken_rules = tuple(broken_rules)
        self.nearest = nearest
        super().__init__(message if not nearest else f"{message} Nearest that would fit: {nearest}")


class PreconditionError(InferplanError):
    """A well-formed request that the resource's state does not allow: the rule that it broke. Repeating is no use."""

    reason = "PRECONDITION_FAILED"

    def __init__(self, broken_rule: BrokenRule) -> None:
        self.broken_rule = broken_rule
        super().__init__(f"{broken_rule.subject}: {broken_rule.description}")


class UnimplementedError(InferplanError):
    """Part of the contract that this version does not do yet."""

    reason = "UNIMPLEMENTED"


class CancelledError(InferplanError):
    """Whoever asked has gone, or said stop; nothing was stored."""

    reason = "CANCELLED"


class ConflictError(InferplanError):
    """A concurrent change won the race; the caller may read again and retry."""

    reason = "CONCURRENT_CHANGE"


@dataclass
class OverloadedError(InferplanError):
    """The service sheds this call; try again after `retry_after_seconds`."""

    message: str
    retry_after_seconds: float = 1.0
    reason: str = field(default="OVERLOADED", init=False)

    def __str__(self) -> str:
        return self.message


@dataclass
class StorageUnavailableError(InferplanError):
    """The database does not answer; try again after `retry_after_seconds`."""

    message: str
    retry_after_seconds: float = 1.0
    reason: str = field(default="DATABASE_UNAVAILABLE", init=False)

    def __str__(self) -> str:
        return self.message


class StorageStateError(InferplanError):
    """The database is missing, read-only, or at another revision than this program: says what to run."""

    reason = "DATABASE_STATE"
