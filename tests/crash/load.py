"""Load on a server that is going to be killed, and what its clients were told.

Publishers write to several streams at once with many acks outstanding; workers pull from one
stream, confirm some messages, refuse or forget others. Everything that was answered is kept, so
that the next life of the server can be held to it.
"""

from __future__ import annotations

import base64
import json
import threading
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.crash.wire import Event, Wire, message

WINDOW = 256
MAX_MSGS = 300
MAX_BYTES = 400_000
PER_SUBJECT = 3

STREAMS: dict[str, dict[str, Any]] = {
    "PLAIN": {},
    "COUNT": {"max_msgs": MAX_MSGS},
    "BYTES": {"max_bytes": MAX_BYTES},
    "LATEST": {"max_msgs_per_subject": PER_SUBJECT},
    "IDS": {"duplicate_window": 120 * 10**9},
    "LARGE": {},
}
WEIGHTS = (8, 8, 4, 8, 8, 1)
LARGE_BYTES = 700_000


@dataclass(frozen=True)
class Sent:
    """One message as it was published; its payload is made from its number when needed."""

    stream: str
    subject: str
    number: int
    size: int
    headers: bytes

    @property
    def payload(self) -> bytes:
        return (b"%d|" % self.number * (self.size // 2 + 1))[: self.size]

    @property
    def msg_id(self) -> bytes:
        return self.headers.partition(b"Nats-Msg-Id: ")[2].partition(b"\r\n")[0]


@dataclass
class Told:
    """What servers have acknowledged so far, by stream and sequence."""

    acked: dict[str, dict[int, Sent]] = field(default_factory=lambda: {n: {} for n in STREAMS})
    confirmed: set[int] = field(default_factory=set)  # acks of PLAIN that were answered
    handled: set[int] = field(default_factory=set)  # acks of PLAIN that were sent
    fresh: list[tuple[int, Sent]] = field(default_factory=list)  # acked since the last look
    refused: list[str] = field(default_factory=list)


class Publisher(threading.Thread):
    """Publishes until its server is gone."""

    def __init__(self, port: int, told: Told, seed: int, number: int) -> None:
        super().__init__(daemon=True)
        self._wire = Wire(port)
        self._told = told
        self._rng = Random(seed)
        self._number = number
        self._waiting: dict[str, Sent] = {}
        self._last: dict[str, int] = {}
        self._old_ids: list[Sent] = []
        self.disorder: list[str] = []

    def run(self) -> None:
        while not self._wire.gone:
            block = b""
            while len(self._waiting) < WINDOW and len(block) < 1 << 20:
                sent = self._next()
                name = f"ack.{sent.number}"
                self._waiting[name] = sent
                reply = self._wire.inbox(name)
                block += message(sent.subject, sent.payload, reply, sent.headers)
            self._wire.send(block)
            self._take(self._wire.events(0.5))
        self._take(self._wire.events())
        self._wire.close()

    def _next(self) -> Sent:
        rng = self._rng
        self._number += 1
        stream = rng.choices(list(STREAMS), WEIGHTS)[0]
        size = LARGE_BYTES if stream == "LARGE" else rng.choice((0, 20, 100, 100, 2000))
        headers = b""
        if stream == "IDS":
            if self._old_ids and rng.random() < 0.1:
                old = rng.choice(self._old_ids)
                return Sent(stream, old.subject, self._number, old.size, old.headers)
            headers = b"NATS/1.0\r\nNats-Msg-Id: id-%d\r\n\r\n" % self._number
        elif rng.random() < 0.2:
            headers = b"NATS/1.0\r\nNumber: %d\r\n\r\n" % self._number
        return Sent(stream, f"{stream}.{rng.randrange(20)}", self._number, size, headers)

    def _take(self, events: list[Event]) -> None:
        told = self._told
        for event in events:
            sent = self._waiting.pop(event.subject)
            answer = json.loads(event.payload) if event.payload else {"error": "no responders"}
            if "error" in answer:
                told.refused.append(str(answer["error"]))
                continue
            if answer.get("duplicate"):
                first = told.acked["IDS"].get(answer["seq"])
                if first is not None and first.msg_id != sent.msg_id:
                    self.disorder.append(f"{answer} for {sent}")
                continue
            seq = answer["seq"]
            if seq <= self._last.get(sent.stream, 0) or seq in told.acked[sent.stream]:
                self.disorder.append(f"{sent.stream}: {seq} after {self._last}")
            self._last[sent.stream] = seq
            told.acked[sent.stream][seq] = sent
            told.fresh.append((seq, sent))
            if sent.stream == "IDS":
                self._old_ids.append(sent)


class Worker(threading.Thread):
    """Pulls from PLAIN until its server is gone, or (`drain`) until nothing comes any more."""

    def __init__(self, port: int, told: Told, seed: int, *, drain: bool = False) -> None:
        super().__init__(daemon=True)
        self._wire = Wire(port)
        self._told = told
        self._rng = Random(seed)
        self._drain = drain
        self._before = set(told.confirmed)
        self._quiet = 0
        self.came_back: list[int] = []
        self.delivered: set[int] = set()

    def run(self) -> None:
        pull = json.dumps({"batch": 100, "expires": 300_000_000}).encode()
        left = 0
        while not self._wire.gone and self._quiet < 8:
            if left <= 0:
                self._wire.publish("$JS.API.CONSUMER.MSG.NEXT.PLAIN.work", pull, "pull")
                left = 100
            for event in self._wire.events(0.2):
                if event.subject.startswith("ack."):
                    self._told.confirmed.add(int(event.subject.rpartition(".")[2]))
                elif event.reply:
                    left -= 1
                    self._quiet = 0
                    self._take(event)
                elif event.subject == "pull":
                    left = 0
                    self._quiet += self._drain
        self._wire.close()

    def _take(self, event: Event) -> None:
        seq = int(event.reply.split(".")[5])
        self.delivered.add(seq)
        if seq in self._before:
            self.came_back.append(seq)
        what = 0.0 if self._drain else self._rng.random()
        if what < 0.5:
            self._told.handled.add(seq)
            self._wire.publish(event.reply, b"+ACK", f"ack.{seq}")
        elif what < 0.7:
            self._told.handled.add(seq)
            self._wire.publish(event.reply, b"")
        elif what < 0.85:
            self._wire.publish(event.reply, b"-NAK")


def furnish(wire: Wire) -> None:
    """Create the streams and the consumer."""
    for name, limits in STREAMS.items():
        wire.ok(f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.*"], **limits})
    config = {
        "durable_name": "work",
        "ack_policy": "explicit",
        "ack_wait": 10**9,
        "max_ack_pending": 500,
    }
    wire.ok("CONSUMER.CREATE.PLAIN.work", {"stream_name": "PLAIN", "config": config})


def stored(wire: Wire, stream: str, seqs: list[int], step: int = 64) -> dict[int, Any]:
    """The stored messages of these sequences, asked for `step` at a time; those that are not there
    are left out.
    """
    found: dict[int, Any] = {}
    subject = f"$JS.API.STREAM.MSG.GET.{stream}"
    for at in range(0, len(seqs), step):
        part = seqs[at : at + step]
        wire.send(b"".join(message(subject, b'{"seq":%d}' % s, wire.inbox(str(s))) for s in part))
        answers: dict[int, Any] = {}
        while len(answers) < len(part):
            events = wire.events(20)
            assert events, f"no answer to a get from {stream}"
            for event in events:
                answers[int(event.subject)] = json.loads(event.payload)
        found.update({s: a["message"] for s, a in answers.items() if "message" in a})
    return found


def same(sent: Sent, got: dict[str, Any]) -> bool:
    """Whether a stored message is the one that was published."""
    return (
        got["subject"] == sent.subject
        and base64.b64decode(got.get("data", "")) == sent.payload
        and base64.b64decode(got.get("hdrs", "")) == sent.headers
    )
