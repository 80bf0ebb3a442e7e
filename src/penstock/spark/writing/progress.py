"""Who has begun to write a partition before, and what of it is in the stream: the memory of
exactly-once writing with message ids.

A bucket on the server holds one record per writer, stream and partition::

    $KV.penstock_spark.<writer>.<stream>.<partition>
    {"epoch": 7, "stream": "ORDERS", "born": "...", "after": 4711, "first": "9f...", "rows": -1}

made before the first row of an epoch is published, with the expectation that nobody made one
meanwhile. ``after`` is where the stream ended then. Who finds the record of its own epoch is not
the first to write this partition, and reads from ``after`` on which of its message ids the stream
has: so what is in is known however long ago it was. ``rows`` is how many there are once all are in.

The attempt before may be alive: a task that Spark runs twice to be quicker, or believes dead. Both
send the same rows under the same ids, which the stream knows again for its duplicate window ``W``,
and beyond that ``attempt`` keeps them apart::

    first attempt     claims ── looks each W/4 at the record ──────── finds attempt 1: waits
    second attempt              claims as attempt 1, reads what is in ───── W/2 later: reads again

The first one sends nothing more W/4 after the second has claimed, so the second one knows all that
the first one stored when it reads again, and what it sends before that is sent within W.

The first one does not fail, for a few failures of a task end a job, and a slow task may be run more
often than that. It waits until the second is through, and then is through itself. When that takes
too long, the second may have died: the first claims as attempt 2, as if it had begun anew, and the
second waits for it if it is alive.

Knows nothing of Spark and of Arrow.
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

from penstock.client.columns import read_range
from penstock.client.jetstream import MSG_ID
from penstock.client.models import StreamConfig
from penstock.client.stored import read_stored
from penstock.errors import (
    ApiError,
    MessageNotFound,
    PenstockError,
    StreamExists,
    StreamNotFound,
    WrongLastSequence,
)
from penstock.spark.writing.row_errors import Task, WriteError

if TYPE_CHECKING:
    from penstock.client.blocking.jetstream import JetStream
    from penstock.core.bulk.columns import Columns
    from penstock.spark.writing.target import Target

UNFINISHED = -1
_API = "$JS.API"
_EVERY_ID = re.compile(rf"{MSG_ID}: ([^\r]*)\r\n".encode())


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of the newest epoch of one partition."""

    epoch: int
    stream: str
    born: str
    after: int
    first: str
    rows: int = UNFINISHED
    done: int = 0
    """So many rows from the first on are in, where a writer says so as it goes."""
    attempt: int = 0
    """How many attempts were begun before the one that writes now."""


class AnotherAttempt(WriteError):
    """A later attempt at the partition has begun; ``record`` is what it said, as ``revision``."""

    def __init__(self, task: Task, record: Record, revision: int) -> None:
        """What :meth:`Progress.look` found."""
        super().__init__(f"another attempt at {task} has begun: this one gives way")
        self.record = record
        self.revision = revision


@dataclass
class Found:
    """What a stream tells of a partition: its rows, and what stands for rows it dropped since.

    ``newer`` counts messages by subject where the stream keeps ``kept`` of each: a row before one
    that is there, whose subject has as many, was stored and is outdone. Rows before
    ``dropped_before`` were stored before one that is there, and the begin of the stream has passed
    them.
    """

    rows: set[int] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)
    newer: Counter[str] = field(default_factory=Counter)
    kept: int = 0
    dropped_before: int = 0
    last: int = -1
    """The last row that is there."""

    def add(self, more: Found) -> None:
        """What was found later, too."""
        self.rows |= more.rows
        self.ids |= more.ids
        self.newer += more.newer
        self.dropped_before = max(self.dropped_before, more.dropped_before)
        self.last = max(self.last, more.last)

    def __bool__(self) -> bool:
        """Whether anything was found."""
        return bool(self.rows or self.ids or self.newer)

    def has(self, row: int, subject: str, own_id: str | None) -> bool:
        """Whether this row needs to be written no more."""
        if row in self.rows or row < self.dropped_before:
            return True
        if own_id is not None and own_id in self.ids:
            return True
        # Rows are stored in order: what comes behind the last one that is there was not.
        if not self.kept or row > self.last:
            return False
        # What is published through a prefix of the API is stored without it.
        stored = subject[max(0, subject.find(".$KV.") + 1) :]
        return self.newer[stored] >= self.kept


