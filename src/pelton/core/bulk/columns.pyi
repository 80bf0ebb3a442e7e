"""Messages of a pull consumer as columns; every ``Buffer`` can be wrapped by Arrow without a copy."""

from pelton.core.protocol.wire import Parser

class Buffer:
    """Bytes read through the buffer protocol; cannot grow while a view of it exists."""

    def __len__(self) -> int: ...
    def view(self, format: str = "B") -> memoryview:
        """The bytes as values of a struct format: "q" for int64, "i" for int32."""

class Columns:
    """One batch of messages, in the order received.

    ``seq`` and ``timestamp_ns`` hold int64 values; ``*_offsets`` hold ``count + 1`` int32 values, row i is
    ``data[offsets[i]:offsets[i + 1]]``. All native byte order. Headers are blocks as received, empty where a
    message has none.
    """

    seq: Buffer
    timestamp_ns: Buffer
    subject_offsets: Buffer
    subject_data: Buffer
    headers_offsets: Buffer
    headers_data: Buffer
    payload_offsets: Buffer
    payload_data: Buffer
    count: int
    last_seq: int
    """Stream sequence of the last message added, 0 before the first."""
    last_consumer_seq: int
    last_pending: int
    """Messages of the consumer after the last one, -1 before the first."""
    statuses: list[tuple[str, bytes]]
    """(subject, header block) of messages from the server itself: 404, 408, 409, 100 ..."""
    inbox: bytes
    """How the subjects of statuses begin, b"" if that is unknown: messages that others publish there are not rows."""
    rows_max: int
    bytes_max: int

    def __init__(self, rows_max: int = 65536, bytes_max: int = 67108864) -> None:
        """ValueError unless rows_max >= 1 and 1 <= bytes_max <= 2**30."""
    def __len__(self) -> int: ...
    @property
    def nbytes(self) -> int:
        """Bytes of subjects, headers and payloads."""
    @property
    def full(self) -> bool:
        """Whether no further message is taken."""
    def feed(self, parser: Parser, sid: int, data: bytes | memoryview) -> list[tuple[object, ...]]:
        """Parse data; messages of the subscription become rows, every other operation is returned.

        Stops when the batch is full; the rest stays in the parser, to go on with ``feed(parser, sid, b"")`` of the
        next batch. Raises WireError as ``Parser.feed`` does. Messages without an ack subject are passed over.
        """
    def append(self, subject: str, reply: str, headers: bytes, payload: bytes) -> bool:
        """Add one message that came another way; False when it is not from a consumer."""
    def truncate(self, stop_seq: int) -> int:
        """Drop the rows from the first whose sequence is stop_seq or higher; returns how many."""
    def rows(self) -> list[tuple[int, int, str, bytes, bytes]]:
        """The messages as tuples (seq, timestamp_ns, subject, headers, payload)."""
