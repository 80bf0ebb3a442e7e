"""Verification of client certificates: at each connection, at each listener, and after each reload.

A listener that verifies resumes no TLS session, because a resumed session would skip the verification.
"""

from __future__ import annotations

import signal
import socket
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from pelton.server.transports.tls import public_key_pin
from tests.certificates import Authority, Issued
from tests.peers import available_servers
from tests.server.configured import Configured, configured, line_of, rest_of

CONNECT = b'CONNECT {"verbose":false,"name":"test"}\r\nPING\r\n'
LEAF_CONNECT = b'CONNECT {"name":"leaf","cluster":"leaf"}\r\nPING\r\n'
CONNECT_AS_VISITOR = b'CONNECT {"name":"leaf","cluster":"leaf","user":"visitor@example.com"}\r\n'
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}

# listener -> (port, whether INFO comes before the handshake, configuration)
LISTENERS = {
    "clients": ("port", True, "listen: 127.0.0.1:@port\ntls {{ {} }}"),
    "handshake_first": (
        "port",
        False,
        "listen: 127.0.0.1:@port\ntls {{ {}, handshake_first: true }}",
    ),
    "verify_and_map": (
        "port",
        True,
        "listen: 127.0.0.1:@port\ntls {{ {}, verify_and_map: true }}\n"
        'authorization {{ users: [ {{ user: "visitor@example.com" }} ] }}',
    ),
    "websocket": (
        "ws",
        False,
        "listen: 127.0.0.1:@port\nwebsocket {{ listen: 127.0.0.1:@ws, tls {{ {} }} }}",
    ),
    "leafnodes": (
        "leaf",
        True,
        "listen: 127.0.0.1:@port\nleafnodes {{ listen: 127.0.0.1:@leaf, tls {{ {} }} }}",
    ),
    "leafnodes first": (
        "leaf",
        False,
        "listen: 127.0.0.1:@port\n"
        "leafnodes {{ listen: 127.0.0.1:@leaf, tls {{ {}, handshake_first: true }} }}",
    ),
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def issued(authority: Authority) -> Issued:
    return authority.server()


@pytest.fixture(scope="module")
def visitor(authority: Authority) -> Issued:
    return authority.client("visitor", x509.RFC822Name("visitor@example.com"))


@pytest.fixture(scope="module")
def expired(authority: Authority) -> Issued:
    return authority.client("expired", x509.RFC822Name("visitor@example.com"), days=-0.5)


def tls(issued: Issued, ca_file: str, more: str = "") -> str:
    return (
        f'cert_file: "{issued.cert_file}", key_file: "{issued.key_file}", '
        f'ca_file: "{ca_file}", verify: true{more}'
    )


def frame(payload: bytes) -> bytes:
    """A short binary message of WebSocket, masked with zeros."""
    assert len(payload) < 126
    return bytes([0x82, 0x80 | len(payload)]) + bytes(4) + payload


class Visitor:
    """A TLS client that offers the session of its first connection at each later one."""

    def __init__(self, server: Configured, listener: str, version: str, ca_file: str) -> None:
        self._server = server
        self._port, self._info_first, _ = LISTENERS[listener]
        self.context = ssl.create_default_context(cafile=ca_file)
        self.context.minimum_version = self.context.maximum_version = VERSIONS[version]
        self._session: ssl.SSLSession | None = None
        self.resumed = False

    def show(self, certificate: Issued) -> None:
        self.context.load_cert_chain(certificate.cert_file, certificate.key_file)

    def comes_in(self) -> bool:
        """Whether the server answers after the handshake."""
        plain = self._server.connect(self._port)
        if self._info_first:
            assert line_of(plain).startswith(b"INFO ")
        try:
            with self.context.wrap_socket(
                plain, server_hostname="localhost", session=self._session
            ) as connection:
                answered = self._exchange(connection)
                self.resumed = self.resumed or bool(connection.session_reused)
                if answered and self._session is None:
                    self._session = connection.session  # with the tickets of TLS 1.3
                return answered
        except (ssl.SSLError, ConnectionError):
            return False

    def _exchange(self, connection: socket.socket) -> bool:
        if self._port == "leaf":
            # after an error that follows the handshake, so that the certificate was accepted
            if not self._info_first:
                line_of(connection)
            connection.sendall(b"nonsense\r\n")
        else:
            connection.sendall(UPGRADE if self._port == "ws" else CONNECT)
        return bool(connection.recv(100))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("listener", LISTENERS)
def test_a_session_does_not_outlive_the_certificate(
    listener: str,
    version: str,
    authority: Authority,
    issued: Issued,
    visitor: Issued,
    expired: Issued,
) -> None:
    config = LISTENERS[listener][2].format(tls(issued, authority.ca_file))
    with configured("pelton", config) as server:
        client = Visitor(server, listener, version, authority.ca_file)
        client.show(visitor)
        assert client.comes_in()
        assert client.comes_in()
        client.show(expired)  # an accepted session would keep the first certificate
        assert not client.comes_in()
        assert not client.resumed
        client.show(visitor)
        assert client.comes_in()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("change", ["ca", "pins"])
@pytest.mark.parametrize("listener", ["clients", "websocket", "leafnodes"])
def test_a_session_does_not_outlive_a_reload(
    listener: str,
    change: str,
    version: str,
    authority: Authority,
    issued: Issued,
    visitor: Issued,
    tmp_path: Path,
) -> None:
    """The CA that signed the certificate is taken out of the file, or its key out of the pins."""
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(Path(authority.ca_file).read_bytes())
    other = Authority(tmp_path, "other")
    config = LISTENERS[listener][2]
    pin = public_key_pin(visitor.certificate)

    def written(pins: str) -> str:
        return config.format(tls(issued, str(trusted), f", pinned_certs: [{pins}]"))

    first, second = f'"{pin}"', f'"{pin}"'
    if change == "pins" and listener != "websocket":  # its settings are fixed while it runs
        second = f'"{"0" * 64}"'
    with configured("pelton", written(first)) as server:
        client = Visitor(server, listener, version, authority.ca_file)
        client.show(visitor)
        assert client.comes_in()
        if change == "ca":
            trusted.write_bytes(other.certificate.public_bytes(Encoding.PEM))
        server.write(written(second))
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("Reloaded server configuration")
        assert client.comes_in() is (first == second and change == "pins")
        assert not client.resumed


@pytest.mark.peer
@pytest.mark.parametrize("kind", available_servers())
def test_a_reload_of_the_pins_ends_connections(
    kind: str, authority: Authority, issued: Issued, visitor: Issued
) -> None:
    listener = LISTENERS["clients"][2]

    def written(pin: str) -> str:
        return listener.format(tls(issued, authority.ca_file, f', pinned_certs: ["{pin}"]'))

    with configured(kind, written(public_key_pin(visitor.certificate))) as server:
        plain = server.connect()
        line_of(plain)
        context = ssl.create_default_context(cafile=authority.ca_file)
        context.load_cert_chain(visitor.cert_file, visitor.key_file)
        with context.wrap_socket(plain, server_hostname="localhost") as connection:
            connection.sendall(CONNECT)
            assert line_of(connection) == b"PONG\r\n"
            server.write(written("0" * 64))
            server.process.send_signal(signal.SIGHUP)
            assert rest_of(connection) == b""


def test_a_reload_of_the_pins_ends_leaf_nodes(
    authority: Authority, issued: Issued, visitor: Issued
) -> None:
    listener = LISTENERS["leafnodes"][2]

    def written(pin: str) -> str:
        return listener.format(tls(issued, authority.ca_file, f', pinned_certs: ["{pin}"]'))

    with configured("pelton", written(public_key_pin(visitor.certificate))) as server:
        plain = server.connect("leaf")
        line_of(plain)
        context = ssl.create_default_context(cafile=authority.ca_file)
        context.load_cert_chain(visitor.cert_file, visitor.key_file)
        with context.wrap_socket(plain, server_hostname="localhost") as connection:
            connection.sendall(LEAF_CONNECT)
            assert line_of(connection).startswith(b"INFO ")
            server.write(written("0" * 64))
            server.process.send_signal(signal.SIGHUP)
            rest_of(connection)  # ends when the server closes
            assert "closed: TLS Handshake Failure" in server.log


@pytest.mark.peer
@pytest.mark.parametrize("place", ["server", "leafnodes"])
@pytest.mark.parametrize("listener", ["leaf", "websocket"])
@pytest.mark.parametrize("kind", available_servers())
def test_a_leaf_nodes_certificate_names_its_user(
    kind: str,
    listener: str,
    place: str,
    authority: Authority,
    issued: Issued,
    visitor: Issued,
) -> None:
    """And its name in CONNECT, without a password, admits none."""
    other = authority.client("other", x509.RFC822Name("other@example.com"))
    users = 'authorization { users: [ { user: "visitor@example.com" } ] }'
    section = f"tls {{ {tls(issued, authority.ca_file, ', verify_and_map: true')} }}"
    config = f"""
        listen: 127.0.0.1:@port
        {users if place == "server" else ""}
        leafnodes {{
            listen: 127.0.0.1:@leaf
            {section}
            {users if place == "leafnodes" else ""}
        }}
        websocket {{ listen: 127.0.0.1:@ws, {section} }}
    """
    with configured(kind, config) as server:
        for shown in (visitor, other):
            context = ssl.create_default_context(cafile=authority.ca_file)
            context.load_cert_chain(shown.cert_file, shown.key_file)
            plain = server.connect("leaf" if listener == "leaf" else "ws")
            if listener == "leaf":
                line_of(plain)
            with context.wrap_socket(plain, server_hostname="localhost") as connection:
                connect = CONNECT_AS_VISITOR
                if listener == "websocket":
                    connection.sendall(UPGRADE.replace(b"/ HTTP", b"/leafnode HTTP"))
                    while line_of(connection) != b"\r\n":
                        pass
                    connect = frame(connect)
                connection.sendall(connect)
                said = b""
                while b"LS+ " not in said and (got := connection.recv(65536)):
                    said += got
                assert (b"LS+ " in said) is (shown is visitor), said


def test_certificates_that_are_chosen_by_name_verify_clients_too(
    authority: Authority, issued: Issued, visitor: Issued, expired: Issued
) -> None:
    other = authority.server("other", "other.example")
    pairs = ", ".join(
        f'{{cert_file: "{each.cert_file}", key_file: "{each.key_file}"}}'
        for each in (issued, other)
    )
    section = f'tls {{ certs: [{pairs}], ca_file: "{authority.ca_file}", verify: true }}'
    with configured("pelton", f"listen: 127.0.0.1:@port\n{section}") as server:

        def accepts(shown: Issued, name: str) -> bool:
            context = ssl.create_default_context(cafile=authority.ca_file)
            context.load_cert_chain(shown.cert_file, shown.key_file)
            plain = server.connect()
            line_of(plain)
            try:
                with context.wrap_socket(plain, server_hostname=name) as connection:
                    connection.sendall(CONNECT)
                    return bool(connection.recv(100))
            except (ssl.SSLError, ConnectionError):
                return False

        for name in ("localhost", "other.example"):
            assert accepts(visitor, name)
            assert not accepts(expired, name)
