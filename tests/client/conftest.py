"""A server of every kind there is, for the tests that need one."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from tests.client.features import leave_out
from tests.client.shells import SHELLS
from tests.peers import OLDEST, ServerProcess, available_servers, running_server
from tests.ways import take_turns

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what the server is too old for. Both shells carry out the same steps: each beside one server."""
    leave_out(items)
    take_turns(items, "tests/client/")


@pytest.fixture(scope="session", params=available_servers(OLDEST))
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """One server for all tests; they must not stop it, and use names of their own."""
    with running_server(request.param) as process:
        yield process


@pytest.fixture(params=available_servers(OLDEST))
def own_server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """A server for this test alone, which it may stop and start."""
    with running_server(request.param) as process:
        yield process


@pytest.fixture
def unique() -> str:
    """A name nobody else uses: for streams and the first token of subjects."""
    return f"T{uuid.uuid4().hex[:12]}"


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    """Either shell of the client, for ``connected``."""
    name: str = request.param
    return name
