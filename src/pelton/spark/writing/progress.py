"""Progress records, for exactly-once writing with message ids: which rows of a partition are stored.

A bucket on the server holds one record per writer, stream and partition::

    $KV.pelton_spark.<writer>.<stream>.<partition>
    {"epoch": 7, "stream": "ORDERS", "born": "...", "after": 4711, "first": "9f...", "rows": -1}

The writer creates the record before it publishes the first row of an epoch, with the expectation
that no other writer created it in the meantime. ``after`` is the last sequence of the stream at
that moment. A writer that finds a record of its own epoch is not the first to write this
partition: it reads the stream from ``after`` on and finds which of its message ids the stream has.
So it knows which rows are stored, however long ago that was. ``rows`` is the number of rows, once
all are stored.

The earlier attempt may still run: Spark starts a task twice to be quicker, or believes that the
first one is dead. Both attempts send the same rows with the same ids, which the stream recognizes
during its duplicate window ``W``. Beyond that, ``attempt`` keeps them apart::

    first attempt     claims ── reads the record each W/4 ─────────── finds attempt 1: waits
    second attempt              claims as attempt 1, reads the stream ─── W/2 later: reads it again

The first attempt stops sending at most W/4 after the second one has claimed. So when the second one
reads the stream again, it finds all that the first one stored; and all that it sends before that is
sent within W.

The first attempt does not fail, because a few failed tasks end a job, and Spark may start a slow
task twice more often than that. It waits until the second attempt is complete, and is then complete
itself. When this takes too long, the second attempt may be dead: the first one claims as attempt 2,
as a new attempt does, and the second one waits for it if it still runs.

Does not depend on Spark or Arrow.
"""

from __future__ import annotations

import contextlib
import re
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from pelton.api.keyvalue import prefix_of, stream_of
from pelton.client.base.message import MSG_ID
from pelton.client.base.models import StreamConfig
from pelton.client.sync.columns import read_range
from pelton.client.sync.gets import read_stored
from pelton.errors import (
    ApiError,
    MessageNotFoundError,
    PeltonError,
    StreamExistsError,
    StreamNotFoundError,
    WrongLastSequenceError,
)
from pelton.spark.writing.row_errors import Task, WriteError

if TYPE_CHECKING:
    from pelton.client.sync.jetstream import JetStream
    from pelton.core.bulk.columns import Columns
    from pelton.spark.writing.target import Target

UNFINISHED = -1
_API = "$JS.API"
_EVERY_ID = re.compile(rf"{MSG_ID}: ([^\r]*)\r\n".encode())


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """The progress of the newest epoch of one partition."""

    epoch: int
    stream: str
    born: str
    after: int
    first: str
    rows: int = UNFINISHED
    done: int = 0
    """The number of rows, from the first, that are stored, if the writer reports it as it goes."""
    attempt: int = 0
    """The number of attempts that began before the one that writes now."""


class AnotherAttempt(WriteError):
    """A later attempt at the partition has begun; ``record`` and ``revision`` are those of its
    claim.
    """

    def __init__(self, task: Task, record: Record, revision: int) -> None:
        """Made by :meth:`Progress.look` from the record that it found."""
        super().__init__(f"another attempt at {task} has begun: this one gives way")
        self.record = record
        self.revision = revision


