"""Brokers and connections of kombu for the tests."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import kombu
import pytest

import pelton.kombu  # noqa: F401  # makes pelton:// a broker URL
from tests.peers import ServerProcess, available_servers, running_server

Connecting = Callable[..., kombu.Connection]


@pytest.fixture(scope="session", params=available_servers())
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """One server for all tests of this folder."""
    with running_server(request.param) as process:
        yield process


@pytest.fixture
def connect(server: ServerProcess) -> Iterator[Connecting]:
    """Makes connections to a virtual host of the test's own."""
    vhost = uuid.uuid4().hex[:12]
    made: list[kombu.Connection] = []

    def open_one(**options: Any) -> kombu.Connection:
        url = f"pelton://127.0.0.1:{server.port}/{vhost}"
        made.append(kombu.Connection(url, transport_options=options))
        return made[-1]

    yield open_one
    for connection in made:
        connection.release()