class Progress:
    """The record of one task; made by its first row."""

    def __init__(self, js: JetStream, bucket: str, target: Target, task: Task) -> None:
        """Nothing is asked yet."""
        self._js = js
        self._bucket = bucket
        self._target = target
        self._task = task
        self._revision = 0
        self.record: Record | None = None
        """The record as it is now, once begun."""
        self.found = Found()
        """What earlier attempts wrote."""
        self._scanned = 0  # up to this sequence
        self._ours_at = 0.0  # the record was ours then
        self._scan_at: float | None = None  # when an attempt before must have given way
        self._unread = False  # taken over, and what was stored is not looked up yet

    @property
    def finished(self) -> bool:
        """Whether all rows of the partition were in the stream when this attempt began."""
        return self.record is not None and self.record.rows != UNFINISHED

    def begin(self, first: str, *, own_ids: bool) -> None:
        """Say that this partition is being written, and learn what of it is in the stream; see
        :meth:`claim`.
        """
        if not self.claim(first) and not self.finished:
            self._follow(own_ids=own_ids)

    def take_over(self, *, own_ids: bool) -> None:
        """Go on after a later attempt, for which this one waited long enough, as :meth:`begin` does.

        Raises as :meth:`look` does, :class:`AnotherAttempt` only when one more has begun.
        """
        try:
            self.look()
        except AnotherAttempt as other:
            self._ours_at = time.monotonic()
            self._revision = other.revision
            try:
                self._write(msgspec.structs.replace(other.record, attempt=other.record.attempt + 1))
            except WrongLastSequence:
                raise other from None
            self._unread = True
        if self._unread and not self.finished:
            self._follow(own_ids=own_ids)

    def _follow(self, *, own_ids: bool) -> None:
        """Learn what attempts before this one, one of which may be alive, have stored."""
        assert self.record is not None
        self._scan_at = time.monotonic() + self._target.window_seconds / 2
        self.found = self.scan(self.record.after, own_ids=own_ids)
        self._unread = False

    @property
    def look_every_seconds(self) -> float:
        """How often an attempt sees whether another one has begun."""
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
        """See that no other attempt has begun; one that is through makes this one finished.

        :class:`AnotherAttempt` when this attempt must give way, :class:`WriteError` when the write
        was ended or a later epoch begun.
        """
        assert self.record is not None
        begun = time.monotonic()
        known, revision = self._read()
        if known is not None and revision == self._revision:
            self._ours_at = begun
        elif known is None:
            raise WriteError(
                f"{self._task}: its progress record {self._key()} is gone: the write was ended, or"
                " somebody removed it"
            )
        elif known.epoch > self._task.epoch:
            raise self._overtaken(known.epoch)
        elif known.rows != UNFINISHED:
            self.record, self._revision = known, revision
        else:
            raise AnotherAttempt(self._task, known, revision)

    def scan_again(self, *, own_ids: bool) -> None:
        """Find what an attempt before stored until it gave way."""
        self._scan_at = None
        self.found.add(self.scan(self._scanned, own_ids=own_ids))

    def claim(self, first: str) -> bool:
        """Say that this attempt writes the partition; False when another one said so before.

        ``first`` tells its first row from others. Raises :class:`WriteError` when a later epoch was
        begun, or the rows are others than the first time.
        """
        while True:
            self._ours_at = time.monotonic()
            known, self._revision = self._read()
            if known is None or known.epoch < self._task.epoch or known.born != self._target.born:
                end = self._js.stream_info(self._stream()).state.last_seq
                record = Record(self._task.epoch, self._stream(), self._target.born, end, first)
                with contextlib.suppress(WrongLastSequence):  # somebody was faster: look again
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
            with contextlib.suppress(WrongLastSequence):
                self._write(msgspec.structs.replace(known, attempt=known.attempt + 1))
                return False

    def scan(self, after: int, *, own_ids: bool) -> Found:
        """Which rows of this task the stream has behind a sequence; with ``own_ids`` also the ids
        that are no number of a row.
        """
        js, stream, target = self._js, self._stream(), self._target
        found = Found(kept=target.kept_of_subject)
        numbered = re.compile(re.escape(f"{MSG_ID}: {self._task.id}".encode()) + rb"([0-9]+)\r\n")
        info = js.stream_info(stream)
        state = info.state
        filters = (target.filter,) if target.filter else ()
        # Where retention goes by the consumers, one of ours would take rows away.
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
        """The first so many rows are in. :class:`WriteError` when another attempt writes them."""
        assert self.record is not None
        try:
            self._write(msgspec.structs.replace(self.record, done=done))
        except WrongLastSequence:
            raise WriteError(f"another attempt at {self._task} writes the same rows") from None

    def over(self, js: JetStream) -> Progress:
        """The same, over another connection from now on."""
        self._js = js
        return self

    def finish(self, rows: int) -> None:
        """All rows are in the stream. :class:`WriteError` when they are not as many as before."""
        if self.record is None:
            return
        if self.finished:
            if self.record.rows != rows:
                raise self._other_rows()
            return
        # Another attempt may have begun, or be through: all rows are in either way.
        while not self.finished:
            try:
                self._write(msgspec.structs.replace(self.record, rows=rows))
            except WrongLastSequence:
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
        return f"$KV.{self._bucket}.{task.writer}.{self._stream()}.{task.partition}"

    def _read(self) -> tuple[Record | None, int]:
        try:
            message = self._js.get_message(f"KV_{self._bucket}", last_by_subject=self._key())
        except MessageNotFound:
            return None, 0
        except StreamNotFound:
            make_bucket(self._js, self._bucket, self._target.replicas)
            return None, 0
        try:
            return msgspec.json.decode(message.data, type=Record), message.seq
        except msgspec.MsgspecError as error:
            if not message.data:  # deleted
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
    # Where the API is reached through a prefix, so is the bucket.
    prefix = js.plans.subjects.prefix
    return key if prefix == _API else f"{prefix}.{key}"


