"""Both shells over WebSockets, against the listeners of every server."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from pelton import ConnectError, StreamConfig, TlsOptions
from tests.certificates import Authority
from tests.client.shells import connected
from tests.peers import OLDEST, available_servers
from tests.server.configured import configured

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.server.configured import Configured

kinds = pytest.mark.parametrize("kind", available_servers(OLDEST))

PLAIN = """listen: 127.0.0.1:@port
    jetstream { store_dir: "@folder" }
    websocket { listen: "127.0.0.1:@ws", no_tls: true, compression: true }"""


@pytest.fixture(scope="module", params=available_servers(OLDEST))
def server(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Configured]:
    folder = tmp_path_factory.mktemp("store")
    with configured(request.param, PLAIN.replace("@folder", str(folder))) as started:
        yield started


@pytest.mark.parametrize("compress", [False, True])
def test_messages_of_all_sizes(shell: str, server: Configured, compress: bool) -> None:
    url = f"ws://127.0.0.1:{server.ports['ws']}"
    with connected(shell, url, websocket_compression=compress, name="ws") as client:
        subscription = client.subscribe("sizes")
        for size in (0, 1, 63, 64, 65, 125, 126, 65_535, 65_536, 1_000_000):
            data = bytes(range(256)) * (size // 256) + bytes(size % 256)
            client.publish("sizes", data, headers={"Size": str(size)})
            message = subscription.next(timeout=30)
            assert message.data == data
            assert message.header("Size") == str(size)
        js = client.jetstream()
        js.create_stream(StreamConfig(name="WS", subjects=["ws.>"], storage="memory"))
        with js.publisher() as publisher:
            for number in range(3000):
                publisher.publish("ws.a", b"%d" % number)
        assert js.stream_info("WS").state.messages == 3000
        js.delete_stream("WS")
        client.reconnect(timeout=30)
        client.publish("sizes", b"again")
        assert subscription.next(timeout=30).data == b"again"


def test_ws_has_no_tls_and_other_ports_no_websocket(shell: str, server: Configured) -> None:
    with (
        pytest.raises(ConnectError, match="use wss"),
        connected(shell, f"ws://127.0.0.1:{server.ports['ws']}", tls=TlsOptions()),
    ):
        pass
    with (
        pytest.raises(ConnectError, match="does not speak WebSocket"),
        connected(shell, f"ws://127.0.0.1:{server.ports['port']}", connect_timeout=5),
    ):
        pass


@kinds
def test_with_tls_and_a_password(shell: str, kind: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.server()
    config = f"""listen: 127.0.0.1:@port
        authorization {{ user: anna, password: secret }}
        websocket {{ listen: "127.0.0.1:@ws"
                     tls {{ cert_file: "{issued.cert_file}", key_file: "{issued.key_file}" }} }}"""
    with configured(kind, config) as server:
        url = f"wss://anna:secret@localhost:{server.ports['ws']}"
        with connected(shell, url, tls=TlsOptions(ca_file=authority.ca_file)) as client:
            assert client.rtt() >= 0
            assert str(client._connection.server) == f"wss://localhost:{server.ports['ws']}"
        with (
            pytest.raises(ConnectError),
            connected(shell, f"wss://localhost:{server.ports['ws']}"),
        ):
            pass  # the system does not trust the certificate


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "403 Forbidden"),
        (b"", "closed"),
        (b"INFO {}\r\n\r\n", "does not speak WebSocket"),
    ],
)
def test_a_proxy_that_refuses(shell: str, said: bytes, reason: str) -> None:
    heads = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(30)

        def refuse() -> None:
            accepted, _ = listener.accept()
            with accepted:
                accepted.settimeout(30)
                heads.append(accepted.recv(4096))
                accepted.sendall(said)

        thread = threading.Thread(target=refuse)
        thread.start()
        url = f"ws://127.0.0.1:{listener.getsockname()[1]}/through/here"
        headers = {"Authorization": "Bearer t"}
        with (
            pytest.raises(ConnectError, match=reason),
            connected(shell, url, websocket_headers=headers),
        ):
            pass
        thread.join()
    assert heads[0].startswith(b"GET /through/here HTTP/1.1\r\n")
    assert b"\r\nAuthorization: Bearer t\r\n" in heads[0]
