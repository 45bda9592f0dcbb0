"""The image's health check tells a serving server from one that is not, or not there."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

SCRIPT = Path(__file__).resolve().parent.parent / "deploy" / "health_check.py"


def exit_status(listen: str) -> int:
    environment = {"INFERPLAN_LISTEN": listen}
    return subprocess.run([sys.executable, str(SCRIPT)], env=environment, capture_output=True, check=False).returncode


@pytest.fixture
def server() -> Iterator[tuple[int, health.HealthServicer]]:
    servicer = health.HealthServicer()
    server = grpc.server(ThreadPoolExecutor(max_workers=2))
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port, servicer
    server.stop(grace=None).wait()


def test_follows_what_the_server_says(server: tuple[int, health.HealthServicer]) -> None:
    port, servicer = server
    servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    assert exit_status(f"0.0.0.0:{port}") == 0
    servicer.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    assert exit_status(f"0.0.0.0:{port}") == 1


def test_fails_where_nothing_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert exit_status(f"127.0.0.1:{unused.getsockname()[1]}") == 1
