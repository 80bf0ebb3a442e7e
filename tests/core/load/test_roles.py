"""The roles of a load, over a socket whose other end is a model, in any split of the bytes."""

from __future__ import annotations

import socket
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.core.bulk.publish_window import Column, Encoder, PublishWindow, Rows
from pelton.core.load.crowd import Crowd, Link, Pace, Role
from pelton.core.load.roles import Ask, AskBatches, Listen, Pull, Requests, Serve, Store
from pelton.core.protocol.wire import OP_PING, OP_PONG, OP_PUB, OP_SUB, ROLE_SERVER, Parser

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MINE, CONFIRMS, FOREIGN = 1, 2, 3
STATUS = b"NATS/1.0 404 No Messages\r\n\r\n"
HEADERS = st.sampled_from([b"", b"NATS/1.0\r\nK: v\r\n\r\n", STATUS])
MESSAGES = st.lists(
    st.tuples(
        st.sampled_from([MINE, CONFIRMS, FOREIGN]),
        st.sampled_from(["", "r", "$JS.ACK.S.c.1.2.3.4.5"]),
        HEADERS,
        st.binary(max_size=30),
    ),
    max_size=20,
)
ENOUGH_NS = 60 * 10**9


class Refused(Exception):  # what the callers of roles raise
    pass


def refuse(*told: bytes) -> None:
    raise Refused(*told)


def line_of(sid: int, reply: str, headers: bytes, payload: bytes, subject: str = "s.x") -> bytes:
    """The message as a server sends it."""
    words = [subject, str(sid), *([reply] if reply else [])]
    if headers:
        words.append(str(len(headers)))
    head = f"{'HMSG' if headers else 'MSG'} {' '.join(words)} {len(headers) + len(payload)}\r\n"
    return head.encode() + headers + payload + b"\r\n"


class Server:
    """The other end of a link: what it heard, and what it says."""

    def __init__(self, end: socket.socket, max_payload: int) -> None:
        self._end = end
        self._parser = Parser(ROLE_SERVER, max_payload=max_payload)

    def heard(self) -> list[Any]:
        """The operations that came, SUB apart."""
        found = []
        while True:
            try:
                found += self._parser.feed(self._end.recv(1 << 16))
            except BlockingIOError:
                return [each for each in found if each[0] != OP_SUB]

    def say(self, data: bytes) -> None:
        self._end.sendall(data)

    def close(self) -> None:
        self._end.close()


