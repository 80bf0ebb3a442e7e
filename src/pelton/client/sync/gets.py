"""Reading the stored messages of a stream without a consumer, one request for each message.

No message is removed and no interest changes; it works with every server and kind of stream. Requests
go out for sequence after sequence, in windows; when a whole window finds no matching message, the
stream is asked for the next one::

    get 1, 2, 3 ... 256   ─►  1, 2, 5        (others do not exist: 10037)
    get 257 ... 512       ─►  none           next from 513?  ─►  90001
    get 90001 ...

The leader of a stream answers, so the messages are exactly those of the stream. For blocking code
only.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pelton.api import encode
from pelton.api.calls import MsgGetRequest, MsgGetResponse, StoredMsg
from pelton.core.bulk.columns import Columns
from pelton.core.protocol.subjects import matches
from pelton.errors import (
    ConnectionLostError,
    MessageNotFoundError,
    NoRespondersError,
    PeltonTimeoutError,
    PermissionsViolationError,
)

from ..base.answers import decode
from .columns import MAX_BYTES, ROWS, next_stored

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..base.durations import Duration
    from ..base.mailbox import Interest
    from ..base.message import BaseMessage
    from .jetstream import JetStream

WINDOW_MAX = 256
WINDOW_BYTES = 16 * 2**20
_NO_RESPONDERS = 503


def read_stored(
    js: JetStream,
    stream: str,
    start_seq: int,
    stop_seq: int,
    *,
    filter_subjects: Iterable[str] = (),
    rows: int = ROWS,
    max_bytes: int = MAX_BYTES,
    timeout: Duration | None = None,
) -> Iterator[Columns]:
    """The messages with ``start_seq <= seq < stop_seq`` that the stream holds, in order.

    Raises ApiError (StreamNotFoundError ...), PeltonTimeoutError when an answer does not come, NoRespondersError,
    ConnectionLostError, PermissionsViolationError.
    """
    filters = [filter_subjects] if isinstance(filter_subjects, str) else list(filter_subjects)
    position = max(1, start_seq)
    columns = Columns(rows, max_bytes)
    # Small at first, because the size of the messages is not known.
    window = WINDOW_MAX // 8
    while position < stop_seq:
        stop = min(stop_seq, position + window)
        found = False
        messages = list(_window(js, stream, range(position, stop), timeout))
        size = sum(len(message.data) + len(message.hdrs) for message in messages)
        # Larger step by step, as long as the answers of one window fit into memory.
        window = max(1, min(2 * window, WINDOW_MAX, window * WINDOW_BYTES // (size + 1)))
        for message in messages:
            if filters and not any(matches(message.subject, each) for each in filters):
                continue
            found = True
            _add(columns, message)
            if columns.full:
                yield columns
                columns = Columns(rows, max_bytes)
        position = stop
        if not found and position < stop_seq:
            following = next_stored(js, stream, position, filters)
            if following is None:
                break
            position = following
    if columns.count:
        yield columns


def sequence_at(js: JetStream, stream: str, ns: int, first: int, stop: int) -> int:
    """The first sequence of ``first <= seq < stop`` whose message has that time or a later one; ``stop``
    when there is none.

    Times ascend with the sequences, as in a consumer that begins at a time.
    """
    while first < stop:
        middle = (first + stop) // 2
        try:
            found = js.get_message(stream, middle, next_by_subject=">")
        except MessageNotFoundError:
            stop = middle
            continue
        # The next message may be far after ``middle``: nothing is stored between them.
        if found.seq >= stop or found.timestamp_ns >= ns:
            stop = middle
        else:
            first = found.seq + 1
    return first


def _add(columns: Columns, message: StoredMsg) -> None:
    # Columns read sequence and time from an ack subject, which a get does not have.
    acked = f"$JS.ACK.-.-.1.{message.seq}.{message.seq}.{message.time}.0"
    columns.append(message.subject, acked, message.hdrs, message.data)


def _window(
    js: JetStream, stream: str, sequences: range, timeout: Duration | None
) -> Iterator[StoredMsg]:
    """Those of the messages that exist, in order."""
    with _Answers(js) as answers:
        answers.ask(js.subjects.stream("MSG.GET", stream), sequences)
        answers.wait(js.client._timeout_of(timeout))
        for seq in sequences:
            try:
                message = decode(answers.found[seq], MsgGetResponse).message
            except MessageNotFoundError:
                continue
            if message is not None:
                yield message


class _Answers:
    """The answers to one window of requests."""

    def __init__(self, js: JetStream) -> None:
        """Subscribes to the inbox."""
        self._interest: Interest
        self.found: dict[int, bytes] = {}
        self._client = js.client
        self._wanted = range(0)
        self._asked: dict[str, int] = {}  # sequences by the subjects of their answers
        self._silent = False
        self._inbox = self._client.new_inbox()
        self._client._attach(f"{self._inbox}.*", self)
        self._reconnects = self._client.reconnects
        self._complaint = self._client.last_error

    def __enter__(self) -> _Answers:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._client.closed:
            self._client._connection.unsubscribe(self._interest)

    def ask(self, subject: str, sequences: range) -> None:
        """Send one request for each sequence."""
        self._wanted = sequences
        for seq in sequences:
            reply = f"{self._inbox}.{self._client._tokens.next()}"
            self._asked[reply] = seq
            self._client._connection.publish(subject, encode(MsgGetRequest(seq=seq)), reply)
        self._client._flush_output()

    def wait(self, seconds: float) -> None:
        """Wait for all answers; PeltonTimeoutError when none arrives in ``seconds``."""
        deadline = time.monotonic() + seconds
        while len(self.found) < len(self._wanted):
            before = len(self.found)
            self._client.wait_until(
                lambda before=before: len(self.found) > before or self._failed(),  # type: ignore[misc]  # bound now, as it is meant
                max(0.0, deadline - time.monotonic()),
            )
            if self._client._lost_since(self._reconnects):
                raise ConnectionLostError(
                    f"connection lost while reading: {self._client.last_error}"
                )
            if self._silent:
                raise NoRespondersError("STREAM.MSG.GET")
            said = self._client.last_error
            if said is not self._complaint:
                self._complaint = said
                if isinstance(said, PermissionsViolationError):
                    raise said
            if len(self.found) > before:
                deadline = time.monotonic() + seconds
            elif time.monotonic() >= deadline:
                missing = len(self._wanted) - before
                raise PeltonTimeoutError(
                    f"{missing} requests for messages had no answer in {seconds} s"
                )

    def _failed(self) -> bool:
        return (
            self._silent
            or self._client._lost_since(self._reconnects)
            or self._client.last_error is not self._complaint
        )

    def _on_message(self, message: BaseMessage) -> None:
        """An answer arrived."""
        seq = self._asked.get(message.subject)
        if seq is None:
            return  # somebody else published to the inbox
        if message.status == _NO_RESPONDERS:
            self._silent = True
        else:
            self.found[seq] = message.data

    def _on_end(self) -> None:
        """The client is closed: no answer follows."""
