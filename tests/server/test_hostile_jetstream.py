"""Clients of JetStream that mean harm: the server lives, stays small, answers, and others notice nothing."""

import json
import random

import pytest

from .process import Wire, running

MEGABYTE = 2**20


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running("-js", "-sd", str(tmp_path_factory.mktemp("store"))) as process:
        yield process


@pytest.fixture
def wire(server):
    """A hostile client; a witness goes on being served."""
    port = server.port()
    with Wire(port) as witness, Wire(port, hello='{"verbose":false,"headers":true}') as hostile:
        witness.send("SUB witness 1\r\n")
        assert witness.ping() == b""
        hostile.send("SUB in.* 1\r\n")
        config = json.dumps({"name": "H", "subjects": ["H.>"]})
        answered(hostile, "STREAM.CREATE.H", config)
        consumer = json.dumps(
            {"stream_name": "H", "config": {"durable_name": "c", "ack_policy": "explicit"}}
        )
        answered(hostile, "CONSUMER.CREATE.H.c", consumer)
        yield hostile
        witness.send("PUB witness 2\r\nok\r\n")
        assert witness.ping() == b"MSG witness 1 2\r\nok\r\n"


def api(wire, subject, body):
    """What comes back for a request of the API."""
    raw = body if isinstance(body, bytes) else body.encode()
    wire.send(b"PUB $JS.API.%s in.q %d\r\n%s\r\n" % (subject.encode(), len(raw), raw))
    return wire.ping()


def answered(wire, subject, body):
    """What comes back until there is an answer: that of a create comes when it is on the disk."""
    text = api(wire, subject, body)
    while b"io.nats.jetstream.api.v1." not in text:
        text += wire.ping()
    return text


CALLS = [
    "STREAM.CREATE.X",
    "CONSUMER.CREATE.H.x",
    "STREAM.PURGE.X",
    "STREAM.MSG.GET.H",
    "STREAM.INFO.H",
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"name":"X","subjects":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        b'{"max_msgs":' + b"9" * 64 + b"}",
        b'{"seq":' + b"9" * 100_000 + b"}",
        b'{"name":"\xff\xfe\x80"}',
        b'{"name":"\\ud800"}',
        b"\x00" * 1000,
        b'"' + b"\\" * 99_999,
    ],
)
def test_json_that_is_none(wire, call, body):
    assert wire is not None
    text = answered(wire, call, body)
    assert text.count(b"io.nats.jetstream.api.v1.") == 1


def test_next_with_bodies_that_are_none(wire):
    for body in (b"[" * 100_000, b'{"a":' * 50_000, b'{"batch":' + b"9" * 50_000 + b"}", b"9" * 64):
        api(wire, "CONSUMER.MSG.NEXT.H.c", body)
    text = api(wire, "CONSUMER.MSG.NEXT.H.c", b'{"batch":-9223372036854775808,"no_wait":true}')
    assert b"404 No Messages" in text


def test_thousands_of_huge_requests(server, wire):
    before = server.memory()
    body = b'{"batch":9223372036854775807,"expires":9223372036854775807}'
    line = b"PUB $JS.API.CONSUMER.MSG.NEXT.H.c in.n %d\r\n%s\r\n" % (len(body), body)
    wire.send(line * 5000)
    text = wire.ping()
    assert text.count(b"409 Exceeded MaxWaiting") >= 5000 - 512
    assert b"408" in api(
        wire, "CONSUMER.MSG.NEXT.H.c", '{"batch":5,"expires":-9223372036854775808}'
    )
    wire.send("PUB H.a 2\r\nhi\r\n")
    assert wire.read_until(b"hi\r\n").count(b"$JS.ACK.H.c.1.") == 1
    assert server.memory() - before < 64 * MEGABYTE
    api(wire, "CONSUMER.DELETE.H.c", b"")


def test_garbage_under_the_prefixes(wire):
    source = random.Random(7)
    words = ["H", "c", "1", "0", "-1", "9" * 64, "x" * 500, "18446744073709551616", "\u00e9", "_"]
    for prefix in (
        "$JS.ACK",
        "$JS.FC",
        "$JS.API.CONSUMER.MSG.NEXT",
        "$JS.API",
        "$JS.API.DIRECT.GET",
    ):
        for _ in range(300):
            subject = ".".join([prefix, *source.choices(words, k=source.randrange(12))])
            body = source.choice(["", "+ACK", "-NAK {", "+NXT " + "9" * 64, "+TERM" + "x" * 999])
            if len(subject.encode()) < 4000:
                wire.send(f"PUB {subject} in.g {len(body)}\r\n{body}\r\n")
        wire.ping()
    raw = b"$JS.API.STREAM.INFO.\xff\xfe"
    wire.send(b"PUB %s in.g 0\r\n\r\nPUB H.\xff\x80 in.g 1\r\nx\r\n" % raw)
    wire.ping()
    api(wire, "STREAM.INFO.H", '{"subjects_filter":">"}')


def test_headers_without_end(server, wire):
    before = server.memory()
    block = b"NATS/1.0\r\n" + b"A: b\r\n" * 10_000 + b"\r\n"
    for _ in range(20):
        wire.send(b"HPUB H.h in.h %d %d\r\n%s\r\n" % (len(block), len(block), block))
    wire.ping()
    for garbage in (
        b"NATS",
        b"\r\n\r\n",
        b"NATS/1.0\r\nNats-Msg-Id",
        b"\x00" * 30,
        b"NATS/1.0\r\n: x\r\n\r\n",
    ):
        wire.send(b"HPUB H.h in.h %d %d\r\n%s\r\n" % (len(garbage), len(garbage), garbage))
    wire.ping()
    assert server.memory() - before < 64 * MEGABYTE


def test_floods_of_subscriptions(server):
    before = server.memory()
    port = server.port()
    with Wire(port) as hostile, Wire(port) as other:
        for start in range(0, 100_000, 10_000):
            hostile.send("".join(f"SUB f.{i}.*.> {i}\r\n" for i in range(start, start + 10_000)))
        hostile.ping()
        hostile.send("".join(f"SUB *.{'*.' * (i % 40)}> w{i}\r\n" for i in range(2000)))
        hostile.ping()
        other.send("SUB x 1\r\nPUB x 1\r\ny\r\n")
        assert other.ping() == b"MSG x 1 1\r\ny\r\n"
        assert server.memory() - before < 256 * MEGABYTE