@dataclass
class Found:
    """The rows of a partition that a stream has, and the signs of rows that it stored and removed.

    ``newer`` counts messages by subject, for a stream that keeps ``kept`` messages of each subject. A
    row before ``last`` whose subject has that many messages was stored, and newer messages replaced it.
    Rows before ``dropped_before`` were stored before a row that the stream has, and the first sequence
    of the stream is now above them.
    """

    rows: set[int] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)
    newer: Counter[str] = field(default_factory=Counter)
    kept: int = 0
    dropped_before: int = 0
    last: int = -1
    """The last row that the stream has."""

    def add(self, more: Found) -> None:
        """Add the result of a later scan."""
        self.rows |= more.rows
        self.ids |= more.ids
        self.newer += more.newer
        self.dropped_before = max(self.dropped_before, more.dropped_before)
        self.last = max(self.last, more.last)

    def __bool__(self) -> bool:
        """Whether the scan found anything."""
        return bool(self.rows or self.ids or self.newer)

    def has(self, row: int, subject: str, own_id: str | None) -> bool:
        """Whether this row is stored and need not be written."""
        if row in self.rows or row < self.dropped_before:
            return True
        if own_id is not None and own_id in self.ids:
            return True
        # Rows are stored in order: no row behind the last one that the stream has was stored.
        if not self.kept or row > self.last:
            return False
        # A message that is published through an API prefix is stored without the prefix.
        stored = subject[max(0, subject.find(".$KV.") + 1) :]
        return self.newer[stored] >= self.kept


