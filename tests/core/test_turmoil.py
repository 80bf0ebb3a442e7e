"""Everything at once, from one seed: clients come, stall, are cut off; consumers change.

What must hold: nothing raises, no sequence is acknowledged twice or out of order, watermarks stay
in order, and in the end every consumer gets to the end of the stream.
"""

import random
from typing import Any

import pytest

from pelton.core.consumer.consumer import ACK_ALL, ACK_EXPLICIT, ACK_NONE
from pelton.core.stream.stream import SYNC_ALWAYS, SYNC_INTERVAL

from .streams import Message, Site, block
from .wires import Client

SUBJECTS = ["s.a", "s.b", "s.c.d"]
FILTERS: list[tuple[str, ...]] = [
    (),
    ("s.a",),
    ("s.>",),
    ("s.*", "s.c.*"),
    ("s.b", "s.c.d"),
    ("s.x",),
]


class Turmoil:
    def __init__(self, seed: int, sync: int, folder: str) -> None:
        self.random = random.Random(seed)
        self.site = Site(folder=folder, sync=sync)
        self.site.reactor.max_pending = 200_000
        self.site.reactor.on_close = lambda connection: self.site.stream.publish("s.b", b"gone")
        self.site.api_subjects.max_deliver_advisory = self.told
        self.site.api_subjects.nak_advisory = self.told
        self.clients: list[Client] = []
        self.acked: list[int] = []
        self.replies: list[str] = []
        self.names = 0

    def told(self, *advisory: object) -> None:
        self.site.stream.publish("s.b", b"!")

    def client(self) -> Client | None:
        self.clients = [c for c in self.clients if not c.connection.closed]
        return self.random.choice(self.clients) if self.clients else None

    def come(self) -> None:
        client = self.site.server.client(headers=self.random.random() < 0.9)
        self.clients.append(client)
        client.send(f"SUB in.{len(self.clients)}.> 1\r\nSUB to.{self.random.randrange(3)} g 2\r\n")
        client.send(f"SUB to.{self.random.randrange(3)} 3\r\n")

    def publish(self) -> None:
        client, pick = self.client(), self.random
        if client is None:
            return
        headers = pick.choice(
            [
                b"",
                b"",
                block(f"Nats-Msg-Id: {pick.randrange(50)}"),
                block("Nats-Expected-Stream: T"),
            ]
        )
        for _ in range(pick.randrange(1, 20)):
            self.site.publish(
                pick.choice(SUBJECTS),
                b"x" * pick.choice([0, 10, 5000]),
                pick.choice(["", "in.ack", "to.1"]),
                headers,
                client,
            )

    def pull(self) -> None:
        client, pick = self.client(), self.random
        consumers = self.site.stream.consumers()
        if client is None or not consumers:
            return
        body = pick.choice(
            [
                "",
                "5",
                '{"batch":20,"expires":2000000000,"idle_heartbeat":500000000}',
                '{"batch":9,"no_wait":true}',
                '{"batch":3,"max_bytes":200,"expires":100}',
                "{",
            ]
        )
        total = len(body)
        reply = pick.choice(["in.1.x", "in.2.y", "to.0", "nobody", "s.b"])
        name = pick.choice(consumers).name
        client.send(f"PUB $JS.API.CONSUMER.MSG.NEXT.S.{name} {reply} {total}\r\n{body}\r\n")

    def acknowledge(self) -> None:
        client, pick = self.client(), self.random
        if client is None or not self.replies:
            return
        for _ in range(pick.randrange(1, 10)):
            body = pick.choice(["", "", "", "-NAK", "-NAK 1s", "+WPI", "+TERM x", "+NXT 2", "?"])
            reply = pick.choice(["", "in.ack", "in.1.n"])
            client.send(f"PUB {pick.choice(self.replies)} {reply} {len(body)}\r\n{body}\r\n")

    def consumer(self) -> None:
        pick = self.random
        self.names += 1
        rules: dict[str, Any] = {
            "ack_policy": pick.choice([ACK_NONE, ACK_ALL, ACK_EXPLICIT]),
            "ack_wait_ns": pick.choice([1, 10**9]),
            "max_deliver": pick.choice([-1, 1, 3]),
            "max_ack_pending": pick.choice([-1, 1, 10]),
            "max_waiting": pick.choice([1, 10]),
            "filters": pick.choice(FILTERS),
            "headers_only": pick.random() < 0.2,
            "last_per_subject": pick.random() < 0.2,
        }
        if pick.random() < 0.4:
            rules |= {
                "deliver_subject": f"to.{pick.randrange(3)}",
                "deliver_group": pick.choice(["", "g"]),
                "flow_control": pick.random() < 0.5,
                "idle_heartbeat_ns": pick.choice([0, 10**8]),
            }
        consumer = self.site.consumer(
            f"C{self.names}", pick.randrange(1, self.site.log.last_seq + 3), **rules
        )
        if pick.random() < 0.3:
            consumer.configure(**(rules | {"filters": pick.choice(FILTERS)}))

    def close_consumer(self) -> None:
        consumers = self.site.stream.consumers()
        if consumers:
            gone = self.random.choice(consumers)
            kept = gone.snapshot()
            gone.close(self.random.choice(["", "Consumer Deleted", "Server Shutdown"]))
            self.site.api_subjects.remove(gone)
            if self.random.random() < 0.5:
                self.site.consumer(gone.name).restore(kept)

    def remove(self) -> None:
        stream, pick = self.site.stream, self.random
        last = self.site.log.last_seq
        verb = pick.randrange(5)
        if verb == 0:
            stream.purge(below=pick.randrange(1, last + 2))
        elif verb == 1:
            stream.purge(subject=pick.choice(["s.a", "s.*"]), keep=pick.randrange(3))
        elif verb == 2:
            stream.delete_message(pick.randrange(1, last + 2), pick.random() < 0.5)
        elif verb == 3:
            stream.configure(
                max_msgs=pick.choice([-1, 50]), max_msgs_per_subject=pick.choice([-1, 20])
            )
        else:
            stream.configure(max_age_ns=pick.choice([0, 10**9]))

    def stall(self) -> None:
        client = self.client()
        if client is not None:
            client.connection.set_blocked(self.random.random() < 0.6)

    def leave(self) -> None:
        client = self.client()
        if client is not None and self.random.random() < 0.3:
            self.site.reactor.disconnect(client.connection, "Client Closed")

    def read(self) -> None:
        for client in self.clients:
            if (
                not client.connection.closed
                and client.connection.pending_bytes() != 0
                and self.random.random() < 0.5
            ):
                for event in client.parser.feed(client.connection.take()):
                    message = Message(event)
                    if message.reply.startswith("$JS."):
                        self.replies = [*self.replies[-200:], message.reply]
        for message in map(
            Message, self.site.client.parser.feed(self.site.client.connection.take())
        ):
            if (
                message.subject == "in.ack"
                and message.payload.startswith(b'{"stream"')
                and b"dup" not in message.payload
            ):
                self.acked.append(int(message.json["seq"]))

    def step(self) -> None:
        weights = {
            self.come: 3,
            self.publish: 12,
            self.pull: 8,
            self.acknowledge: 10,
            self.consumer: 2,
            self.close_consumer: 1,
            self.remove: 1,
            self.stall: 2,
            self.leave: 2,
            self.read: 6,
        }
        act = self.random.choices(list(weights), list(weights.values()))[0]
        act()
        if self.random.random() < 0.5:
            self.site.reactor.turn()
        if self.random.random() < 0.1:
            self.site.after(self.random.choice([1, 10**8, 10**9]))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("sync", [SYNC_ALWAYS, SYNC_INTERVAL])
def test_turmoil(seed: int, sync: int, tmp_path: Any) -> None:
    turmoil = Turmoil(seed, sync, str(tmp_path / "S"))
    site = turmoil.site
    for _ in range(600):
        turmoil.step()
        assert site.server.errors == []
        assert site.log.synced_seq <= site.log.written_seq <= site.log.last_seq
        assert site.stream.visible <= site.log.written_seq
    turmoil.read()
    assert turmoil.acked == sorted(set(turmoil.acked))
    site.reactor.max_pending = 1 << 30
    last = site.server.client().send("SUB own 1\r\n")
    for consumer in site.stream.consumers():
        consumer.configure(ack_policy=ACK_NONE)  # a pull consumer that nothing holds back
        site.publish(f"$JS.API.CONSUMER.MSG.NEXT.S.{consumer.name}", b"999999", "own", client=last)
    for _ in range(100):
        last.raw()
        if not any(c.state().num_pending for c in site.stream.consumers()):
            break
    assert {c.name: c.state().num_pending for c in site.stream.consumers()} == {
        c.name: 0 for c in site.stream.consumers()
    }
    assert site.server.errors == []
