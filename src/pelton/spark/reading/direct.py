"""Read a partition with batches of direct gets: one request returns many messages.

Nothing is created on the server, which suits a small micro-batch.

    $JS.API.DIRECT.GET.ORDERS  {"seq":7,"batch":100,"max_bytes":4194304,"next_by_subj":"orders.>"}
      ◄── message 7 ... message 12      described by their last headers (core/bulk/wire_columns)
      ◄── 204 EOB                       the end, Nats-Num-Pending: how many follow

Servers have them since 2.11, for streams with ``allow_direct``. Replicas and mirrors may answer, too,
and may lag behind the leader: a message of another stream is not taken, and a replicated stream is read in this
way only when the plan asks for it. Does not depend on Arrow or Spark.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

from pelton.api import encode
from pelton.api.calls import MsgGetRequest
from pelton.core.bulk.wire_columns import DirectColumns
from pelton.core.protocol.wire import decode_headers
from pelton.errors import ConnectionLostError, PeltonError, PeltonTimeoutError
from pelton.spark.connection import client_for, jetstream_for, state_of
from pelton.spark.reading.consumers import BATCH_BYTES
from pelton.spark.reading.patterns import cover
from pelton.spark.reading.plan import UnfitError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.client.base.mailbox import Interest
    from pelton.client.base.message import BaseMessage
    from pelton.client.base.models import StreamInfo
    from pelton.core.bulk.columns import Columns
    from pelton.core.protocol.wire import Parser
    from pelton.spark.reading.one_range import Reading

BATCHES = (2, 11)
"""The first server version that answers a direct get with several messages."""

SHORT_ROWS = 2048
"""A range of up to this number of sequences is read sooner without a consumer."""

_END, _NOT_FOUND, _NO_RESPONDERS = 204, 404, 503
_PENDING = "Nats-Num-Pending"


def is_better(reading: Reading, info: StreamInfo) -> bool:
    """Whether direct gets are the best way to read the partition: it is short, and the read is
    exact.
    """
    return (
        reading.last - reading.position < SHORT_ROWS
        and len(reading.plan.subjects) < 2
        and "reply" not in reading.plan.needed
        and is_exact(reading, info)
    )


def is_exact(reading: Reading, info: StreamInfo) -> bool:
    """Whether direct gets read the partition exactly: no server that may be behind answers."""
    config = info.config
    return (
        config.allow_direct
        and config.num_replicas < 2
        and client_for(reading.plan.servers).server_info.version_at_least(*BATCHES)
    )


def read(reading: Reading) -> Iterator[Columns]:
    """Read the rest of a partition, in batches.

    Raises UnfitError when the server does not answer such gets, or not for this stream.
    """
    plan = reading.plan
    if not client_for(plan.servers).server_info.version_at_least(*BATCHES):
        raise UnfitError("the server is too old for batches of direct gets")
    info = reading.look() if reading.info is None else reading.info
    if not info.config.allow_direct:
        raise UnfitError("it has no direct gets (allow_direct)")
    subject = jetstream_for(plan.servers).subjects.direct_get(plan.stream)
    with _Answers(reading) as answers:
        while not reading.over:
            columns, left = answers.ask(subject)
            # Checked after the messages came, so that it is the state of the stream they are from.
            info = reading.look()
            reading.front = state_of(info).first_seq
            over = not left or columns.last_seq >= reading.last
            columns.truncate(reading.last + 1)
            if columns.count:
                yield columns
            if over:
                reading.closing = info
                return


class _Answers:
    """The server's answers to the inbox of one read, parsed straight into columns."""

    def __init__(self, reading: Reading) -> None:
        """Raises RuntimeError when another reader is open on the connection."""
        plan = reading.plan
        self._reading = reading
        self._plan = plan
        self._client = client_for(plan.servers)
        if self._client._connection.capture is not None:
            raise RuntimeError("another reader is open on this connection")
        self._interest: Interest
        self._inbox = self._client.new_inbox()
        self._reply = ""
        self._columns = self._fresh()
        # How many messages the server has behind the batch; -1 before the end of the batch.
        self._left = -1
        self._problem: PeltonError | UnfitError | None = None
        self._signs = 0

    def __enter__(self) -> _Answers:
        """Begin to capture the connection's messages."""
        self._client._attach(f"{self._inbox}.*", self)
        self._client._connection.capture = self
        return self

    def __exit__(self, *_: object) -> None:
        """End the capture."""
        connection = self._client._connection
        if connection.capture is self:
            connection.capture = None
            connection.unsubscribe(self._interest)

    def ask(self, subject: str) -> tuple[Columns, int]:
        """The next messages, and how many the server has behind them.

        Raises PeltonTimeoutError, ConnectionLostError, UnfitError, and PeltonError for an error of the server.
        """
        plan, reading = self._plan, self._reading
        count = min(plan.batch_rows, reading.last - reading.position + 1)
        self._reply = f"{self._inbox}.{self._client._tokens.next()}"
        self._columns, self._left, self._problem = self._fresh(), -1, None
        request = MsgGetRequest(
            seq=reading.position,
            batch=count,
            max_bytes=BATCH_BYTES,
            next_by_subj=cover(plan.subjects) if plan.subjects else "",
        )
        reconnects = self._client.reconnects
        self._client._connection.publish(subject, encode(request), self._reply)
        deadline = time.monotonic() + plan.servers.request_timeout_seconds
        while self._left < 0 and self._problem is None:
            signs = self._signs
            self._client.wait_until(
                functools.partial(self._heard, signs, reconnects),
                max(0.0, deadline - time.monotonic()),
            )
            if self._client._lost_since(reconnects):
                raise ConnectionLostError(
                    f"connection lost while reading: {self._client.last_error}"
                )
            if self._signs == signs:
                raise PeltonTimeoutError(f"direct gets of {plan.stream} are not answered")
            deadline = time.monotonic() + plan.servers.request_timeout_seconds
        if self._problem is not None:
            raise self._problem
        return self._columns, self._left

    def _heard(self, signs: int, reconnects: int) -> bool:
        return self._signs != signs or self._client._lost_since(reconnects)

    def _fresh(self) -> DirectColumns:
        # Room for all messages that one request can return: a batch ends with the message that
        # reaches its bytes.
        return self._room(self._plan.batch_rows)

    def _room(self, rows: int) -> DirectColumns:
        columns = DirectColumns(rows, 1 << 30)
        columns.stream = self._plan.stream.encode("utf-8", "surrogateescape")
        columns.reply = self._reply.encode("utf-8", "surrogateescape")
        return columns

    # -- called while bytes are parsed ------------------------------------------------------------

    def _feed(self, parser: Parser, data: bytes | memoryview) -> list[tuple[object, ...]]:
        """Called by the parser: keep the messages for this inbox, return every other operation."""
        columns = self._columns
        before = columns.count
        others = columns.feed(parser, self._interest.sid, data)
        if columns.count != before or columns.statuses or columns.foreign:
            self._signs += 1
        self._take_statuses(columns)
        while columns.full:
            # The status that ends a full batch follows it.
            rest = self._room(1)
            others += rest.feed(parser, self._interest.sid, b"")
            self._take_statuses(rest)
            if not rest.count:
                break
            self._problem = PeltonError("the server sent more messages than were requested")
        return others

    def _take_statuses(self, columns: DirectColumns) -> None:
        for subject, block in columns.statuses:
            if subject == self._reply:
                self._on_status(block)
        columns.statuses.clear()
        if columns.foreign:
            self._problem = UnfitError("direct gets are answered by another stream, a mirror")

    def _on_status(self, block: bytes) -> None:
        self._signs += 1
        try:
            status, description, headers = decode_headers(block)
        except ValueError:  # not from a server: another client publishes to this subject
            return
        left = headers.get(_PENDING, ["0"])[0]
        if status == _END:
            self._left = int(left) if left.isdigit() else 0
        elif status == _NOT_FOUND:
            self._left = 0
        elif status == _NO_RESPONDERS:
            self._problem = UnfitError("the server does not answer direct gets of it")
        else:
            self._problem = UnfitError(f"direct gets are refused: {status} {description}")

    def _on_message(self, message: BaseMessage) -> None:
        """Unused: the inbox is new, so no message was parsed before the capture began."""

    def _on_end(self) -> None:
        """The client is closed: no message follows."""