class Progress:
    """The progress record of one task; the first row of the task creates it."""

    def __init__(self, js: JetStream, bucket: str, target: Target, task: Task) -> None:
        """Sends no request."""
        self._js = js
        self._bucket = bucket
        self._target = target
        self._task = task
        self._revision = 0
        self.record: Record | None = None
        """The current record, once this attempt has begun."""
        self.found = Found()
        """The rows that earlier attempts stored."""
        self._scanned = 0  # the stream is scanned up to this sequence
        self._ours_at = 0.0  # the last time at which the record was known to be of this attempt
        # The time by which an earlier attempt has stopped sending.
        self._scan_at: float | None = None
        self._unread = False  # whether this attempt took over and has not scanned the stream yet

    @property
    def finished(self) -> bool:
        """Whether all rows of the partition are stored, by this attempt or another one."""
        return self.record is not None and self.record.rows != UNFINISHED

    def begin(self, first: str, *, own_ids: bool) -> None:
        """Claim the partition, and find which of its rows the stream has; raises as :meth:`claim`."""
        if not self.claim(first) and not self.finished:
            self._follow(own_ids=own_ids)

    def take_over(self, *, own_ids: bool) -> None:
        """Go on after waiting long enough for a later attempt; scans the stream as :meth:`begin`
        does.

        Raises as :meth:`look` does; :class:`AnotherAttempt` only when one more attempt has begun.
        """
        try:
            self.look()
        except AnotherAttempt as other:
            self._ours_at = time.monotonic()
            self._revision = other.revision
            try:
                self._write(msgspec.structs.replace(other.record, attempt=other.record.attempt + 1))
            except WrongLastSequenceError:
                raise other from None
            self._unread = True
        if self._unread and not self.finished:
            self._follow(own_ids=own_ids)

    def _follow(self, *, own_ids: bool) -> None:
        """Find the rows that earlier attempts have stored; one of these attempts may still run."""
        assert self.record is not None
        self._scan_at = time.monotonic() + self._target.window_seconds / 2
        self.found = self.scan(self.record.after, own_ids=own_ids)
        self._unread = False

    @property
    def look_every_seconds(self) -> float:
        """The time between two checks for another attempt, in seconds."""
        return self._target.window_seconds / 4

    @property
    def look_due(self) -> bool:
        """Whether :meth:`look` must be called before another row is sent."""
        now = time.monotonic()
        if self._scan_at is not None and now >= self._scan_at:
            return True
        return now >= self._ours_at + self.look_every_seconds

    @property
    def scan_due(self) -> bool:
        """Whether :meth:`scan_again` must be called before another row is sent."""
        return self._scan_at is not None and time.monotonic() >= self._scan_at

    def look(self) -> None:
        """Check that no other attempt has begun; when another attempt is complete, so is this one.

        Raises :class:`AnotherAttempt` when this attempt must give way, :class:`WriteError` when the
        write was ended or a later epoch has begun.
        """
        assert self.record is not None
        begun = time.monotonic()
        known, revision = self._read()
        if known is not None and revision == self._revision:
            self._ours_at = begun
        elif known is None:
            raise WriteError(
                f"{self._task}: its progress record {self._key()} is missing: the write was ended, or"
                " another client removed the record"
            )
        elif known.epoch > self._task.epoch:
            raise self._overtaken(known.epoch)
        elif known.rows != UNFINISHED:
            self.record, self._revision = known, revision
        else:
            raise AnotherAttempt(self._task, known, revision)

    def scan_again(self, *, own_ids: bool) -> None:
        """Find the rows that an earlier attempt stored until it gave way."""
        self._scan_at = None
        self.found.add(self.scan(self._scanned, own_ids=own_ids))

    def claim(self, first: str) -> bool:
        """Claim the partition for this attempt; False when another attempt claimed it before.

        ``first`` is the fingerprint of the first row. Raises :class:`WriteError` when a later epoch
        has begun, or when the rows differ from those of the first run.
        """
        while True:
            self._ours_at = time.monotonic()
            known, self._revision = self._read()
            if known is None or known.epoch < self._task.epoch or known.born != self._target.born:
                end = self._js.stream_info(self._stream()).state.last_seq
                record = Record(self._task.epoch, self._stream(), self._target.born, end, first)
                # When another writer was faster, read the record again.
                with contextlib.suppress(WrongLastSequenceError):
                    self._write(record)
                    return True
                continue
            if known.epoch > self._task.epoch:
                raise self._overtaken(known.epoch)
            if known.first != first:
                raise self._other_rows()
            if known.rows != UNFINISHED:
                self.record = known
                return False
            with contextlib.suppress(WrongLastSequenceError):
                self._write(msgspec.structs.replace(known, attempt=known.attempt + 1))
                return False

    def scan(self, after: int, *, own_ids: bool) -> Found:
        """Find the rows of this task that the stream has behind sequence ``after``.

        With ``own_ids`` the result has all message ids, also those that are not the number of a
        row.
        """
        js, stream, target = self._js, self._stream(), self._target
        found = Found(kept=target.kept_of_subject)
        numbered = re.compile(re.escape(f"{MSG_ID}: {self._task.id}".encode()) + rb"([0-9]+)\r\n")
        info = js.stream_info(stream)
        state = info.state
        filters = (target.filter,) if target.filter else ()
        # With interest or work queue retention, a consumer would remove messages.
        read = read_range if info.config.retention == "limits" else read_stored
        for columns in read(js, stream, after + 1, state.last_seq + 1, filter_subjects=filters):
            headers = bytes(columns.headers_data.view())
            found.rows.update(map(int, numbered.findall(headers)))
            if own_ids:
                every = _EVERY_ID.findall(headers)
                found.ids.update(one.decode("utf-8", "replace") for one in every)
            if found.kept:
                found.newer.update(_subjects(columns))
        self._scanned = max(after, state.last_seq)
        found.last = max(found.rows, default=-1)
        if state.first_seq > after + 1 and found.rows:
            found.dropped_before = min(found.rows)
        return found

    def advance(self, done: int) -> None:
        """Record that the first ``done`` rows are stored.

        Raises :class:`WriteError` when another attempt writes the same rows.
        """
        assert self.record is not None
        try:
            self._write(msgspec.structs.replace(self.record, done=done))
        except WrongLastSequenceError:
            raise WriteError(f"another attempt at {self._task} writes the same rows") from None

    def over(self, js: JetStream) -> Progress:
        """Use the connection of ``js`` from now on; returns self."""
        self._js = js
        return self

    def finish(self, rows: int) -> None:
        """Record that all rows are stored; :class:`WriteError` when their number differs from
        before.
        """
        if self.record is None:
            return
        if self.finished:
            if self.record.rows != rows:
                raise self._other_rows()
            return
        # Another attempt may have begun or be complete: all rows are stored in either case.
        while not self.finished:
            try:
                self._write(msgspec.structs.replace(self.record, rows=rows))
            except WrongLastSequenceError:
                known, self._revision = self._read()
                if known is None or known.epoch != self._task.epoch:
                    return
                self.record = known

    def _overtaken(self, epoch: int) -> WriteError:
        return WriteError(
            f"{self._task} of {self._task.writer} is overtaken: epoch {epoch} was begun. Two"
            " queries run with one checkpoint, or it is an old copy"
        )

    def _other_rows(self) -> WriteError:
        return WriteError(
            f"{self._task} has other rows than the first time it was written: what makes the rows"
            " must give the same ones in the same partitions when it is run again. To write all of"
            f" these rows nevertheless, remove the message on {self._key()} from stream"
            f" KV_{self._bucket}"
        )

    def _stream(self) -> str:
        assert self._target.stream is not None
        return self._target.stream

    def _key(self) -> str:
        task = self._task
        return f"{prefix_of(self._bucket)}{task.writer}.{self._stream()}.{task.partition}"

    def _read(self) -> tuple[Record | None, int]:
        try:
            message = self._js.get_message(stream_of(self._bucket), last_by_subject=self._key())
        except MessageNotFoundError:
            return None, 0
        except StreamNotFoundError:
            make_bucket(self._js, self._bucket, self._target.replicas)
            return None, 0
        try:
            return msgspec.json.decode(message.data, type=Record), message.seq
        except msgspec.MsgspecError as error:
            if not message.data:  # a deleted record
                return None, message.seq
            raise WriteError(
                f"{self._key()} in bucket {self._bucket} is no progress record: {error}"
            ) from None

    def _write(self, record: Record) -> None:
        ack = self._js.publish(
            _key_subject(self._js, self._key()),
            msgspec.json.encode(record),
            expected_last_subject_seq=self._revision,
        )
        self._revision = ack.seq
        self.record = record


