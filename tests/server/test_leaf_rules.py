"""Leaf nodes between real servers: who may connect, what may cross, loops, chains, reloads."""

from __future__ import annotations

import json
import signal
import socket
import urllib.request
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pelton import StreamConfig
from tests.certificates import Authority
from tests.peers import free_port

from .leafs import linked, need, node, running, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from pelton.client.sync.subscription import Subscription
    from pelton.sync import Client

    from .leafs import Node

OURS = ("pelton", "pelton")
PAIRS = pytest.mark.parametrize(
    "kinds", [OURS, ("pelton", "nats-server"), ("nats-server", "pelton")], ids="-".join
)


def silent(here: Client, there: Client, subject: str) -> bool:
    """Whether a message through `here` does not reach `there`, though it had the time to."""
    sub = there.subscribe(subject)
    there.flush()
    after = there.subscribe(f"{subject}.after")
    linked(here, there, "silent.now")
    here.publish(subject, b"?")
    here.flush()
    linked(here, there, "silent.then")
    try:
        return sub.next(0.05) is None
    finally:
        sub.unsubscribe()
        after.unsubscribe()
        there.flush()


@PAIRS
def test_a_leaf_shows_who_it_is_and_has_the_account_of_its_user(
    kinds: tuple[str, str], tmp_path: Path
) -> None:
    need(*kinds)
    accounts = """
    accounts {
      A { users: [{user: a, password: a}], jetstream: enabled }
      B { users: [{user: b, password: b}] }
    }"""
    auth = "authorization { users: [{user: leaf, password: secret, account: A}] }"
    hub = node(kinds[0], tmp_path, "hub", listener=auth, more=accounts)
    url = f"nats://leaf:secret@127.0.0.1:{hub.leaf_port}"
    leaf = node(kinds[1], tmp_path, "leaf", hub_url=url)
    with running(hub, leaf):
        a, b, at_leaf = (
            hub.client(user="a", password="a"),
            hub.client(user="b", password="b"),
            leaf.client(),
        )
        linked(a, at_leaf)
        linked(at_leaf, a, "linked.back")
        for client in (a, b):
            client.publish("who", b"")
        quiet = b.subscribe("quiet")
        b.flush()
        assert silent(at_leaf, a, "nobody.there") is False
        at_leaf.publish("quiet", b"")
        at_leaf.flush()
        linked(at_leaf, a, "linked.again")
        b.flush()
        assert quiet.pending == 0


@PAIRS
def test_a_wrong_password_is_refused_and_tried_again(
    kinds: tuple[str, str], tmp_path: Path
) -> None:
    need(*kinds)
    hub = node(kinds[0], tmp_path, "hub", listener="authorization { user: leaf, password: s3cret }")
    url = f"nats://leaf:s3cret-not@127.0.0.1:{hub.leaf_port}"
    leaf = node(kinds[1], tmp_path, "leaf", hub_url=url, listener="reconnect: 100ms")
    with running(hub, leaf):
        wait_for(lambda: leaf.log().count("Authorization Violation") >= 2, "two refusals")
        assert "authentication error" in hub.log().lower()
        assert "s3cret" not in hub.log() + leaf.log()


@PAIRS
def test_permissions_of_the_leafs_user_hold(kinds: tuple[str, str], tmp_path: Path) -> None:
    need(*kinds)
    users = """
    accounts { A { users: [
      {user: a, password: a},
      {user: leaf, password: s, permissions: {
         publish: {allow: ["up.>", "silent.*", "linked.*"], deny: "up.secret"},
         subscribe: {allow: ["down.>", "silent.*", "linked.*"], deny: "down.secret"}}}] } }"""
    hub = node(kinds[0], tmp_path, "hub", more=users)
    url = f"nats://leaf:s@127.0.0.1:{hub.leaf_port}"
    leaf = node(kinds[1], tmp_path, "leaf", hub_url=url)
    with running(hub, leaf):
        at_hub, at_leaf = hub.client(user="a", password="a"), leaf.client()
        linked(at_hub, at_leaf)
        linked(at_leaf, at_hub, "linked.back")
        linked(at_leaf, at_hub, "up.yes")
        linked(at_hub, at_leaf, "down.yes")
        for subject in ("up.secret", "other"):
            assert silent(at_leaf, at_hub, subject)
        for subject in ("down.secret", "other"):
            assert silent(at_hub, at_leaf, subject)


