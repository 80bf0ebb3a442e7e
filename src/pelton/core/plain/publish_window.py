"""Publishing rows of columns and reading their acks, in plain Python: the twin of core/bulk/publish_window.

A message has a number, which ends its reply subject; the window holds it until the answer with that number comes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pelton.core.plain.subjects import literal
from pelton.core.plain.wire import OP_MSG, Operation, Parser, parse_u63

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Buffer

SEND, SKIP, UNNUMBERED = range(3)
TOO_LARGE, BAD_SUBJECT, LONG_SUBJECT = range(1, 4)

_TOKEN = 16  # characters of a token
_DIGITS = 20
_ROWS_MAX = 1 << 24


class Column:
    """A column of texts in Arrow's layout, or, without offsets, one text for every row."""

    def __init__(self, data: Buffer, offsets: Buffer | None = None, count: int = 0) -> None:
        """``offsets``: ``count + 1`` int32 values. ValueError when they are fewer."""
        self._data = memoryview(data).cast("B")
        self._offsets = None if offsets is None else memoryview(offsets).cast("B")
        self.count = count
        if self._offsets is not None:
            if len(self._offsets) < 4 * (count + 1):
                raise ValueError(f"{count} rows need {count + 1} offsets")
            self._offsets = self._offsets[: 4 * (count + 1)].cast("i")

    @property
    def fixed(self) -> bool:
        """Whether there is one text for every row."""
        return self._offsets is None

    def at(self, row: int) -> bytes:
        """The text of a row; ValueError when the offsets lie."""
        if self._offsets is None:
            return bytes(self._data)
        if row >= self.count:
            raise IndexError(f"row {row} of {self.count}")
        start, stop = self._offsets[row], self._offsets[row + 1]
        if not 0 <= start <= stop <= len(self._data):
            raise ValueError(f"the offsets of row {row} lie outside of the data")
        return bytes(self._data[start:stop])


class Rows:
    """One batch of rows to publish; see publish_window.pyi."""

    def __init__(
        self,
        subjects: Column,
        payloads: Column,
        lines: Column | None,
        *,
        first: int,
        count: int,
        how: bytes = b"",
    ) -> None:
        """ValueError when the lengths do not agree."""
        for column in (subjects, payloads, lines):
            if column is not None and not column.fixed and column.count < count:
                raise ValueError(f"a column of {column.count} rows, but there are {count}")
        if how and len(how) != count:
            raise ValueError(f"{len(how)} marks for {count} rows")
        self.subjects, self.payloads, self.lines = subjects, payloads, lines
        self.first, self.count, self.how = first, count, how


class Encoder:
    """Rows as PUB and HPUB operations; see publish_window.pyi."""

    def __init__(
        self,
        *,
        common: bytes = b"",
        numbered: bytes = b"",
        reply: bytes = b"",
        max_payload: int,
        max_line: int = 4096,
    ) -> None:
        """``max_line``: the server's max_control_line."""
        self._common, self._numbered, self._reply = common, numbered, reply
        self.max_payload = max_payload
        self._max_subject = max(max_line - len(reply) - _TOKEN - 3 * (_DIGITS + 1), 0)
        self.refused: list[tuple[int, int, int]] = []

    def operations(self, rows: Rows, start: int, stop: int, number: int) -> tuple[bytes, int]:
        """The rows ``start <= i < stop`` as operations, numbered from ``number`` on, and how many they are."""
        made: list[bytes] = []
        for i in range(start, stop):
            operation = self.operation(rows, i, number + len(made), number + len(made))
            if operation is not None:
                made.append(operation)
        return b"".join(made), len(made)

    def check(self, rows: Rows, number: int) -> None:
        """Refuse what cannot be sent under numbers up to ``number``, and send nothing."""
        for i in range(rows.count):
            self.operation(rows, i, number, number)

    def operation(
        self, rows: Rows, i: int, number: int, line_number: int, token: bytes = b""
    ) -> bytes | None:
        """One row as an operation; None when it is skipped or refused."""
        how = rows.how[i] if rows.how else SEND
        if how == SKIP:
            return None
        subject, payload = rows.subjects.at(i), rows.payloads.at(i)
        lines = self._common + (b"" if rows.lines is None else rows.lines.at(i))
        if self._numbered and how != UNNUMBERED:
            lines += b"%b%d\r\n" % (self._numbered, line_number)
        headers = b"NATS/1.0\r\n%b\r\n" % lines if lines else b""
        total = len(headers) + len(payload)
        reason = self._refusal(rows, subject, total)
        if reason:
            size = total if reason == TOO_LARGE else len(subject)
            self.refused.append((rows.first + i, reason, size))
            return None
        parts = [b"HPUB" if headers else b"PUB", subject]
        if self._reply:
            parts.append(b"%b%b%d" % (self._reply, token, number))
        if headers:
            parts.append(b"%d" % len(headers))
        parts.append(b"%d\r\n%b%b\r\n" % (total, headers, payload))
        return b" ".join(parts)

    def _refusal(self, rows: Rows, subject: bytes, total: int) -> int:
        if total > self.max_payload:
            return TOO_LARGE
        if not rows.subjects.fixed and (b"\0" in subject or not literal(subject)):
            return BAD_SUBJECT
        return LONG_SUBJECT if len(subject) > self._max_subject else 0


@dataclass(slots=True)
class _Waiting:
    """A message that waits for its answer, or for those before it."""

    row: int
    start: int  # position of its first byte among all bytes ever put
    operation: bytes
    token: bytes
    answered: bool = False
    seq: int = 0  # where the stream has it; 0 when not known


