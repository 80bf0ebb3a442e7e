"""Servers that answer nothing, as one does that is just ceasing to lead: what is sent again, and what is not.

A relay stands between the client and its server: it passes each request on, and may lose an answer.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from pelton import KeyValueConfig, StreamConfig
from pelton.errors import (
    ConnectionClosedError,
    KeyExistsError,
    PeltonTimeoutError,
    RevisionConflictError,
    WrongLastSequenceError,
)
from pelton.sync import connect
from tests.client.shells import connected
from tests.client.test_leaders import clustered, delivered, message, playing, status

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.peers import ServerProcess

TIMEOUT_S = 2.0
SHORT_S = 0.2


class Relay:
    """Requests for ``<prefix>.<subject>`` are passed on to ``<subject>``, those of an API to the server's."""

    def __init__(self, client: Any, prefix: str) -> None:
        self.loses = ""
        """The answer to the next request for such a subject is lost."""
        self.passed: list[str] = []
        self._client = client
        self._subscription = client.subscribe(f"{prefix}.>")
        self._length = len(prefix) + 1
        client.flush()

    def serve(self) -> None:
        try:
            for request in self._subscription:
                subject = request.subject[self._length :]
                own = subject.startswith(("STREAM.", "CONSUMER.", "DIRECT.", "INFO"))
                answer = self._client.request(
                    f"$JS.API.{subject}" if own else subject,
                    request.data,
                    headers=request.headers,
                )
                self.passed.append(subject)
                if self.loses and self.loses in subject:
                    self.loses = ""
                    continue
                self._client._connection.publish(request.reply, answer.data, "", answer.raw_headers)
                self._client._flush_output()
        except ConnectionClosedError:
            return

    def times(self, subject: str) -> int:
        """How often requests for such a subject came."""
        return sum(subject in each for each in self.passed)


@contextmanager
def relaying(url: str, prefix: str) -> Iterator[Relay]:
    with connect(url) as client:
        relay = Relay(client, prefix)
        thread = threading.Thread(target=relay.serve, daemon=True)
        thread.start()
        yield relay
        client.close()
        thread.join()


@pytest.fixture
def relay(server: ServerProcess, unique: str) -> Iterator[Relay]:
    with relaying(server.url, unique) as made:
        yield made


@pytest.fixture
def bucket(shell: str, server: ServerProcess, relay: Relay, unique: str) -> Iterator[Any]:
    """A bucket behind the relay, whose client believes that its server is in a cluster."""
    with connected(shell, server.url) as client:
        js = client.jetstream(prefix=unique, timeout=TIMEOUT_S)
        config = KeyValueConfig(bucket=unique, storage="memory", history=5)
        made = js.create_key_value(config)
        clustered(client)
        yield made
        made.destroy()


def test_a_write_without_an_answer_is_made_once(bucket: Any, relay: Relay) -> None:
    """Each is stored, its answer is lost, and it is sent again: no key has a revision too many."""
    writes = [
        lambda _: bucket.create("k", b"1"),
        lambda last: bucket.update("k", b"2", last),
        lambda _: bucket.put("k", b"3"),
        lambda last: bucket.delete("k", revision=last),
        lambda _: bucket.create("k", b"4"),
        lambda last: bucket.purge("k", revision=last),
    ]
    last = 0
    for number, write in enumerate(writes, 1):
        relay.loses = "$KV."
        last = write(last)
        assert last == number
        assert not relay.loses
    assert relay.times("$KV.") == 2 * len(writes) + 1  # a create learns of the marker first


def test_a_write_that_another_client_was_first_with_is_refused(
    bucket: Any, relay: Relay, server: ServerProcess, unique: str
) -> None:
    """What was stored by others is never taken for the own first try, even the same value."""
    with connect(server.url) as client:
        rival = client.jetstream().key_value(unique)
        revision = rival.put("k", b"1")
        relay.loses = "$KV."
        with pytest.raises(KeyExistsError):
            bucket.create("k", b"1")
        rival.put("k", b"2")
        relay.loses = "$KV."
        with pytest.raises(RevisionConflictError):
            bucket.update("k", b"2", revision)
        assert [entry.value for entry in rival.history("k")] == [b"1", b"2"]


def test_a_value_is_asked_for_again(bucket: Any, relay: Relay) -> None:
    bucket.put("k", b"1")
    relay.loses = "GET"
    assert bucket.get("k").value == b"1"
    relay.loses = "STREAM.INFO"
    assert bucket.status().values == 1


@pytest.mark.parametrize("expected", [{}, {"expected_last_seq": 0}])
def test_a_publish_with_an_id_is_stored_once(
    shell: str, server: ServerProcess, relay: Relay, unique: str, expected: dict[str, int]
) -> None:
    with connected(shell, server.url) as client:
        js = client.jetstream(timeout=TIMEOUT_S)
        js.create_stream(StreamConfig(name=unique, subjects=[f"s.{unique}"], storage="memory"))
        relay.loses = "s."
        ack = js.publish(
            f"{unique}.s.{unique}", b"x", msg_id="1", expected_stream=unique, **expected
        )
        assert (ack.seq, relay.times("s."), js.stream_info(unique).state.messages) == (1, 2, 1)
        relay.loses = "s."
        with pytest.raises(PeltonTimeoutError):  # without an id: once, and nobody knows
            js.publish(f"{unique}.s.{unique}", b"x", timeout=SHORT_S)
        assert relay.times("s.") == 3
        if expected:
            with pytest.raises(WrongLastSequenceError):
                js.publish(
                    f"{unique}.s.{unique}", b"x", msg_id="2", expected_stream=unique, **expected
                )
        js.delete_stream(unique)


def test_an_ack_is_sent_again(shell: str, server: ServerProcess, unique: str) -> None:
    subject, ack = f"{unique}.CONSUMER.MSG.NEXT.S.c", f"$JS.ACK.{unique}.c.1.1.1.1.0"
    with (
        playing(server.url, subject, message),
        playing(server.url, ack, lambda *_: None, status(b"NATS/1.0\r\n\r\n")) as acks,
        connected(shell, server.url) as client,
    ):
        received = delivered(shell, client, unique, ack)
        received.ack_sync(timeout=TIMEOUT_S)
        assert received.acked
    assert acks == [b"+ACK", b"+ACK"]
