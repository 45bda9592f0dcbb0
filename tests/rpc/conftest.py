"""A real server over a real database, and a channel to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from pydantic import SecretStr

from inferplan.rpc.server import PlanningServer, ServerOptions
from inferplan.rpc.startup import open_planner
from inferplan.settings import Settings


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanningServer]:
    folder = tmp_path_factory.mktemp("service")
    settings = Settings(database_url=SecretStr(f"sqlite:///{folder / 'inferplan.db'}"))
    with (
        open_planner(settings) as planner,
        PlanningServer(planner, ServerOptions(listen="127.0.0.1:0", handler_threads=4)) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def channel(server: PlanningServer) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as opened:
        yield opened


@pytest.fixture(scope="session")
def llama_config() -> str:
    path = Path(__file__).parents[2] / "docs" / "examples" / "llama-2-7b" / "config.json"
    return path.read_text(encoding="utf-8")
