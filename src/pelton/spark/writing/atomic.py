"""Write the rows of one partition in atomic batches, each with a marker in the same stream.

Each row is stored once, whatever the duplicate window is, however long a restart takes, and even
when another attempt writes the same partition.

::

    batch 1    row 0 … row 998    marker {"epoch": 7, "rows": 999, ...}    expects: no marker yet
    batch 2    row 999 … row 1997 marker {"epoch": 7, "rows": 1998, ...}   expects: marker of batch 1
    batch 3    row 1998 … row 2400 marker {... "rows": 2401, "done": true}

The server stores a batch and its marker together or not at all, so the last marker on the subject
says exactly which rows are stored. A marker expects the previous marker to be the last message on
its subject: of two attempts at one partition only one can store a batch, and the other gets an
error.

While the server stores a batch, the writer composes and sends the rows of the next one. It sends
the marker, which commits that batch, after the answer that the previous batch is stored.

Does not depend on Spark.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from pelton.client.base.answers import decode_pub_ack
from pelton.client.base.message import EXPECTED_LAST_SUBJECT_SEQ
from pelton.core.bulk.publish_window import Encoder
from pelton.errors import (
    ApiError,
    ConnectionClosedError,
    MessageNotFoundError,
    NoRespondersError,
    PeltonError,
    PeltonTimeoutError,
    WrongLastSequenceError,
)
from pelton.nuid import Nuid
from pelton.spark.connection import forget_client, jetstream_for
from pelton.spark.writing.plan import Written, fingerprint
from pelton.spark.writing.row_errors import WriteError
from pelton.spark.writing.sending import (
    RETRY_EVERY_SECONDS,
    common_lines,
    connect,
    unsent,
    why_refused,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from pelton.client.sync import Client, Question
    from pelton.client.sync.jetstream import JetStream
    from pelton.core.bulk.publish_window import Rows
    from pelton.spark.writing.composing import Messages
    from pelton.spark.writing.plan import WritePlan
    from pelton.spark.writing.row_errors import RowErrors, Task
    from pelton.spark.writing.target import Target

BATCH_BYTES_MAX = 16 * 2**20
# The server dropped the batch, has no room for it now, or is stopping and has already closed its
# streams. Storing the same batch may succeed later.
_AGAIN = frozenset({10176, 10210, 10059})
_TOO_MANY = 10199


class Marker(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far the newest epoch of a partition is stored in the stream."""

    epoch: int
    first: str
    rows: int
    """The number of rows, from the first, that are stored or went to the side output."""
    done: bool = False
    """Whether these are all rows of the partition."""


class Piece(NamedTuple):
    """Rows of one Arrow batch, ``start <= i < stop``."""

    messages: Messages
    rows: Rows
    start: int
    stop: int
    first: int
    """The number of the batch's first row in the partition."""


class Batch(NamedTuple):
    """Rows that are stored together: those before ``end`` in the partition that no earlier batch
    has.
    """

    pieces: tuple[Piece, ...]
    end: int
    done: bool


class Commit(NamedTuple):
    """A marker that is sent and not yet answered."""

    client: Client
    question: Question


def write_atomically(
    plan: WritePlan, task: Task, batches: Iterable[pa.RecordBatch], errors: RowErrors
) -> Written:
    """Write the rows of one partition, in order; see
    :func:`pelton.spark.writing.writer.write_partition`.
    """
    writer: AtomicWriter | None = None
    count = 0
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            messages = plan.composer.compose(batch)
            if writer is None:
                writer = AtomicWriter(plan, task, errors, fingerprint(messages))
            writer.add(messages, count)
            count += messages.count
        if writer is None:
            return Written(0)
        errors.close()
        writer.finish(count)
    finally:
        if writer is not None:
            writer.forget()
    return Written(count, writer.already, errors.count)


def forget_markers(js: JetStream, target: Target, writer: str) -> None:
    """Delete the markers of a writer that will not run again."""
    assert target.stream is not None
    with contextlib.suppress(PeltonError):  # a few small messages that stay do no harm
        js.purge_stream(target.stream, filter_subject=f"{target.progress_subject}.{writer}.>")


