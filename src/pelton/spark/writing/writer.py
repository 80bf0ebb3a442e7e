"""The classes that Spark calls to write ``format("jetstream")``, and the work of one task.

``write`` runs on executors, on a pickled copy; ``commit`` and ``abort`` run on the driver. The
:class:`WritePlan` holds all that a task needs; Spark's task context names the query and the batch.

========================  =================================================================
``exactlyOnce=ids``       :mod:`pelton.spark.writing.sending`, :mod:`pelton.spark.writing.progress`
``exactlyOnce=batch``     :mod:`pelton.spark.writing.atomic`
``exactlyOnce=none``      :mod:`pelton.spark.writing.sending`
========================  =================================================================
"""

from __future__ import annotations

import uuid
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter

from pelton.api.times import format_time
from pelton.errors import PeltonError
from pelton.spark.connection import jetstream_for
from pelton.spark.older import StreamArrowWriter
from pelton.spark.parsing import OptionError
from pelton.spark.writing.atomic import forget_markers, write_atomically
from pelton.spark.writing.composing import ID, MessageComposer
from pelton.spark.writing.options import BATCH, IDS, NONE, parse_write_options
from pelton.spark.writing.plan import WritePlan, Written, fingerprint
from pelton.spark.writing.progress import Found, Progress, forget
from pelton.spark.writing.row_errors import RowErrors, RowRefused, Task, WriteError
from pelton.spark.writing.sending import Sender, patiently
from pelton.spark.writing.target import look_at, note_written, warn_unnoticed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

    from pelton.client.sync.jetstream import JetStream
    from pelton.spark.writing.composing import Messages
    from pelton.spark.writing.options import WriteOptions

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


def write_partition(plan: WritePlan, task: Task, batches: Iterable[pa.RecordBatch]) -> Written:
    """Write the rows of one partition, in order; :class:`WriteError` when that fails."""
    if task.epoch <= plan.target.done:
        return passed_over(batches)
    errors = RowErrors(plan.options, task)
    try:
        if plan.options.exactly_once == BATCH:
            return write_atomically(plan, task, batches, errors)
        return _write_one_by_one(plan, task, batches, errors)
    except PeltonError as error:
        where = plan.target.stream or plan.options.servers
        raise WriteError(f"{task} into {where}: {error}") from error
    finally:
        errors.drop()


def passed_over(batches: Iterable[pa.RecordBatch]) -> Written:
    """The result for rows that are stored already and that come again for another target."""
    count = sum(batch.num_rows for batch in batches)
    return Written(count, already=count)


def _write_one_by_one(
    plan: WritePlan, task: Task, batches: Iterable[pa.RecordBatch], errors: RowErrors
) -> Written:
    options, target = plan.options, plan.target
    once = options.exactly_once == IDS
    progress: Progress | None = None
    sender: Sender | None = None
    count = already = 0
    try:
        for batch in batches:
            if not batch.num_rows:
                continue
            messages = plan.composer.compose(batch)
            if once and progress is None:
                progress = _begin(plan, task, messages, ID in batch.schema.names)
            if progress is None or not progress.finished:
                sender = sender or Sender(options, target, errors, progress, task.id)
                already += sender.send(
                    messages, count, partial(_known, progress, messages, batch, count)
                )
            count += messages.count
        if sender is not None:
            sender.finish()
            already += sender.duplicates
            _check_same(plan)
    finally:
        if sender is not None:
            sender.close()
    if progress is not None and progress.finished:
        progress.finish(count)
        return Written(count, already=count)
    errors.close()
    if progress is not None:
        begun = progress
        patiently(options, lambda js: begun.over(js).finish(count))
    return Written(count, already, errors.count)


def _check_same(plan: WritePlan) -> None:
    """Raise :class:`WriteError` when the stream was created again during the write.

    The rows that the deleted stream acknowledged are gone with it.
    """
    name = plan.target.stream
    if name is None:
        return
    info = patiently(plan.options, lambda js: js.stream_info(name))
    if format_time(info.created) != plan.target.born:
        raise WriteError(
            f"stream {name} was deleted and created again while it was written (at"
            f" {format_time(info.created)}, before that {plan.target.born}): run the write again"
        )


def _begin(plan: WritePlan, task: Task, messages: Messages, own_ids: bool) -> Progress:
    """Begin the progress record of a task; ``messages`` are its first rows."""
    first = fingerprint(messages)

    def begin(js: JetStream) -> Progress:
        progress = Progress(js, plan.options.progress_bucket, plan.target, task)
        progress.begin(first, own_ids=own_ids)
        return progress

    return patiently(plan.options, begin)


