"""Publishing so that each message is stored only after the one before it, and finding it again.

See :mod:`pelton.pipeline.logs.shipper` for the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pelton.errors import MessageNotFoundError, PeltonError, PublishFailedError
from pelton.pipeline.logs import names
from pelton.pipeline.logs.files import Identity, Mark

if TYPE_CHECKING:
    from pelton.client.base.models import StoredMessage
    from pelton.client.sync.jetstream import JetStream
    from pelton.client.sync.publishing import Publisher

WINDOW_MESSAGES = 2000
ACK_TIMEOUT_SECONDS = 10.0
_EXPECTED_LAST_ID = "Nats-Expected-Last-Msg-Id"
_EXPECTED_SUBJECT_SEQUENCE = "Nats-Expected-Last-Subject-Sequence"


class ChainBrokenError(PeltonError):
    """The stream refused a message, or did not answer: read again after the stream's last message."""


class Shipped(NamedTuple):
    """The last message of a subject: its sequence and time, and the mark in its headers.

    The mark is None for a message of another program.
    """

    sequence: int
    time_ns: int
    mark: Mark | None


def read_mark(message: StoredMessage) -> Mark | None:
    """The mark in the headers of a stored message; None if no shipper made the message."""
    headers = message.headers
    try:
        identity = Identity.parse(headers[names.IDENTITY_HEADER])
        next_offset = int(headers[names.NEXT_HEADER])
    except (KeyError, ValueError):
        return None
    partial = names.PARTIAL_HEADER in headers
    return Mark(identity, next_offset, message.data + (b"" if partial else b"\n"), partial)


class Chain:
    """Publishes messages of one stream so that each is stored only after the one before it."""

    def __init__(self, jetstream: JetStream, stream: str, window: int = WINDOW_MESSAGES) -> None:
        """``window`` is the number of messages that may wait for their acks."""
        self._jetstream = jetstream
        self._stream = stream
        self._window = window
        self._publisher: Publisher | None = None
        self._last_id: str | None = None
        self._looked_up: dict[str, int] = {}
        self._acked_before = 0

    @property
    def acked(self) -> int:
        """The number of messages that the stream has acknowledged, over all chains."""
        return self._acked_before + (self._publisher.acked if self._publisher else 0)

    def last(self, subject: str) -> Shipped | None:
        """The last message of a subject, asked from the stream now.

        The next message of the subject must be stored directly after it.
        """
        try:
            message = self._jetstream.get_message(self._stream, last_by_subject=subject)
        except MessageNotFoundError:
            self._looked_up[subject] = 0
            return None
        self._looked_up[subject] = message.seq
        return Shipped(message.seq, message.timestamp_ns, read_mark(message))

    def subjects(self, pattern: str) -> list[str]:
        """The subjects that the stream has messages of."""
        return list(
            self._jetstream.stream_info(self._stream, subjects_filter=pattern).state.subjects
        )

    def line_before(self, subject: str, offset: int) -> bytes | None:
        """The line of a file that ends at an offset, with its newline, if it was shipped.

        Offsets grow with sequences on a subject, so a binary search over sequences finds it.
        """
        low, high = 1, self._looked_up.get(subject, 0)
        while low <= high:
            middle = (low + high) // 2
            try:
                message = self._jetstream.get_message(self._stream, middle, next_by_subject=subject)
            except MessageNotFoundError:
                high = middle - 1
                continue
            mark = read_mark(message)
            if mark is None or message.seq > high:
                high = middle - 1
            elif mark.next_offset == offset:
                return mark.ending
            elif mark.next_offset < offset:
                low = message.seq + 1
            else:
                high = middle - 1
        return None

    def publish(self, subject: str, data: bytes, headers: dict[str, str], message_id: str) -> None:
        """Send a message; waits only if the window is full. Raises :class:`ChainBrokenError`.

        Call :meth:`last` before the first message of a subject in this chain.
        """
        if self._publisher is None:
            self._publisher = self._jetstream.publisher(
                window=self._window, timeout=ACK_TIMEOUT_SECONDS, attempts_max=1
            )
        if (before := self._looked_up.pop(subject, None)) is not None:
            headers[_EXPECTED_SUBJECT_SEQUENCE] = str(before)
        if self._last_id is not None:
            headers[_EXPECTED_LAST_ID] = self._last_id
        self._last_id = message_id
        self._publisher.publish(subject, data, headers=headers, msg_id=message_id)
        if self._publisher.failures:
            self.settle()

    def settle(self) -> None:
        """Wait for all answers. Raises :class:`ChainBrokenError` if one is a refusal or missing."""
        if self._publisher is None:
            return
        try:
            self._publisher.flush()
        except PublishFailedError as failed:
            raise ChainBrokenError(str(failed)) from failed

    def begin_anew(self) -> None:
        """Drop the broken chain; the next message begins another."""
        if self._publisher is not None:
            self._acked_before += self._publisher.acked
            # With an error the publisher does not wait for answers.
            self._publisher.__exit__(ChainBrokenError, None, None)
        self._publisher = None
        self._last_id = None
        self._looked_up.clear()
