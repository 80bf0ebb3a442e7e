"""Servers, and the clients that meet there."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from pelton import Client, connect
from tests.interop.probe import GoClient, JsClient, OtherClient
from tests.peers import ServerProcess, available_servers, running_server
from tests.ways import take_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

WAIT_S = 120


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each kind of group beside one of the servers."""
    take_turns(items, "tests/interop/")


@pytest.fixture(scope="session", params=available_servers())
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """One server for all tests of this folder."""
    with running_server(request.param) as process:
        yield process
        JsClient.leave(process.url)


@pytest.fixture
def unique() -> str:
    """A name nobody else uses: for streams, buckets and the first token of subjects."""
    return f"T{uuid.uuid4().hex[:12]}"


def exchange_with(other: type[OtherClient], url: str) -> Callable[..., None]:
    def run(body: Callable[[Client, Any], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            async with asyncio.timeout(WAIT_S), connect(url) as ours, other(url) as theirs:
                await body(ours, theirs)

        asyncio.run(whole())

    return run


@pytest.fixture(scope="session")
def go_client() -> None:
    """Skips the tests when nats.go is not here, before a server starts."""
    GoClient.path()


@pytest.fixture(scope="session")
def js_client() -> None:
    """Skips the tests when nats.js is not here, before a server starts."""
    JsClient.path()


@pytest.fixture
def exchange(go_client: None, server: ServerProcess) -> Callable[..., None]:
    """Carries out a coroutine function with our client and nats.go, both on one server."""
    return exchange_with(GoClient, server.url)


@pytest.fixture
def exchange_js(js_client: None, server: ServerProcess) -> Callable[..., None]:
    """Carries out a coroutine function with our client and nats.js, both on one server."""
    return exchange_with(JsClient, server.url)
