"""The monitoring port of a running server, as HTTP clients and others use it."""

import errno
import json
import socket
import urllib.error
import urllib.request

import pytest

from .process import Wire, running


@pytest.fixture(scope="module")
def server():
    with running("-m", "-1") as process:
        yield process


def raw(server, data):
    """Send bytes; everything that comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", server.http_port()), timeout=20) as connected:
        connected.sendall(data)
        connected.shutdown(socket.SHUT_WR)
        got = b""
        while more := connected.recv(65536):
            got += more
        return got


def test_a_real_client_reads_it(server):
    with Wire(server.port()) as wire:
        wire.ping()
        url = f"http://127.0.0.1:{server.http_port()}"
        with urllib.request.urlopen(f"{url}/connz?subs=true", timeout=20) as found:
            assert found.headers["Content-Type"] == "application/json"
            rows = json.load(found)["connections"]
        assert [row["cid"] for row in rows] == [wire.info["client_id"]]
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{url}/nope", timeout=20)
        assert caught.value.code == 404


def test_two_requests_on_one_connection(server):
    got = raw(server, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nHEAD /healthz HTTP/1.1\r\n\r\n")
    assert got.count(b"HTTP/1.1 200 OK\r\n") == 2
    assert got.count(b'{"status":"ok"}') == 1


def test_old_clients_get_one_answer(server):
    got = raw(server, b"GET /healthz HTTP/1.0\r\n\r\nGET /healthz HTTP/1.0\r\n\r\n")
    assert got.count(b"HTTP/1.1 200 OK\r\n") == 1


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST /varz HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", b"405"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET /varz\r\n\r\n", b"400"),
        (b"GET /connz?limit=%zz HTTP/1.1\r\nConnection: close\r\n\r\n", b"400"),
        (b"GET /%00%ff HTTP/1.1\r\nConnection: close\r\n\r\n", b"404"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n", b"400"),
    ],
)
def test_odd_requests_get_an_answer(server, request_, status):
    assert raw(server, request_).startswith(b"HTTP/1.1 " + status)


def test_half_a_request_and_an_endless_one_get_nothing(server):
    assert raw(server, b"GET /varz HT") == b""
    # the server closes while the rest is on its way: the system says so in more than one way
    ends = (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN)
    got, problem = b"", 0
    try:
        got = raw(server, b"GET /" + b"x" * 4_000_000)
    except OSError as cut:
        problem = cut.errno or -1
    assert got == b""
    assert problem in (0, *ends)
    assert raw(server, b"GET /healthz HTTP/1.0\r\n\r\n").endswith(b'{"status":"ok"}')


def test_many_lazy_readers_hold_up_nobody(server):
    lazy = []
    for _ in range(300):
        connected = socket.create_connection(("127.0.0.1", server.http_port()), timeout=20)
        connected.sendall(b"GET /varz HTTP/1.1\r\n\r\n" * 3)
        lazy.append(connected)
    with Wire(server.port()) as wire:
        assert wire.ping() == b""
    for connected in lazy:
        connected.close()
    assert raw(server, b"GET /healthz HTTP/1.0\r\n\r\n").endswith(b'{"status":"ok"}')
