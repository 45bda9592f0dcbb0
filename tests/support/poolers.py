"""PgBouncer in transaction mode before a PostgreSQL server, for the tests that stand behind a pooler."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from sqlalchemy import make_url

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
SERVER_CONNECTIONS = 3
"""Fewer than any test's clients, so that transactions of different clients share connections."""


@contextmanager
def pooled(url: str) -> Iterator[str]:
    """The URL of a PgBouncer in transaction mode that stands before the database `url`."""
    target = make_url(url)
    host = target.host or str(target.query["host"])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="inferplan-pgbouncer-") as folder:
        configuration = Path(folder) / "pgbouncer.ini"
        configuration.write_text(
            "[databases]\n"
            f"pooled = host={host} port={target.port or 5432} dbname={target.database} user={target.username}"
            f"{f' password={target.password}' if target.password else ''}\n"
            "[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
            f"auth_type = any\npool_mode = transaction\ndefault_pool_size = {SERVER_CONNECTIONS}\n"
            "max_client_conn = 500\n"
        )
        Path(folder).chmod(0o755)
        assert PROGRAM is not None
        command = [PROGRAM, *_as_another_user(host), str(configuration)]
        process = subprocess.Popen(command)
        try:
            through = f"postgresql://inferplan@127.0.0.1:{port}/pooled"
            _wait_until_it_answers(process, through)
            yield through
        finally:
            process.kill()
            process.wait()


def _as_another_user(host: str) -> list[str]:
    """PgBouncer refuses to run as root: the owner of the server's socket folder may at least get into it."""
    if os.geteuid() != 0:
        return []
    return ["-u", Path(host).owner() if host.startswith("/") else "nobody"]


def _wait_until_it_answers(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(url, connect_timeout=5).close()
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("pgbouncer does not answer") from None
            time.sleep(0.02)
        else:
            return
