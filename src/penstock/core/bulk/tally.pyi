"""Counts of received messages, and an answer to each, without a Python object per message."""

from typing_extensions import Buffer

from penstock.core.protocol.wire import Parser

class Tally:
    """Counts the messages of a subscription and writes an answer to each that has a reply subject."""

    messages: int
    """Messages of the subscription, but not those that only have a status of the server."""
    payload_bytes: int
    """Bytes of the payloads of these messages."""
    confirmations: int
    """Messages of the subscription for confirmed acks."""
    statuses: list[bytes]
    """Header blocks of messages with a status (404, 408, 503 ...); the caller empties it."""

    def __init__(
        self, answer: bytes | None = None, *, reply: bytes = b"", only_last: bool = False
    ) -> None:
        """``answer``: payload of the answers, None for no answers. ``reply``: their reply subject.

        With ``only_last`` one answer covers all messages of a feed: the last message gets it.
        """

    @property
    def waiting_bytes(self) -> int:
        """Bytes of answers that were not taken yet."""
    def take(self) -> bytes:
        """The answers that were not taken yet, to be sent now."""
    def feed(
        self, parser: Parser, sid: int, data: Buffer, confirmations_sid: int = 0
    ) -> list[tuple[object, ...]]:
        """Parse data; messages of the two subscriptions are counted, every other operation is returned.

        WireError as ``Parser.feed`` raises it.
        """