class PublishWindow:
    """The window of messages that wait for an answer; see publish_window.pyi."""

    def __init__(
        self,
        encoder: Encoder,
        rows_max: int,
        bytes_max: int,
        tokens: Callable[[], bytes] | None = None,
    ) -> None:
        """ValueError on limits below 1."""
        if not 1 <= rows_max <= _ROWS_MAX or bytes_max < 1:
            raise ValueError(
                f"a window has room for 1 to {_ROWS_MAX} messages and 1 byte or more: {rows_max}, {bytes_max}"
            )
        self.encoder = encoder
        self.rows_max, self.bytes_max = rows_max, bytes_max
        self._tokens = tokens
        self._drawn = b""
        self._slots: dict[int, _Waiting] = {}  # by number, from the oldest without an answer on
        self._oldest = self._next_number = 1
        self._untaken: list[bytes] = []
        self._base = 0  # position of the first byte that is held among all bytes ever put
        self._end = 0  # behind the last one
        self._sent = 0  # up to here bytes were taken
        self.outstanding = self.acked = self.duplicates = self.floor_seq = 0
        self.failures: list[tuple[int, bytes, bytes, bytes]] = []

    def __len__(self) -> int:
        """Messages without an answer."""
        return self.outstanding

    @property
    def held_bytes(self) -> int:
        """Bytes of messages from the oldest without an answer on."""
        return self._end - self._base

    @property
    def full(self) -> bool:
        """Whether an answer must come before another message may go."""
        return len(self._slots) >= self.rows_max or self.held_bytes >= self.bytes_max

    @property
    def waiting_bytes(self) -> int:
        """Bytes that were put and not taken yet."""
        return self._end - self._sent

    def put(self, rows: Rows, start: int, bytes_wanted: int) -> int:
        """Write rows until the window is full or so many bytes can be taken; the first row that was not looked at."""
        i = start
        while i < rows.count and not self.full and self.waiting_bytes < bytes_wanted:
            token, number = self._next_token(), self._next_number
            operation = self.encoder.operation(rows, i, number, rows.first + i, token)
            if operation is not None:
                self._slots[number] = _Waiting(rows.first + i, self._end, operation, token)
                self._untaken.append(operation)
                self._end += len(operation)
                self.outstanding += 1
                self._next_number += 1
            i += 1
        return i

    def take(self) -> bytes:
        """The bytes not taken yet, to be sent now."""
        taken = b"".join(self._untaken)
        self._untaken.clear()
        self._sent = self._end
        return taken

    def again(self) -> bytes:
        """The bytes of every message without an answer, in order; nothing is left to take."""
        self.take()
        return b"".join(operation for _, _, operation in self.unanswered())

    def unanswered(self) -> list[tuple[int, int, bytes]]:
        """(number, row, operation) of every message without an answer, in order."""
        return [
            (number, slot.row, slot.operation)
            for number, slot in self._slots.items()
            if not slot.answered
        ]

    def settle(self, number: int) -> None:
        """The stream has this message: it waits for no answer any more."""
        slot = self._slots.get(number)
        if slot is not None and not slot.answered:
            self.acked += 1
            self.duplicates += 1
            self._settled(slot, 0)

    def feed(self, parser: Parser, sid: int, data: Buffer) -> list[tuple[object, ...]]:
        """Parse data; answers are taken, every other operation is returned; WireError as Parser.feed raises it."""
        others: list[tuple[object, ...]] = []
        parser.take_in(data)
        while (operation := parser.next_operation(others)) is not None:
            if operation.kind == OP_MSG and parse_u63(operation.sid) == sid:
                self._answer(operation)
            else:
                others.append(parser.event_of(operation, others))
        return others

    def _next_token(self) -> bytes:
        if self._tokens is None:
            return b""
        if len(self._drawn) < _TOKEN:
            self._drawn = self._tokens()
            if len(self._drawn) < _TOKEN:
                raise ValueError(f"a token has {_TOKEN} bytes, got {len(self._drawn)}")
        token, self._drawn = self._drawn[:_TOKEN], self._drawn[_TOKEN:]
        return token

    def _answer(self, op: Operation) -> None:
        end = op.subject.rpartition(b".")[2]
        size = 0 if self._tokens is None else _TOKEN
        token, number = end[:size], parse_u63(end[size:])
        slot = self._slots.get(number)
        if slot is None or slot.answered or slot.token != token:
            return
        ack = read_ack(op.payload)
        if ack is None:
            self.failures.append((slot.row, slot.operation, op.headers, op.payload))
        else:
            self.acked += 1
            self.duplicates += ack[1]
        self._settled(slot, ack[0] if ack else 0)

    def _settled(self, slot: _Waiting, seq: int) -> None:
        slot.answered, slot.seq = True, seq
        self.outstanding -= 1
        oldest = self._slots.get(self._oldest)
        while oldest is not None and oldest.answered:
            self.floor_seq = max(self.floor_seq, oldest.seq)
            del self._slots[self._oldest]
            self._oldest += 1
            oldest = self._slots.get(self._oldest)
        self._base = min(self._sent, self._end if oldest is None else oldest.start)


_MEMBER = re.compile(rb' *"(?P<key>[^"\\]*)" *: *(?P<value>"[^"\\]*"|[^,} {\["]*) *(?P<next>[,}])')


def read_ack(text: bytes) -> tuple[int, bool] | None:
    """(sequence, duplicate) of the ack of a stored message; None for anything else, an error above all."""
    if not text.startswith(b"{"):
        return None
    at = 1
    seq, duplicate = 0, False
    while member := _MEMBER.match(text, at):
        at = member.end()
        key, value = member["key"], member["value"]
        if key == b"error":
            return None
        if key == b"seq":
            seq = parse_u63(value)
        elif key == b"duplicate":
            duplicate = value.startswith(b"true")
        if member["next"] == b"}":
            return (seq, duplicate) if seq > 0 else None
    return None
