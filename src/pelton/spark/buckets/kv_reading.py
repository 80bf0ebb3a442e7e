"""The state of a bucket, and its changes, as Arrow batches; read on an executor.

A consumer that delivers the last message of each key reads the state at a revision::

    planned at revision 7      1:a  3:b  5:c  7:d            the values of a, b, c, d
    read a moment later        1:a  3:b       7:d  8:c  9:e

A row up to the bound belongs to the state. A key that comes only with a later revision, c and e here,
was changed or created after the plan; the bucket still has its value at the bound if it keeps a history.
Where it does not, :class:`Gone` decides about the key.

When the connection breaks, a read continues after its last row, so it returns each key once. A read
fails when the bucket is deleted and created again before its end.

Does not depend on Spark.
"""

from __future__ import annotations

import contextlib
import enum
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pelton.api.keyvalue import PURGE, PUT, operation_of
from pelton.arrow import strings
from pelton.client.base.models import ConsumerConfig
from pelton.client.sync import columns as bulk
from pelton.client.sync.upkeep import OwnConsumers
from pelton.core.protocol.subjects import matches
from pelton.core.protocol.wire import decode_headers
from pelton.errors import (
    ApiError,
    MessageNotFoundError,
    PeltonError,
    PeltonTimeoutError,
    PermissionsViolationError,
)
from pelton.spark.asking import Asking
from pelton.spark.buckets.kv_bucket import BucketError, look
from pelton.spark.buckets.kv_options import overlapping
from pelton.spark.connection import ReadError, client_for, forget_client, jetstream_for
from pelton.spark.reading.offsets import DataLossError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pelton.client.sync.jetstream import JetStream
    from pelton.core.bulk.columns import Columns
    from pelton.spark.buckets.kv_bucket import Bucket
    from pelton.spark.buckets.kv_options import KvOptions
    from pelton.spark.reading.offsets import Range

_BATCH_BYTES = 4 * 2**20
_RETRY_EVERY_SECONDS = 0.2
_QUIET_SECONDS = 2.0
_UNAVAILABLE = 503
_INACTIVE_S = 60
_FILTERS_MAX = 64
PARTS_MAX = 16
_SEVERAL_FILTERS = (2, 10)  # the first server version whose consumers take more than one filter
_TIMESTAMP = pa.timestamp("us", "UTC")


class Gone(enum.Enum):
    """The result for a key whose value at the bound is gone, but which has a later value."""

    NEWER = "the later value is given"
    LEAVE = "no row"
    FAIL = "the read fails"


@dataclass(frozen=True)
class KvPlan:
    """One read of one life of a bucket; picklable."""

    options: KvOptions
    bucket: Bucket

    def subjects(self) -> tuple[str, ...]:
        """The filters for a consumer; all keys when it could not take the patterns together."""
        keys = self.options.keys
        return self.bucket.subjects((">",) if self.leftover() else keys)

    def leftover(self) -> tuple[str, ...]:
        """The patterns of keys that the reader has to apply itself."""
        keys = self.options.keys
        if len(keys) > 1 and (overlapping(keys) or not _takes_filters(self.options)):
            return keys
        return ()


def _takes_filters(options: KvOptions) -> bool:
    return client_for(options.servers).server_info.version_at_least(*_SEVERAL_FILTERS)


def parts_of(options: KvOptions) -> list[KvOptions]:
    """The read of a state in parts that can run at the same time.

    Each part has some of the patterns of keys, and a key is in one part. There is one part when a key
    may match two patterns.
    """
    keys = options.keys
    if len(keys) < 2 or overlapping(keys):
        return [options]
    if len(keys) > PARTS_MAX and not _takes_filters(options):
        return [options]  # the server would send all keys for each part
    count = min(len(keys), PARTS_MAX)
    return [replace(options, keys=keys[part::count]) for part in range(count)]


def read_changes(plan: KvPlan, wanted: Range) -> Iterator[pa.RecordBatch]:
    """Every operation in a range of revisions that the bucket still has, in order."""
    options, bucket = plan.options, plan.bucket
    yield from _range(plan, wanted.first, wanted.last, plan.subjects(), options.batch_rows, bucket)


def read_state(plan: KvPlan, bound: int, gone: Gone) -> Iterator[pa.RecordBatch]:
    """The last operation of each key up to the revision ``bound``, as far as the bucket has it.

    Rows of deleted keys only with the option deletes. Raises :class:`DataLossError` as ``gone`` says, or
    when the bucket was created again; :class:`ReadError` when the server stays away or refuses.
    """
    told: list[pa.Array] = []
    late: list[pa.RecordBatch] = []
    for batch in _last_of_each(plan):
        on_time = pc.less_equal(batch["revision"], bound)
        if on_time.true_count == len(batch):
            mine = batch
        else:
            mine = batch.filter(on_time)
            late.append(batch.filter(pc.invert(on_time)))
        told.append(mine["key"])
        yield from _alive(plan, mine)
    if late:
        changed = pa.Table.from_batches(late)
        known = pc.is_in(changed["key"], value_set=pa.chunked_array(told, pa.string()))
        yield from _late(plan, bound, gone, changed.filter(pc.invert(known)))


