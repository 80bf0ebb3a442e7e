"""Servers, and the two clients that meet there."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from penstock.client import Client, connect
from tests.interop.probe import GoClient, go_client
from tests.peers import ServerProcess, available_servers, running_server

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

WAIT_S = 120


@pytest.fixture(scope="session", params=available_servers())
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """One server for all tests of this folder."""
    go_client()
    with running_server(request.param) as process:
        yield process


@pytest.fixture
def unique() -> str:
    """A name nobody else uses: for streams, buckets and the first token of subjects."""
    return f"T{uuid.uuid4().hex[:12]}"


@pytest.fixture
def exchange(server: ServerProcess) -> Callable[..., None]:
    """Carries out a coroutine function with our client and nats.go, both on one server."""

    def run(body: Callable[[Client, GoClient], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            async with (
                asyncio.timeout(WAIT_S),
                connect(server.url) as ours,
                GoClient(server.url) as go,
            ):
                await body(ours, go)

        asyncio.run(whole())

    return run
