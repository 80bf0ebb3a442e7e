"""Leaf nodes between real servers, ours on either side of the connection: what a client sees."""

from __future__ import annotations

import contextlib
import json
import time
import urllib.request
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pelton import ConsumerConfig, StreamConfig
from pelton.errors import NoRespondersError, PeltonTimeoutError
from tests.peers import free_port

from .leafs import Node, linked, need, node, running, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pelton.sync import Client

PAIRS = [
    ("pelton", "pelton"),
    ("pelton", "nats-server"),
    ("nats-server", "pelton"),
    ("pelton", "older"),
    ("older", "pelton"),
]


class Pair(NamedTuple):
    """A hub and its leaf, connected, with a client of each."""

    hub: Node
    leaf: Node
    at_hub: Client
    at_leaf: Client

    def clients(self, upwards: bool) -> tuple[Client, Client]:
        """From whom and to whom: from leaf to hub when upwards."""
        return (self.at_leaf, self.at_hub) if upwards else (self.at_hub, self.at_leaf)

    def nodes(self, upwards: bool) -> tuple[Node, Node]:
        return (self.leaf, self.hub) if upwards else (self.hub, self.leaf)


@contextlib.contextmanager
def connected(kinds: tuple[str, str], folder: Path, **options: str) -> Iterator[Pair]:
    need(*kinds)
    hub = node(kinds[0], folder, "hub")
    leaf = node(kinds[1], folder, "leaf", hub=hub, **options)
    with running(hub, leaf):
        at_hub, at_leaf = hub.client(), leaf.client()
        linked(at_hub, at_leaf)
        linked(at_leaf, at_hub, "linked.back")
        yield Pair(hub, leaf, at_hub, at_leaf)


@pytest.fixture(params=PAIRS, ids=lambda kinds: "-".join(kinds), scope="module")
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    with connected(request.param, tmp_path_factory.mktemp("leaf")) as found:
        yield found


UPWARDS = pytest.mark.parametrize("upwards", [True, False], ids=["to-hub", "to-leaf"])


@UPWARDS
def test_messages_with_and_without_headers_and_replies(pair: Pair, upwards: bool) -> None:
    here, there = pair.clients(upwards)
    sub = there.subscribe("m.>")
    linked(here, there, "m.x")
    here.publish("m.1", b"plain")
    here.publish("m.2", b"head", headers={"a": ["1", "2"]})
    here.publish("m.3", b"", reply="r.1")
    here.publish("m.4", b"", reply="r.2", headers={"b": "c"})
    here.flush()
    got = []
    while len(got) < 4:
        message = sub.next(5)
        if message.subject != "m.x":
            got.append((message.subject, message.data, message.reply, message.headers.lists()))
    assert got == [
        ("m.1", b"plain", "", {}),
        ("m.2", b"head", "", {"a": ["1", "2"]}),
        ("m.3", b"", "r.1", {}),
        ("m.4", b"", "r.2", {"b": ["c"]}),
    ]
    sub.unsubscribe()


@UPWARDS
def test_requests_are_answered_and_nobody_there_is_told(pair: Pair, upwards: bool) -> None:
    here, there = pair.clients(upwards)
    sub = there.subscribe("service.echo")
    linked(here, there, f"service.ready.{upwards}")
    reply = here.new_inbox()
    answers = here.subscribe(reply)
    here.publish("service.echo", b"hello", reply=reply)
    here.flush()
    asked = sub.next(5)
    asked.respond(asked.data.upper())
    there.flush()
    assert answers.next(5).data == b"HELLO"
    answers.unsubscribe()
    sub.unsubscribe()
    there.flush()

    def refused() -> bool:
        try:
            here.request("service.echo", b"", timeout=0.2)
        except NoRespondersError:
            return True
        except PeltonTimeoutError:
            return False
        return False

    wait_for(refused, "no responders")


