"""Who a leaf is: credentials files, JWTs and nkeys, over plain connections and WebSockets with TLS,
between real servers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.certificates import Authority
from tests.peers import free_port

from .auth import signed
from .leafs import linked, need, node, running, wait_for

if TYPE_CHECKING:
    from pathlib import Path

PAIRS = pytest.mark.parametrize(
    "kinds",
    [("pelton", "pelton"), ("pelton", "nats-server"), ("nats-server", "pelton")],
    ids=lambda kinds: "-".join(kinds),
)


def credentials(folder: Path, jwt: str, seed: str, name: str = "user.creds") -> str:
    """A file as `nsc` writes it."""
    dashes = "-" * 5
    path = folder / name
    path.write_text(
        f"{dashes}BEGIN NATS USER JWT{dashes}\n{jwt}\n{'-' * 6}END NATS USER JWT{'-' * 6}\n\n"
        f"{dashes}BEGIN USER NKEY SEED{dashes}\n{seed}\n{'-' * 6}END USER NKEY SEED{'-' * 6}\n"
    )
    return str(path)


def refused(leaf_log: str) -> bool:
    """Whether a leaf was told so."""
    return "Authorization Violation" in leaf_log or "Authentication" in leaf_log


@PAIRS
def test_a_credentials_file_lets_in(kinds: tuple[str, str], tmp_path: Path) -> None:
    need(*kinds)
    seed = signed.USER.seed
    good = credentials(tmp_path, signed.user_jwt(allowed_connection_types=["LEAFNODE"]), seed)
    bad = credentials(tmp_path, signed.user_jwt(), signed.STRANGER.seed, "bad.creds")
    phone = signed.user_jwt(allowed_connection_types=["STANDARD"])
    standard = credentials(tmp_path, phone, seed, "standard.creds")
    client = credentials(tmp_path, signed.user_jwt(), seed, "client.creds")
    hub = node(kinds[0], tmp_path, "hub", more=signed.config(signed.account_jwt()))
    leaf = node(kinds[1], tmp_path, "leaf", hub=hub, remote=f'credentials: "{good}"')
    with running(hub, leaf):
        at_hub = hub.client(creds=client)
        linked(at_hub, leaf.client())
        linked(leaf.client(), at_hub, "linked.back")
        for name, file in (("bad", bad), ("standard", standard)):
            other = node(kinds[1], tmp_path, name, hub=hub, remote=f'credentials: "{file}"')
            with running(other):
                wait_for(lambda other=other: refused(other.log()), "the refusal")


@PAIRS
@pytest.mark.parametrize("where", ["users", "leafnodes"])
def test_an_nkey_lets_in(kinds: tuple[str, str], where: str, tmp_path: Path) -> None:
    need(*kinds)
    user, stranger = signed.USER, signed.STRANGER
    own = f"authorization {{ nkey: {user.public} }}" if where == "leafnodes" else ""
    users = "{ user: c, password: c }"
    if where == "users":
        users += f", {{ nkey: {user.public} }}"
    hub = node(
        kinds[0], tmp_path, "hub", listener=own, more=f"authorization {{ users: [ {users} ] }}"
    )
    leaf = node(kinds[1], tmp_path, "leaf", hub=hub, remote=f"nkey: {user.seed}")
    with running(hub, leaf):
        at_hub = hub.client(user="c", password="c")
        linked(at_hub, leaf.client())
        linked(leaf.client(), at_hub, "linked.back")
        other = node(kinds[1], tmp_path, "other", hub=hub, remote=f"nkey: {stranger.seed}")
        with running(other):
            wait_for(lambda: refused(other.log()), "the refusal")


@PAIRS
def test_over_a_websocket_with_tls(kinds: tuple[str, str], tmp_path: Path) -> None:
    need(*kinds)
    authority = Authority(tmp_path)
    issued = authority.server("hub")
    port = free_port()
    files = f'cert_file: "{issued.cert_file}", key_file: "{issued.key_file}"'
    socket = f"websocket {{ listen: 127.0.0.1:{port}, tls {{ {files} }} }}"
    nkey = f"{{ nkey: {signed.USER.public} }}"
    users = f"authorization {{ users: [ {{ user: c, password: c }}, {nkey} ] }}"
    hub = node(kinds[0], tmp_path, "hub", more=f"{socket}\n{users}")
    trust = f'tls {{ ca_file: "{authority.ca_file}" }}'
    leaf = node(
        kinds[1],
        tmp_path,
        "leaf",
        hub_url=f"wss://127.0.0.1:{port}",
        remote=f"{trust}, nkey: {signed.USER.seed}, ws_compression: true",
    )
    with running(hub, leaf):
        at_hub = hub.client(user="c", password="c")
        linked(at_hub, leaf.client())
        linked(leaf.client(), at_hub, "linked.back")
        doubtful = node("pelton", tmp_path, "doubtful", hub_url=f"wss://127.0.0.1:{port}")
        with running(doubtful):
            wait_for(lambda: "certificate verify failed" in doubtful.log(), "the doubt")
