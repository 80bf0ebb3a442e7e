"""Streams and consumers on the hand-fed server of `wires`: what the engine would set up."""

import json
from typing import Any

from pelton.core.consumer.api_subjects import ApiSubjects
from pelton.core.consumer.consumer import ACK_EXPLICIT, Consumer
from pelton.core.log.log import Log
from pelton.core.log.recovery import open_log
from pelton.core.protocol.wire import OP_MSG
from pelton.core.stream.stream import SYNC_INTERVAL, Stream

from .wires import Client, Server


class Message:
    """One delivery as a client saw it."""

    def __init__(self, event: tuple[Any, ...]) -> None:
        _, self.subject, self.sid, self.reply, self.headers, self.payload = event

    @property
    def status(self) -> str:
        """The status line without `NATS/1.0 `, "" for a message."""
        line = self.headers.partition(b"\r\n")[0]
        return str(line[9:].decode()) if line.startswith(b"NATS/1.0 ") else ""

    @property
    def json(self) -> dict[str, Any]:
        return dict(json.loads(self.payload))

    def number(self, place: int) -> int:
        """Of the ack subject: 0 deliveries, 1 stream seq, 2 consumer seq, 3 time, 4 ahead."""
        return int(self.reply.split(".")[4 + place])

    def __repr__(self) -> str:
        return f"<{self.subject} {self.reply} {self.headers!r} {self.payload!r}>"


class Site:
    """A server with one stream S on `s.>` and a client that hears `in.>`."""

    def __init__(
        self,
        *,
        sync: int = SYNC_INTERVAL,
        folder: str | None = None,
        log: Log | None = None,
        **rules: Any,
    ) -> None:
        self.server = Server()
        self.reactor = self.server.reactor
        self.clock = self.server.clock
        self.log = log if log is not None else open_log(folder)
        self.stream = Stream(self.server.router, "S", self.log, sync=sync)
        self.stream.configure(**rules)
        self.server.router.attach("s.>", self.stream)
        self.api: list[tuple[Any, ...]] = []
        self.api_subjects = ApiSubjects(self.server.router, self.on_api)
        self.client = self.server.client()
        self.client.send("SUB in.> 1\r\n")

    def on_api(self, *request: Any) -> bool:
        self.api.append(request)
        return True

    def consumer(self, name: str = "C", start_seq: int = 1, **rules: Any) -> Consumer:
        consumer = Consumer(self.stream, name, start_seq=start_seq)
        consumer.configure(**({"ack_policy": ACK_EXPLICIT} | rules))
        self.api_subjects.add(consumer)
        return consumer

    def publish(
        self,
        subject: str,
        payload: bytes = b"",
        reply: str = "",
        headers: bytes = b"",
        client: Client | None = None,
    ) -> None:
        total = len(headers) + len(payload)
        line = (
            f"HPUB {subject} {reply} {len(headers)} {total}\r\n"
            if headers
            else f"PUB {subject} {reply} {total}\r\n"
        )
        (client or self.client).send(line.encode() + headers + payload + b"\r\n")

    def pull(self, body: bytes | str = b"", reply: str = "in.n", consumer: str = "C") -> None:
        self.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.S.{consumer}",
            body.encode() if isinstance(body, str) else body,
            reply,
        )

    def ack(self, message: Message, body: bytes = b"", reply: str = "") -> None:
        self.publish(message.reply, body, reply)

    def heard(self, client: Client | None = None) -> list[Message]:
        """What the client got since last asked, after the server has done what there is to do."""
        events = (client or self.client).events()
        assert self.server.errors == []
        assert all(event[0] == OP_MSG for event in events)
        return [Message(event) for event in events]

    def answer(self, subject: str, payload: bytes = b"", headers: bytes = b"") -> bytes:
        """The PubAck of one publish."""
        self.publish(subject, payload, "in.a", headers)
        (message,) = self.heard()
        return bytes(message.payload)

    def after(self, ns: int) -> None:
        """Let time pass, and consumers and stream do what is due."""
        self.clock.advance(ns)
        self.reactor.settle()
        self.stream.expire()
        for consumer in self.stream.consumers():
            consumer.tick()


def block(*lines: str) -> bytes:
    """A header block of `Name: value` lines."""
    return b"NATS/1.0\r\n" + b"".join(line.encode() + b"\r\n" for line in lines) + b"\r\n"


def filled(count: int = 3, **rules: Any) -> tuple[Site, Consumer]:
    site = Site()
    for n in range(count):
        site.publish(f"s.{n}", b"m")
    return site, site.consumer(**rules)


def statuses(messages: list[Message]) -> list[str]:
    return [m.status or str(m.number(1)) for m in messages]
