"""JetStream consumers over leaf node connections: answers to flow control arrive, and messages show
their own subject, whichever way they go, also over WebSocket and through the import of an account.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pelton import StreamConfig
from tests.peers import free_port

from .leafs import linked, need, node, running, wait_for
from .test_leaf_servers import UPWARDS, Pair, pair, request
from .test_leaf_websocket import PAIRS

if TYPE_CHECKING:
    from pathlib import Path

    from pelton.client.sync.subscription import Subscription
    from pelton.sync import Client

__all__ = ["pair"]

MESSAGES = 3000
SIZE = 1000  # bytes: several windows of flow control
KINDS = pytest.mark.parametrize("kinds", PAIRS, ids=lambda kinds: "-".join(kinds))


def fill(client: Client, subject: str, count: int = MESSAGES) -> None:
    for n in range(count):
        client.publish(subject, b"%d" % n + b" " * SIZE)
    client.flush()


def consume(
    client: Client,
    stream: str,
    subject: str,
    *,
    api: str,
    deliver: str = "",
    imported: str = "",
    creator: Client | None = None,
) -> None:
    """Read all messages of a stream with flow control, as an ordered consumer does. No heartbeat comes
    before the end, because each request is answered at once.

    `deliver`: the deliver subject, which the reader sees as `imported`; `creator` makes the consumer.
    """
    deliver = deliver or f"deliver.{free_port()}"
    sub = client.subscribe(imported or deliver)
    client.flush()
    config = {
        "deliver_subject": deliver,
        "ack_policy": "none",
        "flow_control": True,
        "idle_heartbeat": 10_000_000_000,
    }
    body = json.dumps({"stream_name": stream, "config": config}).encode()
    answer = (creator or client).request(f"{api}.CONSUMER.CREATE.{stream}", body)
    assert "error" not in json.loads(answer.data), answer
    got = asked = 0
    while got < MESSAGES:
        message = sub.next(60)
        if message.reply.startswith("$JS.ACK."):
            assert message.subject == subject
            assert message.data.split()[0] == b"%d" % got
            got += 1
        else:
            assert message.reply.startswith("$JS.FC."), message
            assert message.subject == (imported or deliver)
            assert len(message.reply.split(".")) in (5, 7), message.reply
            asked += 1
            client.publish(message.reply, b"")
    assert asked > 1
    sub.unsubscribe()


@UPWARDS
@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_a_source_empties_a_stream_that_keeps_what_nobody_took(
    pair: Pair, upwards: bool, retention: str
) -> None:
    """Its consumer is acknowledged by answers to flow control alone."""
    here, there = pair.clients(upwards)
    near_node, other = pair.nodes(upwards)
    if "older" in (near_node.server.kind, other.server.kind):
        pytest.skip("consumers with these acks came with 2.14")
    far, near = there.jetstream(), here.jetstream()
    name = f"{retention}{int(upwards)}"
    origin = {"name": f"O{name}", "subjects": [f"o{name}.*"], "retention": retention}
    request(there, f"STREAM.CREATE.O{name}", origin)
    external = {"api": f"$JS.{other.domain}.API", "deliver": ""}
    copy = {"name": f"C{name}", "sources": [{"name": f"O{name}", "external": external}]}
    request(here, f"STREAM.CREATE.C{name}", copy)
    wait_for(lambda: far.stream_info(f"O{name}").state.consumer_count == 1, "the consumer")
    fill(there, f"o{name}.x")
    wait_for(lambda: near.stream_info(f"C{name}").state.messages == MESSAGES, "the copy")
    wait_for(lambda: far.stream_info(f"O{name}").state.messages == 0, "the acks")
    near.delete_stream(f"C{name}")
    far.delete_stream(f"O{name}")


@UPWARDS
@pytest.mark.parametrize("letter", ["F", "F@a"])
def test_flow_control_is_answered_across(pair: Pair, upwards: bool, letter: str) -> None:
    """Also with the name of a stream that has the letter which separates reply and subject."""
    here, there = pair.clients(upwards)
    near_node, other = pair.nodes(upwards)
    if "@" in letter and "older" in (near_node.server.kind, other.server.kind):
        pytest.skip("older servers cut the reply at the first @")
    name = f"{letter}{int(upwards)}"
    there.jetstream().create_stream(StreamConfig(name=name, subjects=[f"{name}.*"]))
    fill(there, f"{name}.x")
    consume(here, name, f"{name}.x", api=f"$JS.{other.domain}.API")
    there.jetstream().delete_stream(name)


@UPWARDS
@KINDS
def test_flow_control_is_answered_over_websocket(
    kinds: tuple[str, str], upwards: bool, tmp_path: Path
) -> None:
    need(*kinds)
    port = free_port()
    listener = f"websocket {{ listen: 127.0.0.1:{port}, no_tls: true, compression: true }}"
    hub = node(kinds[0], tmp_path, "hub", more=listener)
    leaf = node(
        kinds[1],
        tmp_path,
        "leaf",
        hub_url=f"ws://127.0.0.1:{port}",
        remote="ws_compression: true",
    )
    with running(hub, leaf):
        at_hub, at_leaf = hub.client(), leaf.client()
        linked(at_hub, at_leaf)
        linked(at_leaf, at_hub, "linked.back")
        here, there, other = (at_leaf, at_hub, hub) if upwards else (at_hub, at_leaf, leaf)
        there.jetstream().create_stream(StreamConfig(name="W", subjects=["w.*"]))
        fill(there, "w.x")
        consume(here, "W", "w.x", api=f"$JS.{other.domain}.API")


ACCOUNTS = """
accounts {{
    NEAR {{
        {jetstream}
        users: [ {{ user: near, password: near }} ]
        exports: [
            {{ stream: "deliver.>" }}
            {{ service: "$JS.FC.>" }}
            {{ service: "$JS.leaf.API.>", response: stream }}
        ]
    }}
    APP {{
        users: [ {{ user: app, password: app }} ]
        imports: [
            {{ stream: {{ account: NEAR, subject: "deliver.>" }} {prefix} }}
            {{ service: {{ account: NEAR, subject: "$JS.FC.>" }} }}
            {{ service: {{ account: NEAR, subject: "$JS.leaf.API.>" }} }}
        ]
    }}
}}
"""
PREFIXES = {"same": ("", ""), "prefix": (", prefix: imp", "imp.")}


@KINDS
@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_leaf_reads_what_its_account_imports(
    kinds: tuple[str, str], prefix: str, tmp_path: Path
) -> None:
    need(*kinds)
    option, begin = PREFIXES[prefix]
    accounts = ACCOUNTS.format(prefix=option, jetstream="jetstream: enabled")
    hub = node(kinds[0], tmp_path, "hub", more=accounts)
    url = f"nats://app:app@127.0.0.1:{hub.leaf_port}"
    leaf = node(kinds[1], tmp_path, "leaf", hub_url=url)
    with running(hub, leaf):
        owner = hub.client(user="near", password="near")
        reader, at_hub = leaf.client(), hub.client(user="app", password="app")
        linked(at_hub, reader)
        linked(reader, at_hub, "linked.back")
        owner.jetstream().create_stream(StreamConfig(name="I", subjects=["i.*"]))
        fill(owner, "i.x")
        where = {"deliver": "deliver.a", "imported": f"{begin}deliver.a"}
        consume(at_hub, "I", "i.x", api="$JS.API", creator=owner, **where)
        # the leaf's interest is there when a message crosses
        probe = reader.subscribe(f"{begin}deliver.a")
        wait_for(lambda: _published(owner, "deliver.a", probe), "the import")
        probe.unsubscribe()
        consume(reader, "I", "i.x", api="$JS.API", creator=owner, **where)


def _published(client: Client, subject: str, sub: Subscription) -> bool:
    client.publish(subject, b"probe")
    client.flush()
    return sub.next(0.05) is not None


@pytest.mark.parametrize("kind", ["pelton", "nats-server"])
@pytest.mark.parametrize("prefix", PREFIXES)
def test_an_import_shows_what_came_from_a_leaf(kind: str, prefix: str, tmp_path: Path) -> None:
    """The leaf's stream is read by another account of the hub."""
    need(kind)
    option, begin = PREFIXES[prefix]
    accounts = ACCOUNTS.format(prefix=option, jetstream="")
    hub = node(kind, tmp_path, "hub", more=accounts)
    url = f"nats://near:near@127.0.0.1:{hub.leaf_port}"
    leaf = node("pelton", tmp_path, "leaf", hub_url=url)
    with running(hub, leaf):
        owner, reader = leaf.client(), hub.client(user="app", password="app")
        linked(hub.client(user="near", password="near"), owner)
        owner.jetstream().create_stream(StreamConfig(name="I", subjects=["i.*"]))
        fill(owner, "i.x")
        where = {"deliver": "deliver.a", "imported": f"{begin}deliver.a"}
        consume(reader, "I", "i.x", api="$JS.leaf.API", **where)
