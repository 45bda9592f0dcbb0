"""Settings, from the environment (`INFERPLAN_…`) and the command line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from platformdirs import user_data_path
from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from inferplan.errors import InvalidInputError, Violation


def default_database_url() -> str:
    """The embedded database: a SQLite file in the user's data folder."""
    return f"sqlite:///{user_data_path('inferplan', appauthor=False) / 'inferplan.db'}"


class Settings(BaseSettings):
    """What a running service can be told. Every field is `INFERPLAN_` + its name in capitals in the environment.

    `database_url` is a secret, since it may hold a password: print settings with `in_force()` only.
    """

    model_config = SettingsConfigDict(env_prefix="INFERPLAN_", extra="ignore", frozen=True)

    database_url: SecretStr = Field(
        default_factory=lambda: SecretStr(default_database_url()),
        description="SQLite file (sqlite:///path) or PostgreSQL (postgresql://user:password@host/database).",
    )
    database_connections: int = Field(
        default=10, ge=1, le=1000, description="Most connections to the database that this process holds."
    )
    database_through_pgbouncer: bool = Field(
        default=False, description="Whether a pooler in transaction mode stands before PostgreSQL."
    )
    database_statement_timeout_seconds: float = Field(
        default=5.0, ge=0.1, le=600, description="Longest that PostgreSQL may work on one statement."
    )
    database_lock_timeout_seconds: float = Field(
        default=4.0, ge=0.1, le=600, description="Longest wait for a lock in the database."
    )
    listen: str = Field(
        default="127.0.0.1:7460", description="Address that the server listens on, HOST:PORT or unix:PATH."
    )
    handler_threads: int = Field(default=16, ge=1, le=256, description="Threads that handle calls.")
    planning_slots: int = Field(
        default_factory=lambda: os.cpu_count() or 1, ge=1, le=256, description="Calls that simulate at once."
    )
    planning_queue: int = Field(default=4, ge=0, le=256, description="Calls that wait for a simulation slot.")
    planning_wait_seconds: float = Field(
        default=1.0, ge=0, le=600, description="Longest wait for a simulation slot before a call is shed."
    )
    maximum_concurrent_rpcs: int = Field(
        default=256, ge=1, le=100_000, description="Calls in flight beyond which new ones are shed at once."
    )
    maximum_message_bytes: int = Field(
        default=4 * 1024 * 1024, ge=65_536, le=64 * 1024 * 1024, description="Largest message that is taken or sent."
    )
    drain_notice_seconds: float = Field(
        default=2.0, ge=0, le=600, description="Time between reporting NOT_SERVING and refusing new calls on SIGTERM."
    )
    drain_seconds: float = Field(
        default=20.0, ge=0, le=3600, description="Time that calls in flight get to finish after SIGTERM."
    )
    reflection: bool = Field(default=True, description="Whether the server describes its services to clients.")
    catalog_directory: Path | None = Field(
        default=None, description="Folder with the site's own models, accelerators and engines."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe log entries that are written."
    )

    def in_force(self) -> dict[str, str]:
        """Every setting as text, with passwords masked."""
        values = {name: str(getattr(self, name)) for name in type(self).model_fields}
        values["database_url"] = mask_password(self.database_url.get_secret_value())
        return values


def mask_password(url: str) -> str:
    """A database URL whose password, and any credential in its query, is replaced by `***`.

    It is cut by hand and never parsed, so that even a malformed URL cannot leak: whatever stands between the first `:`
    after the scheme's `//` and the last `@` is a password.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url if "@" not in url else "***"
    address, question, query = rest.partition("?")
    credentials, at, host = address.rpartition("@")
    user, colon, _password = credentials.partition(":")
    shown = f"{user}{colon}{'***' if colon else ''}{at}{host}"
    masked_query = "&".join(_mask_parameter(parameter) for parameter in query.split("&")) if question else ""
    return f"{scheme}://{shown}{question}{masked_query}"


def _mask_parameter(parameter: str) -> str:
    name, equals, _value = parameter.partition("=")
    secret = any(word in name.lower() for word in ("password", "secret", "token", "key"))
    return f"{name}{equals}***" if secret else parameter


def load_settings() -> Settings:
    """Settings from the environment. Raises InvalidInputError that names every variable that cannot be read."""
    try:
        return Settings()
    except ValidationError as error:
        raise InvalidInputError(
            Violation(f"INFERPLAN_{'_'.join(str(part) for part in item['loc']).upper()}", item["msg"])
            for item in error.errors(include_input=False, include_url=False)
        ) from None
