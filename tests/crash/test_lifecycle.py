"""Kills in the middle of creating, deleting and purging: what was answered holds.

ROUNDS is how many lives the server has.
"""

from __future__ import annotations

import json
import threading
import time
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.crash.waiting import pause
from tests.crash.wire import Wire
from tests.peers import running_server
from tests.ways import SEED, length

if TYPE_CHECKING:
    from collections.abc import Iterable

ROUNDS = length(4, 24)
CLIENTS = 3
NAMES = 4  # streams of each client
IN_FLIGHT = 64

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120 + 10 * ROUNDS)]


class Stream:
    """What its client knows of one stream: each value is certain, or (None) was being changed."""

    def __init__(self) -> None:
        self.there: bool | None = False
        self.max_msgs: int | None = 0
        self.messages: int | None = 0
        self.last_seq = 0
        self.consumers: dict[str, bool | None] = {}


class Refused(RuntimeError):
    """The server answered with an error."""


class Client(threading.Thread):
    """Changes streams of its own until the server is gone; the books say what was answered."""

    def __init__(self, port: int, books: dict[str, Stream], seed: int) -> None:
        super().__init__(daemon=True)
        self._wire = Wire(port)
        self._books = books
        self._rng = Random(seed)
        self.calls = 0
        self.wrong: list[Any] = []

    def run(self) -> None:
        while not self._wire.gone:
            name = self._rng.choice(sorted(self._books))
            try:
                self._change(name, self._books[name])
                self.calls += 1
            except RuntimeError:
                break  # the server was killed before it answered
        self._wire.close()

    def _call(self, call: str, body: Any = b"") -> Any:
        answer = self._wire.api(call, body)
        if "error" in answer:
            self.wrong.append((call, answer))
            raise Refused(call)  # what is known stays uncertain
        return answer

    def _change(self, name: str, known: Stream) -> None:
        rng = self._rng
        if known.there is None:
            time.sleep(0.01)  # not before it is known again
            return
        if not known.there:
            limit = rng.randrange(1, 1000)
            known.there = known.max_msgs = known.messages = None
            known.last_seq, known.consumers = 0, {}
            config = {"name": name, "subjects": [name], "max_msgs": limit + 1000}
            self._call(f"STREAM.CREATE.{name}", config)
            known.there, known.max_msgs, known.messages = True, limit + 1000, 0
            return
        what = rng.choice(
            ("publish", "publish", "consumer", "consumer", "purge", "update", "delete")
        )
        if what == "publish" and known.messages is not None:
            count, known.messages = known.messages, None
            answer = self._wire.request(name, b"x" * 50)
            if "error" in answer:
                self.wrong.append((name, answer))
                raise Refused(name)
            known.last_seq = answer["seq"]
            known.messages = count + 1
        elif what == "consumer":
            durable = rng.choice("abc")
            there = known.consumers.get(durable, False)
            known.consumers[durable] = None
            if there:
                self._call(f"CONSUMER.DELETE.{name}.{durable}")
            else:
                body = {"stream_name": name, "config": {"durable_name": durable}}
                self._call(f"CONSUMER.CREATE.{name}.{durable}", body)
            known.consumers[durable] = not there
        elif what == "purge":
            known.messages = None
            self._call(f"STREAM.PURGE.{name}")
            known.messages = 0
        elif what == "update":
            known.max_msgs = None
            limit = rng.randrange(1000, 2000)
            self._call(
                f"STREAM.UPDATE.{name}", {"name": name, "subjects": [name], "max_msgs": limit}
            )
            known.max_msgs = limit
        elif what == "delete":
            known.there = None
            self._call(f"STREAM.DELETE.{name}")
            known.there = False


