"""Rows of columns going out as publishes, and the acks that come back, without a Python object per message."""

from collections.abc import Callable

from typing_extensions import Buffer

from pelton.core.protocol.wire import Parser

SEND: int
SKIP: int
"""The row is not sent."""
UNNUMBERED: int
"""The row is sent without the numbered line: it has a message id of its own."""

TOO_LARGE: int
BAD_SUBJECT: int
LONG_SUBJECT: int

class Column:
    """A column of texts in Arrow's layout, or, without offsets, one text for every row."""

    count: int

    def __init__(self, data: Buffer, offsets: Buffer | None = None, count: int = 0) -> None:
        """``offsets``: ``count + 1`` int32 values. ValueError when they are fewer."""

class Rows:
    """One batch of rows to publish."""

    subjects: Column
    payloads: Column
    lines: Column | None
    first: int
    count: int

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
        """``lines``: header lines of each row, every one ending in CR LF. ``first``: the number of row 0 in its
        partition. ``how``: SEND, SKIP or UNNUMBERED for each row. ValueError when the lengths do not agree.
        """

class Encoder:
    """Rows as PUB and HPUB operations.

    ``common`` are header lines of every message; ``numbered`` is the begin of a header line which a number ends: that
    of the row in an PublishWindow; ``reply`` is the begin of the reply subject, which the number of the message ends.
    A subject that is one for all rows is not checked here.
    """

    max_payload: int
    refused: list[tuple[int, int, int]]
    """(row, TOO_LARGE, BAD_SUBJECT or LONG_SUBJECT, bytes) of rows that cannot be sent; the caller empties it."""

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
    def operations(self, rows: Rows, start: int, stop: int, number: int) -> tuple[bytes, int]:
        """The rows ``start <= i < stop`` as operations, numbered from ``number`` on, and how many they are: the rows
        that are skipped or refused count for nothing.
        """

    def check(self, rows: Rows, number: int) -> None:
        """Refuse what cannot be sent under numbers up to ``number``, and send nothing."""

class PublishWindow:
    """The window of messages that wait for an answer: at most ``rows_max``, and about ``bytes_max`` bytes."""

    encoder: Encoder
    outstanding: int
    """Messages without an answer."""
    rows_max: int
    bytes_max: int
    acked: int
    """Messages that the stream has."""
    duplicates: int
    """How many of them it had before."""
    floor_seq: int
    """Messages without an answer were stored behind this sequence, if at all."""
    failures: list[tuple[int, bytes, bytes, bytes]]
    """(row, operation, header block, payload) of answers that are no plain ack; the caller empties it."""

    def __init__(
        self,
        encoder: Encoder,
        rows_max: int,
        bytes_max: int,
        tokens: Callable[[], bytes] | None = None,
    ) -> None:
        """``tokens`` returns tokens of 16 bytes, one after the other, whenever more are needed. ValueError on
        limits below 1.
        """
    def __len__(self) -> int: ...
    @property
    def held_bytes(self) -> int:
        """Bytes of messages from the oldest without an answer on."""
    @property
    def full(self) -> bool:
        """Whether an answer must come before another message may go."""
    @property
    def waiting_bytes(self) -> int:
        """Bytes that were put and not taken yet."""
    def put(self, rows: Rows, start: int, bytes_wanted: int) -> int:
        """Write rows from ``start`` on until the window is full or so many bytes can be taken; the first row that
        was not looked at.
        """
    def take(self) -> bytes:
        """The bytes not taken yet, to be sent now."""
    def again(self) -> bytes:
        """The bytes of every message without an answer, in order, to be sent anew; nothing is left to take."""
    def unanswered(self) -> list[tuple[int, int, bytes]]:
        """(number, row, operation) of every message without an answer, in order."""
    def settle(self, number: int) -> None:
        """The stream has this message: it waits for no answer any more."""
    def feed(self, parser: Parser, sid: int, data: Buffer) -> list[tuple[object, ...]]:
        """Parse data; answers are taken, every other operation is returned. WireError as ``Parser.feed`` raises it."""
