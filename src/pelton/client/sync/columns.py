"""Reading a consumer in bulk: messages become columns without a Python object per message.

While a reader is open, it captures the messages of its subscription as the bytes are parsed
(``core.columns``); all other operations of the connection are processed as usual. Pull requests
overlap and are bounded in messages and in bytes, so the server never has more than
``in_flight * max_bytes`` on the way to the client::

    request 1 ─► ▓▓▓▓▓▓▓▓▓▓▓▓                      up to batch messages or max_bytes each
    request 2      ─► ........▓▓▓▓▓▓▓▓▓▓▓▓
    Columns      [ rows ][ rows ][ rows ][ rows ]  returned when full, or when nothing is pending
                                                   after the last row

For blocking code only. Does not depend on Arrow.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, cast

from pelton.core.bulk.columns import Columns
from pelton.core.bulk.wire_columns import WireColumns
from pelton.core.protocol.wire import Parser, decode_headers
from pelton.errors import (
    ConnectionLostError,
    ConsumerDeletedError,
    ConsumerNotFoundError,
    MessageNotFoundError,
    NoRespondersError,
    PeltonError,
    PeltonTimeoutError,
    PullError,
)

from ..base.models import ConsumerConfig, ConsumerInfo
from ..consume.pull import HEARTBEAT, PENDING_MESSAGES, TRANSIENT, pull_body, status_error
from .management import Management
from .upkeep import OwnConsumers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ..base.durations import Duration
    from ..base.mailbox import Interest
    from ..base.message import BaseMessage
    from .jetstream import JetStream

ROWS = 16_384
MAX_BYTES = 8 * 1024 * 1024
IN_FLIGHT = 2
EXPIRES_S = 30.0
HEARTBEAT_S = 2.0
INACTIVE_THRESHOLD_S = 60
BARREN_MAX = 5
PASSING = (
    ConnectionLostError,
    ConsumerDeletedError,
    ConsumerNotFoundError,
    NoRespondersError,
    PullError,
)
"""Errors after which another consumer may deliver the rest."""
# After so much silence the stream is asked whether anything follows.
QUIET_S = 0.25
END_OF_SEQUENCES = 1 << 62


def _not_sent(seq: int) -> PeltonTimeoutError:
    return PeltonTimeoutError(
        f"message {seq} or a later one exists, but the server does not send it"
    )


class ColumnReader:
    """Reads a consumer without acks in batches of columns; one reader per connection at a time.

    Example::

        with js.column_reader("ORDERS", "packing") as reader:
            columns = reader.read(timeout=1)

    ``rows`` bounds a returned batch, ``batch`` a pull request; both are also bounded by ``max_bytes``.
    """

    def __init__(
        self,
        js: JetStream,
        stream: str,
        consumer: str,
        *,
        rows: int = ROWS,
        batch: int = 2 * ROWS,
        max_bytes: int = MAX_BYTES,
        in_flight: int = IN_FLIGHT,
        stop_seq: int = END_OF_SEQUENCES,
        headers_only: bool = False,
        replies: bool = False,
    ) -> None:
        """``headers_only`` says that the consumer delivers only headers; ``replies`` keeps the ack subjects.

        With either of them the columns are :class:`WireColumns`. Raises RuntimeError when another reader is
        open, ValueError on limits below 1.
        """
        if batch < 1 or max_bytes < 1 or in_flight < 1:
            raise ValueError(
                f"batch, max_bytes and in_flight are at least 1: {batch}, {max_bytes}, {in_flight}"
            )
        self.client = js.client
        if self.client._connection.capture is not None:
            raise RuntimeError("another reader is open on this connection")
        self._interest: Interest
        self.rows_received = 0
        self.last_seq = 0
        """Stream sequence of the last received message."""
        self._subject = js.subjects.next_message(stream, consumer)
        self._rows = rows
        self._batch = batch
        self._max_bytes = max_bytes
        self._in_flight = in_flight
        self.stop_seq = stop_seq
        self._kind = (headers_only, replies)
        self._replies = self.client._new_replies()
        self._current = self._columns()
        self._ready: deque[Columns] = deque()
        self._requests = 0
        self._outstanding = 0
        self._oversize = False  # the next message alone exceeds max_bytes
        self._rows_at_exceeded = -1
        self._error: PeltonError | None = None
        self._signs = 0  # counts everything that the subscription receives
        self._reconnects = self.client.reconnects
        self.client._attach(self._replies.pattern, self)
        self.client._connection.capture = self

    def __enter__(self) -> ColumnReader:
        """The reader itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _columns(self) -> Columns:
        headers_only, replies = self._kind
        columns: Columns
        if headers_only or replies:
            columns = wired = WireColumns(self._rows, self._max_bytes)
            wired.headers_only, wired.replies = self._kind
        else:
            columns = Columns(self._rows, self._max_bytes)
        columns.inbox = self._replies.prefix.encode()
        return columns

    def close(self) -> None:
        """Stop reading; the consumer stays."""
        connection = self.client._connection
        if connection.capture is self:
            connection.capture = None
            connection.unsubscribe(self._interest)

    # -- called while bytes are parsed ------------------------------------------------------------

    def _feed(self, parser: Parser, data: bytes | memoryview) -> list[tuple[object, ...]]:
        """Called by the parser: keep the messages for this inbox, return every other operation."""
        sid = self._interest.sid
        columns = self._current
        before = columns.count
        others = columns.feed(parser, sid, data)
        self._received(columns, before)
        while columns.full:
            self._ready.append(columns)
            columns = self._current = self._columns()
            # The parser still has bytes that did not fit into the full columns.
            others += columns.feed(parser, sid, b"")
            self._received(columns, 0)
        return others

    def _received(self, columns: Columns, before: int) -> None:
        count = columns.count - before
        if count:
            self._signs += 1
            self.rows_received += count
            self.client._connection.messages_received += count
            # Messages of requests that were forgotten may come as well.
            self._outstanding = max(0, self._outstanding - count)
            self.last_seq = columns.last_seq
        if columns.statuses:
            self._signs += 1
            for subject, block in columns.statuses:
                if self._replies.number_of(subject):
                    self._on_status(block)
            columns.statuses.clear()

    def _on_status(self, block: bytes) -> None:
        try:
            status, description, headers = decode_headers(block)
        except ValueError:  # not from a server: another client publishes to this subject
            return
        if status == HEARTBEAT:
            return
        low = description.lower()
        left = headers.get(PENDING_MESSAGES, [""])[0]
        self._outstanding = max(0, self._outstanding - int(left)) if left.isdigit() else 0
        if low.startswith("message size exceeds"):
            # Twice without a message between: not the rest of a request was too small, but a whole one.
            self._oversize = self._rows_at_exceeded == self.rows_received
            self._rows_at_exceeded = self.rows_received
            return
        error = status_error(status, description, self._subject)
        if error is not None and not low.startswith(TRANSIENT):
            self._error = error

    def _on_message(self, message: BaseMessage) -> None:
        """Unused: the inbox is new, so no message was parsed before the capture began."""
        self._current.append(message.subject, message.reply, message.raw_headers, message.data)

    def _on_end(self) -> None:
        """The client is closed: no message follows."""

    # -- called by the reader of the columns ------------------------------------------------------

    def read(self, timeout: Duration | None = None) -> Columns:
        """The next batch: full, or with nothing pending after its last row, or all that came in time.

        Raises ConnectionLostError when the connection broke (messages on the way are then lost), ConsumerDeletedError,
        NoRespondersError, PullError; but first returns the rows that it has.
        """
        deadline = time.monotonic() + self.client._timeout_of(timeout)
        while not self._ready:
            # The server has nothing more at this moment: waiting for a full batch could take for ever.
            if self._current.count and (
                self._current.last_pending == 0 or self.last_seq >= self.stop_seq - 1
            ):
                return self._take()
            if self.client._lost_since(self._reconnects):
                return self._take_or_raise(
                    ConnectionLostError(f"connection lost while reading: {self.client.last_error}")
                )
            if self._error is not None:
                return self._take_or_raise(self._error)
            self._pull()
            if not self._wait(deadline):
                return self._take()
        return self._ready.popleft()

    def _take(self) -> Columns:
        columns, self._current = self._current, self._columns()
        return columns

    def _take_or_raise(self, error: PeltonError) -> Columns:
        if not self._current.count:
            raise error
        return self._take()

    def _wait(self, deadline: float) -> bool:
        """Wait until the subscription receives something; False at the deadline.

        When not even heartbeats come, the next pull starts anew.
        """
        signs = self._signs
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        quiet = 3 * HEARTBEAT_S
        came = self.client.wait_until(
            lambda: self._signs != signs or self.client._lost_since(self._reconnects),
            min(left, quiet),
        )
        if not came and left > quiet:
            # Requests may be lost without a word, for example with the leader of the consumer.
            self._pull_anew()
        return True

    def _pull_anew(self) -> None:
        """Forget all requests under way: the next read sends new ones."""
        self._outstanding = 0

    def _pull(self) -> None:
        """Keep requests under way, but for no more messages than the range can have."""
        while self._outstanding <= self._batch * (self._in_flight - 1):
            room = self.stop_seq - 1 - self.last_seq - self._outstanding
            if room <= 0 and self._outstanding:
                return
            # A message that is larger than max_bytes is requested alone, without that limit.
            count = 1 if self._oversize else max(1, min(self._batch, room))
            body = pull_body(
                count,
                expires_ns=round(EXPIRES_S * 1e9),
                max_bytes=0 if self._oversize else self._max_bytes,
                idle_heartbeat_ns=round(HEARTBEAT_S * 1e9),
            )
            self._oversize = False
            self._requests += 1
            self._outstanding += count
            self.client._connection.publish(
                self._subject, body, self._replies.subject(self._requests)
            )