class AtomicWriter:
    """The batches of one partition."""

    def __init__(self, plan: WritePlan, task: Task, errors: RowErrors, first: str) -> None:
        """Read the last marker.

        Raises :class:`WriteError` when the rows differ from those of the first run, or when a later
        epoch has begun.
        """
        self.already = 0
        """Rows that were stored when this attempt began."""
        self._plan = plan
        self._options = plan.options
        self._task = task
        self._errors = errors
        self._first = first
        self._subject = f"{plan.target.progress_subject}.{task.writer}.{task.partition}"
        self._nuid = Nuid(random.SystemRandom())
        self._pieces: list[Piece] = []
        self._pending = 0
        self._pending_bytes = 0
        # Batches that may not be stored yet, oldest first: at most two.
        self._queue: deque[Batch] = deque()
        self._commit: Commit | None = None  # of the oldest batch in the queue
        self._committed = 0
        self._done = False
        self._marker_seq = 0
        self._deadline = 0.0
        self._retrying(self._look)
        self.already = self._committed

    def add(self, messages: Messages, first: int) -> None:
        """Take a batch of rows, and store as many whole atomic batches as they fill."""
        rows = self._sendable(messages, first)
        start = 0
        room = self._options.atomic_rows - 1  # the marker takes one place
        while start < rows.count:
            if self._pending >= room or self._pending_bytes >= BATCH_BYTES_MAX:
                self._store(done=False)
            stop = min(rows.count, start + room - self._pending)
            self._pieces.append(Piece(messages, rows, start, stop, first))
            self._pending += stop - start
            self._pending_bytes += self._bytes(messages, start, stop)
            start = stop

    def finish(self, count: int) -> None:
        """Store the remaining rows with a marker that says that the partition is complete."""
        if self._committed > count or (self._done and self._committed != count):
            raise self._other_rows()
        self._store(done=True)
        self._retrying(self._complete)

    def forget(self) -> None:
        """Stop waiting for the open answer."""
        if self._commit is not None:
            self._commit.client._forget(self._commit.question)
            self._commit = None

    @staticmethod
    def _bytes(messages: Messages, start: int, stop: int) -> int:
        return int(messages.payloads.slice(start, stop - start).nbytes)

    def _store(self, *, done: bool) -> None:
        end = max((piece.first + piece.stop for piece in self._pieces), default=0)
        queued = self._queue[-1].end if self._queue else self._committed
        self._queue.append(Batch(tuple(self._pieces), max(end, queued), done))
        self._pieces.clear()
        self._pending = self._pending_bytes = 0
        self._retrying(self._advance)

    def _advance(self) -> None:
        """Commit the queued batches, but leave the last answer open; raises the errors of the
        server.
        """
        if self._commit is None:
            while self._queue and self._is_in(self._queue[0]):
                self._queue.popleft()
            if self._queue:
                self._ask(self._queue[0], *self._send(self._queue[0]))
        for batch in list(self._queue)[1:]:
            sent = self._send(batch)
            self._hear()
            self._ask(batch, *sent)

    def _complete(self) -> None:
        """Commit the queued batches and wait for their answers."""
        self._advance()
        if self._commit is not None:
            self._hear()

    def _is_in(self, batch: Batch) -> bool:
        return self._committed >= batch.end and (self._done or not batch.done)

    def _send(self, batch: Batch) -> tuple[str, int]:
        """Send the rows that are not stored yet.

        Returns the id of the atomic batch, and the number of its next message.
        """
        client = connect(self._options, self._deadline)
        batch_id = self._nuid.next()
        encoder = self._encoder(batch_id)
        number = 1
        for piece in batch.pieces:
            start = max(piece.start, self._committed - piece.first)
            if start < piece.stop:
                data, count = encoder.operations(piece.rows, start, piece.stop, number)
                number += count
                client._connection.publish_operations(data, count)
                client._flush_output()
        return batch_id, number

    def _ask(self, batch: Batch, batch_id: str, number: int) -> None:
        """Send the marker, which commits the batch."""
        client = connect(self._options, self._deadline)
        marker = Marker(self._task.epoch, self._first, batch.end, batch.done)
        headers = {
            EXPECTED_LAST_SUBJECT_SEQ: str(self._marker_seq),
            "Nats-Batch-Id": batch_id,
            "Nats-Batch-Sequence": str(number),
            "Nats-Batch-Commit": "1",
        }
        if self._plan.target.rollup:
            headers["Nats-Rollup"] = "sub"
        question = client._ask(self._subject, msgspec.json.encode(marker), headers=headers)
        self._commit = Commit(client, question)
        client._flush_output()

    def _hear(self) -> None:
        """Take the server's answer for the oldest batch."""
        assert self._commit is not None
        client, question = self._commit
        self._commit = None
        answer = client._answer_to(question, self._options.servers.request_timeout_seconds)
        self._marker_seq = decode_pub_ack(answer.data).seq
        batch = self._queue.popleft()
        self._committed, self._done = batch.end, batch.done

    def _encoder(self, batch: str) -> Encoder:
        taken = connect(self._options, self._deadline).server_info.max_payload
        return Encoder(
            common=common_lines(self._plan.target) + f"Nats-Batch-Id: {batch}\r\n".encode(),
            numbered=b"Nats-Batch-Sequence: ",
            max_payload=min(taken, self._plan.target.message_bytes_max or taken),
        )

    def _sendable(self, messages: Messages, first: int) -> Rows:
        """Return the rows of a batch that fit into messages; the others become row errors."""
        for row, reason in messages.bad.items():
            self._errors.add(first + row, reason, unsent(messages, first + row, first))
        rows = messages.rows(first)
        encoder = self._encoder(self._nuid.next())
        encoder.check(rows, self._options.atomic_rows)
        for row, code, size in encoder.refused:
            reason = why_refused(code, size, encoder.max_payload)
            self._errors.add(row, reason, unsent(messages, row, first))
        if not encoder.refused:
            return rows
        return messages.rows(first, [row - first for row, _, _ in encoder.refused])

    def _retrying(self, act: Callable[[], None]) -> None:
        """Run ``act`` until it succeeds. After a failure, read the last marker before the next run."""
        retry = self._options.servers.retry_timeout_seconds
        self._deadline = time.monotonic() + retry
        look = False
        while True:
            try:
                if look:
                    self._look()
                act()
                return
            except WrongLastSequenceError as failure:
                error: Exception = failure  # another attempt has stored a batch
            except ApiError as failure:
                if failure.err_code not in _AGAIN:
                    raise self._refused(failure) from failure
                error = failure
            except (
                ConnectionClosedError,
                NoRespondersError,
                PeltonTimeoutError,
                OSError,
            ) as failure:
                forget_client(self._options.servers)
                error = failure
            look = True
            self.forget()
            if time.monotonic() >= self._deadline:
                raise WriteError(
                    f"{self._task}: no batch could be stored in stream {self._plan.target.stream}"
                    f" for {retry:g} s: {error}"
                ) from error
            if not isinstance(error, WrongLastSequenceError):
                time.sleep(RETRY_EVERY_SECONDS)

    def _look(self) -> None:
        """Read the last marker, and take over how far the partition is stored."""
        stream = self._plan.target.stream
        assert stream is not None
        connect(self._options, self._deadline)
        try:
            found = jetstream_for(self._options.servers).get_message(
                stream, last_by_subject=self._subject
            )
        except MessageNotFoundError:
            if self._marker_seq:
                raise WriteError(
                    f"{self._task}: its progress record {self._subject} is gone from stream"
                    f" {stream}: it was purged or created again while it was written"
                ) from None
            return
        try:
            marker = msgspec.json.decode(found.data, type=Marker)
        except msgspec.MsgspecError as error:
            raise WriteError(
                f"the message of stream {stream} on {self._subject} is no progress record: {error}"
            ) from None
        self._marker_seq = found.seq
        if marker.epoch < self._task.epoch:
            return
        if marker.epoch > self._task.epoch:
            raise WriteError(
                f"{self._task} of {self._task.writer} is overtaken: epoch {marker.epoch} was begun."
                " Two queries run with one checkpoint, or it is an old copy"
            )
        if marker.first != self._first:
            raise self._other_rows()
        self._committed, self._done = marker.rows, marker.done

    def _refused(self, error: ApiError) -> WriteError:
        stream = self._plan.target.stream
        if error.err_code == _TOO_MANY:
            return WriteError(
                f"stream {stream} takes smaller batches: {error}. Set atomicRows to that number"
            )
        return WriteError(f"stream {stream} refused a batch of {self._task}: {error}")

    def _other_rows(self) -> WriteError:
        return WriteError(
            f"{self._task} has other rows than the first time it was written: what makes the rows"
            " must give the same ones in the same partitions when it is run again. To write all of"
            f" these rows nevertheless, delete the messages on {self._subject}"
        )
