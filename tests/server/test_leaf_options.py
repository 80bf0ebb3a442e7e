"""Options of leaf node listeners and remotes, on our server and on nats-server."""

from __future__ import annotations

import json
import socket
import ssl
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.peers import available_servers, free_port
from tests.server.configured import configured, line_of

from .leafs import linked, need, node, running, wait_for

pytestmark = pytest.mark.peer


@pytest.fixture(params=available_servers())
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("first", ["auto", "auto_fallback", '"60s"', '"20ms"', "true"])
def test_tls_may_come_before_info_or_behind_it(kind: str, first: str, tmp_path: Path) -> None:
    """With a fallback, INFO comes in plain text to a leaf that waits for it."""
    authority = Authority(tmp_path)
    own = authority.server()
    section = f'cert_file: "{own.cert_file}", key_file: "{own.key_file}", handshake_first: {first}'
    text = f"listen: 127.0.0.1:@port\nleafnodes {{ listen: 127.0.0.1:@leaf, tls {{ {section} }} }}"
    context = ssl.create_default_context(cafile=authority.ca_file)
    with configured(kind, text) as server:
        if first not in ("true", '"60s"'):
            connection = server.connect("leaf")
            info = json.loads(line_of(connection)[5:])
            assert info["tls_required"] is True
            with context.wrap_socket(connection, server_hostname="localhost") as encrypted:
                encrypted.sendall(b'CONNECT {"name":"x","cluster":"x"}\r\nPING\r\n')
                assert line_of(encrypted).startswith(b"INFO ")
        if first in ("true", '"60s"'):
            plain = server.connect("leaf")
            with context.wrap_socket(plain, server_hostname="localhost") as encrypted:
                assert line_of(encrypted).startswith(b"INFO ")


@pytest.mark.parametrize("leaf_kind", ["pelton", "nats-server"])
def test_a_hub_with_a_fallback_takes_leafs_of_both_orders(leaf_kind: str, tmp_path: Path) -> None:
    need(leaf_kind)
    authority = Authority(tmp_path)
    own = authority.server()
    section = f'cert_file: "{own.cert_file}", key_file: "{own.key_file}", handshake_first: auto'
    hub = node("pelton", tmp_path, "hub", listener=f"tls {{ {section} }}")
    remote = 'tls {{ ca_file: "{}", handshake_first: {} }}'
    leafs = [
        node(
            leaf_kind,
            tmp_path,
            f"leaf{n}",
            hub_url=f"tls://localhost:{hub.leaf_port}",
            remote=remote.format(authority.ca_file, first),
        )
        for n, first in enumerate(("false", "true"))
    ]
    with running(hub, *leafs):
        at_hub = hub.client()
        for each in leafs:
            linked(at_hub, each.client())


@pytest.mark.parametrize("names", ["ws", "websocket"])
@pytest.mark.parametrize("compress", ["compression", "compress"])
def test_both_names_of_the_websocket_options_are_known(
    kind: str, names: str, compress: str, tmp_path: Path
) -> None:
    """The leaf asks for both, which a hub that is written by hand sees in its request."""
    need(kind)
    port = free_port()
    remote = f"{names}_{compress}: true, {names}_no_masking: true"
    leaf = node(kind, tmp_path, "leaf", hub_url=f"ws://127.0.0.1:{port}", remote=remote)
    with socket.create_server(("127.0.0.1", port)) as listener, running(leaf):
        listener.settimeout(60)
        connection, _ = listener.accept()
        asked = b""
        while b"\r\n\r\n" not in asked:
            asked += connection.recv(4096)
        connection.close()
    assert b"permessage-deflate" in asked
    assert b"nats-no-masking: true" in asked.lower()


def test_a_hub_may_tell_no_address(kind: str, tmp_path: Path) -> None:
    need(kind)
    hub = node(kind, tmp_path, "hub", listener="no_advertise: true")
    with running(hub):
        with socket.create_connection(("127.0.0.1", hub.leaf_port), 60) as connection:
            assert not json.loads(line_of(connection)[5:]).get("leafnode_urls")
        for other in available_servers():
            leaf = node(other, tmp_path, f"leaf-{other}", hub=hub)
            with running(leaf):
                linked(hub.client(), leaf.client())


def test_a_port_for_clients_is_the_wrong_one(kind: str, tmp_path: Path) -> None:
    need(kind)
    hub = node(kind, tmp_path, "hub")
    with running(hub):
        leaf = node("pelton", tmp_path, "leaf", hub_url=hub.server.url)
        with running(leaf):
            wait_for(lambda: "attempted to connect to wrong port" in leaf.log(), "the error")
