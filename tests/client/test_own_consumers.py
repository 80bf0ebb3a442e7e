"""Consumers of a reader that a server makes late: nobody had an answer, and a removal came before."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pelton.api import ErrorBody, error_from
from pelton.api.subjects import Api
from pelton.client.base.models import ConsumerConfig
from pelton.client.session.own_consumers import OwnConsumers
from pelton.errors import PeltonTimeoutError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.client.base.steps import Steps


NOT_FOUND = error_from(ErrorBody(code=404, err_code=10014, description="consumer not found"))


class Server:
    """Answers no creation, and has made the consumer when it was asked to remove it so many times."""

    def __init__(self, made_at: int) -> None:
        self.made_at = made_at
        self.removals = 0
        self.holds: set[str] = set()

    def create_consumer(self, stream: str, config: ConsumerConfig) -> Steps[Any]:
        self.holds.add(config.name)
        raise PeltonTimeoutError("no answer")
        yield

    def delete_consumer(self, stream: str, name: str) -> Steps[None]:
        self.removals += 1
        if self.removals < self.made_at or name not in self.holds:
            raise NOT_FOUND
        self.holds.remove(name)
        return
        yield


def run(steps: Iterator[Any]) -> None:
    for _ in steps:
        pass


def unanswered(server: Server) -> OwnConsumers:
    """Those of a reader whose first creation has got no answer."""
    connection = SimpleNamespace(connected=True, abandon_requests=lambda subjects: None)
    client = SimpleNamespace(_own_consumers=set(), new_id=lambda: "name", _connection=connection)
    plans: Any = SimpleNamespace(
        subjects=Api(),
        create_consumer=server.create_consumer,
        delete_consumer=server.delete_consumer,
    )
    consumers = OwnConsumers(client, plans, "S")  # type: ignore[arg-type]  # what it uses of one
    with pytest.raises(PeltonTimeoutError):
        run(consumers.creating(ConsumerConfig()))
    return consumers


@pytest.mark.parametrize("made_at", [1, 2, 3])
def test_a_consumer_that_is_made_late_is_removed(made_at: int) -> None:
    server = Server(made_at)
    consumers = unanswered(server)
    run(consumers.removing())
    run(consumers.removing())
    assert not server.holds
    asked = server.removals
    run(consumers.removing())
    assert server.removals == asked  # nothing is left to remove


def test_a_consumer_that_is_never_made_is_asked_for_a_few_times() -> None:
    server = Server(made_at=1000)
    consumers = unanswered(server)
    for _ in range(5):
        run(consumers.removing())
    assert server.removals == 3


def test_a_consumer_that_was_not_asked_for_is_not_removed() -> None:
    def refused(*_: object) -> Steps[Any]:
        raise ValueError("no stream can have this name")
        yield

    asked: list[str] = []
    connection = SimpleNamespace(connected=True, abandon_requests=asked.extend)
    client = SimpleNamespace(_own_consumers=set(), new_id=lambda: "name", _connection=connection)
    plans: Any = SimpleNamespace(subjects=Api(), create_consumer=refused)
    consumers = OwnConsumers(client, plans, "S")  # type: ignore[arg-type]  # what it uses of one
    with pytest.raises(ValueError, match="no stream"):
        run(consumers.creating(ConsumerConfig()))
    client._own_consumers.clear()
    del consumers
    gc.collect()
    assert asked == []
