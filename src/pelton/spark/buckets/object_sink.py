"""Writing ``format("jetstream_object")``: rows become objects of an object store, each row once.

The id of an object's chunks follows from its row and the attempt to write it. So the meta message
shows that an object was written before, and a later attempt removes the chunks of one that was cut
off. After each row the writer updates the progress record of the partition; there an attempt finds
that a later one has begun, and gives way.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter

from pelton.errors import (
    ConnectionClosedError,
    NoRespondersError,
    PeltonError,
    PeltonTimeoutError,
    PublishFailedError,
)
from pelton.nuid import DIGITS
from pelton.spark.buckets.object_store import CHUNK_BYTES, STREAM_PREFIX, ObjectStore
from pelton.spark.connection import forget_client, jetstream_for
from pelton.spark.holding import STREAM_IF_BEHIND, checkpoint_given
from pelton.spark.older import StreamArrowWriter
from pelton.spark.parsing import OptionError, Row, missing, one_of, parse, size
from pelton.spark.servers import SERVER_ROWS, take_servers
from pelton.spark.writing.composing import (
    HEADER_MAPS,
    PUBLISHING,
    SUBJECT_BYTES_MAX,
    TEXTS,
    binary,
    check_columns,
    fitting,
)
from pelton.spark.writing.header_columns import headers_of
from pelton.spark.writing.options import (
    ERROR_ROWS,
    PROGRESS_ROW,
    WRITE_EPOCH_ROW,
    WRITE_ID_ROW,
    WriteOptions,
    check_once,
    without_sparks_own,
)
from pelton.spark.writing.options import name as bucket_name
from pelton.spark.writing.plan import Written
from pelton.spark.writing.progress import Progress, forget
from pelton.spark.writing.row_errors import RowErrors, Sent, Task, WriteError
from pelton.spark.writing.sending import RETRY_EVERY_SECONDS, connect
from pelton.spark.writing.target import Target, look_at, note_written, warn_unnoticed
from pelton.spark.writing.writer import (
    partition,
    passed_over,
    streaming_task,
    tell,
    without_another_try,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

    from pelton.client.sync.jetstream import JetStream

NAME, DATA, DESCRIPTION, HEADERS = "name", "data", "description", "headers"
DELETE, REFUSE = "delete", "refuse"
_NUID_LENGTH = 22
NAME_BYTES_MAX = SUBJECT_BYTES_MAX * 3 // 4 - 200
"""The name is in the subject of the meta message, four bytes for three."""


def _chunk(text: str) -> int:
    found = size(text)
    if found > 2**26:
        raise OptionError("a size from 1 byte to 64m")
    return found


WRITE_ROWS: tuple[Row, ...] = (
    Row("bucket", "bucket", bucket_name, "The object store to write into. Required."),
    *SERVER_ROWS,
    Row("chunkSize", "chunk_bytes", _chunk, "Bytes of an object in one message."),
    Row(
        "nullData",
        "null_data",
        one_of(DELETE, REFUSE),
        "What a row without data does: delete the object, or be a row that is not written.",
    ),
    WRITE_ID_ROW,
    WRITE_EPOCH_ROW,
    PROGRESS_ROW,
    STREAM_IF_BEHIND,
    *ERROR_ROWS,
)


@dataclass(frozen=True)
class ObjectPlan:
    """The plan that the tasks of a write carry out; picklable."""

    options: WriteOptions
    target: Target
    bucket: str
    chunk_bytes: int
    null_data: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class ObjectWrite:
    """The options of one writer into an object store."""

    options: WriteOptions
    bucket: str
    chunk_bytes: int
    null_data: str


def parse_object_write(given: Mapping[str, str]) -> ObjectWrite:
    """Parse Spark's options; names in any case. Raises :class:`OptionError`."""
    values = parse(WRITE_ROWS, without_sparks_own(given), format_name="jetstream_object")
    if "bucket" not in values:
        raise missing("bucket", "photos", given)
    bucket = str(values.pop("bucket"))
    chunk_bytes = int(str(values.pop("chunk_bytes", CHUNK_BYTES)))
    null_data = str(values.pop("null_data", REFUSE))
    values["checkpoint"] = checkpoint_given(given)
    options = WriteOptions(
        servers=take_servers(values),
        stream=STREAM_PREFIX + bucket,
        **values,  # type: ignore[arg-type]  # each row's reader makes its field's type
    )
    check_once(options)
    return ObjectWrite(options, bucket, chunk_bytes, null_data)


