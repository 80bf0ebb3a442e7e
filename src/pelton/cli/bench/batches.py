"""The roles that publish batches: atomic ones, which are stored as a whole, and fast ones with few acks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pelton.client.base.answers import decode_pub_ack
from pelton.client.base.message import BaseMessage
from pelton.client.batches import FastFlow
from pelton.core.bulk.publish_window import Column, Encoder, Rows
from pelton.core.load.roles import SID
from pelton.core.protocol.wire import decode_headers
from pelton.errors import NoRespondersError, PeltonError

from .links import NEVER, Role
from .supply import CHUNK

if TYPE_CHECKING:
    from .links import Link
    from .supply import Pace, Subjects


class Atomic(Role):
    """Publishes atomic batches, one after the other; its latencies are those of batches."""

    def __init__(
        self,
        link: Link,
        subjects: Subjects,
        payload: bytes,
        quota: int,
        pace: Pace,
        *,
        batch: int,
        lines: bytes = b"",
        first: int = 0,
    ) -> None:
        """``batch``: messages of a batch. ``lines``: headers of every message."""
        super().__init__(link, quota)
        self._subjects = subjects
        self._payload = payload
        self._pace = pace
        self._batch = batch
        self._lines = lines
        self._first = first
        self._batches = 0
        self._open = 0
        self._asked_ns = 0
        link.subscribe(f"{link.inbox}.*", SID)

    def turn(self, now: int) -> int:
        """Write a batch when the last one is stored."""
        self.start_ns = self.start_ns or now
        if self._open or self.over:
            return NEVER
        count = min(self._batch, self.quota - self.done)
        if self._pace.allowed(self.done, count, now) < 1:
            return self._pace.due(self.done)
        self._open = count
        self._batches += 1
        self._asked_ns = now
        self._pace.sent(now)
        self.link.write(self._bytes(count))
        return NEVER

    def _bytes(self, count: int) -> bytes:
        """A whole batch; its last message commits it and asks for the ack."""
        identity = f"{self.link.inbox.rpartition('.')[2]}{self._batches}"
        common = f"Nats-Batch-Id: {identity}\r\n".encode() + self._lines
        number = b"Nats-Batch-Sequence: "
        limit = self.link.max_payload
        plain = Encoder(common=common, numbered=number, max_payload=limit)
        last = Encoder(
            common=common + b"Nats-Batch-Commit: 1\r\n",
            numbered=number,
            reply=f"{self.link.inbox}.".encode(),
            max_payload=limit,
        )
        parts = []
        at = 0
        while at < count:
            column, row, stop = self._subjects.block(self._first + self.done + at)
            stop = min(stop, row + count - at)
            rows = Rows(column, Column(self._payload), None, first=at + 1 - row, count=stop)
            ends = at + stop - row == count
            parts.append(plain.operations(rows, row, stop - ends, at + 1)[0])
            if ends:
                parts.append(last.operations(rows, stop - 1, stop, count)[0])
            at += stop - row
        if plain.refused or last.refused:
            raise PeltonError(f"a message is larger than the server takes ({limit} bytes)")
        return b"".join(parts)

    def message(self, operation: tuple[Any, ...]) -> None:
        """The ack of a batch; raises the refusal."""
        if operation[4] and decode_headers(operation[4])[0] == 503:
            raise NoRespondersError(self._subjects.name(0))
        ack = decode_pub_ack(operation[5])
        if ack.count != self._open:
            raise PeltonError(f"a batch of {self._open} messages, but {ack.count} are stored")

    def settle(self, now: int) -> None:
        """The batch is stored: ``message`` has raised everything else."""
        if self._open:
            self.note(now - self._asked_ns)
            self.done += self._open
            self._open = 0
            if self.done == self.quota:
                self.finish(now)


class Fast(Role):
    """Publishes one fast batch; its latencies are those of the stream's progress reports."""

    def __init__(
        self,
        link: Link,
        subjects: Subjects,
        payload: bytes,
        quota: int,
        pace: Pace,
        *,
        batch: int,
        unanswered: int = 1,
        lines: bytes = b"",
        first: int = 0,
    ) -> None:
        """``batch``: messages between two answers; ``unanswered``: answers that may be outstanding."""
        super().__init__(link, quota)
        self._subjects = subjects
        self._pace = pace
        self._first = first
        identity = link.inbox.rpartition(".")[2]
        self._flow = FastFlow(link.inbox, identity, batch, gaps=False, unanswered=unanswered)
        block = b"NATS/1.0\r\n" + lines + b"\r\n" if lines else b""
        size = len(block) + len(payload)
        self._verb = "HPUB" if block else "PUB"
        sizes = f" {len(block)} {size}" if block else f" {size}"
        self._rest = sizes.encode() + b"\r\n" + block + payload + b"\r\n"
        self._each = size + 80
        self._asked_ns: list[int] = []
        self._ended = False
        link.subscribe(f"{link.inbox}.>", SID)

    def turn(self, now: int) -> int:
        """Write until the stream has to answer."""
        self.start_ns = self.start_ns or now
        flow = self._flow
        if self.link.blocked or self._ended:
            return NEVER
        if flow.count == self.quota:
            if flow.started:
                self._ended = True
                subject = self._subjects.name(self._first + flow.count - 1)
                self.link.write(f"PUB {subject} {flow.reply_of_end()} 0\r\n\r\n".encode())
            return NEVER
        wanted = min(self.quota - flow.count, max(1, CHUNK // self._each))
        count = self._pace.allowed(flow.count, wanted, now)
        parts = []
        while count and not flow.full:
            subject = self._subjects.name(self._first + flow.count)
            parts.append(f"{self._verb} {subject} {flow.reply_of_next()}".encode() + self._rest)
            count -= 1
        if parts:
            self._pace.sent(now)
            self._asked_ns.append(now)
            self.link.write(b"".join(parts))
        if flow.full:
            return NEVER
        return max(now, self._pace.due(flow.count))

    def message(self, operation: tuple[Any, ...]) -> None:
        """An answer of the stream."""
        _, subject, _, reply, headers, payload = operation
        self._flow._on_message(BaseMessage(subject, reply, headers, payload, None))  # type: ignore[arg-type]  # of no client

    def settle(self, now: int) -> None:
        """The stream has told of its progress; raises its refusal."""
        if self._flow.failures:
            raise self._flow.failures[0][1]
        if self._flow.error is not None:
            raise self._flow.error
        if self._asked_ns:
            self.note(now - self._asked_ns[0])
            self._asked_ns.clear()
        self.done = min(self._flow.acked, self.quota)
        if self._flow.result is not None and not self.over:
            self.done = self._flow.outcome().count
            self.finish(now)
