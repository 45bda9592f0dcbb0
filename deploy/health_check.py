"""The image's health check: exit status 0 when the server on this host says SERVING.

It asks grpc.health.v1 at the port of INFERPLAN_LISTEN, with nothing but what the image holds anyway.
"""

from __future__ import annotations

import os
import sys

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

DEFAULT_LISTEN = "127.0.0.1:7460"
TIMEOUT_SECONDS = 3.0


def target(listen: str) -> str:
    """The address to ask for a server that listens on `listen`: the same socket, or the same port on this host."""
    if listen.startswith("unix:"):
        return listen
    _host, _colon, port = listen.rpartition(":")
    return f"127.0.0.1:{port}"


def is_serving(address: str) -> bool:
    """Whether the server at `address` answers SERVING for itself as a whole within the time limit."""
    with grpc.insecure_channel(address) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service=""), timeout=TIMEOUT_SECONDS
            )
        except grpc.RpcError as error:
            print(f"{address}: {error}", file=sys.stderr)
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


if __name__ == "__main__":
    sys.exit(0 if is_serving(target(os.environ.get("INFERPLAN_LISTEN", DEFAULT_LISTEN))) else 1)