def _alive(plan: KvPlan, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if not plan.options.deletes:
        batch = batch.filter(pc.equal(batch["operation"], PUT))
    if len(batch):
        yield batch


def _late(plan: KvPlan, bound: int, gone: Gone, later: pa.Table) -> Iterator[pa.RecordBatch]:
    """The rows of keys that were only seen with a revision behind the bound."""
    rows = later.to_batches(max_chunksize=plan.options.batch_rows)
    newest = {key.as_py(): part.slice(at, 1) for part in rows for at, key in enumerate(part["key"])}
    histories = _histories(plan, bound, newest) if plan.bucket.history > 1 else {}
    for key, row in newest.items():
        past = histories.get(key, _History())
        if past.at_bound is not None:
            yield from _alive(plan, past.at_bound)
        elif past.begins(plan.bucket.history):
            continue  # the key did not exist at the bound
        elif gone is Gone.FAIL:
            raise DataLossError(
                f"bucket {plan.bucket.name} no longer has the value of key {key} at revision {bound}: the key is"
                f" at revision {row['revision'][0].as_py()} now, and the bucket's history is {plan.bucket.history}."
                " To leave such keys out, set failOnDataLoss to false"
            )
        elif gone is Gone.NEWER:
            yield from _alive(plan, row)


class _History:
    """The operations of one key that the bucket still has, relative to a bound."""

    def __init__(self) -> None:
        self.at_bound: pa.RecordBatch | None = None
        self._later = 0
        self._after_purge = False

    def add(self, row: pa.RecordBatch, *, before: bool) -> None:
        """Add the next operation; ``before`` says whether it is one up to the bound."""
        if before:
            self.at_bound = row
        else:
            if not self._later:
                self._after_purge = row["operation"][0].as_py() == PURGE
            self._later += 1

    def begins(self, kept: int) -> bool:
        """Whether the key was created after the bound: the bucket has removed none of its
        operations.
        """
        return 0 < self._later < kept and not self._after_purge


def _histories(plan: KvPlan, bound: int, newest: dict[str, pa.RecordBatch]) -> dict[str, _History]:
    """The operations of some keys that the bucket still has."""
    keys = tuple(newest)
    few = len(keys) == 1 or (len(keys) <= _FILTERS_MAX and _takes_filters(plan.options))
    subjects = plan.bucket.subjects(keys) if few else plan.subjects()
    wanted = pa.array(keys, pa.string())
    found: dict[str, _History] = {}
    end = look(Asking(plan.options.servers), plan.bucket.name).last
    for batch in _range(plan, 1, end, subjects, plan.options.batch_rows, plan.bucket):
        mine = batch.filter(pc.is_in(batch["key"], value_set=wanted))
        for at, (key, revision) in enumerate(zip(mine["key"], mine["revision"], strict=True)):
            history = found.setdefault(key.as_py(), _History())
            history.add(mine.slice(at, 1), before=revision.as_py() <= bound)
    return found


def _range(
    plan: KvPlan, first: int, last: int, subjects: tuple[str, ...], rows: int, bucket: Bucket
) -> Iterator[pa.RecordBatch]:
    def attempt(after: int) -> Iterator[Columns]:
        yield from bulk.read_range(
            jetstream_for(plan.options.servers),
            bucket.stream,
            max(after + 1, first),
            last + 1,
            filter_subjects=subjects,
            rows=rows,
            max_bytes=_BATCH_BYTES,
            timeout=plan.options.servers.request_timeout_seconds,
        )

    if first <= last:
        yield from _persistently(plan, attempt)


def _last_of_each(plan: KvPlan) -> Iterator[pa.RecordBatch]:
    """The last operation of each key, in order of revisions; then operations that came meanwhile."""

    def attempt(after: int) -> Iterator[Columns]:
        jetstream = jetstream_for(plan.options.servers)
        subjects = plan.subjects()
        config = ConsumerConfig(
            deliver_policy="last_per_subject",
            ack_policy="none",
            max_deliver=1,
            mem_storage=True,
            num_replicas=1,
            inactive_threshold=_INACTIVE_S,
            filter_subject=subjects[0] if len(subjects) == 1 else "",
            filter_subjects=list(subjects) if len(subjects) > 1 else [],
        )
        own = OwnConsumers(jetstream, plan.bucket.stream)
        try:
            info = bulk.begin(jetstream, own, config)
            if goal := _last_held(plan, jetstream):
                yield from _consume(plan, jetstream, info.name, goal)
        finally:
            bulk.discard(jetstream, own)

    yield from _persistently(plan, attempt)


def _last_held(plan: KvPlan, jetstream: JetStream) -> int:
    """The revision of the last operation that the bucket has of the keys, 0 when there is none."""
    last = 0
    for subject in plan.subjects():
        with contextlib.suppress(MessageNotFoundError):
            last = max(last, jetstream.get_message(plan.bucket.stream, last_by_subject=subject).seq)
    return last


def _consume(plan: KvPlan, jetstream: JetStream, consumer: str, goal: int) -> Iterator[Columns]:
    """Read a consumer up to the revision ``goal`` at least, or to the last revision when that is gone.

    The number of pending messages does not decide the end: before 2.10 servers may count wrong after a
    purge. Raises PeltonTimeoutError when a message is missing between others, or does not come.
    """
    rows = plan.options.batch_rows
    patience = plan.options.servers.request_timeout_seconds
    reader = bulk.ColumnReader(
        jetstream, plan.bucket.stream, consumer, rows=rows, batch=2 * rows, max_bytes=_BATCH_BYTES
    )
    received = 0
    quiet_since = time.monotonic()
    try:
        while True:
            columns = reader.read(min(patience, _QUIET_SECONDS))
            received += columns.count
            if columns.count:
                if columns.last_consumer_seq != received:
                    raise PeltonTimeoutError("messages were lost on the way")
                yield columns
                quiet_since = time.monotonic()
                if columns.last_pending:
                    continue
            if reader.last_seq >= goal or reader.last_seq >= _last_held(plan, jetstream):
                return
            if time.monotonic() - quiet_since > patience:
                raise PeltonTimeoutError("keys are pending, but do not come")
    finally:
        reader.close()


def _persistently(
    plan: KvPlan, attempt: Callable[[int], Iterator[Columns]]
) -> Iterator[pa.RecordBatch]:
    """The batches of ``attempt(after)``.

    Calls it again, behind the last row, as long as the server comes back in time.
    """
    servers, bucket = plan.options.servers, plan.bucket
    after = 0
    deadline = time.monotonic() + servers.retry_timeout_seconds
    while True:
        try:
            _check_same(plan)
            for columns in attempt(after):
                yield from _rows(plan, columns, after)
                after = max(after, columns.last_seq)
                deadline = time.monotonic() + servers.retry_timeout_seconds
        except PeltonTimeoutError as error:
            trouble: Exception = error
        except (PeltonError, ReadError) as error:
            if isinstance(error, BucketError):
                raise
            refused = isinstance(error, ApiError) and error.code != _UNAVAILABLE
            if refused or isinstance(error, PermissionsViolationError):
                raise ReadError(f"bucket {bucket.name}: {error}") from error
            trouble = error
            forget_client(servers)
        else:
            return
        if time.monotonic() > deadline:
            raise ReadError(
                f"bucket {bucket.name}: cannot read on at revision {after + 1}: {trouble}"
            ) from trouble
        time.sleep(_RETRY_EVERY_SECONDS)


def _check_same(plan: KvPlan) -> None:
    now = look(Asking(plan.options.servers), plan.bucket.name)
    if now.born != plan.bucket.born:
        raise DataLossError(
            f"bucket {now.name} was deleted and created again (at {now.born}, before that"
            f" {plan.bucket.born}) while it was read"
        )


def _rows(plan: KvPlan, columns: Columns, after: int) -> Iterator[pa.RecordBatch]:
    """The rows behind ``after`` whose keys match the options, each once.

    After a purge, servers before 2.10 deliver a message again for each key that is gone.
    """
    batch = to_arrow(columns, len(plan.bucket.prefix))
    if columns.count:
        revisions = batch["revision"]
        before = pa.concat_arrays([pa.array([after], pa.int64()), revisions[:-1]])
        if not pc.all(pc.greater(revisions, before)).as_py():
            batch = batch.filter(pc.greater(revisions, pc.cumulative_max(before)))
    if patterns := plan.leftover():
        wanted = [any(matches(key.as_py(), one) for one in patterns) for key in batch["key"]]
        batch = batch.filter(pa.array(wanted, pa.bool_()))
    if len(batch):
        yield batch


def to_arrow(columns: Columns, prefix_length: int) -> pa.RecordBatch:
    """One batch of columns as rows of a bucket: key, value, revision, created, operation."""
    count = columns.count
    subjects = strings(count, columns.subject_offsets, columns.subject_data)
    values = _variable(pa.binary(), count, columns.payload_offsets, columns.payload_data)
    nanoseconds = pa.Array.from_buffers(
        pa.int64(), count, [None, pa.py_buffer(columns.timestamp_ns)]
    )
    operations = _operations(columns)
    if len(columns.headers_data):
        values = pc.if_else(pc.equal(operations, PUT), values, pa.scalar(None, pa.binary()))
    arrays = [
        pc.utf8_slice_codeunits(subjects, prefix_length),
        values,
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(columns.seq)]),
        pc.divide(nanoseconds, 1000).cast(_TIMESTAMP),
        operations,
    ]
    return pa.RecordBatch.from_arrays(arrays, ["key", "value", "revision", "created", "operation"])


def _variable(kind: pa.DataType, count: int, offsets: object, data: object) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _operations(columns: Columns) -> pa.Array:
    count = columns.count
    if not len(columns.headers_data):
        return pa.repeat(pa.scalar(PUT), count)
    blocks = _variable(pa.binary(), count, columns.headers_offsets, columns.headers_data)
    return pa.array([_operation(block.as_py()) for block in blocks], pa.string())


def _operation(block: bytes) -> str:
    if not block:
        return PUT
    return operation_of(decode_headers(block)[2])
