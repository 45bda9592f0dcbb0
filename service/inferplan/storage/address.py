"""Database URLs: which are legal, and how one is shown without its secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from inferplan.errors import InvalidInputError

_LEGAL = (
    "legal: sqlite:////absolute/path/to/file.db, sqlite:///relative/file.db, postgresql://user:password@host:5432/name"
)
_SECRET_PARAMETERS = ("password", "sslpassword", "oauth_client_secret")


@dataclass(frozen=True, slots=True)
class SqliteAddress:
    """A SQLite file; `read_only` opens it without the right to write."""

    path: Path
    read_only: bool = False

    @property
    def display(self) -> str:
        """The address as it may be shown."""
        return f"sqlite:///{self.path}"


@dataclass(frozen=True, slots=True)
class PostgresqlAddress:
    """A PostgreSQL database. `url` holds neither password nor parameters: `connection_parameters` do, never shown."""

    url: URL
    connection_parameters: Mapping[str, str] = field(repr=False)

    @property
    def display(self) -> str:
        """The address as it may be shown: no password, no parameters besides the host."""
        url = self.url.set(drivername="postgresql")
        host = self.connection_parameters.get("host", "")
        return url.render_as_string(hide_password=True) + (f" (host {host})" if host and not url.host else "")

    def without_secrets(self, text: str) -> str:
        """`text` with every secret of this address masked; for messages of the driver, which may quote parameters."""
        for name in _SECRET_PARAMETERS:
            secret = self.connection_parameters.get(name)
            if secret:
                text = text.replace(secret, "***")
        return text


def parse_address(url: str) -> SqliteAddress | PostgresqlAddress:
    """Read a database URL. Raises InvalidInputError; the message never quotes the URL, which may hold a password."""
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    except (ArgumentError, ValueError):
        raise _invalid(f"is not a database URL; {_LEGAL}") from None
    if backend == "sqlite":
        return _sqlite_address(parsed)
    if backend in ("postgresql", "postgres"):
        return _postgresql_address(parsed)
    raise _invalid(f"names a database that is not supported; {_LEGAL}")


def _sqlite_address(url: URL) -> SqliteAddress:
    if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        raise _invalid("names no file; plans must outlive the process, so a database in memory is not supported")
    modes = {"rw": False, "ro": True}
    if set(url.query) - {"mode"} or url.query.get("mode", "rw") not in modes:
        raise _invalid("has parameters that are not known; legal for SQLite: mode=ro, mode=rw")
    return SqliteAddress(Path(url.database).absolute(), modes[str(url.query.get("mode", "rw"))])


def _postgresql_address(url: URL) -> PostgresqlAddress:
    if url.drivername not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise _invalid("names a driver that is not supported; legal: postgresql://…, which uses psycopg 3")
    if "@" in (url.host or "") or "@" in (url.database or ""):
        # What stands before the last @ is a part of the password, and would be shown as part of the host.
        raise _invalid("has an unescaped @ in its user name or password; write %40 instead")
    parameters = {name: value if isinstance(value, str) else ",".join(value) for name, value in url.query.items()}
    if url.password is not None:
        parameters["password"] = str(url.password)
    bare = URL.create("postgresql+psycopg", url.username, None, url.host, url.port, url.database)
    return PostgresqlAddress(bare, parameters)


def _invalid(description: str) -> InvalidInputError:
    return InvalidInputError.single("database_url", description)