def plan_object_write(given: Mapping[str, str], schema: StructType) -> ObjectPlan:
    """The plan of a write, with all checks that are possible before it begins.

    Raises :class:`OptionError` and :class:`WriteError`.
    """
    asked = parse_object_write(given)
    options, bucket = asked.options, asked.bucket
    columns = fit_object_columns(schema)
    subjects = f"$O.{bucket}.>"
    target = look_at(options, subjects, fixed=False, ttl=False, kind="object store")
    if not target.rollup:
        raise WriteError(f"stream {options.stream} is no object store: it allows no rollups")
    return ObjectPlan(options, target, bucket, asked.chunk_bytes, asked.null_data, columns)


def fit_object_columns(schema: StructType) -> tuple[str, ...]:
    """Check the columns of a write; sends no request. Raises :class:`OptionError`."""
    known = {NAME: TEXTS, DATA: ("binary", *TEXTS), DESCRIPTION: TEXTS, HEADERS: HEADER_MAPS}
    return check_columns(schema, known, (NAME, DATA), "jetstream_object")


def write_objects(plan: ObjectPlan, task: Task, batches: Iterable[pa.RecordBatch]) -> Written:
    """Write the rows of one partition, in order; :class:`WriteError` when that fails."""
    if task.epoch <= plan.target.done:
        return passed_over(batches)
    errors = RowErrors(plan.options, task)
    objects = _Partition(plan, task, errors)
    count = 0
    try:
        for batch in batches:
            batch, unfit = _fitting(batch)
            for number, row in enumerate(batch.to_pylist()):
                objects.write(count, row, unfit.get(number))
                count += 1
        objects.finish(count)
    except PeltonError as error:
        raise WriteError(f"{task} into object store {plan.bucket}: {error}") from error
    finally:
        errors.drop()
    return Written(count, objects.already, errors.count)


def _fitting(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, str]]:
    """As :func:`fitting`, with the data as bytes."""
    batch, unfit = fitting(batch, DATA)
    place = batch.schema.get_field_index(DATA)
    return batch.set_column(place, DATA, binary(batch.column(place))), unfit


