"""How commands reach the service: over the network, or in this process.

Without a server address the command starts the very same server inside its own process, on a Unix socket in a private
temporary folder and over the configured database. So every command has one code path, and the same errors.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc

from inferplan.cli.logging_setup import quiet_logging
from inferplan.rpc.server import PlanningServer, ServerOptions
from inferplan.rpc.startup import open_planner
from inferplan.settings import Settings

CONNECT_SECONDS = 10.0
CALL_SECONDS = 120.0


@contextmanager
def connect(server: str | None, settings: Settings) -> Iterator[grpc.Channel]:
    """A channel to `server` (HOST:PORT), or to a server in this process if it is None."""
    if server is not None:
        with grpc.insecure_channel(server, options=_options(settings)) as channel:
            yield channel
        return
    quiet_logging(settings)
    with tempfile.TemporaryDirectory(prefix="inferplan-") as folder:
        address = f"unix:{Path(folder) / 'inferplan.sock'}"
        with open_planner(settings) as planner:
            options = ServerOptions(listen=address, handler_threads=2, reflection=False, compile_first=False)
            with (
                PlanningServer(planner, options),
                grpc.insecure_channel(address, options=_options(settings)) as channel,
            ):
                yield channel


def _options(settings: Settings) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", settings.maximum_message_bytes),
        ("grpc.max_send_message_length", settings.maximum_message_bytes),
    ]