def settle(wire: Wire, books: dict[str, Stream], others: Iterable[str] = ()) -> None:
    """Compare a server that has just started with the books; then the books know everything.

    `others` are streams of somebody else.
    """
    present = set(wire.ok("STREAM.NAMES")["streams"] or []) - set(others)
    assert present <= set(books)
    for name, known in books.items():
        if known.there is not None:
            assert known.there == (name in present), (name, known.__dict__, present)
        known.there = name in present
        if not known.there:
            continue
        info = wire.ok(f"STREAM.INFO.{name}")
        state = info["state"]
        if known.max_msgs is not None:
            assert info["config"]["max_msgs"] == known.max_msgs, (name, info, known.__dict__)
        known.max_msgs = info["config"]["max_msgs"]
        assert state["last_seq"] >= known.last_seq, (name, state, known.__dict__)
        if known.messages is not None:
            assert state["messages"] == min(known.messages, known.max_msgs), (
                name,
                state,
                known.__dict__,
            )
        known.messages, known.last_seq = state["messages"], state["last_seq"]
        consumers = set(wire.ok(f"CONSUMER.NAMES.{name}")["consumers"] or [])
        for durable, there in known.consumers.items():
            assert there is None or there == (durable in consumers), (name, durable, consumers)
        known.consumers = dict.fromkeys(consumers, True)


def enough(clients: list[Client]) -> bool:
    """Whether there were calls whose outcome can be looked at."""
    return sum(client.calls for client in clients) > 10


def test_what_was_created_is_there_and_what_was_deleted_is_gone() -> None:
    print(f"seed {SEED}")
    rng = Random(SEED)
    books = [{f"S{k}-{n}": Stream() for n in range(NAMES)} for k in range(CLIENTS)]
    calls = 0
    with running_server("pelton") as server:
        for _ in range(ROUNDS):
            clients = [Client(server.port, book, rng.randrange(2**32)) for book in books]
            for client in clients:
                client.start()
            pause(rng.uniform(0.02, length(0.15, 0.3)), partial(enough, clients))
            server.stop(kill=True)
            for client in clients:
                client.join(20)
                assert not client.is_alive()
                assert not client.wrong, client.wrong
                calls += client.calls
            server.start()
            wire = Wire(server.port)
            settle(wire, {name: known for book in books for name, known in book.items()})
            wire.close()
        log = server.log_path.read_text()
    assert "stays offline" not in log, log
    assert "Internal error" not in log, log
    assert calls > 10 * ROUNDS, "too few calls to say anything"


class Many(threading.Thread):
    """Has many requests on their way at once, each creating or deleting a consumer of its own."""

    def __init__(self, port: int, known: set[str], seed: int) -> None:
        super().__init__(daemon=True)
        self._wire = Wire(port)
        self._rng = Random(seed)
        self._known = known
        self.asked: set[str] = set()  # not answered
        self.calls = 0

    def run(self) -> None:
        for number in range(IN_FLIGHT):
            self._ask(f"c{number}")
        while not self._wire.gone:
            for event in self._wire.events(0.1):
                assert "error" not in json.loads(event.payload), event
                self._known ^= {event.subject}
                self.asked.discard(event.subject)
                self.calls += 1
                self._ask(event.subject)
        self._wire.close()

    def _ask(self, name: str) -> None:
        self.asked.add(name)
        body = {"stream_name": "S", "config": {"durable_name": name}}
        call, data = f"CREATE.S.{name}", json.dumps(body).encode()
        if name in self._known:
            call, data = f"DELETE.S.{name}", b""
        self._wire.publish(f"$JS.API.CONSUMER.{call}", data, name)


def test_consumers_of_many_requests_at_once() -> None:
    print(f"seed {SEED}")
    rng = Random(SEED)
    known: set[str] = set()
    with running_server("pelton") as server:
        wire = Wire(server.port)
        wire.ok("STREAM.CREATE.S", {"name": "S", "subjects": ["s"]})
        for _ in range(ROUNDS):
            client = Many(server.port, known, rng.randrange(2**32))
            client.start()
            pause(
                rng.uniform(0.02, length(0.15, 0.3)), lambda client=client: client.calls > IN_FLIGHT
            )
            server.stop(kill=True)
            client.join(20)
            assert not client.is_alive()
            assert client.calls > IN_FLIGHT
            server.start()
            wire = Wire(server.port)
            there = set(wire.ok("CONSUMER.NAMES.S")["consumers"] or [])
            assert there - client.asked == known - client.asked
            known = there
            wire.close()
        log = server.log_path.read_text()
    assert "stays offline" not in log, log
    assert "Internal error" not in log, log