def read_range(
    js: JetStream,
    stream: str,
    start_seq: int,
    stop_seq: int,
    *,
    filter_subjects: Iterable[str] = (),
    rows: int = ROWS,
    max_bytes: int = MAX_BYTES,
    timeout: Duration | None = None,
    headers_only: bool = False,
    replies: bool = False,
    begun: Callable[[], object] | None = None,
) -> Iterator[Columns]:
    """The messages with ``start_seq <= seq < stop_seq`` that the stream holds, in order.

    Creates consumers without acks, and a new one after the last row when one is lost; calls ``begun``
    after each creation. With ``headers_only`` payloads stay on the server, with ``replies`` the ack
    subjects are kept (:class:`WireColumns`). Ends at the current end of the stream if that is before
    ``stop_seq``. Raises PeltonTimeoutError when a stored message does not come, ConnectionClosedError when no
    server can be reached again, ApiError (StreamNotFoundError ...), and the errors of a pull when several
    consumers in a row deliver nothing.
    """
    filters = [filter_subjects] if isinstance(filter_subjects, str) else list(filter_subjects)
    position, barren = max(1, start_seq), 0  # barren: consumers in a row that delivered nothing
    own = OwnConsumers(js, stream)
    while position < stop_seq:
        barren += 1
        try:
            info = begin(js, own, _range_consumer(position, filters, headers_only))
        except ConnectionLostError:
            continue
        reader = None
        try:
            if begun is not None:
                begun()
            if info.num_pending == 0 and not _follows(js, stream, position, stop_seq, filters):
                return
            reader = ColumnReader(
                js,
                stream,
                info.name,
                rows=rows,
                batch=2 * rows,
                max_bytes=max_bytes,
                stop_seq=stop_seq,
                headers_only=headers_only,
                replies=replies,
            )
            reader.last_seq = position - 1
            for columns in _without_gap(js, reader, stream, info.name, filters, timeout):
                barren = 0
                position = columns.last_seq + 1
                over = columns.last_pending == 0
                columns.truncate(stop_seq)
                if columns.count:
                    yield columns
                if over or position >= stop_seq:
                    break
            if position >= stop_seq or not _follows(js, stream, position, stop_seq, filters):
                return
            if barren >= BARREN_MAX:
                raise _not_sent(position)
        except PASSING:
            if barren >= BARREN_MAX:
                raise
        finally:
            if reader is not None:
                reader.close()
            discard(js, own)


