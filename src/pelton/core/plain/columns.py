"""Messages of a pull consumer as columns, in plain Python: the twin of core/bulk/columns, which draws them."""

from __future__ import annotations

from struct import pack
from typing import Literal

from pelton.core.plain.wire import OP_MSG, Operation, Parser, parse_u63

BYTES_MAX = 1 << 30  # so that offsets always fit 31 bits, the last message included
_SHORT, _LONG = 9, 11  # tokens of an ack subject


class Buffer(bytearray):
    """Bytes read through the buffer protocol; cannot grow while a view of it exists."""

    def view(self, format: Literal["B", "i", "q"] = "B") -> memoryview[int]:  # noqa: A002
        """The bytes as values of a struct format: "q" for int64, "i" for int32."""
        return memoryview(self).toreadonly().cast("B").cast(format)

    def put(self, format: str, value: int) -> None:  # noqa: A002
        """Append a value of a struct format."""
        self += pack(f"={format}", value)

    def cut(self, size: int) -> None:
        """Keep the first `size` bytes."""
        del self[size:]


def parse_ack(reply: bytes) -> list[int] | None:
    """Delivered, stream sequence, consumer sequence, timestamp and pending of an ack subject; None for another one."""
    if not reply.startswith(b"$JS.ACK."):
        return None
    tokens = reply.split(b".")
    if len(tokens) == _SHORT:
        numbers = tokens[4:]
    elif len(tokens) >= _LONG:  # behind domain and account; further tokens do not matter
        numbers = tokens[6:_LONG]
    else:
        return None
    values = [parse_u63(number) for number in numbers]
    return None if min(values) < 0 else values


class Columns:
    """One batch of messages, in the order received; see columns.pyi."""

    def __init__(self, rows_max: int = 65536, bytes_max: int = 67108864) -> None:
        """ValueError unless rows_max >= 1 and 1 <= bytes_max <= 2**30."""
        if rows_max < 1 or not 1 <= bytes_max <= BYTES_MAX:
            raise ValueError(
                f"a batch has 1 row or more and 1 to {BYTES_MAX} bytes: {rows_max}, {bytes_max}"
            )
        self.rows_max, self.bytes_max = rows_max, bytes_max
        self.seq, self.timestamp_ns = Buffer(), Buffer()
        self.subject_offsets, self.subject_data = Buffer(4), Buffer()
        self.headers_offsets, self.headers_data = Buffer(4), Buffer()
        self.payload_offsets, self.payload_data = Buffer(4), Buffer()
        self.count = 0
        self.last_seq = self.last_consumer_seq = 0
        self.last_pending = -1
        self.statuses: list[tuple[str, bytes]] = []
        self.inbox = b""

    def __len__(self) -> int:
        """Its messages."""
        return self.count

    @property
    def nbytes(self) -> int:
        """Bytes of subjects, headers and payloads."""
        return len(self.subject_data) + len(self.headers_data) + len(self.payload_data)

    @property
    def full(self) -> bool:
        """Whether no further message is taken."""
        return self.count >= self.rows_max or self.nbytes >= self.bytes_max

    def feed(self, parser: Parser, sid: int, data: bytes | memoryview) -> list[tuple[object, ...]]:
        """Parse data; messages of the subscription become rows, every other operation is returned."""
        others: list[tuple[object, ...]] = []
        parser.take_in(data)
        while not self.full:
            operation = parser.next_operation(others)
            if operation is None:
                break
            if operation.kind == OP_MSG and parse_u63(operation.sid) == sid:
                self._add(operation)
            else:
                others.append(parser.event_of(operation, others))
        return others

    def append(self, subject: str, reply: str, headers: bytes, payload: bytes) -> bool:
        """Add one message that came another way; False when it is not from a consumer."""
        numbers = parse_ack(reply.encode("utf-8", "surrogateescape"))
        if numbers is not None:
            self._put(subject.encode("utf-8", "surrogateescape"), headers, payload, numbers)
        return numbers is not None

    def truncate(self, stop_seq: int) -> int:
        """Drop the rows from the first whose sequence is stop_seq or higher; returns how many."""
        with self.seq.view("q") as seq:
            keep = next((i for i, value in enumerate(seq) if value >= stop_seq), self.count)
        dropped = self.count - keep
        if dropped:
            self.count = keep
            self.seq.cut(keep * 8)
            self.timestamp_ns.cut(keep * 8)
            shorten(self.subject_data, self.subject_offsets, keep)
            shorten(self.headers_data, self.headers_offsets, keep)
            shorten(self.payload_data, self.payload_offsets, keep)
        return dropped

    def rows(self) -> list[tuple[int, int, str, bytes, bytes]]:
        """The messages as tuples (seq, timestamp_ns, subject, headers, payload)."""
        subjects = pieces(self.subject_data, self.subject_offsets)
        return [
            (seq, timestamp_ns, subject.decode("utf-8", "surrogateescape"), headers, payload)
            for seq, timestamp_ns, subject, headers, payload in zip(
                self.seq.view("q"),
                self.timestamp_ns.view("q"),
                subjects,
                pieces(self.headers_data, self.headers_offsets),
                pieces(self.payload_data, self.payload_offsets),
                strict=True,
            )
        ]

    def payload_bytes(self, row: int) -> int:
        """Bytes of the payload of a message, also when it came without it."""
        with self.payload_offsets.view("i") as offsets:
            return int(offsets[row + 1] - offsets[row])

    def _add(self, op: Operation) -> None:
        numbers = parse_ack(op.reply)
        if numbers is None or (self.inbox and op.subject.startswith(self.inbox)):
            self._put_status(op)
        else:
            self._put(op.subject, op.headers, op.payload, numbers)

    def _put(self, subject: bytes, headers: bytes, payload: bytes, numbers: list[int]) -> None:
        self.seq.put("q", numbers[1])
        self.timestamp_ns.put("q", numbers[3])
        append_bytes(self.subject_data, self.subject_offsets, subject)
        append_bytes(self.headers_data, self.headers_offsets, headers)
        append_bytes(self.payload_data, self.payload_offsets, payload)
        self.count += 1
        _, self.last_seq, self.last_consumer_seq, _, self.last_pending = numbers

    def _put_status(self, op: Operation) -> None:
        """Keep a status message; other messages come from clients that publish to our inbox."""
        if op.header_bytes >= 12 and op.body.startswith(b"NATS/1.0 "):
            self.statuses.append((op.subject.decode("utf-8", "surrogateescape"), op.headers))


def append_bytes(data: Buffer, offsets: Buffer, value: bytes) -> None:
    """Append a value to a column of bytes."""
    data += value
    offsets.put("i", len(data))


def shorten(data: Buffer, offsets: Buffer, keep: int) -> None:
    """Keep the first rows of a column of bytes."""
    offsets.cut((keep + 1) * 4)
    with offsets.view("i") as ends:
        size = ends[keep]
    data.cut(size)


def pieces(data: Buffer, offsets: Buffer) -> list[bytes]:
    """The values of a column of bytes."""
    with offsets.view("i") as ends:
        return [bytes(data[ends[i] : ends[i + 1]]) for i in range(len(ends) - 1)]