@contextmanager
def connected(max_payload: int = 1 << 20) -> Iterator[tuple[Link, Server]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        yield Link(ours.fileno(), "INBOX", max_payload, Refused), Server(theirs, max_payload)


def step(crowd: Crowd) -> None:
    """What can be done without waiting."""
    crowd.run(time.monotonic_ns() + 1_000_000)


def run(crowd: Crowd, server: Server, answer: Callable[[Any], bytes]) -> list[Any]:
    """Until all roles are over; what the server heard, each of which it answers."""
    heard, deadline = [], time.monotonic_ns() + ENOUGH_NS
    while crowd.unfinished:
        assert time.monotonic_ns() < deadline
        crowd.run(time.monotonic_ns() + 200_000)
        for each in server.heard():
            heard.append(each)
            server.say(b"PONG\r\n" if each[0] == OP_PING else answer(each))
    return heard


@given(MESSAGES, st.data(), st.booleans())
def test_requests_are_counted_and_answered(messages: Any, data: Any, acks: bool) -> None:
    text = b"".join(line_of(*each) for each in messages) + b"PING\r\n"
    mine = [each for each in messages if each[0] == MINE and each[2] != STATUS]
    with connected() as (link, server):
        role = Listen(link, "s.*", 10**6, acks=True) if acks else Serve(link, "s.*", b"yes")
        crowd, heard = Crowd([role]), []
        while text:
            cut = data.draw(st.integers(1, len(text)))
            server.say(text[:cut])
            text = text[cut:]
            step(crowd)
            heard += server.heard()
        assert role.done == len(mine)
        payload = b"+ACK" if acks else b"yes"
        answers = [(OP_PUB, each[1], "", b"", payload) for each in mine if each[1]]
        assert [each for each in heard if each[0] == OP_PUB] == answers
        assert (OP_PONG,) in heard


def test_a_role_in_python_gets_what_the_core_does_not_count() -> None:
    class Hears(Role):
        def __init__(self, link: Link) -> None:
            super().__init__(link, 2)
            self.found: list[Any] = []

        def message(self, operation: tuple[Any, ...]) -> None:
            self.found.append(operation[5])

        def settle(self, now: int) -> None:
            if len(self.found) == self.quota:
                self.finish(now)

    with connected() as (link, server):
        role = Hears(link)
        crowd = Crowd([role])
        server.say(line_of(MINE, "", b"", b"a") + line_of(FOREIGN, "", b"", b"b"))
        run(crowd, server, lambda each: b"")
        assert role.found == [b"a", b"b"]


@given(st.integers(1, 60), st.integers(1, 20), st.randoms(use_true_random=False))
def test_every_request_is_answered_once(count: int, window: int, random: Any) -> None:
    waiting: list[str] = []

    def answer(each: Any) -> bytes:
        waiting.append(each[2])
        random.shuffle(waiting)
        lines = [line_of(MINE, "", b"", b"x", subject) for subject in waiting]
        waiting.clear()
        return b"".join(
            line * random.choice((1, 1, 2)) for line in lines
        )  # an answer may come twice

    with connected() as (link, server):
        requests = Requests("q.", b"", first=7, numbered=True)
        role = Ask(link, count, requests, Pace(), window=window, refuse=refuse)
        heard = run(Crowd([role]), server, answer)
        assert [each[1] for each in heard] == [f"q.{7 + at}" for at in range(count)]
        assert role.done == len(role.latencies) == count
        assert min(role.latencies) >= 0
        assert role.end_ns >= role.start_ns > 0


def test_no_more_requests_wait_than_may() -> None:
    with connected() as (link, server):
        role = Ask(
            link, 100, Requests("q", b"hi", lines=b"K: v\r\n"), Pace(), window=3, refuse=refuse
        )
        crowd = Crowd([role])
        step(crowd)
        heard = server.heard()
        block = b"NATS/1.0\r\nK: v\r\n\r\n"
        assert heard == [(OP_PUB, "q", f"INBOX.{at}", block, b"hi") for at in range(3)]
        server.say(line_of(MINE, "", b"", b"", "INBOX.1"))
        step(crowd)
        assert server.heard() == []  # request 0 waits, and so the window is full
        server.say(line_of(MINE, "", b"", b"", "INBOX.0"))
        step(crowd)
        assert [each[2] for each in server.heard()] == ["INBOX.3", "INBOX.4"]


@pytest.mark.parametrize("below", [0, 5])
def test_numbers_go_into_the_body(below: int) -> None:
    with connected() as (link, server):
        requests = Requests("q", b'{"seq":', first=98, tail=b"}", below=below, seed=3)
        role = Ask(link, 4, requests, Pace(), refuse=refuse)
        heard = run(Crowd([role]), server, lambda each: line_of(MINE, "", b"", b"x", each[2]))
        bodies = [each[4].decode() for each in heard]
        if below:
            assert all(body in [f'{{"seq":{at}}}' for at in range(5)] for body in bodies)
        else:
            assert bodies == [f'{{"seq":{98 + at}}}' for at in range(4)]


@pytest.mark.parametrize(
    ("headers", "payload", "api"), [(STATUS, b"", False), (b"", b'{"error":{"code":404}}', True)]
)
def test_a_refusal_is_the_callers(headers: bytes, payload: bytes, api: bool) -> None:
    with connected() as (link, server):
        role = Ask(link, 4, Requests("q"), Pace(), api=api, refuse=refuse)
        with pytest.raises(Refused) as caught:
            run(Crowd([role]), server, lambda each: line_of(MINE, "", headers, payload, each[2]))
        assert caught.value.args == (headers, payload)


@given(st.integers(1, 300), st.integers(1, 50), st.integers(1, 400), st.booleans())
def test_a_window_is_stored_in_order(count: int, window: int, chunk: int, alike: bool) -> None:
    seq = 0

    def answer(each: Any) -> bytes:
        nonlocal seq
        seq += 1
        return line_of(MINE, "", b"", b'{"stream":"S","seq":%d}' % seq, each[2])

    def rows(sent: int) -> tuple[Rows, int]:
        subject = Column(b"a.b") if alike else Column(b"a.ba.b", b"\0\0\0\0\3\0\0\0\6\0\0\0", 2)
        first = sent - sent % 2
        return Rows(subject, Column(b"x" * 20), None, first=first, count=2), sent % 2

    with connected() as (link, server):
        encoder = Encoder(reply=b"INBOX.", max_payload=1 << 20)
        sending = PublishWindow(encoder, window, 1 << 20)
        role = Store(link, count, sending, rows, Pace(), chunk=chunk, refuse=refuse)
        heard = run(Crowd([role]), server, answer)
        wanted = [(OP_PUB, "a.b", f"INBOX.{at + 1}", b"", b"x" * 20) for at in range(count)]
        assert heard == wanted
        assert role.done == count
        assert 1 <= len(role.latencies) <= count


@pytest.mark.parametrize("overlapped", [True, False])
@pytest.mark.parametrize("acks", ["none", "explicit", "all"])
def test_a_consumer_is_pulled_and_acknowledged(acks: str, overlapped: bool) -> None:
    asked: list[int] = []
    acknowledged: list[str] = []
    sent = 0

    def answer(each: Any) -> bytes:
        nonlocal sent
        if each[4] == b"+ACK":
            acknowledged.append(each[1])
            return line_of(CONFIRMS, "", b"", b"") if each[2] else b""
        asked.append(int(each[4]))
        lines = [line_of(MINE, f"ack.{sent + at}", b"", b"x") for at in range(asked[-1])]
        sent += asked[-1]
        return b"".join(lines)

    with connected() as (link, server):
        role = Pull(
            link, 250, "next", lambda count: b"%d" % count,
            batch=100, overlapped=overlapped, acks=acks, confirmed=True, ended=lambda block: -1,
        )  # fmt: skip
        run(Crowd([role]), server, answer)
    assert sum(asked) == sent == role.done == 250
    assert max(asked) <= 100
    if not overlapped:
        assert asked == [100, 100, 50]
        assert len(role.latencies) == 3
    if acks == "explicit":
        assert acknowledged == [f"ack.{at}" for at in range(250)]
    elif acks == "all":
        assert acknowledged[-1] == "ack.249"
        assert len(acknowledged) < 250
    else:
        assert acknowledged == []


def test_what_a_pull_request_does_not_get_is_asked_for_again() -> None:
    asked: list[int] = []

    def answer(each: Any) -> bytes:
        asked.append(int(each[4]))
        if len(asked) == 1:
            return line_of(MINE, "a", b"", b"x") + line_of(MINE, "", STATUS, b"")
        return line_of(MINE, "a", b"", b"x") * asked[-1]

    with connected() as (link, server):
        role = Pull(
            link, 10, "next", lambda count: b"%d" % count,
            batch=10, overlapped=False, acks="none", confirmed=False, ended=lambda block: -1,
        )  # fmt: skip
        run(Crowd([role]), server, answer)
    assert asked == [10, 9]


def test_batches_end_with_a_status() -> None:
    asked: list[int] = []
    ended: list[bytes] = []

    def request(wanted: int) -> bytes:
        asked.append(wanted)
        return b"{}"

    def answer(each: Any) -> bytes:
        return line_of(MINE, "", b"", b"x") * asked[-1] + line_of(MINE, "", STATUS, b"")

    with connected() as (link, server):
        role = AskBatches(link, 25, "get", request, Pace(), batch=10, ended=ended.append)
        run(Crowd([role]), server, answer)
    assert asked == [10, 10, 5]
    assert ended == [STATUS] * 3
    assert role.done == 25


def test_what_the_kernel_does_not_take_is_sent_later() -> None:
    with connected(max_payload=1 << 23) as (link, server):
        link.write(b"PUB a 4000000\r\n" + b"x" * 4_000_000 + b"\r\n")
        assert link.blocked
        heard: list[Any] = []
        crowd, deadline = Crowd([Listen(link, "s", 1)]), time.monotonic() + 60
        while not heard and time.monotonic() < deadline:
            step(crowd)
            heard += server.heard()
        assert heard == [(OP_PUB, "a", "", b"", b"x" * 4_000_000)]
        assert not link.blocked


def test_an_error_and_the_end_of_a_connection_are_told() -> None:
    with connected() as (link, server):
        crowd = Crowd([Listen(link, "s", 1)])
        server.say(b"-ERR 'Permissions Violation'\r\n")
        with pytest.raises(Refused, match="Permissions"):
            step(crowd)
        server.close()
        with pytest.raises(ConnectionResetError):
            crowd.run(time.monotonic_ns() + ENOUGH_NS)


def test_a_broken_protocol_is_told() -> None:
    with connected() as (link, server):
        server.say(b"RUBBISH x\r\n")
        with pytest.raises(ValueError, match="unknown operation"):
            step(Crowd([Listen(link, "s", 1)]))