def _range_consumer(position: int, filters: list[str], headers_only: bool) -> ConsumerConfig:
    return ConsumerConfig(
        deliver_policy="by_start_sequence",
        opt_start_seq=position,
        ack_policy="none",
        max_deliver=1,
        mem_storage=True,
        num_replicas=1,
        inactive_threshold=INACTIVE_THRESHOLD_S,
        filter_subject=filters[0] if len(filters) == 1 else "",
        filter_subjects=filters if len(filters) > 1 else [],
        headers_only=headers_only,
    )


def _without_gap(
    js: JetStream,
    reader: ColumnReader,
    stream: str,
    consumer: str,
    filters: list[str],
    timeout: Duration | None,
) -> Iterator[Columns]:
    """Batches of a fresh consumer.

    Ends when a message is missing between others, when the consumer reports that it has delivered all, or
    when there are no more messages.
    """
    received = idle = 0
    deadline = time.monotonic() + js.client._timeout_of(timeout)
    while True:
        columns = reader.read(min(QUIET_S, max(0.001, deadline - time.monotonic())))
        if not columns.count:
            if not _follows(js, stream, reader.last_seq + 1, reader.stop_seq, filters):
                return
            info = js.consumer_info(stream, consumer)
            # Done when nothing is pending and all that was delivered is here. At the second look in a row,
            # whatever is missing was lost on its way.
            idle = 0 if info.num_pending else idle + 1
            if idle > 1 or (idle and info.delivered.consumer_seq == received):
                return
            if not info.num_waiting:
                # A request that used up its max_bytes exactly ends without a status.
                reader._pull_anew()
            if time.monotonic() < deadline:
                continue
            seq = reader.last_seq + 1
            raise _not_sent(seq)
        received += columns.count
        # A message got lost: this batch is dropped, and another consumer begins after the one before.
        if columns.last_consumer_seq != received:
            return
        yield columns
        idle = 0
        deadline = time.monotonic() + js.client._timeout_of(timeout)


