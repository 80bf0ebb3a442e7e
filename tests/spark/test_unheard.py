"""Rows that nobody took or that a server took and dropped, as when it stops: they are sent again in
their order, and what the stream has is not sent again.

Between the sink and a real server is a relay that changes what a row asks for, the first time that it comes by.
"""

from __future__ import annotations

import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from pelton.spark.connection import forget_client
from pelton.spark.servers import Servers
from pelton.spark.writing.plan import Written
from tests.spark.writing import DATA, Sink, broker, payloads, sink, write

__all__ = ["broker", "sink"]
pytestmark = pytest.mark.peer

ROW = re.compile(rb"row (\d+)\Z")
Fate = Callable[[int], str]


class Relay:
    """Passes all on, but for the first time of a row: ``unheard`` is published where nobody
    listens, ``dropped`` goes nowhere, the answer to ``unanswered`` is not asked for.
    """

    def __init__(self, url: str, fate: Fate) -> None:
        self.seen: Counter[int] = Counter()
        self._fate = fate
        self._port = urlsplit(url).port
        self._sockets: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"nats://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._port))
            self._sockets += [near, far]
            for act in (self._to_server, self._to_client):
                threading.Thread(target=act, args=(near, far), daemon=True).start()

    def _to_client(self, near: socket.socket, far: socket.socket) -> None:
        try:
            while data := far.recv(1 << 16):
                near.sendall(data)
        except OSError:
            pass
        near.close()

    def _to_server(self, near: socket.socket, far: socket.socket) -> None:
        try:
            with near.makefile("rb") as lines:
                for line in lines:
                    words = line.split()
                    if words and words[0] in (b"PUB", b"HPUB"):
                        line = self._changed(words, lines.read(int(words[-1]) + 2))
                    far.sendall(line)
        except OSError:
            pass
        far.close()

    def _changed(self, words: list[bytes], body: bytes) -> bytes:
        found = ROW.search(body[:-2])
        if found:
            row = int(found[1])
            self.seen[row] += 1
            fate = self._fate(row) if self.seen[row] == 1 else ""
            if fate == "dropped":
                return b""
            if fate == "unheard":
                words[1] = b"nobody.listens.here"
            if fate == "unanswered":
                del words[2]
        return b" ".join(words) + b"\r\n" + body

    def close(self) -> None:
        self._listening.close()
        for each in self._sockets:
            each.close()


@pytest.fixture
def through(sink: Sink) -> Iterator[Any]:
    """Writes thirty rows of which some have that fate."""
    relays: list[Relay] = []

    def written(fate: Fate, mode: str) -> tuple[Relay, Written]:
        relay = Relay(sink.url, fate)
        relays.append(relay)
        sink.make()
        given = {"exactlyOnce": mode, "subject": f"{sink.low}.x", "requestTimeout": "1s"}
        plan = sink.plan(DATA, servers=relay.url, **given)
        return relay, write(plan, payloads(30))

    yield written
    for relay in relays:
        forget_client(Servers(urls=(relay.url,), retry_timeout_seconds=10.0))
        relay.close()


def test_what_was_dropped_comes_before_what_nobody_took(sink: Sink, through: Any) -> None:
    def fate(row: int) -> str:
        return "dropped" if 10 <= row < 20 else "unheard" if 20 <= row < 25 else ""

    _, written = through(fate, "ids")
    assert written.rows == 30
    found = [int(data.split()[1]) for _, data in sink.stored()]
    got_through = [*range(10), *range(25, 30)]
    assert found == [*got_through, *range(10, 25)]


def test_without_ids_they_come_in_their_order_too(sink: Sink, through: Any) -> None:
    def fate(row: int) -> str:
        return "dropped" if 10 <= row < 20 else "unheard" if row >= 20 else ""

    _, written = through(fate, "none")
    assert written.rows == 30
    # Those whose acks were on their way may be there twice.
    assert [*dict.fromkeys(data for _, data in sink.stored())] == [b"row %d" % n for n in range(30)]


def test_what_the_stream_has_is_not_sent_again(sink: Sink, through: Any) -> None:
    """The window may be long over when a server is there again."""

    def fate(row: int) -> str:
        return "unanswered" if 10 <= row < 20 else "unheard" if 20 <= row < 30 else ""

    relay, written = through(fate, "ids")
    assert written.rows == 30
    assert [data for _, data in sink.stored()] == [b"row %d" % row for row in range(30)]
    assert relay.seen == {row: 2 if row >= 20 else 1 for row in range(30)}
