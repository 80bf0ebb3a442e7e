"""Consumers: a confirmed ack never comes back, and what nobody acknowledged is delivered.

The streams keep all (PULLED, PUSHED), until acknowledged by the one consumer (WORK), or until all
consumers have acknowledged (INTEREST: one pulls, a group of two is pushed to).
"""

from __future__ import annotations

import time
from typing import Any, ClassVar

from tests.crash.kinds.base import Kind, Publishing, Sent
from tests.crash.wire import Event, Wire

ACK_WAIT_S = 1
PATIENCE_S = 60.0
WINDOW = 32
BACKLOG = 2000  # publish no more while a reader is so far behind


class Reader:
    """One durable consumer and what it did with each message."""

    def __init__(self, kind: Consumed, name: str, *, push: bool = False) -> None:
        self.name = name
        self.push = push
        self.handled: set[int] = set()  # an ack was sent
        self.confirmed: set[int] = set()  # ... and answered
        self.delivered: set[int] = set()
        self.floor = 0  # of the last start
        self._kind = kind
        self._left = 0
        self._wires: list[Wire] = []

    @property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = {
            "durable_name": self.name,
            "ack_policy": "explicit",
            "ack_wait": ACK_WAIT_S * 10**9,
            "max_ack_pending": 300,
        }
        if self.push:
            subject = f"to.{self._kind.stream}.{self.name}"
            # two connections: an ack may be confirmed on one before an older event of the other is
            # read, so nothing is sent again soon
            config |= {"deliver_subject": subject, "deliver_group": "g", "ack_wait": 3 * 10**9}
        return config

    def open(self, port: int, wire: Wire) -> None:
        self._left = 0
        self._wires = [wire]
        if self.push:
            self._wires = [Wire(port), Wire(port)]
            for one in self._wires:
                one.send(f"SUB {self.config['deliver_subject']} g 7\r\n".encode())

    def ask(self, *, drain: bool = False) -> None:
        """Pull, when the last request is used up."""
        if self.push or self._left > 0:
            return
        call = f"$JS.API.CONSUMER.MSG.NEXT.{self._kind.stream}.{self.name}"
        expires = 300_000_000 if drain else 2_000_000_000
        self._wires[0].publish(call, b'{"batch":60,"expires":%d}' % expires, f"pull.{self.name}")
        self._left = 60

    def look(self, *, drain: bool = False) -> None:
        """What came on connections of its own."""
        if self.push:
            for one in self._wires:
                for event in one.events():
                    self.take(one, event, drain=drain)

    def take(self, wire: Wire, event: Event, *, drain: bool = False) -> bool:
        """Whether the event was this consumer's."""
        if event.subject.startswith(f"confirm.{self.name}."):
            if not event.payload:  # an error else
                self.confirmed.add(int(event.subject.rpartition(".")[2]))
            return True
        words = event.reply.split(".")
        if len(words) < 9 or words[:2] != ["$JS", "ACK"]:
            if event.subject == f"pull.{self.name}":
                self._left = 0
                return True
            return False
        if words[3] != self.name:
            return False
        seq = int(words[5])
        self._left -= 1
        self.delivered.add(seq)
        if seq in self.confirmed or seq <= self.floor:
            self._kind.fault("a confirmed ack came back", (self.name, seq, self.floor))
        draw = 0.0 if drain else self._kind.rng.random()
        if draw < 0.5:
            self.handled.add(seq)
            body = self._kind.rng.choice([b"+ACK", b"", b"+TERM"])
            wire.publish(event.reply, body, f"confirm.{self.name}.{seq}")
        elif draw < 0.75:
            self.handled.add(seq)
            wire.publish(event.reply, b"+ACK")
        elif draw < 0.85:
            wire.publish(event.reply, b"-NAK")
        return True

    def close(self) -> None:
        self.look()
        for one in self._wires:
            one.close()

    def check(self, wire: Wire) -> None:
        answer = wire.api(f"CONSUMER.INFO.{self._kind.stream}.{self.name}")
        if "error" in answer:
            self._kind.fault("consumer gone", (self.name, answer["error"]))
            self.confirmed.clear()
            self.floor = 0
            body = {"stream_name": self._kind.stream, "config": self.config}
            wire.api(f"CONSUMER.CREATE.{self._kind.stream}.{self.name}", body)
            return
        floor = answer["ack_floor"]["stream_seq"]
        if floor < self.floor:
            self._kind.fault("an ack floor went back", (self.name, floor, self.floor))
        self.floor = max(floor, self.floor)
        self.confirmed = {seq for seq in self.confirmed if seq > floor}
        self.handled = {seq for seq in self.handled if seq > floor or seq in self._kind.acked}
        self.delivered = {seq for seq in self.delivered if seq > floor}


