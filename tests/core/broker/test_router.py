"""Subscriptions, queue groups and back-pressure, against a model that is a list."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.core.broker.reactor import SLOW_PENDING
from pelton.core.protocol.wire import OP_MSG
from tests.core.wires import Client, Server
from tests.ways import length

TOKENS = st.sampled_from(["a", "b", "*"])
PATTERNS = st.lists(TOKENS, min_size=1, max_size=3).map(".".join) | st.lists(
    TOKENS, max_size=2
).map(lambda t: ".".join([*t, ">"]))
LITERALS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map(".".join)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("sub"), st.integers(0, 2), PATTERNS, st.sampled_from(["", "q", "r"])),
        st.tuples(st.just("unsub"), st.integers(0, 2), st.integers(0, 20)),
        st.tuples(st.just("pub"), st.integers(0, 2), LITERALS),
        st.tuples(st.just("close"), st.integers(0, 2)),
    ),
    max_size=40,
)


def matches(subject: str, pattern: str) -> bool:
    s, p = subject.split("."), pattern.split(".")
    for i, token in enumerate(p):
        if token == ">":
            return len(s) > i
        if i >= len(s) or token not in ("*", s[i]):
            return False
    return len(s) == len(p)


@given(STEPS)
@settings(max_examples=length(40, 200), deadline=None)
def test_plain_subscribers_each_get_it_and_queue_groups_once(
    steps: list[tuple[object, ...]],
) -> None:
    server = Server()
    clients: list[Client] = [server.client() for _ in range(3)]
    held: list[tuple[int, int, str, str]] = []  # client, sid, pattern, queue
    sid = 0
    for step in steps:
        match step:
            case ("sub", int(who), str(pattern), str(queue)):
                sid += 1
                clients[who].send(f"SUB {pattern} {queue} {sid}\r\n")
                held.append((who, sid, pattern, queue))
            case ("unsub", int(who), int(which)):
                mine = [h for h in held if h[0] == who]
                if mine:
                    gone = mine[which % len(mine)]
                    held.remove(gone)
                    clients[who].send(f"UNSUB {gone[1]}\r\n")
            case ("close", int(who)):
                server.sessions.eof(clients[who].connection)
                held = [h for h in held if h[0] != who]
                clients[who] = server.client()
            case ("pub", int(who), str(subject)):
                clients[who].send(f"PUB {subject} 0\r\n\r\n")
                got = [
                    (i, e[2]) for i, c in enumerate(clients) for e in c.events() if e[0] == OP_MSG
                ]
                hits = [h for h in held if matches(subject, h[2])]
                plain = {(h[0], h[1]) for h in hits if not h[3]}
                groups = {(h[2], h[3]) for h in hits if h[3]}
                queue_members = {(h[0], h[1]): (h[2], h[3]) for h in hits if h[3]}
                assert {g for g in got if g not in queue_members} == plain
                chosen = [queue_members[g] for g in got if g in queue_members]
                assert sorted(chosen) == sorted(groups)
                assert len(got) == len(plain) + len(groups)
    assert not server.errors
    for client in clients:
        server.sessions.eof(client.connection)
    assert server.router.subscription_count() == 0


def test_queue_members_share_the_load() -> None:
    server = Server(seed=7)
    members = [server.client().send("SUB a q 1\r\n") for _ in range(4)]
    server.client().send("PUB a 0\r\n\r\n" * 400)
    counts = [len(m.events()) for m in members]
    assert sum(counts) == 400
    assert min(counts) > 50, counts


def test_a_client_that_never_reads_is_cut_off_at_max_pending_and_others_get_all() -> None:
    server = Server()
    server.reactor.max_pending = 100_000
    stuck, fine = server.client().send("SUB a 1\r\n"), server.client().send("SUB a 1\r\n")
    publisher, got = server.client(), 0
    for _ in range(200):
        publisher.send(b"PUB a 1000\r\n" + b"x" * 1000 + b"\r\n")
        got += len(fine.events())
    assert (stuck.connection.closed, stuck.connection.reason) == (True, SLOW_PENDING)
    assert got == 200
    assert server.reactor.slow_consumers == 1


def test_a_publisher_waits_for_a_blocked_subscriber_and_goes_on_when_it_drains() -> None:
    server = Server()
    reader, publisher = server.client().send("SUB a 1\r\n"), server.client()
    reader.connection.set_blocked(True)
    message = b"PUB a 100000\r\n" + b"x" * 100_000 + b"\r\n"
    for _ in range(30):
        publisher.send(message)
    waiting = reader.connection.pending_bytes()
    assert 1_048_576 < waiting < 1_400_000  # stopped soon after the high-water mark
    reader.connection.set_blocked(False)
    events = reader.events()
    while len(events) < 30:
        server.reactor.settle()
        more = reader.events()
        assert more, f"stalled for ever after {len(events)} of 30"
        events += more
    assert len(events) == 30


def test_a_stuck_subscriber_does_not_hold_up_publishers() -> None:
    server = Server()
    reader, publisher = server.client().send("SUB a 1\r\n"), server.client()
    reader.connection.set_blocked(True)
    server.clock.advance(1_000_000_000)
    server.reactor.settle()
    for _ in range(30):
        publisher.send(b"PUB a 100000\r\n" + b"x" * 100_000 + b"\r\n")
    assert reader.connection.pending_bytes() > 3_000_000


def test_a_listener_names_the_subject_itself() -> None:
    server = Server()
    client = server.client().send("SUB a.* 1\r\nSUB a.b q 2\r\nSUB a.b.c 3\r\nSUB > 4\r\n")
    assert server.router.has_interest("a.b")
    assert not server.router.has_listener("a.b")
    client.send("SUB a.b 5\r\n")
    assert server.router.has_listener("a.b")
    client.send("UNSUB 5\r\n")
    assert not server.router.has_listener("a.b")


def test_a_closed_connection_with_many_subscriptions_is_forgotten_over_several_turns() -> None:
    server = Server()
    crowded, other = server.client(), server.client().send("SUB g q 1\r\n")
    lines = [f"SUB a.{n} {n}\r\nSUB a.*.{n} {n}w\r\nSUB g q {n}q\r\n" for n in range(2000)]
    crowded.send("".join(lines))
    assert server.router.subscription_count() == 4001  # a queue group counts once
    server.reactor.disconnect(crowded.connection, "Client Closed")
    before = server.router.subscription_count()
    assert before > 3000
    turns = 0
    while server.router.subscription_count() > 1:
        asker = server.client().send("PUB a.7 0\r\n\r\nPUB g 0\r\n\r\n")
        server.reactor.turn()
        left = server.router.subscription_count()
        assert before - 1000 <= left < before
        before, turns = left, turns + 1
        asker.connection.take()
    assert turns >= 5
    assert other.raw() == b"MSG g 1 0\r\n\r\n" * turns
    assert server.reactor.subscription_bytes == other.connection.subscription_bytes > 0
    assert not server.errors
