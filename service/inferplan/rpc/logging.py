"""JSON logs on standard error, one object a line, with the secrets that the service knows cut out of every entry."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from urllib.parse import quote, unquote

import structlog
from structlog.typing import EventDict, WrappedLogger


class SecretMasker:
    """A processor that replaces known secrets wherever they stand in an entry, rendered tracebacks included."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {form for secret in secrets if secret for form in (secret, unquote(secret), quote(secret, safe=""))}
        self._secrets = sorted(forms, key=len, reverse=True)

    def __call__(self, _logger: WrappedLogger, _method: str, event_dict: EventDict) -> EventDict:
        """The entry without secrets; structlog calls it once an entry."""
        return {key: self._mask(value) for key, value in event_dict.items()}

    def _mask(self, value: object) -> object:
        if isinstance(value, str):
            for secret in self._secrets:
                value = value.replace(secret, "***")
            return value
        if isinstance(value, dict):
            return {key: self._mask(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._mask(item) for item in value]
        return value


def configure_logging(level: str, secrets: Iterable[str] = ()) -> None:
    """Set up structlog for the process. `level` is debug, info, warning or error."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            SecretMasker(secrets),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )


def password_of(url: str) -> str:
    """The password part of a database URL, empty if it has none."""
    _scheme, _separator, rest = url.partition("://")
    credentials, at, _host = rest.partition("?")[0].rpartition("@")
    return credentials.partition(":")[2] if at else ""
