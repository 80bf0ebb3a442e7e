"""The WebSocket listener of a running server: INFO, credentials, hostile frames."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path

import pytest
from websockets.client import ClientProtocol
from websockets.extensions.permessage_deflate import enable_client_permessage_deflate
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from tests.certificates import Authority
from tests.peers import available_servers
from tests.server.configured import Configured, configured
from tests.server.websocket.test_upgrade import head

PLAIN = "listen: 127.0.0.1:@port\nwebsocket { listen: 127.0.0.1:@ws, no_tls: true, @more }\n"


@pytest.fixture(params=available_servers())
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Visitor:
    """A client over a WebSocket; messages are what comes in, joined.

    One thread, which waits for no longer than `PATIENCE_SECONDS`. The client of `websockets` reads and
    writes at once, in two threads: OpenSSL, which lets one at a time in, sometimes never sends what was
    written.
    """

    def __init__(
        self,
        server: Configured,
        tls: ssl.SSLContext | None = None,
        additional_headers: Mapping[str, str] | None = None,
    ) -> None:
        url = f"{'wss' if tls else 'ws'}://localhost:{server.ports['ws']}"
        self.socket: socket.socket = server.connect("ws")
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self.protocol = ClientProtocol(
            parse_uri(url), extensions=enable_client_permessage_deflate(None), max_size=None
        )
        request = self.protocol.connect()
        request.headers.update(additional_headers or {})
        self.protocol.send_request(request)
        self.data = b""
        self.info = json.loads(self.line()[5:])

    def send(self, data: bytes) -> None:
        self.protocol.send_binary(data)
        self.flush()

    def flush(self) -> None:
        for data in self.protocol.data_to_send():
            if data:
                self.socket.sendall(data)

    def receive(self) -> bool:
        """Take what has come; whether there will be more."""
        self.flush()
        got = self.socket.recv(65536)
        if got:
            self.protocol.receive_data(got)
        else:
            self.protocol.receive_eof()
        for event in self.protocol.events_received():
            if isinstance(event, Frame) and event.opcode is not Opcode.CLOSE:
                self.data += event.data
        if self.protocol.handshake_exc is not None:
            raise self.protocol.handshake_exc
        self.flush()
        return bool(got)

    def line(self) -> bytes:
        while b"\r\n" not in self.data:
            assert self.receive(), f"closed behind {self.data!r}"
        line, _, self.data = self.data.partition(b"\r\n")
        return line if line != b"PING" else self.line()

    def ask(self, hello: str = "{}") -> bytes:
        """What comes behind CONNECT and PING."""
        self.send(f"CONNECT {hello}\r\nPING\r\n".encode())
        return self.line().removeprefix(b"+OK") or self.line()

    def close(self) -> None:
        if self.protocol.state is State.OPEN:
            self.protocol.send_close()
        with contextlib.suppress(ConnectionResetError):  # closed at once, with what was sent unread
            while self.receive():
                pass
        self.socket.close()


@pytest.mark.peer
@pytest.mark.parametrize("compression", ["true", "false"])
def test_messages_of_any_size(kind: str, compression: str) -> None:
    with configured(kind, PLAIN.replace("@more", f"compression: {compression}")) as server:
        visitor = Visitor(server, additional_headers={"User-Agent": "Mozilla/5.0 x"})
        assert visitor.info["port"] == server.ports["ws"]
        assert "tls_required" not in visitor.info
        assert visitor.ask('{"verbose":false}') == b"PONG"
        visitor.send(b"SUB a 1\r\n")
        for size in (0, 1, 60, 65, 4096, 5000, 70_000, 900_000):
            visitor.send(b"PUB a %d\r\n" % size + b"x" * size + b"\r\n")
            assert visitor.line() == b"MSG a 1 %d" % size
            assert visitor.line() == b"x" * size
        visitor.close()
        server.wait_for("Client connection closed: Client Closed")


@pytest.mark.peer
def test_tls_and_the_names_that_cookies_give(kind: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.server()
    config = f"""listen: 127.0.0.1:@port
        authorization {{ users: [{{user: a, password: b}}] }}
        websocket {{ listen: 127.0.0.1:@ws, user_cookie: me, pass_cookie: secret
            tls {{ cert_file: "{issued.cert_file}", key_file: "{issued.key_file}" }} }}"""
    context = ssl.create_default_context(cafile=authority.ca_file)
    with configured(kind, config) as server:
        named = Visitor(server, context, additional_headers={"Cookie": "me=a; secret=b"})
        assert named.info["tls_required"] is True
        assert named.info["tls_available"] is True
        assert named.info["auth_required"] is True
        assert named.ask('{"verbose":false}') == b"PONG"
        named.close()
        # what CONNECT says counts more
        other = Visitor(server, context, additional_headers={"Cookie": "me=a; secret=b"})
        assert other.ask('{"user":"a","pass":"wrong"}') == b"-ERR 'Authorization Violation'"
        stranger = Visitor(server, context)
        assert stranger.ask() == b"-ERR 'Authorization Violation'"


@pytest.mark.peer
@pytest.mark.parametrize(
    ("more", "hello", "answer"),
    [
        ("authorization { user: x, pass: y }", '{"user":"x","pass":"y"}', b"PONG"),
        ("authorization { user: x, pass: y }", "{}", b"-ERR 'Authorization Violation'"),
        ("authorization { token: t }", '{"auth_token":"t"}', b"PONG"),
        ("token_cookie: tok, authorization { token: t }", "{}", b"PONG"),
        ("authorization { token: t }", "{}", b"-ERR 'Authorization Violation'"),
    ],
)
def test_a_listener_has_credentials_of_its_own(
    kind: str, more: str, hello: str, answer: bytes
) -> None:
    with configured(kind, PLAIN.replace("@more", more)) as server:
        visitor = Visitor(server, additional_headers={"Cookie": "tok=t"})
        assert visitor.info["auth_required"] is True
        assert visitor.ask(hello) == answer
        visitor.close()
        with server.connect() as plain:  # others need none
            plain.recv(4096)
            plain.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
            assert plain.recv(100) == b"PONG\r\n"


@pytest.mark.peer
def test_a_guest_of_the_listener(kind: str) -> None:
    config = "authorization { users: [{user: a, password: b}] }\n" + PLAIN.replace(
        "@more", "no_auth_user: a"
    )
    with configured(kind, config) as server:
        assert Visitor(server).ask('{"verbose":false}') == b"PONG"


def raw(server: Configured) -> socket.socket:
    """A socket whose request was granted."""
    connection = server.connect("ws")
    connection.sendall(head() + b"\r\n\r\n")
    data = b""
    while b"INFO" not in data:
        data += connection.recv(4096)
    return connection


def ends(connection: socket.socket) -> None:
    with connection:
        try:
            while connection.recv(65536):
                pass
        except ConnectionResetError:
            pass


def test_hostile_frames_end_that_connection_only() -> None:
    with configured("pelton", PLAIN.replace("@more", "compression: true")) as server:
        witness = Visitor(server)
        assert witness.ask('{"verbose":false}') == b"PONG"
        for garbage in (
            b"\x82\x05hello",
            b"\x82\xff" + b"\xff" * 12,
            os_frame(b"CONNECT {}\r\n" + b"\0" * 50),
            b"\xff" * 1000,
            os_frame(b"A" * 10_000),
        ):
            bad = raw(server)
            bad.sendall(garbage)
            ends(bad)
        half = raw(server)
        half.sendall(b"\x82\xfe\xff")
        half.close()
        witness.send(b"PING\r\n")
        assert witness.line() == b"PONG"


def os_frame(data: bytes) -> bytes:
    return Frame(Opcode.BINARY, data).serialize(mask=True)


def test_strangers_may_not_send_long_messages() -> None:
    config = "authorization { token: t }\n" + PLAIN.replace("@more", "")
    with configured("pelton", config) as server:
        bad = raw(server)
        bad.sendall(b"\x82\xff" + (1 << 20).to_bytes(8, "big") + bytes(4))
        ends(bad)
        server.wait_for("Client connection closed: Maximum Message Payload Exceeded")


def test_a_forwarded_address_is_shown() -> None:
    with configured("pelton", PLAIN.replace("@more", "")) as server:
        visitor = Visitor(server, additional_headers={"X-Forwarded-For": "192.0.2.9"})
        assert visitor.info["client_ip"] == "192.0.2.9"


def test_the_port_is_in_the_ports_file(tmp_path: Path) -> None:
    config = PLAIN.replace("@more", "") + f'ports_file_dir: "{tmp_path}"'
    with configured("pelton", config) as server:
        (file,) = tmp_path.glob("*.ports")
        assert json.loads(file.read_text())["websocket"] == [f"ws://127.0.0.1:{server.ports['ws']}"]
        assert (
            f"Listening for websocket clients on ws://127.0.0.1:{server.ports['ws']}" in server.log
        )


@pytest.mark.peer
def test_a_nats_server_calls_as_a_leaf_node() -> None:
    if "nats-server" not in available_servers():
        pytest.skip("no nats-server here")
    hub_config = "leafnodes { listen: 127.0.0.1:@http }\n" + PLAIN.replace(
        "@more", "compression: true"
    )
    with configured("pelton", hub_config) as hub:
        url = f"ws://127.0.0.1:{hub.ports['ws']}"
        config = f'listen: 127.0.0.1:@port\nleafnodes {{ remotes [ {{ url: "{url}" }} ] }}'
        with configured("nats-server", config) as leaf:
            leaf.wait_for("Remote leafnode connect msg sent")
            with hub.connect() as here, leaf.connect() as there:
                for each in (here, there):
                    each.recv(4096)
                there.sendall(b'CONNECT {"verbose":false}\r\nSUB a 1\r\nPING\r\n')
                assert b"PONG" in there.recv(100)
                here.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
                for _ in range(500):
                    here.sendall(b"PUB a 5\r\nhello\r\n")
                    there.settimeout(0.05)
                    try:
                        assert b"MSG a 1 5\r\nhello" in there.recv(100)
                        return
                    except TimeoutError:
                        continue
                raise AssertionError(hub.log)