def _known(
    progress: Progress | None, messages: Messages, batch: pa.RecordBatch, first: int
) -> list[int]:
    """The rows of a batch that other attempts wrote."""
    found = Found() if progress is None else progress.found
    if progress is not None and progress.finished:
        return list(range(messages.count))
    if not found:
        return []
    ids = messages.ids(batch)
    return [
        row
        for row in range(messages.count)
        if row not in messages.bad and found.has(first + row, messages.subject_of(row), ids[row])
    ]


def without_another_try(
    write: Callable[[Iterator[pa.RecordBatch]], Written], batches: Iterator[pa.RecordBatch]
) -> Written:
    """The result of a task; it reports a row that cannot be written, and the driver ends the write."""
    try:
        return write(batches)
    except RowRefused as refused:
        for _ in batches:  # Spark expects the task to read all rows
            pass
        return Written(0, error=str(refused))


def fit_columns(
    given: Mapping[str, str], schema: StructType
) -> tuple[WriteOptions, MessageComposer]:
    """Check the columns of a write; sends no request. Raises :class:`OptionError`."""
    options = parse_write_options(given)
    composer = MessageComposer.of(schema, options.subject)
    columns = composer.columns
    if options.exactly_once == BATCH:
        expecting = [name for name in columns if name.startswith("expected_")]
        if expecting:
            raise OptionError(
                f"columns {', '.join(expecting)} go with exactlyOnce=ids or none:"
                " an expectation that does not hold would refuse a whole atomic batch"
            )
    return options, composer


def plan_write(given: Mapping[str, str], schema: StructType) -> WritePlan:
    """The plan of a write, with all checks that are possible before it begins.

    Raises :class:`OptionError` and :class:`WriteError`.
    """
    options, composer = fit_columns(given, schema)
    ttl = "ttl" in composer.columns
    target = look_at(options, composer.subjects, fixed=composer.fixed, ttl=ttl)
    return WritePlan(options, composer, target)


def partition() -> int:
    """The partition that the running task writes."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


class JetStreamWriter(DataSourceArrowWriter):
    """A batch write: one job, whose tasks Spark may run again."""

    def __init__(self, plan: WritePlan) -> None:
        """Spark makes one per job; the name of the job is made here, unless writeId gives it."""
        self._plan = plan
        self._writer = plan.options.write_id or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """The rows of one partition."""
        task = Task(self._writer, self._plan.options.write_epoch, partition())
        return without_another_try(partial(write_partition, self._plan, task), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All rows are stored; a job that cannot run again under its name deletes its progress
        records.
        """
        tell(messages, self._plan.options, f"stream {self._plan.target.stream}")
        note_written(self._plan.options, self._plan.target, self._plan.options.write_epoch)
        self._forget()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """A task failed: rows that other tasks wrote stay, and a job with a writeId can run again."""
        self._forget()

    def _forget(self) -> None:
        options = self._plan.options
        if options.write_id is not None or options.exactly_once == NONE:
            return
        js = jetstream_for(options.servers)
        if options.exactly_once == IDS:
            forget(js, options.progress_bucket, self._writer)
        else:
            forget_markers(js, self._plan.target, self._writer)


class JetStreamStreamWriter(StreamArrowWriter):
    """A streaming write: each row of each micro-batch is stored once."""

    def __init__(self, plan: WritePlan) -> None:
        """Spark makes one for every micro-batch."""
        if plan.options.write_id is not None:
            raise OptionError("writeId is for batch writes; a query has its own id")
        warn_unnoticed(plan.options, plan.target)
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """The rows of one partition of a micro-batch."""
        task = streaming_task()
        return without_another_try(partial(write_partition, self._plan, task), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """All rows are stored; warns of rows that went to the side output."""
        tell(messages, self._plan.options, f"stream {self._plan.target.stream}")
        note_written(self._plan.options, self._plan.target, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """A task failed: Spark runs the batch again, which then finds the rows that are stored."""


def streaming_task() -> Task:
    """The partition of a micro-batch that the running task writes; :class:`WriteError` outside a
    query.
    """
    context: Any = TaskContext.get()
    query = None if context is None else context.getLocalProperty(QUERY_ID)
    batch = None if context is None else context.getLocalProperty(BATCH_ID)
    if query is None or batch is None:
        raise WriteError("this is no task of a streaming query: Spark names no query and batch")
    return Task(query, int(batch), context.partitionId())


def tell(messages: Sequence[WriterCommitMessage | None], options: WriteOptions, where: str) -> None:
    """Warn of rows that went to the side output; :class:`WriteError` when a row ends the write."""
    written = [message for message in messages if isinstance(message, Written)]
    for message in written:
        if message.error:
            raise WriteError(message.error)
    refused = sum(message.refused for message in written)
    if refused:
        there = " and ".join(filter(None, (options.error_path, options.error_subject)))
        rows = sum(message.rows for message in written)
        warnings.warn(
            f"{refused} of {rows} rows could not be written into {where}; they are in {there}",
            stacklevel=2,
        )
