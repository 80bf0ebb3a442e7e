"""The messages of a range of sequences as Arrow batches, read over the NATS protocol on an
executor.

The bytes of subjects and payloads go from the connection's columns into Arrow without a copy;
nothing is done per message, but for headers, which are taken apart only when they are asked for.

A read is exact whatever happens to the server meanwhile: it goes on behind the last row it handed
out. Messages that were deleted one by one are passed over; when the front of the range is gone
because the stream dropped it, and failOnDataLoss is on, the read fails.

Knows nothing of Spark.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.client import columns as bulk
from penstock.core.wire import decode_headers
from penstock.errors import ApiError, PenstockError, Timeout
from penstock.spark.connection import ReadError, forget_client, jetstream_for, stream_state
from penstock.spark.offsets import DataLossError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.core.columns import Columns
    from penstock.spark.offsets import Range
    from penstock.spark.plan import ReadPlan

_BATCH_BYTES = 4 * 2**20
_RETRY_EVERY_SECONDS = 0.2
_TIMESTAMP = pa.timestamp("us", "UTC")
_HEADERS = pa.map_(pa.string(), pa.list_(pa.string()))


def read_range(plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """The messages of the plan's range that the stream still holds, in order, in batches of Arrow.

    Raises :class:`DataLossError` as failOnDataLoss has it, and :class:`ReadError` when the server
    stays away for ``retryTimeout`` or refuses.
    """
    wanted = plan.range
    after = wanted.first - 1
    for columns in _columns(plan, wanted):
        sequences = columns.seq.view("q")[: columns.count]
        _check_nothing_dropped(plan, after, sequences)
        after = sequences[-1]
        yield to_arrow(columns, plan)
    if after < wanted.last:
        _check_end(plan, after, wanted.last)


def _check_nothing_dropped(plan: ReadPlan, after: int, sequences: memoryview[int]) -> None:
    """Where sequences are missing, see whether the begin of the stream has overtaken the read.

    Messages deleted one by one leave earlier ones in the stream; when there are none, the stream
    has dropped them.
    """
    count = len(sequences)
    if not _watches(plan) or sequences[-1] - after == count:
        return
    behind_gap = next(
        sequences[row]
        for row in range(count - 1, -1, -1)
        if sequences[row] != (sequences[row - 1] if row else after) + 1
    )
    state = stream_state(plan.servers, plan.stream)
    if state.born != plan.born or (state.first_seq > after + 1 and state.first_seq >= behind_gap):
        raise _loss(plan, after + 1, behind_gap - 1)


def _check_end(plan: ReadPlan, after: int, last: int) -> None:
    """The same for the end of a range, when nothing came behind ``after``."""
    if _watches(plan):
        state = stream_state(plan.servers, plan.stream)
        if state.born != plan.born or state.first_seq > last:
            raise _loss(plan, after + 1, last)


def _watches(plan: ReadPlan) -> bool:
    # With a filter most sequences are missing, and nothing can be told from it.
    return plan.fail_on_data_loss and not plan.subjects


def _loss(plan: ReadPlan, first: int, last: int) -> DataLossError:
    return DataLossError(
        f"stream {plan.stream} dropped messages from {first} to {last} before they were read."
        " To go on with what is left, set failOnDataLoss to false"
    )


def _columns(plan: ReadPlan, wanted: Range) -> Iterator[Columns]:
    """Batches of columns, going on behind the last one as long as the server comes back in time."""
    position = wanted.first
    deadline = time.monotonic() + plan.servers.retry_timeout_seconds
    while position <= wanted.last:
        try:
            for columns in bulk.read_range(
                jetstream_for(plan.servers),
                plan.stream,
                position,
                wanted.last + 1,
                filter_subjects=plan.subjects,
                rows=plan.batch_rows,
                max_bytes=_BATCH_BYTES,
                timeout=plan.servers.request_timeout_seconds,
            ):
                yield columns
                position = columns.last_seq + 1
                deadline = time.monotonic() + plan.servers.retry_timeout_seconds
        except Timeout as error:
            # A message that was counted does not come: the server is slow, or it was deleted
            # meanwhile; ask anew.
            trouble: Exception = error
        except (PenstockError, ReadError) as error:
            if isinstance(error, ApiError):
                raise ReadError(f"stream {plan.stream}: {error}") from error
            trouble = error
            forget_client(plan.servers)
        else:
            return
        if time.monotonic() > deadline:
            raise ReadError(
                f"stream {plan.stream}: cannot read on at {position}: {trouble}"
            ) from trouble
        time.sleep(_RETRY_EVERY_SECONDS)


def to_arrow(columns: Columns, plan: ReadPlan) -> pa.RecordBatch:
    """The plan's columns of one batch as Arrow has them; shares the memory of the columns."""
    arrays = [_column(name, columns, plan) for name in plan.columns]
    return pa.RecordBatch.from_arrays(arrays, plan.columns)


def _column(name: str, columns: Columns, plan: ReadPlan) -> pa.Array:
    count = columns.count
    if name in ("stream", "born"):
        return pa.repeat(pa.scalar(plan.stream if name == "stream" else plan.born), count)
    if name == "seq":
        return _fixed(pa.int64(), count, columns.seq)
    if name == "subject":
        return _variable(pa.string(), count, columns.subject_offsets, columns.subject_data)
    if name in ("ts", "ts_ns"):
        nanoseconds = _fixed(pa.int64(), count, columns.timestamp_ns)
        return nanoseconds if name == "ts_ns" else pc.divide(nanoseconds, 1000).cast(_TIMESTAMP)
    blocks = _variable(pa.binary(), count, columns.headers_offsets, columns.headers_data)
    if name == "headers":
        return _header_maps(blocks)
    data = _variable(pa.binary(), count, columns.payload_offsets, columns.payload_data)
    if name == "size":
        lengths = pc.add(pc.binary_length(blocks), pc.binary_length(data))
        return lengths.cast(pa.int64())
    return data if name == "data" else pa.nulls(count, pa.string())


def _fixed(kind: pa.DataType, count: int, values: object) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(values)])


def _variable(kind: pa.DataType, count: int, offsets: object, data: object) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _header_maps(blocks: pa.Array) -> pa.Array:
    """Header blocks as maps from a name to its values, all of them in order; null for a message
    without headers.
    """
    starts: list[int | None] = []
    names: list[str] = []
    value_starts = [0]
    values: list[str] = []
    for block in blocks.to_pylist():
        if not block:
            starts.append(None)
            continue
        starts.append(len(names))
        for name, its_values in decode_headers(block)[2].items():
            names.append(name)
            values.extend(its_values)
            value_starts.append(len(values))
    starts.append(len(names))
    lists = pa.ListArray.from_arrays(pa.array(value_starts, pa.int32()), _strings(values))
    return pa.MapArray.from_arrays(pa.array(starts, pa.int32()), _strings(names), lists)


def _strings(texts: list[str]) -> pa.Array:
    try:
        return pa.array(texts, pa.string())
    except UnicodeEncodeError:
        # Bytes that are not UTF-8 came as surrogates; Arrow's strings, and Spark's, cannot hold
        # them.
        return pa.array(
            [text.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for text in texts],
            pa.string(),
        )
