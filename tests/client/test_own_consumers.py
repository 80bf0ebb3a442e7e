"""Consumers of a reader that a server makes late: nobody had an answer, and a removal came before."""

from __future__ import annotations

import gc
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from pelton.api import ErrorBody, error_from
from pelton.api.subjects import Api
from pelton.client.aio.upkeep import OwnConsumers
from pelton.client.base.models import ConsumerConfig
from pelton.errors import PeltonTimeoutError

NOT_FOUND = error_from(ErrorBody(code=404, err_code=10014, description="consumer not found"))


class Server:
    """Answers no creation, and has made the consumer when it was asked to remove it so many times."""

    def __init__(self, made_at: int) -> None:
        self.made_at = made_at
        self.removals = 0
        self.holds: set[str] = set()

    async def create_consumer(self, stream: str, config: ConsumerConfig) -> Any:
        self.holds.add(config.name)
        raise PeltonTimeoutError("no answer")

    async def delete_consumer(self, stream: str, name: str) -> None:
        self.removals += 1
        if self.removals < self.made_at or name not in self.holds:
            raise NOT_FOUND
        self.holds.remove(name)


def run(call: Any) -> None:
    with suppress(StopIteration):
        call.send(None)


async def passing(seconds: float) -> None:
    """Time passes."""


def unanswered(server: Server) -> OwnConsumers:
    """Those of a reader whose first creation has got no answer."""
    connection = SimpleNamespace(connected=True, abandon_requests=lambda subjects: None)
    client = SimpleNamespace(
        _own_consumers=set(), new_id=lambda: "name", _connection=connection, _sleep=passing
    )
    js: Any = SimpleNamespace(
        client=client,
        subjects=Api(),
        create_consumer=server.create_consumer,
        delete_consumer=server.delete_consumer,
    )
    consumers = OwnConsumers(js, "S")
    with pytest.raises(PeltonTimeoutError):
        run(consumers.create(ConsumerConfig()))
    return consumers


@pytest.mark.parametrize("made_at", [1, 2, 3])
def test_a_consumer_that_is_made_late_is_removed(made_at: int) -> None:
    server = Server(made_at)
    consumers = unanswered(server)
    run(consumers.remove())
    run(consumers.remove())
    assert not server.holds
    asked = server.removals
    run(consumers.remove())
    assert server.removals == asked  # nothing is left to remove


def test_a_consumer_that_is_never_made_is_asked_for_a_few_times() -> None:
    server = Server(made_at=1000)
    consumers = unanswered(server)
    for _ in range(5):
        run(consumers.remove())
    assert server.removals == 3


def test_a_consumer_that_was_not_asked_for_is_not_removed() -> None:
    async def refused(*_: object) -> None:
        raise ValueError("no stream can have this name")

    asked: list[str] = []
    connection = SimpleNamespace(connected=True, abandon_requests=asked.extend)
    client = SimpleNamespace(
        _own_consumers=set(), new_id=lambda: "name", _connection=connection, _sleep=passing
    )
    js: Any = SimpleNamespace(client=client, subjects=Api(), create_consumer=refused)
    consumers = OwnConsumers(js, "S")
    with pytest.raises(ValueError, match="no stream"):
        run(consumers.create(ConsumerConfig()))
    client._own_consumers.clear()
    del consumers
    gc.collect()
    assert asked == []