@PAIRS
def test_what_a_remote_denies_does_not_cross(kinds: tuple[str, str], tmp_path: Path) -> None:
    need(*kinds)
    hub = node(kinds[0], tmp_path, "hub")
    remote = 'deny_imports: "in.>", deny_exports: ["out.>", "also"]'
    leaf = node(kinds[1], tmp_path, "leaf", hub=hub, remote=remote)
    with running(hub, leaf):
        at_hub, at_leaf = hub.client(), leaf.client()
        linked(at_hub, at_leaf)
        linked(at_leaf, at_hub, "linked.back")
        assert silent(at_hub, at_leaf, "in.this")
        assert silent(at_leaf, at_hub, "out.this")
        assert silent(at_leaf, at_hub, "also")
        linked(at_leaf, at_hub, "in.that")
        everything = at_leaf.subscribe(">")
        at_leaf.flush()
        linked(at_hub, at_leaf, "out.that")
        at_hub.publish("in.this", b"")
        at_hub.publish("end", b"")
        at_hub.flush()
        seen = []
        while not seen or seen[-1] != "end":
            seen.append(everything.next(5).subject)
        assert "in.this" not in seen


@PAIRS
def test_each_side_has_a_jetstream_of_its_own(kinds: tuple[str, str], tmp_path: Path) -> None:
    need(*kinds)
    hub = node(kinds[0], tmp_path, "hub")
    leaf = node(kinds[1], tmp_path, "leaf", hub=hub)
    with running(hub, leaf):
        at_hub, at_leaf = hub.client(), leaf.client()
        linked(at_hub, at_leaf)
        at_hub.jetstream().create_stream(StreamConfig(name="H", subjects=["h"]))
        at_leaf.jetstream().create_stream(StreamConfig(name="L", subjects=["l"]))
        for client, own, other, domain in ((at_hub, "H", "L", "leaf"), (at_leaf, "L", "H", "hub")):
            assert client.jetstream().stream_names() == [own]
            assert client.jetstream(domain=domain).stream_names() == [other]


def test_requests_in_a_dialect_stay_here(tmp_path: Path) -> None:
    hub = node("pelton", tmp_path, "hub")
    leaf = node("pelton", tmp_path, "leaf", hub=hub)
    with running(hub, leaf):
        at_hub, at_leaf = hub.client(), leaf.client()
        linked(at_hub, at_leaf)
        at_hub.jetstream().create_stream(StreamConfig(name="H", subjects=["h"]))
        at_leaf.jetstream().create_stream(StreamConfig(name="L", subjects=["l"]))
        watchers = [client.subscribe("$JS.>") for client in (at_hub, at_leaf)]
        for client in (at_hub, at_leaf):
            client.flush()
        linked(at_hub, at_leaf, "after.down")
        linked(at_leaf, at_hub, "after.up")
        for client, other, own in ((at_hub, at_leaf, "H"), (at_leaf, at_hub, "L")):
            answers = client.subscribe("answers")
            client.publish("$JS.STREAM.LIST", b"", reply="answers")
            assert json.loads(answers.next(60).data) == [own]
            linked(client, other, f"done.{own}")
            linked(other, client, f"back.{own}")
            assert answers.pending == 0
        for watcher in watchers:  # its own request, and advisories
            seen = [watcher.next(60).subject for _ in range(watcher.pending)]
            assert seen.count("$JS.STREAM.LIST") == 1


def all_there(clients: tuple[Client, ...], jobs: list[Subscription]) -> bool:
    for client in clients:
        client.flush()
    return sum(job.pending for job in jobs) == 50


def test_three_in_a_row_pass_messages_on(tmp_path: Path) -> None:
    kinds = ["pelton", "nats-server", "pelton"]
    try:
        need("nats-server")
    except pytest.skip.Exception:
        kinds = ["pelton"] * 3
    for order in dict.fromkeys([tuple(kinds), (kinds[1], kinds[0], kinds[1])]):
        folder = tmp_path / "-".join(order)
        folder.mkdir()
        top = node(order[0], folder, "top")
        middle = node(order[1], folder, "middle", hub=top)
        low = node(order[2], folder, "low", hub=middle)
        with running(top, middle, low):
            a, b, c = top.client(), middle.client(), low.client()
            linked(a, c)
            linked(c, a, "linked.up")
            linked(b, c, "linked.down")
            jobs = [client.subscribe("jobs", queue="q") for client in (a, c)]
            a.flush()
            c.flush()
            linked(b, c, "linked.jobs")
            linked(b, a, "linked.jobs")
            for _ in range(50):
                b.publish("jobs", b"")
            b.flush()
            wait_for(partial(all_there, (a, c), jobs), "all jobs")
            c.jetstream().create_stream(StreamConfig(name="S", subjects=["s.>"]))
            assert a.jetstream(domain="low").stream_names() == ["S"]


