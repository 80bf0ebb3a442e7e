"""A server fed what another server may send as its leaf or its hub: it goes on, and what it answers is protocol."""

from __future__ import annotations

from collections.abc import Iterable

from pelton.core.broker.leaf import LeafPermissions
from pelton.core.protocol.wire import ROLE_LEAF, Parser
from tests.core.broker.test_leaf import Other, account
from tests.fuzz.inputs import Input

MAX_BYTES = 1500
WORDS = (
    b"LS+ a.>\r\n", b"LS+ a q 2\r\n", b"LS- a.>\r\n", b"LS- a q\r\n", b"LMSG a.b 2\r\nhi\r\n", b"LMSG a.b + r q 2\r\nhi\r\n", b"LMSG a.b | q w 0\r\n\r\n",
    b"HMSG a.b r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n", b"PING\r\n", b"PONG\r\n", b"-ERR 'x'\r\n", b"INFO {}\r\n", b"CONNECT {}\r\n", b"$LDS.x",
    b"deny.x", b"_GR_.x", b"\r\n",
)  # fmt: skip


def run(data: bytes) -> None:
    """Pieces of what three others send, while a client listens and publishes."""
    source = Input(data)
    kind = source.number()
    rules = LeafPermissions(None, ["deny.>"])
    server, _, others = account(
        3, spoke=bool(kind & 1), sending=rules, receiving=rules, asking=rules
    )
    client = server.client()
    client.send("SUB a.> 1\r\nSUB a.* q 2\r\n")
    parsers = [Parser(ROLE_LEAF) for _ in others]
    steps = 0
    while source and steps < 40:
        steps += 1
        which, text = source.number() % 4, source.sized(255)
        if which == 3:
            client.send(b"PUB a.%d 2\r\nhi\r\n" % (len(text) % 4))
        elif not others[which].connection.closed:
            others[which].send(text)
        server.reactor.settle()
        client.connection.take()
        for other, parser in zip(others, parsers, strict=True):
            hear(other, parser)
        assert server.errors == [], server.errors
    fresh = server.client()
    fresh.send("SUB here 1\r\nPUB here 2\r\nhi\r\n")
    assert b"MSG here 1 2\r\nhi\r\n" in fresh.raw()
    for other in others:
        other.leaf.leave()
    assert server.errors == []


def hear(other: Other, parser: Parser) -> None:
    parser.feed(other.connection.take())
    assert all(count >= 1 for count in other.leaf.wants().values())


def seeds() -> Iterable[bytes]:
    def step(which: int, text: bytes) -> bytes:
        return bytes([which, len(text)]) + text

    for kind in (0, 1):
        for at, word in enumerate(WORDS):
            yield (
                bytes([kind])
                + step(0, b"LS+ a.>\r\nLS+ a.b q 2\r\n")
                + step(1, b"LS+ a.*\r\n")
                + step(at % 2, word)
                + step(3, b"1")
            )