def make_bucket(js: JetStream, bucket: str, replicas: int) -> None:
    """Create the bucket of progress records, on as many servers as the stream is that is written;
    fine when it is there. :class:`WriteError` when that is not allowed.
    """
    config = StreamConfig(
        name=f"KV_{bucket}",
        description="progress of writes from Spark",
        subjects=[f"$KV.{bucket}.>"],
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
    except StreamExists:
        return
    except (ApiError, PenstockError) as error:
        raise WriteError(
            f"bucket {bucket}, which keeps the progress of writes, cannot be made: {error}."
            " Make it beforehand, or say with progressBucket which one to use"
        ) from None


def replicate_bucket(js: JetStream, bucket: str, replicas: int) -> None:
    """See that the bucket, where it is there, is on as many servers as the stream that is written:
    else a server that goes would stop writes that its stream survives. Warns where it may not.
    """
    try:
        config = js.stream_info(f"KV_{bucket}").config
        if config.num_replicas < replicas:
            js.update_stream(msgspec.structs.replace(config, num_replicas=replicas))
    except StreamNotFound:
        return
    except PenstockError as error:
        warnings.warn(
            f"the stream that is written is on {replicas} servers; that its bucket {bucket} of"
            f" progress records is, too, could not be arranged: {error}",
            stacklevel=3,
        )


def forget(js: JetStream, bucket: str, writer: str) -> None:
    """Drop the records of a writer that will not come again."""
    with contextlib.suppress(PenstockError):  # a few small records more do no harm
        js.purge_stream(f"KV_{bucket}", filter_subject=f"$KV.{bucket}.{writer}.>")
