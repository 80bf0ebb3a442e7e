"""Clients of the monitoring port that mean harm: it answers those who ask properly, and the
protocol's clients notice nothing.
"""

import contextlib
import random
import select
import socket
import ssl
from pathlib import Path

import pytest

from pelton.server.http import Seats, Visit
from tests.certificates import Authority

from .configured import configured, rest_of
from .hostile import MEGABYTE, ended, module_server, pour, raw, witnessed
from .process import ServerProcess

server = pytest.fixture(module_server, scope="module")


def answers(server: ServerProcess) -> bool:
    """Whether a proper question is answered."""
    with raw(server.http_port()) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return ended(connection).startswith(b"HTTP/1.1 200 OK\r\n")


HEADS = [
    b"GET /varz\r\n\r\n",
    b"GET\r\n\r\n",
    b"\r\n\r\n",
    b"GET /varz HTTP/9.9\r\n\r\n",
    b"GET " + b"/" * 15_000 + b" HTTP/1.0\r\n\r\n",
    b"GET /" + b"%00%ff%c3" * 1000 + b" HTTP/1.0\r\n\r\n",
    b"GET /connz?" + b"&=;%" * 3000 + b" HTTP/1.0\r\n\r\n",
    b"GET /connz?limit=-9223372036854775809&offset=1e99&sort=\xff HTTP/1.0\r\n\r\n",
    b"GET /connz?subs=" + b"1" * 10_000 + b" HTTP/1.0\r\n\r\n",
    b"GET /connz?state=" + b"a," * 5000 + b" HTTP/1.0\r\n\r\n",
    b"GET /subsz?test=" + b"*." * 3000 + b"> HTTP/1.0\r\n\r\n",
    b"GET /jsz?limit=99999999999999999999&offset=-1&acc=%00 HTTP/1.0\r\n\r\n",
    b"GET /varz HTTP/1.0\r\n" + b"a: b\r\n" * 2500 + b"\r\n",
    b"GET /varz HTTP/1.0\r\n" + b":" * 15_000 + b"\r\n\r\n",
    b"POST /varz HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
    b"GET /varz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    b"GET /../../etc/passwd HTTP/1.0\r\n\r\n",
    b"GET http://elsewhere/varz HTTP/1.0\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    b"CONNECT {}\r\nPING\r\n\r\n",
    b"\x00" * 16_000 + b"\r\n\r\n",
    bytes(range(256)) + b"\r\n\r\n",
]


@pytest.mark.parametrize("head", HEADS, ids=range(len(HEADS)))
def test_heads_that_are_odd(server: ServerProcess, head: bytes) -> None:
    with witnessed(server, growth=16 * MEGABYTE):
        for _ in range(20):
            with raw(server.http_port()) as connection:
                connection.sendall(head)
                connection.shutdown(socket.SHUT_WR)
                answer = ended(connection)
                assert answer == b"" or answer.startswith(b"HTTP/1.1 ")
                assert not answer.startswith(b"HTTP/1.1 500"), answer
        assert answers(server)


def test_a_head_without_end_is_refused(server: ServerProcess) -> None:
    with witnessed(server, growth=16 * MEGABYTE):
        for filler in (b"a: b\r\n" * 1000, b"x" * 10_000, b"\x00" * 10_000):
            with raw(server.http_port()) as connection:
                connection.sendall(b"GET /varz HTTP/1.1\r\n")
                assert not pour(connection, filler, 10_000)
        assert answers(server)


@pytest.mark.parametrize("sent", [b"", b"G", b"GET /varz HT", b"GET /varz HTTP/1.1\r\n\r\nGET"])
def test_half_open_requests_keep_no_probe_away(server: ServerProcess, sent: bytes) -> None:
    """An address has 128 places: a new connection takes that of the one which is silent longest."""
    with witnessed(server, growth=24 * MEGABYTE), contextlib.ExitStack() as stack:
        slow: list[socket.socket] = []
        for number in range(300):
            connection = stack.enter_context(raw(server.http_port()))
            slow.append(connection)
            with contextlib.suppress(OSError):
                connection.sendall(sent)
            if number % 50 == 49:
                assert answers(server)
        for connection in slow[: 300 - 128]:
            ended(connection)  # which returns: it was closed
        assert answers(server)
        assert select.select(slow[-100:], [], [], 0)[0] == [] or sent.startswith(b"GET /varz HTTP")


def test_half_open_tls_keeps_no_probe_away(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.server()
    config = f"""
        listen: "127.0.0.1:@port", https: "127.0.0.1:@http"
        tls {{cert_file: "{issued.cert_file}", key_file: "{issued.key_file}"}}
    """
    context = ssl.create_default_context(cafile=authority.ca_file)
    with configured("pelton", config) as server, contextlib.ExitStack() as stack:
        for number in range(300):
            connection = stack.enter_context(server.connect("http"))
            if number % 2:
                connection.sendall(b"\x16\x03\x01")
        with (
            server.connect("http") as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as probe,
        ):
            probe.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            assert rest_of(probe).endswith(b'{"status":"ok"}')


def test_the_place_of_who_is_silent_longest_in_the_largest_crowd_is_taken() -> None:
    seats = Seats(6, 4)
    with contextlib.ExitStack() as stack:

        def visit(address: str) -> Visit:
            return Visit(stack.enter_context(socket.socket()), address)

        crowd = [visit("a") for _ in range(5)]
        assert [seats.take(each) for each in crowd[:4]] == [None] * 4
        seats.refresh(crowd[0])
        assert seats.take(crowd[4]) is crowd[1]  # of its own address
        assert seats.take(visit("b")) is None
        assert seats.take(visit("c")) is None
        assert seats.take(visit("d")) is crowd[2]  # of the address with the most
        seats.leave(crowd[2])  # once more: nothing
        seats.leave(crowd[3])
        assert seats.take(visit("e")) is None
        for number in range(1000):
            seats.take(visit(f"f{number}"))
        assert sum(len(each) for each in seats._of.values()) == 6


def test_who_asks_and_does_not_read(server: ServerProcess) -> None:
    with witnessed(server, growth=48 * MEGABYTE), contextlib.ExitStack() as stack:
        asks = b"GET /varz HTTP/1.1\r\nHost: x\r\n\r\n" * 500
        for _ in range(8):
            connection = stack.enter_context(raw(server.http_port()))
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                connection.send(asks)
        assert answers(server)


def test_random_requests(server: ServerProcess) -> None:
    source = random.Random(11)
    paths = [
        "varz",
        "connz",
        "subsz",
        "jsz",
        "healthz",
        "accountz",
        "routez",
        "leafz",
        "metrics",
        "x",
    ]
    names = [
        "limit",
        "offset",
        "sort",
        "subs",
        "auth",
        "state",
        "cid",
        "acc",
        "streams",
        "test",
        "js",
    ]
    values = [
        "1",
        "-1",
        "0",
        "true",
        "x",
        "9" * 30,
        "%ff",
        "*.>",
        "",
        "a.b",
        "cid",
        "closed",
        "any",
    ]
    with witnessed(server, growth=24 * MEGABYTE):
        for _ in range(400):
            query = "&".join(
                f"{source.choice(names)}={source.choice(values)}"
                for _ in range(source.randrange(5))
            )
            with raw(server.http_port()) as connection:
                connection.sendall(f"GET /{source.choice(paths)}?{query} HTTP/1.0\r\n\r\n".encode())
                answer = ended(connection)
                assert answer.startswith(b"HTTP/1.1 ")
                assert not answer.startswith(b"HTTP/1.1 500"), (query, answer)
