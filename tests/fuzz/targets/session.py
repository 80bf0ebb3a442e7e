"""A server without sockets, fed what clients may send: it goes on, answers are well formed, counts hold.

Two clients, an account with a stream on `s.>`, a pull and a push consumer. The bytes of an input go to one client or the
other, in pieces; time passes between them.
"""

from __future__ import annotations

from collections.abc import Iterable

from pelton.core.log import queries
from pelton.core.protocol.wire import BAD_ARGS, OP_INFO, OP_MSG, ROLE_CLIENT, Parser, WireError
from tests.core.streams import Site
from tests.core.wires import Client
from tests.fuzz.inputs import Input

MAX_BYTES = 3000
WORDS = (
    b"PUB s.a in.x ", b"HPUB s.a in.x ", b"SUB in.> 2\r\n", b"SUB s.> q 3\r\n", b"UNSUB 1 2\r\n", b"PING\r\n",
    b"$JS.ACK.S.C.1.1.1.", b"$JS.API.CONSUMER.MSG.NEXT.S.C", b'{"batch":3,"expires":1000000000,"idle_heartbeat":100000000}',
    b'{"batch":2,"no_wait":true,"max_bytes":100}', b"+ACK", b"-NAK", b'-NAK {"delay": 1000000}', b"+WPI", b"+TERM why", b"+NXT 3",
    b'"group":"g"', b'"min_pending":2', b'"priority":1', b'"id":"abc"',
    b"NATS/1.0\r\n", b"Nats-Msg-Id: 1\r\n", b"Nats-Expected-Last-Sequence: 1\r\n", b"Nats-Expected-Stream: S\r\n",
    b"Nats-Expected-Last-Subject-Sequence: 1\r\n", b"Nats-Expected-Last-Msg-Id: 1\r\n", b"Nats-TTL: 1s\r\n", b"\r\n", b"s.*.b",
    b"$JS.API.DIRECT.GET.S", b"_INBOX.a", b"$JS.FC.S.P.x",
)  # fmt: skip


def run(data: bytes) -> None:
    """Pieces: a byte that says whose and whether time passes, a length, bytes."""
    source = Input(data)
    site = Site(max_msgs=8, max_msgs_per_subject=4)
    site.consumer(max_ack_pending=6, ack_wait_ns=1_000_000_000, max_deliver=3)
    site.consumer(
        "P", deliver_subject="push.p", ack_wait_ns=10**9, idle_heartbeat_ns=10**9, flow_control=True
    )
    other = site.server.client(verbose=bool(len(data) & 1), pedantic=True)
    clients = [(client, Parser(ROLE_CLIENT)) for client in (site.client, other)]
    site.client.send("SUB push.> 9\r\n")
    steps = 0
    while source and steps < 60:
        steps += 1
        which = source.number()
        client, _ = clients[which & 1]
        if not client.connection.closed:
            client.send(source.sized(511 if which & 4 else 63))
        if which & 2:
            site.after(300_000_000)
        hear(clients)
        hold(site)
    check_alive(site)


def hear(clients: list[tuple[Client, Parser]]) -> None:
    """All that goes out is protocol."""
    for client, parser in clients:
        if parser.failed is not None:
            continue
        try:
            for event in parser.feed(client.raw()):
                assert event[0] in (OP_MSG, OP_INFO) or len(event) < 3
        except WireError as error:
            assert (
                error.code == BAD_ARGS
            )  # a message for a sid that is no number is heard no further


def hold(site: Site) -> None:
    assert site.server.errors == [], site.server.errors
    log = site.log
    assert log.msgs <= 8
    assert sum(queries.subjects(log).values()) == log.msgs
    assert all(count <= 4 for count in queries.subjects(log).values())
    assert log.bytes == sum(log.size_of(seq) for seq in range(log.first_seq, log.last_seq + 1))
    for consumer in site.stream.consumers():
        state = consumer.state()
        assert state.floor_stream_seq <= state.delivered_stream_seq <= log.last_seq, state
        assert state.floor_consumer_seq <= state.delivered_consumer_seq, state
        assert state.num_ack_pending <= 6
        assert state.num_pending <= log.msgs


def check_alive(site: Site) -> None:
    """Whatever came, a new client is served."""
    before = site.log.last_seq
    fresh = site.server.client()
    parser = Parser(ROLE_CLIENT)
    fresh.send("SUB here 1\r\nPUB s.alive here 2\r\nhi\r\nPING\r\n")
    events = parser.feed(fresh.raw())
    assert site.log.last_seq == before + 1, events
    assert any(event[0] == OP_MSG and event[1] == "here" for event in events), events


def seeds() -> Iterable[bytes]:
    def step(which: int, text: bytes) -> bytes:
        return bytes([which | 4]) + len(text).to_bytes(2, "little") + text

    def pub(subject: bytes, body: bytes, headers: bytes = b"") -> bytes:
        if headers:
            return b"HPUB %s in.x %d %d\r\n%s%s\r\n" % (
                subject,
                len(headers),
                len(headers) + len(body),
                headers,
                body,
            )
        return b"PUB %s in.x %d\r\n%s\r\n" % (subject, len(body), body)

    many = b"".join(pub(b"s.%d" % n, b"body") for n in range(5))
    pull = b"$JS.API.CONSUMER.MSG.NEXT.S.C"
    yield step(0, many) + step(0, pub(pull, b"3")) + step(2, b"PING\r\n")
    yield (
        step(0, pub(pull, b'{"batch":5,"expires":900000000,"idle_heartbeat":200000000}'))
        + step(2, many)
        + step(3, b"")
    )
    for ack in (b"", b"+ACK", b"-NAK", b'-NAK {"delay":5}', b"+WPI", b"+TERM", b"+NXT"):
        said = pub(b"$JS.ACK.S.C.1.1.1.1700000000000000000.4", ack)
        yield step(0, many) + step(0, pub(pull, b"2")) + step(0, said) + step(2, b"PING\r\n")
    for line in WORDS:
        if line.startswith(b"Nats-"):
            yield step(1, pub(b"s.h", b"x", b"NATS/1.0\r\n" + line + b"\r\n") * 2)
    yield step(
        1,
        b"SUB a.* q 5\r\nSUB a.b 6\r\nUNSUB 5 1\r\n"
        + pub(b"a.b", b"")
        + pub(b"a.c", b"zz")
        + b"UNSUB 6\r\n",
    )