def next_stored(js: JetStream, stream: str, position: int, filters: Iterable[str]) -> int | None:
    """The sequence of the first message from ``position`` on that matches a filter; None for none.

    Without filters every message matches. Every server since 2.9 knows it exactly.
    """
    found = []
    for subject in list(filters) or [">"]:
        try:
            found.append(js.get_message(stream, position, next_by_subject=subject).seq)
        except MessageNotFoundError:
            continue
    return min(found, default=None)


def _follows(js: JetStream, stream: str, position: int, stop_seq: int, filters: list[str]) -> bool:
    """Whether the stream has a matching message with ``position <= seq < stop_seq``.

    Asked before a range counts as complete: after a purge, servers (2.9) may report too few or too many
    pending messages.
    """
    found = next_stored(js, stream, position, filters)
    return found is not None and found < stop_seq


def begin(js: JetStream, own: OwnConsumers, config: ConsumerConfig) -> ConsumerInfo:
    """Create a consumer and remove those before it, or leave none."""
    try:
        info = own.create(config)
        own.remove(keep=info.name)
    except BaseException:
        discard(js, own)
        raise
    return info


def discard(js: JetStream, own: OwnConsumers) -> None:
    """Remove the consumers that the server may have.

    It removes an inactive consumer itself, so this does not wait for a server that is away.
    """
    if js.client.connected:
        own.remove()


class ColumnReading(Management):
    """Reading in bulk; a part of ``JetStream``."""

    def column_reader(
        self,
        stream: str,
        consumer: str,
        *,
        rows: int = ROWS,
        batch: int = 2 * ROWS,
        max_bytes: int = MAX_BYTES,
        in_flight: int = IN_FLIGHT,
        stop_seq: int = END_OF_SEQUENCES,
        headers_only: bool = False,
        replies: bool = False,
    ) -> ColumnReader:
        """Read a consumer without acks in batches of columns; one reader per connection at a time.

        ``headers_only`` says that the consumer delivers only headers; ``replies`` keeps the ack subjects.
        With either of them the columns are ``WireColumns``. Raises RuntimeError when another reader is
        open, ValueError on limits below 1.
        """
        return ColumnReader(
            cast("JetStream", self),
            stream,
            consumer,
            rows=rows,
            batch=batch,
            max_bytes=max_bytes,
            in_flight=in_flight,
            stop_seq=stop_seq,
            headers_only=headers_only,
            replies=replies,
        )

    def read_columns(
        self,
        stream: str,
        start_seq: int,
        stop_seq: int,
        *,
        filter_subjects: Iterable[str] = (),
        rows: int = ROWS,
        max_bytes: int = MAX_BYTES,
        timeout: Duration | None = None,
        headers_only: bool = False,
        replies: bool = False,
        begun: Callable[[], object] | None = None,
    ) -> Iterator[Columns]:
        """The messages with ``start_seq <= seq < stop_seq`` that the stream holds, in order.

        Creates consumers without acks, and a new one after the last row when one is lost; calls ``begun``
        after each creation. With ``headers_only`` payloads stay on the server, with ``replies`` the ack
        subjects are kept (``WireColumns``). Ends at the current end of the stream if that is before
        ``stop_seq``. Raises PeltonTimeoutError when a stored message does not come, ConnectionClosedError when
        no server can be reached again, ApiError (StreamNotFoundError ...), and the errors of a pull when
        several consumers in a row deliver nothing.
        """
        return read_range(
            cast("JetStream", self),
            stream,
            start_seq,
            stop_seq,
            filter_subjects=filter_subjects,
            rows=rows,
            max_bytes=max_bytes,
            timeout=timeout,
            headers_only=headers_only,
            replies=replies,
            begun=begun,
        )
