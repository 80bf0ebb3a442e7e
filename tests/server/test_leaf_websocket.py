"""Leaf nodes over WebSocket between real servers: ours called and calling, with what the two agree
on for the frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.peers import free_port
from tests.ways import length

from .leafs import linked, need, node, running, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from pelton.sync import Client

PAIRS = [("pelton", "pelton"), ("pelton", "nats-server"), ("nats-server", "pelton")]
TERMS = {
    "plain": (False, ""),
    "compressed": (True, "ws_compression: true"),
    "compression refused": (False, "ws_compression: true"),
    "not masked": (False, "ws_no_masking: true"),
    "both": (True, "ws_compression: true, ws_no_masking: true"),
}
COUNT = length(700, 3000)  # of each size one


def counted(sender: Client, receiver: Client, subject: str) -> None:
    """Messages of many sizes arrive, all and in their order."""
    sub = receiver.subscribe(subject)
    receiver.flush()
    linked(sender, receiver, f"{subject}.up")
    bodies = [b"%06d" % n + b"abc " * (n % 700) for n in range(COUNT)]
    bodies.append(bytes(range(256)) * 3900)
    for body in bodies:
        sender.publish(subject, body)
    sender.flush()
    for body in bodies:
        assert sub.next(60).data == body
    sub.unsubscribe()


@pytest.mark.parametrize("terms", TERMS)
@pytest.mark.parametrize("kinds", PAIRS, ids=lambda kinds: "-".join(kinds))
def test_messages_cross_whatever_is_agreed(
    kinds: tuple[str, str], terms: str, tmp_path: Path
) -> None:
    need(*kinds)
    compression, remote = TERMS[terms]
    port = free_port()
    socket = f"websocket {{ listen: 127.0.0.1:{port}, no_tls: true, compression: {str(compression).lower()} }}"
    hub = node(kinds[0], tmp_path, "hub", more=socket)
    leaf = node(kinds[1], tmp_path, "leaf", hub_url=f"ws://127.0.0.1:{port}", remote=remote)
    with running(hub, leaf):
        at_hub, at_leaf = hub.client(), leaf.client()
        counted(at_hub, at_leaf, "down")
        counted(at_leaf, at_hub, "up")


@pytest.mark.parametrize("kinds", PAIRS, ids=lambda kinds: "-".join(kinds))
def test_an_ended_connection_is_made_again(kinds: tuple[str, str], tmp_path: Path) -> None:
    need(*kinds)
    port = free_port()
    socket = f"websocket {{ listen: 127.0.0.1:{port}, no_tls: true }}"
    hub = node(kinds[0], tmp_path, "hub", more=socket)
    url = f"ws://127.0.0.1:{port}"
    leaf = node(kinds[1], tmp_path, "leaf", hub_url=url, listener="reconnect: 100ms")
    with running(hub, leaf):
        linked(hub.client(), leaf.client())
        hub.stop(kill=True)
        hub.start()
        linked(hub.client(), leaf.client(), "again.down")


def test_what_is_no_websocket_is_told(tmp_path: Path) -> None:
    """A hub that listens there for something else: the log says so, and the leaf goes on."""
    hub = node("pelton", tmp_path, "hub")
    leaf = node("pelton", tmp_path, "leaf", hub_url=f"ws://127.0.0.1:{hub.leaf_port}")
    with running(hub, leaf):
        wait_for(lambda: "Error soliciting websocket connection" in leaf.log(), "the complaint")
        leaf.client().flush()
