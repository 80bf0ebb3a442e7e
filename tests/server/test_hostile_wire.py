"""Clients that mean harm, at the protocol: scans, garbage, claims, floods. The server lives, others
are served meanwhile, and memory stays within what is documented.
"""

import contextlib
import random
import socket
import ssl
import struct
import time
from pathlib import Path

import pytest

from tests.ways import length

from .hostile import (
    LIMITS,
    MEGABYTE,
    ended,
    module_server,
    pour,
    raw,
    sink,
    small_server,
    witnessed,
)
from .process import ServerProcess, Wire

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n'


server = pytest.fixture(module_server, scope="module")


# --- scans and other protocols ---


def test_port_scans(server: ServerProcess) -> None:
    with witnessed(server, growth=8 * MEGABYTE):
        for i in range(600):
            connection = raw(server.port())
            if i % 3 == 0:  # leaves with a reset
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif i % 3 == 1:
                connection.shutdown(socket.SHUT_WR)
            connection.close()


def client_hello() -> bytes:
    """What a TLS client says first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


OTHERS = [
    client_hello(),
    b"SSH-2.0-OpenSSH_9.9\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04test",
    b"\x00" * 5000,
    b"\xff" * 5000,
    b"*1\r\n$4\r\nPING\r\n",
    b"\r\n\r\n\r\n",
    bytes(range(256)),
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]


@pytest.mark.parametrize("said", OTHERS, ids=range(len(OTHERS)))
def test_other_protocols_are_told_and_closed(server: ServerProcess, said: bytes) -> None:
    with witnessed(server), raw(server.port()) as connection:
        connection.sendall(said)
        answer = ended(connection)
        assert answer.startswith(b"INFO ")
        assert answer.partition(b"\r\n")[2] in (
            b"-ERR 'Unknown Protocol Operation'\r\n",
            b"-ERR 'maximum control line exceeded'\r\n",
        )


# --- claims and bombs ---


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("PUB a 1073741824", b""),  # no number of nine digits
        ("HPUB a 12 1073741824", b""),
        ("PUB a 999999999", b"-ERR 'Maximum Payload Violation'\r\n"),
        ("PUB a 1048577", b"-ERR 'Maximum Payload Violation'\r\n"),
    ],
)
def test_a_payload_is_refused_when_it_is_announced(
    server: ServerProcess, line: str, answer: bytes
) -> None:
    with witnessed(server, growth=4 * MEGABYTE) as wire:
        wire.send(line + "\r\n")
        assert wire.rest() == answer


def test_many_who_send_half_of_what_they_announce(server: ServerProcess) -> None:
    count = 60
    with witnessed(server, growth=8 * MEGABYTE), contextlib.ExitStack() as stack:
        before = server.memory()
        for _ in range(count):
            connection = stack.enter_context(raw(server.port()))
            connection.sendall(CONNECT + b"PUB a 1048576\r\n" + b"x" * 524_288)
        with Wire(server.port()) as wire:
            wire.ping()
        assert server.memory() - before < count * 1.2 * MEGABYTE


@pytest.mark.parametrize(
    "text",
    [
        b'{"x":' + b"[" * 4000,
        b'{"x":' + b"[" * 1900 + b"]" * 1900 + b"}",
        b'{"x":' * 700 + b"1" + b"}" * 700,
        b"[" * 4000,
        b'{"protocol":' + b"9" * 4000 + b"}",
        b'{"verbose":1e999999}',
        b'{"name":"' + b"\\ud800" * 600 + b'"}',
        b'{"user":"' + b"\xff" * 3000 + b'"}',
        b'{"verbose":false,"verbose":' + b'"' * 3000,
        b"\x00" * 4000,
    ],
    ids=range(10),
)
def test_connect_with_json_that_is_none(server: ServerProcess, text: bytes) -> None:
    with witnessed(server, growth=8 * MEGABYTE):
        for _ in range(50):
            with Wire(server.port(), hello=None) as wire:
                wire.send(b"CONNECT " + text + b"\r\n")
                with contextlib.suppress(OSError):
                    wire.send("PING\r\n")
                with contextlib.suppress(OSError):
                    wire.socket.shutdown(socket.SHUT_WR)
                assert len(wire.rest()) < 1000


HEADERS = [
    b"NATS/1.0\r\n" + b"a: b\r\n" * 170_000 + b"\r\n",
    b"NATS/1.0\r\n" + b"Nats-Msg-Id: 1\r\n" * 60_000 + b"\r\n",
    b"NATS/1.0\r\n" + b":" * 1_000_000 + b"\r\n\r\n",
    b"NATS/1.0\r\nNats-Expected-Stream: " + b"x" * 1_000_000 + b"\r\n\r\n",
    b"NATS/1.0\r\nNats-Expected-Last-Sequence: " + b"9" * 1_000_000 + b"\r\n\r\n",
    b"NATS/1.0\r\nNats-TTL: " + b"9" * 500_000 + b"h\r\n\r\n",
    b"\r\n" * 500_000,
    b"N" * 1_000_000,
    b"\x00" * 1_000_000,
    b"NATS/1.0\r\n" + b"\r" * 900_000 + b"\r\n\r\n",
]


@pytest.mark.parametrize("header", HEADERS, ids=range(len(HEADERS)))
def test_header_bombs(server: ServerProcess, header: bytes) -> None:
    """To a subscriber, and into a stream."""
    with witnessed(server, growth=24 * MEGABYTE), Wire(server.port(), hello=None) as wire:
        wire.send(CONNECT + b"SUB a 1\r\nSUB in.* 2\r\n")
        config = b'{"name":"BOMB","subjects":["bomb"],"storage":"memory","max_msgs":1}'
        wire.send(b"PUB $JS.API.STREAM.CREATE.BOMB in.c %d\r\n%s\r\n" % (len(config), config))
        for _ in range(3):
            wire.send(b"HPUB a %d %d\r\n%s\r\n" % (len(header), len(header), header))
            wire.send(b"HPUB bomb in.p %d %d\r\n%s\r\n" % (len(header), len(header), header))
        answers = b""
        while answers.count(b"MSG in.p 2 ") < 3:
            answers += wire.ping()
        assert answers.count(b"HMSG a 1 ") == 3


def test_subjects_that_are_odd(server: ServerProcess) -> None:
    source = random.Random(3)
    with witnessed(server, growth=16 * MEGABYTE) as wire:
        wire.send("SUB > 1\r\n")
        for _ in range(300):
            length = source.choice([1, 3, 100, 4000])
            subject = bytes(source.choice(b"\x00\x01\x7f\x80\xff*>.$a") for _ in range(length))
            wire.send(b"PUB %s 0\r\n\r\nSUB %s q 9\r\nUNSUB 9\r\n" % (subject, subject))
        wire.ping()
        wire.send(b"SUB \xff\xfe.\x00 8\r\nSUB \xed\xa0\x80 9\r\n")
        wire.ping()
        for path in ("/connz?subs=detail&auth=1", "/subsz?subs=1", "/varz", "/jsz?streams=1"):
            assert b"HTTP/1.1 200" in http(server, path)


def http(server: ServerProcess, path: str) -> bytes:
    with raw(server.http_port()) as connection:
        connection.sendall(b"GET %s HTTP/1.0\r\n\r\n" % path.encode())
        return ended(connection)


# --- floods ---


def test_many_more_subscriptions_than_have_room(server: ServerProcess) -> None:
    """Half of the memory for subscriptions is what one connection gets; the rest is refused."""
    with witnessed(server, growth=24 * MEGABYTE) as wire:
        reader = sink(wire.socket)
        before = server.memory()
        for start in range(0, length(400_000, 1_000_000), 10_000):
            lines = [b"SUB f.%d %d\r\n" % (i, i) for i in range(start, start + 10_000)]
            wire.send(b"".join(lines))
        with Wire(server.port()) as other:
            other.send("SUB mine 1\r\nPUB mine 0\r\n\r\n")
            assert other.ping() == b"MSG mine 1 0\r\n\r\n"
        assert server.memory() - before < 48 * MEGABYTE
        wire.socket.shutdown(socket.SHUT_RDWR)
        reader.join()


@pytest.mark.parametrize(
    "form",
    [b"w.%d" + b".*" * 1900, b"w.%d" + b".a" * 1900, b"*.%d" + b".*.a" * 900 + b".>"],
    ids=["stars", "tokens", "mixed"],
)
def test_subscriptions_of_thousands_of_tokens(server: ServerProcess, form: bytes) -> None:
    with witnessed(server, growth=24 * MEGABYTE) as wire:

        def publishing() -> float:
            before = server.cpu()
            wire.send(b"PUB w.1%s 0\r\n\r\n" % (b".a" * 1900) * 200)
            wire.ping()
            return server.cpu() - before

        alone = publishing()
        wire.send(b"".join(b"SUB %s %d\r\n" % (form % i, i) for i in range(500)))
        answer = wire.ping()
        assert answer.count(b"-ERR 'maximum subscriptions exceeded'\r\n") > 400
        assert publishing() < 100 * (alone + 0.01)


def test_many_who_want_everything(server: ServerProcess) -> None:
    """Routes of many subscribers are kept for many subjects: what is kept is bounded."""
    with witnessed(server, growth=64 * MEGABYTE) as wire, Wire(server.port()) as other:
        other.send(b"".join(b"SUB > %d\r\n" % i for i in range(4000)))
        other.ping()
        reader = sink(other.socket)
        before = server.memory()
        for i in range(300):
            wire.send(b"PUB s.%d 0\r\n\r\n" % i * 2)
        wire.ping()
        assert server.memory() - before < 96 * MEGABYTE
        other.socket.shutdown(socket.SHUT_RDWR)
        reader.join()


def test_long_subjects_are_not_kept(server: ServerProcess) -> None:
    with witnessed(server, growth=16 * MEGABYTE) as wire:
        for i in range(length(8000, 20_000)):
            subject = b"%d.%s" % (i, b"x" * 3900)
            wire.send(b"PUB %s 0\r\n\r\nPUB %s 0\r\n\r\n" % (subject, subject))
        wire.ping()


def test_the_same_subscription_a_hundred_thousand_times(server: ServerProcess) -> None:
    """Those who leave do not hold up others, in whatever order subscriptions were made."""
    with witnessed(server, growth=24 * MEGABYTE) as wire:
        begun = server.cpu()
        with Wire(server.port()) as other:
            for start in range(0, 10_000, 1000):
                for each in (wire, other):
                    ids = range(start, start + 1000)
                    each.send(b"".join(b"SUB same %d\r\nSUB same q x%d\r\n" % (i, i) for i in ids))
                    each.ping()
        made = server.cpu()
        wire.send(b"".join(b"UNSUB %d\r\nUNSUB x%d\r\n" % (i, i) for i in range(10_000)))
        wire.ping()
        assert server.cpu() - made < 10 * (made - begun)


@pytest.mark.parametrize("said", [b"PING\r\n", b"SUB a..b 1\r\n", b"PUB x _R_.x 0\r\n\r\n"])
def test_who_floods_and_never_reads_is_cut_off(server: ServerProcess, said: bytes) -> None:
    with witnessed(server, growth=24 * MEGABYTE), contextlib.ExitStack() as stack:
        before = server.memory()
        talkers = [stack.enter_context(raw(server.port())) for _ in range(4)]
        for talker in talkers:
            talker.sendall(CONNECT)
        block = said * (60_000 // len(said))
        while talkers:  # each of them until it is cut off
            talkers = [talker for talker in talkers if pour(talker, block, 1)]
            assert server.memory() - before < 128 * MEGABYTE


def test_subscribers_that_never_read(server: ServerProcess) -> None:
    """More output waits than there may be: those with the most are cut off, others get it all."""
    with witnessed(server, growth=48 * MEGABYTE) as wire, contextlib.ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(raw(server.port())).sendall(CONNECT + b"SUB flood 1\r\n")
        good = stack.enter_context(Wire(server.port()))
        good.send("SUB flood 1\r\n")
        good.ping()
        before, most = server.memory(), 0
        for _ in range(300):
            wire.send(b"PUB flood 100000\r\n" + b"x" * 100_000 + b"\r\n")
            good.read_until(b"\r\n")
            good.read_until(b"\r\n")
            most = max(most, server.memory() - before)
        # what is blocked may have twice its output allocated for a moment, between two looks
        assert most < 160 * MEGABYTE


def test_answers_that_nobody_reads(server: ServerProcess) -> None:
    """Each small request asks for megabytes: who does not read them is given no more."""
    with witnessed(server, growth=64 * MEGABYTE) as other:
        config = b'{"name":"BIG","subjects":["big"],"allow_direct":true}'
        other.send(b"PUB $JS.API.STREAM.CREATE.BIG %d\r\n%s\r\n" % (len(config), config))
        other.send((b"PUB big 10000\r\n" + b"x" * 10_000 + b"\r\n") * 300)
        other.ping()
        body = b'{"seq":1,"batch":300,"next_by_subj":">"}'
        line = b"PUB $JS.API.DIRECT.GET.BIG z %d\r\n%s\r\n" % (len(body), body)
        before = server.memory()
        with contextlib.ExitStack() as stack:
            for _ in range(4):
                silent = stack.enter_context(raw(server.port()))
                silent.sendall(b'CONNECT {"verbose":false}\r\nSUB z 1\r\n' + line * 100)
            for _ in range(20):
                other.ping()
                # one connection may have twice its max_pending allocated, and so may what waits for the disk
                assert server.memory() - before < 192 * MEGABYTE
        other.send(b"PUB $JS.API.STREAM.DELETE.BIG 0\r\n\r\n")
        other.ping()


def test_a_reader_that_never_reads_ten_thousand_subscriptions(server: ServerProcess) -> None:
    with witnessed(server, growth=64 * MEGABYTE) as other, raw(server.port()) as slow:
        lines = b"".join(b"SUB fan.%s %d\r\n" % (b">" if i % 2 else b"*", i) for i in range(10_000))
        slow.sendall(b'CONNECT {"verbose":false}\r\n' + lines + b"PING\r\n")
        assert b"PONG" in slow.recv(65536) + slow.recv(65536)
        before = server.memory()
        for _ in range(50):
            other.send(b"PUB fan.x 1000\r\n" + b"x" * 1000 + b"\r\n")
            other.ping()
            assert server.memory() - before < 96 * MEGABYTE


def test_more_connections_than_there_may_be(server: ServerProcess) -> None:
    with witnessed(server, growth=24 * MEGABYTE), contextlib.ExitStack() as stack:
        refused = 0
        for i in range(700):
            connection = stack.enter_context(raw(server.port()))
            if i > 600:
                refused += b"-ERR 'maximum connections exceeded'\r\n" in ended(connection)
        assert refused == 99


# --- slowness ---


SLOW = LIMITS + 'ping_interval: "150ms"\nping_max: 2\n'


@pytest.mark.parametrize(
    "said",
    [b"CONNECT {", CONNECT + b"PUB a 500\r\n", CONNECT + b"SUB ", CONNECT + b"PING "],
)
def test_what_never_ends_is_closed(tmp_path: Path, said: bytes) -> None:
    """Bytes come all the time, an operation never: not being silent is not enough."""
    with small_server(tmp_path, limits=SLOW) as server, raw(server.port()) as connection:
        connection.sendall(said)
        connection.settimeout(0.05)
        got = b""
        deadline = time.monotonic() + 15
        while b"-ERR 'Stale Connection'" not in got:
            assert time.monotonic() < deadline
            with contextlib.suppress(TimeoutError):
                got += connection.recv(65536)
            with contextlib.suppress(OSError):
                connection.sendall(b"x")


def test_who_has_to_log_in_has_little_time_for_it(tmp_path: Path) -> None:
    limits = LIMITS + 'authorization { token: "s3cret", timeout: 0.3 }\n'
    with small_server(tmp_path, limits=limits) as server, contextlib.ExitStack() as stack:
        talkers = [stack.enter_context(raw(server.port())) for _ in range(50)]
        for talker in talkers:
            talker.sendall(b"CONNECT {")
        for talker in talkers:
            assert b"-ERR 'Authentication Timeout'\r\n" in ended(talker)