def _subjects(columns: Columns) -> list[str]:
    offsets = columns.subject_offsets.view("i")
    data = bytes(columns.subject_data.view())
    return [
        data[offsets[row] : offsets[row + 1]].decode("utf-8", "replace")
        for row in range(columns.count)
    ]


def _key_subject(js: JetStream, key: str) -> str:
    # With an API prefix, the bucket has the same prefix.
    prefix = js.subjects.prefix
    return key if prefix == _API else f"{prefix}.{key}"


def make_bucket(js: JetStream, bucket: str, replicas: int) -> None:
    """Create the bucket of progress records with as many replicas as the stream; an existing one is
    fine.

    Raises :class:`WriteError` when the server does not allow it.
    """
    config = StreamConfig(
        name=stream_of(bucket),
        description="progress of writes from Spark",
        subjects=[f"{prefix_of(bucket)}>"],
        max_msgs_per_subject=1,
        discard="new",
        allow_rollup_hdrs=True,
        deny_delete=True,
        allow_direct=True,
        duplicate_window=120,
        num_replicas=replicas,
    )
    try:
        js.create_stream(config)
    except StreamExistsError:
        return
    except (ApiError, PeltonError) as error:
        raise WriteError(
            f"bucket {bucket}, which keeps the progress of writes, cannot be made: {error}."
            " Make it beforehand, or say with progressBucket which one to use"
        ) from None


def replicate_bucket(js: JetStream, bucket: str, replicas: int) -> None:
    """Raise the replicas of an existing bucket to those of the stream, and warn where that is not
    allowed.

    With fewer replicas, the end of one server could stop writes that the stream itself survives.
    """
    try:
        config = js.stream_info(stream_of(bucket)).config
        if config.num_replicas < replicas:
            js.update_stream(msgspec.structs.replace(config, num_replicas=replicas))
    except StreamNotFoundError:
        return
    except PeltonError as error:
        warnings.warn(
            f"the written stream has {replicas} replicas, but its bucket {bucket} of progress records"
            f" has fewer, and cannot be given as many: {error}",
            stacklevel=3,
        )


def forget(js: JetStream, bucket: str, writer: str) -> None:
    """Delete the records of a writer that will not run again."""
    with contextlib.suppress(PeltonError):  # a few small records that stay do no harm
        js.purge_stream(stream_of(bucket), filter_subject=f"{prefix_of(bucket)}{writer}.>")
