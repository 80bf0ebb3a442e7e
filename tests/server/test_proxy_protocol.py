"""Headers of proxies: read from any split of the bytes, refused when broken, and what a server
makes of them.
"""

from __future__ import annotations

import ipaddress
import json
import ssl
from pathlib import Path
from urllib.request import urlopen

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.server.transports.proxy_protocol import V2_SIGNATURE, Header, parse_header
from tests.certificates import Authority
from tests.peers import available_servers
from tests.server.configured import Configured, configured, line_of, rest_of

IPV4 = st.ip_addresses(v=4)
IPV6 = st.ip_addresses(v=6).filter(lambda each: each.ipv4_mapped is None)
PORTS = st.integers(0, 65535)


def version_2(source: str, port: int, *, more: bytes = b"", command: int = 1) -> bytes:
    address = ipaddress.ip_address(source)
    family = 0x11 if address.version == 4 else 0x21
    body = address.packed * 2 + port.to_bytes(2, "big") + b"\x10\x92" + more
    return V2_SIGNATURE + bytes([0x20 | command, family]) + len(body).to_bytes(2, "big") + body


def version_1(source: str, port: int) -> bytes:
    family = "TCP6" if ":" in source else "TCP4"
    return f"PROXY {family} {source} {source} {port} 4222\r\n".encode()


@given(IPV4 | IPV6, PORTS, st.sampled_from([version_1, version_2]), st.binary(max_size=40))
def test_a_header_is_read_when_it_is_whole(source, port, make, rest) -> None:
    data = make(str(source), port)
    for size in range(len(data)):
        assert parse_header(data[:size]) is None
    assert parse_header(data + rest) == Header(len(data), str(source), port)


def test_the_forms_of_a_header() -> None:
    assert parse_header(b"CONNECT {}\r\n") == Header(0, "", 0)
    assert parse_header(b"PROXY UNKNOWN\r\nX") == Header(15, "", 0)
    assert parse_header(b"PROXY UNKNOWN a b c d\r\n") == Header(23, "", 0)
    local = version_2("192.0.2.1", 7, command=0)
    assert parse_header(local) == Header(len(local), "", 0)
    extended = version_2("192.0.2.1", 7, more=b"\x04\0\x01x")
    assert parse_header(extended) == Header(len(extended), "192.0.2.1", 7)
    mapped = b"PROXY TCP6 ::ffff:192.0.2.1 ::1 7 8\r\n"
    assert parse_header(mapped) == Header(len(mapped), "192.0.2.1", 7)


BROKEN = [
    b"PROXY TCP4 192.0.2.1 192.0.2.1 7\r\n",
    b"PROXY TCP4 ::1 ::1 7 8\r\n",
    b"PROXY TCP6 192.0.2.1 192.0.2.1 7 8\r\n",
    b"PROXY TCP4 a b 7 8\r\n",
    b"PROXY TCP4 192.0.2.1 192.0.2.1 70000 8\r\n",
    b"PROXY UDP4 192.0.2.1 192.0.2.1 7 8\r\n",
    b"PROXY " + b"x" * 200,
    V2_SIGNATURE[:8] + b"xxxxxxxx",
    V2_SIGNATURE + b"\x11\x11\0\x0c" + bytes(12),
    V2_SIGNATURE + b"\x22\x11\0\x0c" + bytes(12),
    V2_SIGNATURE + b"\x21\x12\0\x0c" + bytes(12),
    V2_SIGNATURE + b"\x21\x31\0\x0c" + bytes(12),
    V2_SIGNATURE + b"\x21\x11\0\x08" + bytes(8),
]


@pytest.mark.parametrize("data", BROKEN)
def test_a_broken_header_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_header(data)


@given(st.binary(max_size=200), st.sampled_from([b"", b"PROXY ", V2_SIGNATURE]))
def test_garbage_is_read_or_refused(data: bytes, begin: bytes) -> None:
    try:
        found = parse_header(begin + data)
    except ValueError:
        return
    assert found is None or 0 <= found.length <= len(begin + data)


HELLO = b'CONNECT {"verbose":false,"name":"x"}\r\nPING\r\n'
CONFIG = "listen: 127.0.0.1:@port\nproxy_protocol: true\nhttp: 127.0.0.1:@http\n"


def shown_address(server: Configured) -> str:
    """Of the only connection, as monitoring has it."""
    with urlopen(f"http://127.0.0.1:{server.ports['http']}/connz", timeout=20) as answer:
        (one,) = json.load(answer)["connections"]
    return str(one["ip"])


@pytest.mark.peer
@pytest.mark.parametrize("kind", available_servers())
def test_a_server_takes_headers_and_does_without(kind: str) -> None:
    with configured(kind, CONFIG) as server:
        for header, shown in (
            (version_1("192.0.2.77", 1234), "192.0.2.77"),
            (version_2("2001:db8::7", 1234), "2001:db8::7"),
            (b"", "127.0.0.1"),
        ):
            with server.connect() as connection:
                info = json.loads(line_of(connection)[5:])
                assert "client_ip" not in info  # it would be the proxy's
                connection.sendall(header + HELLO)
                assert line_of(connection) == b"PONG\r\n"
                assert shown_address(server) == shown
            server.wait_for("Client connection closed")
        with server.connect() as connection:
            line_of(connection)
            connection.sendall(b"PROXY TCP4 nonsense\r\n" + HELLO)
            assert rest_of(connection) == b""


@pytest.mark.peer
@pytest.mark.parametrize("kind", available_servers())
def test_the_header_comes_before_tls(kind: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.server()
    config = CONFIG + f'tls {{ cert_file: "{issued.cert_file}", key_file: "{issued.key_file}" }}'
    context = ssl.create_default_context(cafile=authority.ca_file)
    with configured(kind, config) as server:
        plain = server.connect()
        line_of(plain)
        plain.sendall(version_2("192.0.2.77", 1234))
        with context.wrap_socket(plain, server_hostname="localhost") as connection:
            connection.sendall(HELLO)
            assert line_of(connection) == b"PONG\r\n"
            assert shown_address(server) == "192.0.2.77"


def test_who_says_nothing_is_cut_off() -> None:
    with configured("pelton", CONFIG) as server:
        silent = [server.connect() for _ in range(3)]
        for connection, begin in zip(silent, (b"", b"PROX", V2_SIGNATURE[:10]), strict=True):
            line_of(connection)
            connection.sendall(begin)
        for connection in silent:
            with connection:
                assert rest_of(connection) == b""
