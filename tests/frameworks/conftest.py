"""Servers for the frameworks of others."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.peers import ServerProcess, available_servers, running_server
from tests.ways import take_turns


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each kind of broker beside one of the servers."""
    take_turns(items, "tests/frameworks/")


@pytest.fixture(scope="session", params=available_servers())
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """One server for all tests of this folder."""
    with running_server(request.param) as process:
        yield process


@pytest.fixture
def unique() -> str:
    """A name nobody else uses: for streams, buckets and the first token of subjects."""
    return f"T{uuid.uuid4().hex[:12]}"