@PAIRS
def test_a_loop_is_found(kinds: tuple[str, str], tmp_path: Path) -> None:
    need(*kinds)
    first = node(kinds[0], tmp_path, "first")
    second = node(kinds[1], tmp_path, "second", hub=first)
    third = node(kinds[0], tmp_path, "third", hub=second)
    back = node(kinds[1], tmp_path, "back", hub=third)
    # the fourth is a leaf of the third and of the first
    config = tmp_path / "back.conf"
    config.write_text(
        config.read_text().replace(
            "remotes: [", f'remotes: [ {{ url: "nats://127.0.0.1:{first.leaf_port}" }},'
        )
    )
    with running(first, second, third, back):
        wait_for(
            lambda: any("Loop detected" in each.log() for each in (first, second, third, back)),
            "a loop",
        )


def test_a_server_of_our_own_cluster_is_no_leaf(tmp_path: Path) -> None:
    """A server with remotes stands for a cluster of its name."""
    ours = node("pelton", tmp_path, "same", hub_url="nats://127.0.0.1:1")
    with running(ours):
        said = answer(ours, b'CONNECT {"name":"x","cluster":"same"}\r\n')
        assert b"-ERR 'remote leafnode has same cluster name'" in said
        assert b"-ERR" in answer(ours, b'CONNECT {"name":"x","cluster":"a b"}\r\n')
        assert b"-ERR" in answer(ours, b'CONNECT {"name":"x","gateway":"g"}\r\n')


def answer(hub: Node, data: bytes) -> bytes:
    """What a connection to the listener of leaf nodes gets until it is closed."""
    with socket.create_connection(("127.0.0.1", hub.leaf_port), timeout=10) as client:
        client.sendall(data)
        said = b""
        while part := client.recv(4096):
            said += part
        return said


def test_ports_that_are_for_others(tmp_path: Path) -> None:
    hub = node("pelton", tmp_path, "hub")
    with running(hub):
        wrong = node("pelton", tmp_path, "wrong", hub_url=f"nats://127.0.0.1:{hub.server.port}")
        with running(wrong):
            wait_for(lambda: "attempted to connect to wrong port" in wrong.log(), "the complaint")
        said = answer(hub, b'CONNECT {"lang":"python","version":"1"}\r\n')
        assert b"-ERR 'attempted to connect to leaf node port'" in said


@pytest.mark.parametrize("wanted", ["2.8.0", "99.0.0"])
def test_older_servers_may_be_refused(wanted: str, tmp_path: Path) -> None:
    hub = node("pelton", tmp_path, "hub", listener=f"min_version: {wanted}")
    leaf = node("pelton", tmp_path, "leaf", hub=hub)
    with running(hub, leaf):
        if wanted == "2.8.0":
            linked(hub.client(), leaf.client())
        else:
            wait_for(lambda: "minimum version required" in leaf.log(), "the refusal")


@PAIRS
@pytest.mark.parametrize(
    ("listener", "remote"),
    [
        ("isolate: true", ""),
        ("isolate_leafnode_interest: true", ""),
        ("", "request_isolation: true"),
    ],
    ids=["isolate", "isolate_leafnode_interest", "request_isolation"],
)
def test_isolated_leafs_do_not_hear_of_each_other(
    kinds: tuple[str, str], listener: str, remote: str, tmp_path: Path
) -> None:
    need(*kinds)
    hub = node(kinds[0], tmp_path, "hub", listener=listener)
    one = node(kinds[1], tmp_path, "one", hub=hub, remote=remote)
    two = node(kinds[1], tmp_path, "two", hub=hub, remote=remote)
    with running(hub, one, two):
        at_hub, at_one, at_two = hub.client(), one.client(), two.client()
        linked(at_one, at_hub)
        linked(at_two, at_hub)
        linked(at_hub, at_one)
        sub = at_two.subscribe("x")
        at_two.flush()
        linked(at_two, at_hub, "now")
        at_one.publish("x", b"")
        at_one.flush()
        linked(at_one, at_hub, "then")
        assert sub.next(0.1) is None
        at_hub.publish("x", b"")
        at_hub.flush()
        assert sub.next(5) is not None


@PAIRS
def test_a_remote_may_be_the_leaf(kinds: tuple[str, str], tmp_path: Path) -> None:
    """`hub: true` turns the roles round."""
    need(*kinds)
    below = node(kinds[0], tmp_path, "below")
    above = node(kinds[1], tmp_path, "above", hub=below, remote="hub: true")
    with running(below, above):
        linked(below.client(), above.client())
        linked(above.client(), below.client(), "linked.back")


