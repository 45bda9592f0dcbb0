"""Logs of a command: only what must not happen, on standard error, so that standard output stays the answer alone."""

from __future__ import annotations

from inferplan.rpc.logging import configure_logging, password_of
from inferplan.settings import Settings


def quiet_logging(settings: Settings) -> None:
    """For a command that serves itself: unexpected exceptions, which the command can only name by their request id."""
    configure_logging("error", [password_of(settings.database_url.get_secret_value())])
