"""The request that makes a WebSocket: the same statuses on both servers, origins, cookies."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.server.settings.websocket import Websocket
from pelton.server.transports.websocket.origins import parse_origin, refusal
from pelton.server.transports.websocket.upgrade import (
    UpgradeRefused,
    agree,
    answer,
    parse_request,
)
from tests.peers import available_servers
from tests.server.configured import configured, rest_of

GOOD = {
    "Host": "localhost",
    "Upgrade": "websocket",
    "Connection": "keep-alive, Upgrade",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version": "13",
}


def head(method: str = "GET", path: str = "/", **changes: str | None) -> bytes:
    headers = dict(GOOD)
    for name, value in changes.items():
        name = name.replace("_", "-")
        headers.pop(name, None)
        if value is not None:
            headers[name] = value
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode()


# what is asked, and the status that both servers give it
REQUESTS = {
    "good": (head(), 101),
    "any path": (head(path="/a/b?c=d"), 101),
    "words in any case": (head(Upgrade="WebSocket", Connection="UPGRADE"), 101),
    "method": (head("POST"), 405),
    "mqtt": (head(path="/mqtt"), 404),
    "no upgrade": (head(Upgrade=None), 400),
    "other upgrade": (head(Upgrade="h2c"), 400),
    "no connection": (head(Connection="keep-alive"), 400),
    "no key": (head(Sec_WebSocket_Key=None), 400),
    "short key": (head(Sec_WebSocket_Key="AAAA"), 400),
    "no base64": (head(Sec_WebSocket_Key="*" * 24), 400),
    "version": (head(Sec_WebSocket_Version="12"), 400),
    "no version": (head(Sec_WebSocket_Version=None), 400),
    "no host": (head(Host=None), 400),
    "origin": (head(Origin="https://elsewhere.example"), 403),
    "good origin": (head(Origin="https://Pages.example:443"), 101),
    "origin of another port": (head(Origin="https://pages.example:444"), 403),
    "no HTTP": (b"hello", 400),
    "broken header": (b"GET / HTTP/1.1\r\nHost : x", 400),
}


@pytest.mark.peer
@pytest.mark.parametrize("kind", available_servers())
def test_both_servers_answer_alike(kind: str) -> None:
    config = """listen: 127.0.0.1:@port
        websocket { listen: 127.0.0.1:@ws, no_tls: true, allowed_origins: "https://pages.example"
                    headers { "X-Hello": there } }"""
    with configured(kind, config) as server:
        found = {}
        for name, (request, _) in REQUESTS.items():
            with server.connect("ws") as connection:
                connection.sendall(request + b"\r\n\r\n")
                line = connection.recv(4096)
                found[name] = int(line.split(b" ", 2)[1])
                if found[name] == 101:
                    assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in line
                    assert b"x-hello: there" in line.lower()
        assert found == {name: status for name, (_, status) in REQUESTS.items()}


def test_a_long_request_is_refused_and_a_slow_one_cut_off() -> None:
    config = """listen: 127.0.0.1:@port
        websocket { listen: 127.0.0.1:@ws, no_tls: true, handshake_timeout: "300ms" }"""
    with configured("pelton", config) as server:
        with server.connect("ws") as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 5000)
            assert b" 431 " in rest_of(connection)
        with server.connect("ws") as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost:")
            assert rest_of(connection) == b""
        with server.connect("ws") as connection:
            connection.sendall(head() + b"\r\n\r\nmore")
            assert b" 400 " in rest_of(connection)
        with server.connect("ws") as connection:
            connection.sendall(head(path="/leafnode") + b"\r\n\r\n")
            assert b" 101 " in rest_of(connection)
        assert "Not configured to accept leaf node connections" in server.log


def test_what_a_request_says() -> None:
    request = parse_request(
        head(
            Cookie='a=1; b="two"; a=3',
            X_Forwarded_For="192.0.2.7",
            User_Agent="Mozilla/5.0",
            Sec_WebSocket_Extensions="x, permessage-deflate; client_max_window_bits",
            Nats_No_Masking="true",
        )
    )
    agreed = agree(request, Websocket(compression=True), secure=False)
    assert agreed.cookies == {"a": "1", "b": "two"}
    assert agreed.client_ip == "192.0.2.7"
    assert agreed.browser
    assert agreed.compress
    assert agreed.no_masking
    assert not agreed.leaf
    said = answer(agreed, {"X": "y"})
    assert b"server_no_context_takeover; client_no_context_takeover\r\n" in said
    assert b"Nats-No-Masking: true\r\nX: y\r\n\r\n" in said
    assert not agree(request, Websocket(), secure=False).compress
    assert agree(parse_request(head(path="/leafnode")), Websocket(), secure=False).leaf
    spoofed = parse_request(head(X_Forwarded_For="192.0.2.7, evil"))
    assert agree(spoofed, Websocket(), secure=False).client_ip == ""


@pytest.mark.parametrize(
    ("origin", "host", "secure", "fits"),
    [
        ("", "a", False, True),
        ("http://a", "a", False, True),
        ("http://a:80", "a", False, True),
        ("http://A", "a:80", False, True),
        ("https://a", "a", True, True),
        ("https://a", "a", False, False),
        ("http://a:81", "a", False, False),
        ("http://b", "a", False, False),
        ("null", "a", False, False),
        ("http://a:x", "a", False, False),
        ("http://[::1]:80", "[::1]", False, True),
    ],
)
def test_same_origin(origin: str, host: str, secure: bool, fits: bool) -> None:
    why = refusal(origin, host, secure=secure, same_origin=True, allowed=())
    assert (why == "") is fits
    assert refusal(origin, host, secure=secure, same_origin=False, allowed=()) == ""


@pytest.mark.parametrize("bad", ["", "a", "ftp://a", "http://", "http://:80", "http://a:b"])
def test_what_is_no_origin(bad: str) -> None:
    with pytest.raises(ValueError, match=r"origin|host|port|URL"):
        parse_origin(bad)


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_agreed_to_or_refused(data: bytes, begin_well: bool) -> None:
    request = head() + b"\r\n" + data if begin_well else data
    with contextlib.suppress(UpgradeRefused):  # with a status that has a reason
        agree(parse_request(request), Websocket(same_origin=True, compression=True), secure=True)