def leafz(port: int) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/leafz?subs=1", timeout=10) as answer:
        return json.load(answer)


def test_monitoring_shows_both_sides(tmp_path: Path) -> None:
    ports = [free_port(), free_port()]
    hub = node("pelton", tmp_path, "hub", more=f"http: 127.0.0.1:{ports[0]}")
    leaf = node("pelton", tmp_path, "leaf", hub=hub, more=f"http: 127.0.0.1:{ports[1]}")
    with running(hub, leaf):
        linked(hub.client(), leaf.client())
        for port, name, spoke in ((ports[0], "leaf", False), (ports[1], "hub", True)):
            found = leafz(port)
            assert found["leafnodes"] == 1
            row = found["leafs"][0]
            assert (row["name"], row["is_spoke"], row["account"]) == (name, spoke, "$G")
            assert row["in_msgs"] + row["out_msgs"] > 0
            wait_for(lambda port=port: leafz(port)["leafs"][0]["rtt"] not in ("", "0s"), "an rtt")
            domain = "leaf" if name == "leaf" else "hub"
            assert f"$JS.{domain}.API.>" in row["subscriptions_list"]


def connz(port: int, query: str = "") -> list[dict[str, Any]]:
    url = f"http://127.0.0.1:{port}/connz?auth=1&subs=1&{query}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        rows: list[dict[str, Any]] = json.load(answer)["connections"]
    return [row for row in rows if row["kind"] == "Leafnode"]


@pytest.mark.parametrize("kind", ["pelton", "nats-server"])
def test_leaf_nodes_are_among_the_connections(kind: str, tmp_path: Path) -> None:
    """Open ones and closed ones, with the same fields on both servers."""
    need(kind)
    port = free_port()
    users = "accounts {A {users: [{user: a, password: x}]}, B {users: [{user: b, password: x}]}}"
    hub = node(kind, tmp_path, "hub", more=f"http: 127.0.0.1:{port}\n{users}\nno_auth_user: a")
    url = f"nats://a:x@127.0.0.1:{hub.leaf_port}"
    leaf = node("pelton", tmp_path, "leaf", hub_url=url)
    fields = "cid kind ip port start last_activity rtt uptime idle pending_bytes in_msgs out_msgs"
    fields += " in_bytes out_bytes subscriptions name version authorized_user account"
    fields += " subscriptions_list name_tag"
    with running(hub, leaf):
        linked(leaf.client(), hub.client())
        (row,) = connz(port)
        assert list(row) == fields.split()
        shown = {name: row[name] for name in ("name", "authorized_user", "account", "name_tag")}
        assert shown == {"name": "leaf", "authorized_user": "a", "account": "A", "name_tag": "A"}
        assert row["in_msgs"] > 0
        assert row["subscriptions"] == len(row["subscriptions_list"])
        for query in ("acc=A", "user=a", f"cid={row['cid']}", "state=any"):
            assert [each["cid"] for each in connz(port, query)] == [row["cid"]]
        for query in ("acc=B", "user=b", "state=closed"):
            assert connz(port, query) == []
        leaf.stop()
        wait_for(lambda: connz(port, "state=closed"), "the closed one")
        assert connz(port) == []
        (gone,) = connz(port, "state=closed")
        ended = fields.replace("last_activity", "last_activity stop reason")
        assert list(gone) == ended.split()
        assert gone["subscriptions"] == len(gone["subscriptions_list"]) > 0


def test_a_lowered_limit_closes_the_newest_leaf_nodes_alone(tmp_path: Path) -> None:
    port = free_port()
    more = f"""
        http: 127.0.0.1:{port}
        accounts {{A {{users: [{{user: a, password: x}}], limits: {{max_leafnodes: 2}}}}}}
        no_auth_user: a
    """
    hub = node("pelton", tmp_path, "hub", more=more)
    url = f"nats://a:x@127.0.0.1:{hub.leaf_port}"
    first, second = (node("pelton", tmp_path, name, hub_url=url) for name in ("one", "two"))
    with running(hub, first):
        at_hub = hub.client()
        linked(first.client(), at_hub)
        second.start()
        try:
            linked(second.client(), at_hub, "linked.two")
            config = tmp_path / "hub.conf"
            config.write_text(config.read_text().replace("max_leafnodes: 2", "max_leafnodes: 1"))
            assert hub.server.process is not None
            hub.server.process.send_signal(signal.SIGHUP)
            wait_for(lambda: [row["name"] for row in connz(port)] == ["one"], "the end of one")
            reason = "Leafnode connection closed: Maximum Account Connections Exceeded"
            wait_for(lambda: reason in hub.log(), "its reason")
            linked(first.client(), at_hub, "linked.still")
        finally:
            second.stop()
            second.server.remove()