@UPWARDS
def test_a_queue_group_is_served_where_it_has_members(pair: Pair, upwards: bool) -> None:
    here, there = pair.clients(upwards)
    far = [there.subscribe("q.jobs", queue="workers") for _ in range(2)]
    everybody = there.subscribe("q.jobs")
    linked(here, there, f"q.ready.{upwards}")
    for n in range(20):
        here.publish("q.jobs", b"%d" % n)
    here.flush()
    assert sorted(int(everybody.next(5).data) for _ in range(20)) == list(range(20))
    wait_for(lambda: sum(sub.pending for sub in far) == 20 or there.flush(), "all jobs")
    near = here.subscribe("q.jobs", queue="workers")
    here.flush()
    for n in range(20):
        here.publish("q.jobs", b"%d" % n)
    here.flush()
    assert [int(near.next(5).data) for _ in range(20)] == list(range(20))
    assert sorted(int(everybody.next(5).data) for _ in range(20)) == list(range(20))
    there.flush()
    assert sum(sub.pending for sub in far) == 20
    for sub in (*far, everybody, near):
        sub.unsubscribe()
    here.flush()
    there.flush()


@UPWARDS
def test_a_stream_of_the_other_domain_is_used_as_one_here(pair: Pair, upwards: bool) -> None:
    here, there = pair.clients(upwards)
    _, other = pair.nodes(upwards)
    name = f"JOBS{int(upwards)}"
    subject = f"jobs{int(upwards)}"
    far = here.jetstream(domain=other.domain)
    far.create_stream(StreamConfig(name=name, subjects=[f"{subject}.>"]))
    try:
        linked(here, there, f"stream.ready.{upwards}")
        for n in range(50):
            wait_for(lambda n=n: published(here, f"{subject}.{n % 5}", b"%d" % n), "a PubAck")
        assert there.jetstream().stream_info(name).state.messages == 50
        far.create_consumer(name, ConsumerConfig(durable_name="C", ack_policy="explicit"))
        got = far.consumer(name, "C").fetch(50, timeout=10)
        assert [(m.subject, m.data) for m in got] == [
            (f"{subject}.{n % 5}", b"%d" % n) for n in range(50)
        ]
        for message in got:
            message.ack_sync(5)
        info = far.consumer_info(name, "C")
        assert (info.ack_floor.stream_seq, info.num_ack_pending) == (50, 0)
        config = ConsumerConfig(
            deliver_subject=f"push.{name}",
            ack_policy="explicit",
            filter_subject=f"{subject}.3",
            flow_control=True,
            idle_heartbeat=1,
        )
        sub = here.subscribe(f"push.{name}")
        here.flush()
        far.create_consumer(name, config)
        for n in range(3, 50, 5):
            message = sub.next(5)
            assert (message.subject, message.data) == (f"{subject}.3", b"%d" % n)
            message.ack_sync(5)
        sub.unsubscribe()
    finally:
        far.delete_stream(name)


def published(client: Client, subject: str, data: bytes) -> bool:
    """Whether a stream has taken it."""
    try:
        client.request(subject, data, timeout=5)
    except NoRespondersError:
        return False
    return True


@UPWARDS
def test_a_mirror_and_a_source_follow_a_stream_of_the_other_domain(
    pair: Pair, upwards: bool
) -> None:
    here, there = pair.clients(upwards)
    _, other = pair.nodes(upwards)
    far, near = there.jetstream(), here.jetstream()
    origin, mirror, source = (f"{letter}{int(upwards)}" for letter in "OMS")
    far.create_stream(StreamConfig(name=origin, subjects=[f"o{int(upwards)}.*"]))
    for n in range(500):
        there.publish(f"o{int(upwards)}.{n % 3}", b"%d" % n)
    there.flush()
    external = {"api": f"$JS.{other.domain}.API", "deliver": ""}
    upstream = {"name": origin, "external": external}
    body = {"name": mirror, "mirror": upstream}
    request(here, f"STREAM.CREATE.{mirror}", body)
    one = {**upstream, "filter_subject": f"o{int(upwards)}.1"}
    request(here, f"STREAM.CREATE.{source}", {"name": source, "sources": [one]})
    wait_for(lambda: near.stream_info(mirror).state.messages == 500, "the mirror")
    for n in range(500, 600):
        there.publish(f"o{int(upwards)}.{n % 3}", b"%d" % n)
    there.flush()
    wait_for(lambda: near.stream_info(mirror).state.messages == 600, "the mirror")
    wait_for(lambda: near.stream_info(source).state.messages == 200, "the source")
    for seq in (1, 300, 600):
        ours, theirs = near.get_message(mirror, seq=seq), far.get_message(origin, seq=seq)
        assert (ours.subject, ours.data) == (theirs.subject, theirs.data)
    for api, name in ((near, mirror), (near, source), (far, origin)):
        api.delete_stream(name)