class _Partition:
    """The write of one partition's rows."""

    def __init__(self, plan: ObjectPlan, task: Task, errors: RowErrors) -> None:
        self.already = 0
        self._plan = plan
        self._task = task
        self._errors = errors
        self._progress: Progress | None = None
        self._done = 0

    def write(self, number: int, row: dict[str, object], unfit: str | None = None) -> None:
        """Write one row, unless it is known to be done; ``unfit`` is why it is not an object."""
        if self._progress is None:
            self._begin(row)
        try:
            if unfit is not None:
                raise ValueError(unfit)
            name, data, description, headers = self._take(row)
        except ValueError as error:
            given = row.get(DATA)
            held = given if isinstance(given, bytes) else str(given or "").encode()
            self._errors.add(number, str(error), Sent(str(row.get(NAME) or ""), b"", held))
            return
        if number < self._done:
            self.already += 1
            return
        assert self._progress is not None
        attempt = 0 if self._progress.record is None else self._progress.record.attempt
        # Each attempt has separate chunks, because an earlier one may still be writing.
        *earlier, nuid = [
            nuid_of(f"{self._task.id}{number}" + (f":{each}" if each else ""))
            for each in range(attempt + 1)
        ]

        def act(store: ObjectStore) -> bool:
            if data is None:
                return store.delete(name)
            return store.put(
                name, data, nuid, description=description, headers=headers, earlier=earlier
            )

        self.already += not self._retrying(act)
        self._progress.over(self._js()).advance(number + 1)

    def finish(self, count: int) -> None:
        """Record that every row is done."""
        self._errors.close()
        if self._progress is not None:
            self._progress.over(self._js()).finish(count)

    def _begin(self, row: dict[str, object]) -> None:
        retry = self._plan.options.servers.retry_timeout_seconds
        connect(self._plan.options, time.monotonic() + retry)
        options = self._plan.options
        progress = Progress(self._js(), options.progress_bucket, self._plan.target, self._task)
        first = hashlib.blake2b(str(row.get(NAME)).encode("utf-8", "replace"), digest_size=8)
        if not progress.claim(first.hexdigest()) and progress.record is not None:
            self._done = progress.record.done
        self._progress = progress

    def _js(self) -> JetStream:
        return jetstream_for(self._plan.options.servers)

    def _take(self, row: dict[str, object]) -> tuple[str, bytes | None, str, dict[str, list[str]]]:
        name, data = row[NAME], row[DATA]
        if not name or not isinstance(name, str):
            raise ValueError("it has no name")
        if len(name.encode("utf-8", "surrogateescape")) > NAME_BYTES_MAX:
            raise ValueError(f"its name has more than {NAME_BYTES_MAX} bytes")
        if data is None and self._plan.null_data == REFUSE:
            raise ValueError("it has no data")
        held = data.encode() if isinstance(data, str) else data
        assert held is None or isinstance(held, bytes)
        headers = headers_of(row.get(HEADERS), PUBLISHING)
        return name, held, str(row.get(DESCRIPTION) or ""), headers

    def _retrying(self, act: Callable[[ObjectStore], bool]) -> bool:
        """Run ``act``, which must be safe to repeat, until it succeeds or ``retryTimeout`` is over."""
        options = self._plan.options
        deadline = time.monotonic() + options.servers.retry_timeout_seconds
        while True:
            connect(options, deadline)
            try:
                return act(ObjectStore(self._js(), self._plan.bucket, self._plan.chunk_bytes))
            except (ConnectionClosedError, NoRespondersError, PeltonTimeoutError, OSError) as error:
                failure: Exception = error
            except PublishFailedError as error:
                if not isinstance(error.failures[0][2], PeltonTimeoutError | NoRespondersError):
                    raise
                failure = error
            if time.monotonic() >= deadline:
                raise WriteError(
                    f"{self._task} into object store {self._plan.bucket}: {failure}"
                ) from failure
            forget_client(options.servers)
            time.sleep(RETRY_EVERY_SECONDS)


def nuid_of(text: str) -> str:
    """An id for chunks; the same text gives the same id."""
    number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=20).digest())
    digits = []
    for _ in range(_NUID_LENGTH):
        number, digit = divmod(number, len(DIGITS))
        digits.append(DIGITS[digit])
    return "".join(digits)


class ObjectWriter(DataSourceArrowWriter):
    """A batch write: one job, whose tasks Spark may run again."""

    def __init__(self, plan: ObjectPlan) -> None:
        """Spark makes one per job; the name of the job is made here, unless writeId gives it."""
        self._plan = plan
        self._writer = plan.options.write_id or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """The rows of one partition."""
        task = Task(self._writer, self._plan.options.write_epoch, partition())
        return without_another_try(partial(write_objects, self._plan, task), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All objects are stored."""
        tell(messages, self._plan.options, f"object store {self._plan.bucket}")
        note_written(self._plan.options, self._plan.target, self._plan.options.write_epoch)
        self._forget()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """A task failed: rows that other tasks wrote stay."""
        self._forget()

    def _forget(self) -> None:
        options = self._plan.options
        if options.write_id is None:
            forget(jetstream_for(options.servers), options.progress_bucket, self._writer)


class ObjectStreamWriter(StreamArrowWriter):
    """A streaming write: the objects of each micro-batch."""

    def __init__(self, plan: ObjectPlan) -> None:
        """Spark makes one for every micro-batch."""
        if plan.options.write_id is not None:
            raise OptionError("writeId is for batch writes; a query has its own id")
        warn_unnoticed(plan.options, plan.target)
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """The rows of one partition of a micro-batch."""
        task = streaming_task()
        return without_another_try(partial(write_objects, self._plan, task), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """All objects are stored."""
        tell(messages, self._plan.options, f"object store {self._plan.bucket}")
        note_written(self._plan.options, self._plan.target, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """A task failed: Spark runs the batch again, which then finds the rows that are stored."""