def test_a_reload_takes_remotes_away_and_brings_them(tmp_path: Path) -> None:
    hub = node("pelton", tmp_path, "hub")
    leaf = node("pelton", tmp_path, "leaf", hub=hub, remote="disabled: false")
    config = tmp_path / "leaf.conf"
    with running(hub, leaf):
        at_hub, at_leaf = hub.client(), leaf.client()
        linked(at_hub, at_leaf)
        for state, told in (("true", "Leafnode connection closed"), ("false", "")):
            old = "false" if state == "true" else "true"
            config.write_text(config.read_text().replace(f"disabled: {old}", f"disabled: {state}"))
            assert leaf.server.process is not None
            leaf.server.process.send_signal(signal.SIGHUP)
            wait_for(lambda: "Reloaded server configuration" in leaf.log(), "the reload")
            if told:
                wait_for(lambda told=told: told in leaf.log(), "the end")
            else:
                linked(at_hub, at_leaf, "again")


def test_a_server_that_is_gone_for_a_while_is_called_again_and_again(tmp_path: Path) -> None:
    hub = node("pelton", tmp_path, "hub")
    leaf = node("pelton", tmp_path, "leaf", hub=hub, listener="reconnect: 50ms")
    with running(leaf):
        wait_for(lambda: "Error trying to connect as leafnode" in leaf.log(), "the complaint")
        with running(hub):
            linked(hub.client(), leaf.client())


def test_garbage_ends_the_connection_and_nothing_else(tmp_path: Path) -> None:
    hub = node("pelton", tmp_path, "hub")
    garbage = [
        b"\x00\xff\x00garbage\r\n" * 50,
        b"CONNECT {\r\n",
        b'CONNECT {"name": 7}\r\n',
        b'CONNECT {"name":"x"}\r\nCONNECT {"name":"y"}\r\n',
        b"LS+ a\r\n",
        b'CONNECT {"name":"x"}\r\nLMSG a 99999999999\r\n',
        b'CONNECT {"name":"x"}\r\nLMSG a + b\r\n',
        b'CONNECT {"name":"x"}\r\nLS+ ' + b"a." * 30000 + b"\r\nLS+ ..\r\nPUB a 0\r\n\r\n",
        b"INFO {}\r\n" * 100 + b"-ERR 'x'\r\nMSG a 1 0\r\n\r\n",
    ]
    with running(hub):
        client = hub.client()
        for data in garbage:
            with socket.create_connection(("127.0.0.1", hub.leaf_port), timeout=10) as other:
                other.sendall(data)
                other.settimeout(10)
                try:
                    while other.recv(65536):
                        pass
                except OSError:
                    pass
        client.flush()
        leaf = node("pelton", tmp_path, "leaf", hub=hub)
        with running(leaf):
            linked(client, leaf.client())
        assert "Internal error" not in hub.log()


@PAIRS
@pytest.mark.parametrize("first", [False, True], ids=["info-first", "tls-first"])
def test_over_tls_with_certificates_of_both_sides(
    kinds: tuple[str, str], first: bool, tmp_path: Path
) -> None:
    need(*kinds)
    authority = Authority(tmp_path)
    issued = {"hub": authority.server("hub"), "leaf": authority.client("leaf")}
    options = f'ca_file: "{authority.ca_file}", handshake_first: {str(first).lower()}'

    def tls(name: str, more: str = "") -> str:
        own = issued[name]
        files = f'cert_file: "{own.cert_file}", key_file: "{own.key_file}"'
        return f"tls {{ {files}, {options} {more} }}"

    hub = node(kinds[0], tmp_path, "hub", listener=tls("hub", ", verify: true"))
    leaf = node(kinds[1], tmp_path, "leaf", hub=hub, remote=tls("leaf"))
    with running(hub, leaf):
        at_hub, at_leaf = hub.client(), leaf.client()
        linked(at_hub, at_leaf)
        linked(at_leaf, at_hub, "linked.back")
        many = at_leaf.subscribe("many")
        at_leaf.flush()
        linked(at_hub, at_leaf, "many.ready")
        for n in range(2000):
            at_hub.publish("many", b"%d" % n * 100)
        at_hub.flush()
        assert [many.next(5).data for n in range(2000)] == [b"%d" % n * 100 for n in range(2000)]
        stranger = node("pelton", tmp_path, "stranger", hub=hub)
        with running(stranger):
            told = "Leafnode connection closed: Read Error" if first else "TLS handshake error"
            wait_for(lambda: told in stranger.log(), "the refusal")
