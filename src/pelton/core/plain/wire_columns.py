"""Columns of direct gets, and of consumers without payloads, in plain Python: the twin of core/bulk/wire_columns.

What the server adds to the headers of a message are its last lines; each is read from the end, by its name.
"""

import re
from datetime import UTC, datetime

from pelton.core.plain.columns import Buffer, Columns, append_bytes, parse_ack, shorten
from pelton.core.plain.wire import Operation, parse_u63

_FIRST = b"NATS/1.0\r\n"
_TIME = re.compile(rb"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{0,9}))?Z", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def lines_of(block: bytes) -> bytes | None:
    """The lines of a header block, each with its end; None for what is none, or has one line only."""
    whole = len(block) >= len(_FIRST) + 4 and block.endswith(b"\r\n\r\n")
    return block[:-2] if whole else None


def last_line(lines: bytes, name: bytes) -> tuple[bytes, bytes] | None:
    """(lines before it, value) of the last of some header lines, if it has this name."""
    before = lines.rfind(b"\n", 0, -2) + 1
    key, colon, value = lines[before:-2].partition(b": ")
    found = before >= len(_FIRST) and colon and key == name
    return (lines[:before], value) if found else None


def block_of(lines: bytes) -> bytes:
    """A header block of lines, b"" when there is none behind the first."""
    return lines + b"\r\n" if len(lines) > len(_FIRST) else b""


def parse_time(text: bytes) -> int:
    """RFC 3339 in UTC, as nanoseconds since 1970; -1: it is none."""
    found = _TIME.fullmatch(text)
    if found is None:
        return -1
    year, month, day, hour, minute, second = map(int, found.groups()[:6])
    if not (1970 <= year <= 2261 and 1 <= month <= 12 and 1 <= day <= 31):
        return -1
    days = (datetime(year, month, 1, tzinfo=UTC) - _EPOCH).days + day - 1
    fraction = int((found[7] or b"").ljust(9, b"0"))
    return (days * 86400 + hour * 3600 + minute * 60 + second) * 1_000_000_000 + fraction


class WireColumns(Columns):
    """Messages of a consumer with their ack subjects, or without their payloads; see wire_columns.pyi."""

    def __init__(self, rows_max: int = 65536, bytes_max: int = 67108864) -> None:
        """As Columns."""
        super().__init__(rows_max, bytes_max)
        self.headers_only = False
        self.replies = False
        self.payload_sizes = Buffer()
        self.reply_offsets, self.reply_data = Buffer(4), Buffer()

    def append(self, subject: str, reply: str, headers: bytes, payload: bytes) -> bool:
        """Refused: messages come by `feed` only."""
        raise TypeError("messages come by feed")

    def truncate(self, stop_seq: int) -> int:
        """As that of Columns."""
        dropped = super().truncate(stop_seq)
        if dropped and self.headers_only:
            self.payload_sizes.cut(self.count * 8)
        if dropped and self.replies:
            shorten(self.reply_data, self.reply_offsets, self.count)
        return dropped

    def payload_bytes(self, row: int) -> int:
        """Bytes of the payload of a message, also when it came without it."""
        if not self.headers_only:
            return super().payload_bytes(row)
        with self.payload_sizes.view("q") as sizes:
            return int(sizes[row])

    def _add(self, op: Operation) -> None:
        numbers = parse_ack(op.reply)
        if numbers is None:
            self._put_status(op)
            return
        headers, payload = op.headers, op.payload
        if self.headers_only:
            size = len(payload)
            lines = lines_of(headers)
            found = last_line(lines, b"Nats-Msg-Size") if lines is not None else None
            if found is not None:
                lines, value = found
                size = parse_u63(value)
                headers = block_of(lines)
            self.payload_sizes.put("q", size)
            payload = b""
        self._put(op.subject, headers, payload, numbers)
        if self.replies:
            append_bytes(self.reply_data, self.reply_offsets, op.reply)


class DirectColumns(Columns):
    """Messages that direct gets brought, as they were stored; see wire_columns.pyi."""

    def __init__(self, rows_max: int = 65536, bytes_max: int = 67108864) -> None:
        """As Columns."""
        super().__init__(rows_max, bytes_max)
        self.stream = b""
        self.reply = b""
        self.foreign = False

    def _add(self, op: Operation) -> None:
        if self.reply and op.subject != self.reply:
            return
        values = []
        lines = lines_of(op.headers)
        for name in _DIRECT:
            found = last_line(lines, name) if lines is not None else None
            if found is None:
                self._put_status(op)
                return
            lines, value = found
            values.append(value)
        _, pending, time, seq, subject, stream = values
        numbers = [0, parse_u63(seq), 0, parse_time(time), parse_u63(pending)]
        if numbers[1] <= 0 or numbers[3] < 0:
            self._put_status(op)
        elif stream != self.stream:
            self.foreign = True
        else:
            self._put(subject, block_of(lines or b""), op.payload, numbers)


_DIRECT = (
    b"Nats-Last-Sequence",
    b"Nats-Num-Pending",
    b"Nats-Time-Stamp",
    b"Nats-Sequence",
    b"Nats-Subject",
    b"Nats-Stream",
)
