"""Servers of both kinds for this folder's tests, each empty at the beginning of a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pelton import StreamConfig
from pelton.sync import connect
from tests.peers import ServerProcess, available_servers, running_server
from tests.ways import take_turns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.client.sync.jetstream import JetStream


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each dialect and each way to apply beside one of the servers."""
    take_turns(items, "tests/apply/")


@pytest.fixture(
    scope="module",
    params=[pytest.param(kind, marks=pytest.mark.peer) for kind in available_servers()],
)
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    with running_server(request.param) as process:
        yield process


@pytest.fixture(scope="module")
def connected(server: ServerProcess) -> Iterator[JetStream]:
    with connect(server.url) as client:
        yield client.jetstream()


def clear(jetstream: JetStream) -> None:
    """Delete all streams but KEEP: a nats-server without streams removes the folder of all, after its answer."""
    for name in jetstream.stream_names():
        if name != "KEEP":
            jetstream.delete_stream(name)


@pytest.fixture
def jetstream(connected: JetStream) -> JetStream:
    connected.create_or_update_stream(StreamConfig(name="KEEP"))
    clear(connected)
    return connected
