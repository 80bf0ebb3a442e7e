"""Leaf node connections of one account, without sockets: what each side hears and gets, against a
model that is a list.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.core.broker.leaf import Events, Leaf, LeafPermissions
from pelton.core.broker.remote_servers import RemoteServers
from pelton.core.protocol.wire import OP_ERR, OP_MSG, OP_PONG, OP_SUB, OP_UNSUB, ROLE_LEAF, Parser
from tests.core.wires import Client, Server
from tests.ways import length

from .test_router import LITERALS, PATTERNS, matches


class Heard(Events):
    """Remembers what a Leaf hands on."""

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []

    def info(self, leaf: Leaf, text: bytes) -> None:
        self.events.append(("info", text))

    def connect(self, leaf: Leaf, text: bytes) -> None:
        self.events.append(("connect", text))

    def error(self, leaf: Leaf, text: bytes) -> None:
        self.events.append(("error", text))

    def loop(self, leaf: Leaf) -> None:
        self.events.append(("loop",))

    def violation(self, leaf: Leaf, kind: str, subject: bytes) -> None:
        self.events.append(("violation", kind, subject))


class Other:
    """Another server, played by hand: what it was told, what it got."""

    def __init__(
        self,
        server: Server,
        remote_servers: RemoteServers,
        *,
        spoke: bool = False,
        **rules: LeafPermissions,
    ) -> None:
        self.server = server
        self.connection = server.sessions.accept()
        self.heard = Heard()
        self.leaf = Leaf(self.connection, self.heard, spoke)
        for name, rule in rules.items():
            setattr(self.leaf, name, rule)
        self.parser = Parser(ROLE_LEAF)
        self.told: dict[bytes, int] = {}
        self.leaf.join(remote_servers)

    def send(self, data: bytes) -> None:
        self.server.sessions.feed(self.connection, data)

    def messages(self) -> list[tuple[Any, ...]]:
        """What it has got since the last time; interest goes to `told`."""
        self.server.reactor.settle()
        return self.hear(self.connection.take())

    def hear(self, data: bytes) -> list[tuple[Any, ...]]:
        got: list[tuple[Any, ...]] = []
        for event in self.parser.feed(data):
            if event[0] == OP_MSG:
                got.append(event[1:])
            elif event[0] == OP_SUB:
                words = [str(word).encode() for word in event[1:-1]]
                self.told[b" ".join(words)] = int(str(event[-1])) or 1
            elif event[0] == OP_UNSUB:
                assert event[1] in self.told, "taken back what was not said"
                assert isinstance(event[1], bytes)
                del self.told[event[1]]
            else:
                got.append(event)
        return got


def account(others: int, **options: Any) -> tuple[Server, RemoteServers, list[Other]]:
    server = Server()
    remote_servers = RemoteServers(server.router)
    return server, remote_servers, [Other(server, remote_servers, **options) for _ in range(others)]


QUEUES = st.sampled_from(["", "", "q", "r"])
WHO = st.integers(0, 2)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("sub"), WHO, PATTERNS, QUEUES),
        st.tuples(st.just("unsub"), WHO, st.integers(0, 20)),
        st.tuples(st.just("want"), WHO, PATTERNS, QUEUES, st.integers(1, 3)),
        st.tuples(st.just("no"), WHO, st.integers(0, 20)),
        st.tuples(st.just("pub"), WHO, LITERALS),
        st.tuples(st.just("pass"), WHO, LITERALS, st.sampled_from([[], ["q"], ["q", "r"]])),
        st.tuples(st.just("gone"), WHO),
    ),
    max_size=40,
)


class Model:
    """The interest there is: of local clients, and of other servers."""

    def __init__(self) -> None:
        self.local: list[tuple[int, int, str, str]] = []  # client, sid, pattern, queue
        self.remote: dict[tuple[int, str, str], int] = {}  # other, pattern, queue -> weight

    def told(self, other: int) -> dict[bytes, int]:
        found: Counter[bytes] = Counter()
        for _, _, pattern, queue in self.local:
            found[f"{pattern} {queue}".strip().encode()] += 1
        for (whose, pattern, queue), weight in self.remote.items():
            if whose != other:
                found[f"{pattern} {queue}".strip().encode()] += weight
        return {key: n if b" " in key else 1 for key, n in found.items()}

    def check_delivery(
        self,
        subject: str,
        source: int | None,
        named: list[str] | None,
        local_got: list[tuple[int, int]],
        others_got: list[list[tuple[Any, ...]]],
    ) -> None:
        """`source`: the other server it came from; `named`: the queue groups it named, None: all."""
        hits = [h for h in self.local if matches(subject, h[2])]
        wanted = [
            (k, w) for k, w in self.remote.items() if k[0] != source and matches(subject, k[1])
        ]
        groups = {(h[2], h[3]) for h in hits if h[3]}
        far_groups = {(k[1], k[2]) for k, _ in wanted if k[2]} - groups
        if named is not None:
            groups = {g for g in groups if g[1] in named}
            far_groups = {g for g in far_groups if g[1] in named}
        plain = {(h[0], h[1]) for h in hits if not h[3]}
        of_queue = {(h[0], h[1]): (h[2], h[3]) for h in hits if h[3]}
        assert {g for g in local_got if g not in of_queue} == plain
        assert sorted(of_queue[g] for g in local_got if g in of_queue) == sorted(groups)
        plain_others = {k[0] for k, _ in wanted if not k[2]}
        served: Counter[str] = Counter()
        for number, got in enumerate(others_got):
            assert len(got) <= 1
            if got:
                served.update(got[0][2])
                mine = {k[2] for k, _ in wanted if k[0] == number and k[2]}
                assert set(got[0][2]) <= mine
                assert got[0][0] == subject
            assert bool(got) == (number in plain_others or bool(got and got[0][2]))
        assert served == Counter(queue for _, queue in far_groups)


@given(STEPS)
@settings(max_examples=length(40, 300), deadline=None)
def test_interest_and_messages_are_as_in_a_list(steps: list[tuple[object, ...]]) -> None:
    server, remote_servers, others = account(3)
    clients: list[Client] = [server.client() for _ in range(3)]
    model = Model()
    sid = 0
    for step in steps:
        source: int | None = None
        named: list[str] | None = None
        subject = ""
        match step:
            case ("sub", int(who), str(pattern), str(queue)):
                sid += 1
                clients[who].send(f"SUB {pattern} {queue} {sid}\r\n")
                model.local.append((who, sid, pattern, queue))
            case ("unsub", int(who), int(which)):
                mine = [h for h in model.local if h[0] == who]
                if mine:
                    gone = mine[which % len(mine)]
                    model.local.remove(gone)
                    clients[who].send(f"UNSUB {gone[1]}\r\n")
            case ("want", int(who), str(pattern), str(queue), int(weight)):
                key = (who, pattern, queue)
                model.remote[key] = weight if queue else 1
                words = f"{pattern} {queue} {weight}" if queue else pattern
                others[who].send(f"LS+ {words}\r\n".encode())
            case ("no", int(who), int(which)):
                keys = [k for k in model.remote if k[0] == who]
                if keys:
                    taken = keys[which % len(keys)]
                    del model.remote[taken]
                    others[who].send(f"LS- {taken[1]} {taken[2]}".strip().encode() + b"\r\n")
            case ("gone", int(who)):
                server.sessions.eof(others[who].connection)
                others[who].leaf.leave()
                model.remote = {k: w for k, w in model.remote.items() if k[0] != who}
                others[who] = Other(server, remote_servers)
            case ("pub", int(who), str(text)):
                subject = text
                clients[who].send(f"PUB {subject} 2\r\nhi\r\n")
            case ("pass", int(who), str(text), list(queues)):
                subject, source, named = text, who, queues
                words = f"{subject} | {' '.join(queues)} 2" if queues else f"{subject} 2"
                others[who].send(f"LMSG {words}\r\nhi\r\n".encode())
        local_got = [(i, e[2]) for i, c in enumerate(clients) for e in c.events() if e[0] == OP_MSG]
        others_got = [other.messages() for other in others]
        if subject:
            model.check_delivery(subject, source, named, local_got, others_got)  # type: ignore[arg-type] # sids are ints
        for number, other in enumerate(others):
            assert other.told == model.told(number)
    assert not server.errors
    for other in others:
        server.sessions.eof(other.connection)
    for client in clients:
        server.sessions.eof(client.connection)
    assert server.router.subscription_count() == 0


@given(STEPS, st.integers(1, 3), st.integers(0, 30))
@settings(max_examples=length(40, 300), deadline=None)
def test_interest_that_changes_while_a_server_joins_is_told_as_it_is_then(
    steps: list[tuple[object, ...]], at_once: int, join_at: int
) -> None:
    """The server is told some of it in each turn."""
    server, remote_servers, others = account(2)
    remote_servers.at_once = at_once
    clients: list[Client] = [server.client() for _ in range(3)]
    model = Model()
    sid = 0
    joining: Other | None = None
    for number, step in enumerate([*steps, ("last",)]):
        if number == min(join_at, len(steps)):
            joining = Other(server, remote_servers)
        match step:
            case ("sub", int(who), str(pattern), str(queue)):
                sid += 1
                clients[who].send(f"SUB {pattern} {queue} {sid}\r\n")
                model.local.append((who, sid, pattern, queue))
            case ("unsub", int(who), int(which)):
                mine = [h for h in model.local if h[0] == who]
                if mine:
                    gone = mine[which % len(mine)]
                    model.local.remove(gone)
                    clients[who].send(f"UNSUB {gone[1]}\r\n")
            case ("want", int(who), str(pattern), str(queue), int(weight)) if who < 2:
                model.remote[who, pattern, queue] = weight if queue else 1
                words = f"{pattern} {queue} {weight}" if queue else pattern
                others[who].send(f"LS+ {words}\r\n".encode())
            case ("no", int(who), int(which)):
                keys = [k for k in model.remote if k[0] == who]
                if keys:
                    taken = keys[which % len(keys)]
                    del model.remote[taken]
                    others[who].send(f"LS- {taken[1]} {taken[2]}".strip().encode() + b"\r\n")
        server.reactor.turn()
    assert joining is not None
    for number, other in enumerate([*others, joining]):
        other.messages()
        assert other.told == model.told(number)
        assert other.leaf.wants().keys() == other.told.keys()
    assert not server.errors


def test_a_server_that_joins_is_told_some_of_the_interest_in_each_turn() -> None:
    server, remote_servers, _ = account(0)
    client = server.client()
    client.send("".join(f"SUB s.{number} {number}\r\n" for number in range(20_000)))
    other = Other(server, remote_servers)
    turns = 0
    while len(other.told) < 19_999:
        server.reactor.turn()
        lines = other.connection.take()
        assert 0 < lines.count(b"\r\n") <= 2 * remote_servers.at_once + 3
        other.hear(lines)
        turns += 1
        if turns == 3:
            client.send("UNSUB 19999\r\nUNSUB 1\r\nSUB t 20000\r\n")
    assert turns >= 19
    assert other.told.keys() == {b"t", *(b"s.%d" % n for n in range(20_000) if n not in (1, 19999))}


def test_a_server_that_leaves_while_it_joins_is_told_no_more() -> None:
    server, remote_servers, _ = account(0)
    server.client().send("".join(f"SUB s.{number} {number}\r\n" for number in range(5000)))
    other = Other(server, remote_servers)
    server.sessions.eof(other.connection)
    other.leaf.leave()
    server.reactor.settle()
    assert other.leaf.wants() == {}
    assert not server.errors


def test_a_server_that_joins_while_a_connection_is_forgotten_keeps_what_others_want() -> None:
    server, remote_servers, _ = account(0)
    stays, goes = server.client(), server.client()
    stays.send("SUB s.0 1\r\nSUB s.3999 2\r\n")
    goes.send("".join(f"SUB s.{number} {number}\r\n" for number in range(4000)))
    server.sessions.eof(goes.connection)
    server.reactor.turn()
    other = Other(server, remote_servers)
    other.messages()
    assert other.told == {b"s.0": 1, b"s.3999": 1}


def test_a_spoke_tells_its_hub_of_its_own_and_of_its_leafs_only() -> None:
    server, remote_servers, _ = account(0)
    hubs = [Other(server, remote_servers, spoke=True) for _ in range(2)]
    leafs = [Other(server, remote_servers) for _ in range(2)]
    hubs[0].send(b"LS+ of.reactor\r\nLS+ $LDS.xyz\r\n")
    leafs[0].send(b"LS+ of.leaf\r\n")
    server.client().send("SUB of.client 1\r\n")
    for other in (*hubs, *leafs):
        assert other.messages() == []
    assert set(hubs[1].told) == {b"of.leaf", b"of.client", b"$LDS.xyz"}
    assert set(leafs[1].told) == {b"of.reactor", b"of.leaf", b"of.client", b"$LDS.xyz"}


def test_a_server_of_the_same_cluster_and_an_isolated_one_hear_nothing_of_it() -> None:
    server, _, others = account(3)
    one, same, isolated = others
    one.leaf.cluster = same.leaf.cluster = b"C"
    isolated.leaf.isolated = True
    one.send(b"LS+ a\r\nLMSG b 0\r\n\r\n")
    same.send(b"LS+ b\r\n")
    one.send(b"LMSG b 0\r\n\r\n")
    for other in others:
        assert other.messages() == []
    assert same.told == isolated.told == {}
    server.client().send("SUB x 1\r\nPUB b 0\r\n\r\n")
    assert same.messages() == [("b", "", (), b"", b"")]
    assert isolated.told == {}
    isolated.messages()
    assert isolated.told == {b"x": 1}


def test_sinks_are_interest_and_what_is_announced_is() -> None:
    from pelton.core.broker.router import CallbackSink

    server, _, others = account(1)
    got: list[tuple[str, str, bytes]] = []

    def take(_: object, subject: str, reply: str, headers: bytes, payload: bytes) -> bool:
        got.append((subject, reply, payload))
        return True

    sink = CallbackSink(take)
    server.router.attach("s.>", sink)
    server.router.announce(b"$JS.ACK.S.C.>", 1)
    others[0].send(b"LMSG s.1 r.1 2\r\nhi\r\n")
    others[0].messages()
    assert others[0].told == {b"s.>": 1, b"$JS.ACK.S.C.>": 1}
    server.router.detach("s.>", sink)
    server.router.announce(b"$JS.ACK.S.C.>", -1)
    others[0].messages()
    assert others[0].told == {}
    assert got == [("s.1", "r.1", b"hi")]


def test_a_delivery_shows_its_own_subject_and_goes_by_another() -> None:
    server, _, others = account(2)
    client = server.client()
    client.send("SUB deliver.here 1\r\n")
    others[1].send(b"LS+ deliver.here\r\n")
    ack = b"$JS.ACK.S.C.1.2.3.4.5"
    others[0].send(b"HMSG deliver.here %s@orders.new 12 14\r\nNATS/1.0\r\n\r\nhi\r\n" % ack)
    assert client.raw() == (b"HMSG orders.new 1 %s 12 14\r\nNATS/1.0\r\n\r\nhi\r\n" % ack)
    shown = f"{ack.decode()}@orders.new"
    assert others[1].messages() == [("deliver.here", shown, (), b"NATS/1.0\r\n\r\n", b"hi")]


def test_rules_hold_in_both_directions() -> None:
    server, _, others = account(
        1,
        sending=LeafPermissions(["may.>"], ["may.not", "$JS.API.>"]),
        asking=LeafPermissions(["ask.>"], ["ask.not.>"]),
        receiving=LeafPermissions(["ask.>"], ["ask.not.>"]),
    )
    other = others[0]
    client = server.client()
    client.send("SUB ask.this 1\r\nSUB ask.not.this 2\r\nSUB * 3\r\nSUB > 4\r\nSUB other 5\r\n")
    other.send(b"LS+ may.>\r\nLS+ >\r\n")
    client.send("PUB may.do 0\r\n\r\nPUB may.not 0\r\n\r\nPUB else 0\r\n\r\n")
    client.raw()
    assert [m[0] for m in other.messages()] == ["may.do"]
    assert set(other.told) == {b"ask.this", b">"}
    other.send(b"LMSG ask.this 0\r\n\r\n")
    assert [e[1] for e in client.events()] == ["ask.this", "ask.this"]
    other.send(b"LMSG ask.not.this 0\r\n\r\nLS+ no\r\n")
    assert client.raw() == b""
    assert other.heard.events == [
        ("violation", "Publish", b"ask.not.this"),
        ("violation", "Subscription", b"no"),
    ]


def test_what_a_hub_may_not_send_is_left_out() -> None:
    server, remote_servers, _ = account(0)
    reactor = Other(server, remote_servers, spoke=True, asking=LeafPermissions(None, ["secret.>"]))
    client = server.client()
    client.send("SUB > 1\r\n")
    reactor.send(b"LMSG secret.a 0\r\n\r\nLMSG open.a 0\r\n\r\nLMSG $JS.ACK.a 0\r\n\r\n")
    assert [e[1] for e in client.events()] == ["open.a", "$JS.ACK.a"]
    assert reactor.heard.events == []


def test_a_loop_is_told() -> None:
    server = Server()
    remote_servers = RemoteServers(server.router)
    remote_servers.loop_subject = b"$LDS.own"
    other = Other(server, remote_servers)
    assert other.messages() == []
    assert other.told == {b"$LDS.own": 1}
    other.send(b"LS+ $LDS.own\r\n")
    assert other.heard.events == [("loop",)]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"SUB a 1\r\n", "Unknown Protocol Operation"),
        (b"PUB a 0\r\n\r\n", "Unknown Protocol Operation"),
        (b"LS+ a 1\r\n", ""),
        (b"LMSG a\r\n", ""),
        (b"LMSG a ? q 0\r\n\r\n", ""),
        (b"LS+ " + b"a" * 70000, "maximum control line exceeded"),
        (b"LMSG a 99999999\r\n", "Maximum Payload Violation"),
    ],
)
def test_what_is_no_leaf_protocol_ends_the_connection(data: bytes, said: str) -> None:
    _, _, others = account(1)
    others[0].send(data)
    got = others[0].messages()
    assert got == ([(OP_ERR, said.encode())] if said else [])
    assert others[0].connection.closed


def test_nothing_but_the_handshake_before_it_has_joined() -> None:
    server = Server()
    connection, heard = server.sessions.accept(), Heard()
    Leaf(connection, heard, False)
    server.sessions.feed(connection, b"INFO {}\r\nCONNECT {}\r\nPING\r\n-ERR 'no'\r\n+OK\r\n")
    assert heard.events == [("info", b"{}"), ("connect", b"{}"), ("error", b"no")]
    assert Parser(ROLE_LEAF).feed(connection.take()) == [(OP_PONG,)]
    server.sessions.feed(connection, b"LS+ a\r\n")
    assert connection.take() == b"-ERR 'Authorization Violation'\r\n"
    assert connection.closed


def test_a_long_line_is_a_servers_right() -> None:
    _, _, others = account(1)
    others[0].send(b"LS+ " + b"a" * 60000 + b"\r\nLS+ " + b"a." * 5000 + b"b\r\nLS+ a..b\r\n")
    assert others[0].connection.subscription_count() == 1
    assert others[0].messages() == [(OP_ERR, b"Invalid Subscription")] * 2


def test_interest_of_a_leaf_is_bounded_as_that_of_clients() -> None:
    server = Server()
    server.reactor.max_subscription_bytes = 100_000
    other = Other(server, RemoteServers(server.router))
    for number in range(1_000):
        other.send(b"LS+ a.%d\r\n" % number)
    assert server.reactor.subscription_bytes <= 50_000
    held = other.connection.subscription_count()
    assert 0 < held < 1_000
    other.send(b"LS- a.0\r\nLS+ b\r\n")
    assert other.connection.subscription_count() == held
    server.reactor.settle()
    assert b"-ERR 'maximum subscriptions exceeded'" in other.connection.take()


def test_another_server_that_names_a_subject_listens_to_it() -> None:
    server, _, [other] = account(1)
    other.send(b"LS+ a.*\r\nLS+ a.b q 1\r\n")
    assert not server.router.has_listener("a.b")
    other.send(b"LS+ a.b\r\n")
    assert server.router.has_listener("a.b")
    other.send(b"LS- a.b\r\n")
    assert not server.router.has_listener("a.b")


@given(
    st.none() | st.lists(st.sampled_from(["a.*", "a.>", "*.b", "a.b", "b"]), max_size=3),
    st.lists(st.sampled_from(["a.*", "a.b", ">", "*.c", "b"]), max_size=3),
    st.sampled_from(["a.b", "a.c", "b", "c.b", "c.c.c"]),
)
def test_permissions_are_those_of_a_look_at_each(
    allow: list[str] | None, deny: list[str], subject: str
) -> None:
    fits = allow is None or any(matches(subject, pattern) for pattern in allow)
    expected = fits and not any(matches(subject, pattern) for pattern in deny)
    assert LeafPermissions(allow, deny).allows_subject(subject) == expected


def test_a_message_is_not_compared_with_each_of_thousands_of_rules() -> None:
    rules = [f"a.{number}.>" for number in range(10_000)]
    permissions = LeafPermissions([*rules, "c"], [f"{each}.x" for each in "de"] + rules[1:])
    before = permissions.steps
    assert permissions.allows_subject("c")
    assert permissions.allows_subject("a.0.x")
    assert not permissions.allows_subject("a.1.x")
    assert permissions.steps - before < 50