class Consumed(Publishing):
    """A stream and its consumers."""

    window = WINDOW
    sizes = (40, 100)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.readers = self.make_readers()

    def make_readers(self) -> list[Reader]:
        return [Reader(self, "pull")]

    def furnish(self, wire: Wire) -> None:
        super().furnish(wire)
        for reader in self.readers:
            body = {"stream_name": self.stream, "config": reader.config}
            wire.ok(f"CONSUMER.CREATE.{self.stream}.{reader.name}", body)

    def open(self, port: int) -> None:
        super().open(port)
        for reader in self.readers:
            reader.open(port, self.wire)

    def step(self) -> None:
        for reader in self.readers:
            reader.ask()
            reader.look()
        behind = self.last - min(max(reader.delivered, default=0) for reader in self.readers)
        self.window = WINDOW if behind < BACKLOG else 0
        super().step()

    def take(self, event: Event) -> None:
        if not any(reader.take(self.wire, event) for reader in self.readers):
            super().take(event)

    def close(self) -> None:
        super().close()
        for reader in self.readers:
            reader.close()

    def check(self, wire: Wire) -> None:
        super().check(wire)
        for reader in self.readers:
            reader.check(wire)

    def settle(self, wire: Wire) -> None:
        """All that was not acknowledged is delivered and acknowledged; then nothing is pending."""
        owed = [set(self.acked) - reader.handled for reader in self.readers]
        for reader in self.readers:
            reader.delivered.clear()
        self.open(wire.port)
        deadline, quiet = time.monotonic() + PATIENCE_S, 0
        while time.monotonic() < deadline and quiet < 3:
            for reader in self.readers:
                reader.ask(drain=True)
                reader.look(drain=True)
            for event in self.wire.events(0.1):
                for reader in self.readers:
                    reader.take(self.wire, event, drain=True)
            infos = [
                wire.ok(f"CONSUMER.INFO.{self.stream}.{reader.name}") for reader in self.readers
            ]
            done = all(info["num_pending"] == info["num_ack_pending"] == 0 for info in infos)
            quiet = quiet + 1 if done else 0
        for reader in self.readers:
            reader.close()
        self.wire.close()
        if quiet < 3:
            self.fault("never all delivered", infos)
        for reader, seqs in zip(self.readers, owed, strict=True):
            never = seqs - reader.delivered
            if never:
                self.fault("not delivered", (reader.name, sorted(never)[:10]), len(never))
        self.after(wire)

    def after(self, wire: Wire) -> None:
        """When all is acknowledged."""


class Pulled(Consumed):
    stream = "PULLED"

    def prune(self, wire: Wire, state: dict[str, Any]) -> None:
        """Purge only what its consumer is through with."""
        if self.keep:
            floor = min(reader.floor for reader in self.readers)
            if floor - state["first_seq"] > self.keep:
                wire.api(f"STREAM.PURGE.{self.stream}", {"seq": floor})
                self.drop(floor)


class Pushed(Pulled):
    stream = "PUSHED"

    def make_readers(self) -> list[Reader]:
        return [Reader(self, "push", push=True)]


class Work(Consumed):
    stream = "WORK"
    config: ClassVar[dict[str, Any]] = {"retention": "workqueue"}

    def excused(self, seq: int, sent: Sent, state: dict[str, Any], now: float) -> bool:
        return all(seq in reader.handled for reader in self.readers)

    def after(self, wire: Wire) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            state = wire.ok(f"STREAM.INFO.{self.stream}")["state"]
            if not state["messages"]:
                return
            time.sleep(0.1)
        self.fault("acknowledged and not removed", state)


class Interest(Work):
    stream = "INTEREST"
    config: ClassVar[dict[str, Any]] = {"retention": "interest"}

    def make_readers(self) -> list[Reader]:
        return [Reader(self, "pull"), Reader(self, "push", push=True)]


ALL: tuple[type[Kind], ...] = (Pulled, Pushed, Work, Interest)