def request(client: Client, call: str, body: object) -> None:
    import json

    answer = json.loads(client.request(f"$JS.API.{call}", json.dumps(body).encode()).data)
    assert "error" not in answer, answer


def test_an_ended_connection_is_made_again(tmp_path: Path) -> None:
    for kinds in (
        ("pelton", "pelton"),
        ("pelton", "nats-server"),
        ("nats-server", "pelton"),
    ):
        with contextlib.suppress(pytest.skip.Exception):
            folder = tmp_path / "-".join(kinds)
            folder.mkdir()
            with connected(kinds, folder, listener="reconnect: 100ms") as pair:
                pair.hub.stop(kill=True)
                time.sleep(0.3)
                pair.hub.start()
                at_hub = pair.hub.client()
                linked(at_hub, pair.at_leaf, "again.down")
                linked(pair.at_leaf, at_hub, "again.up")
                pair.leaf.stop(kill=True)
                pair.leaf.start()
                at_leaf = pair.leaf.client()
                linked(at_hub, at_leaf, "again.down")
                linked(at_leaf, at_hub, "again.up")


@pytest.mark.parametrize("kind", ["pelton", "nats-server"])
@pytest.mark.parametrize("ignored", [False, True], ids=["heard", "ignored"])
def test_where_the_hub_says_it_is_is_called_too(kind: str, ignored: bool, tmp_path: Path) -> None:
    need(kind)
    other = node(kind, tmp_path, "other")
    told = f'advertise: "127.0.0.1:{other.leaf_port}"'
    hub = node(kind, tmp_path, "hub", listener=told)
    remote = f"ignore_discovered_servers: {str(ignored).lower()}"
    pause = "reconnect: 100ms"
    leaf = node("pelton", tmp_path, "leaf", hub=hub, remote=remote, listener=pause)
    with running(other, hub, leaf):
        linked(hub.client(), leaf.client())
        hub.stop(kill=True)
        if ignored:
            wait_for(lambda: "Error trying to connect as leafnode" in leaf.log(), "an attempt")
            assert f"127.0.0.1:{other.leaf_port}" not in leaf.log()
        else:
            linked(other.client(), leaf.client(), "other.down")


def test_a_free_port_is_shown_as_it_is(tmp_path: Path) -> None:
    ports = free_port()
    text = f'leafnodes {{ listen: "127.0.0.1:-1" }}\nports_file_dir: "{tmp_path}"'
    hub = node("pelton", tmp_path, "hub", more=f"http: 127.0.0.1:{ports}")
    config = tmp_path / "hub.conf"
    lines = config.read_text().split("leafnodes {")[0]
    config.write_text(f"{lines}{text}\nhttp: 127.0.0.1:{ports}\n")
    with running(hub):
        (file,) = tmp_path.glob("*.ports")
        (url,) = json.loads(file.read_text())["leafnodes"]
        with urllib.request.urlopen(f"http://127.0.0.1:{ports}/varz", timeout=5) as answer:
            port = json.load(answer)["leaf"]["port"]
        assert port > 0
        assert url == f"nats://127.0.0.1:{port}"
        leaf = node("pelton", tmp_path, "leaf", hub_url=url)
        with running(leaf):
            linked(hub.client(), leaf.client())
