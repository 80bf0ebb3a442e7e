"""Batches of columns as Arrow batches: the bytes are shared, and no work is done per message.

Spark's strings are UTF-8. In a subject or a header with other bytes, U+FFFD, the replacement
character, stands for each invalid part; payloads are bytes and stay as they are.

Knows nothing of servers and files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.bulk.header_maps import HeaderMaps, message_sizes
from penstock.core.bulk.wire_columns import WireColumns
from penstock.core.protocol.subjects import matches

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.core.bulk.columns import Buffer, Columns
    from penstock.spark.reading.plan import ReadPlan

_TIMESTAMP = pa.timestamp("us", "UTC")
_VALUES = pa.list_(pa.string())
_HEADERS = pa.map_(pa.string(), _VALUES)


def to_arrow(columns: Columns, plan: ReadPlan) -> pa.RecordBatch:
    """The columns that the plan asks for, in its order; shares the memory of ``columns``.

    Leaves out rows outside the plan's times. With several subjects it also leaves out rows that match
    none of them, because not every transport can apply more than one filter.
    """
    arrays = [_MAKERS[name](columns, plan) for name in plan.columns]
    batch = pa.RecordBatch.from_arrays(arrays, list(plan.columns))
    kept = None
    if plan.not_before_ns or plan.not_after_ns:
        kept = _in_time(columns, plan)
    if len(plan.subjects) > 1:
        on_one = _on_subjects(columns, plan.subjects)
        kept = on_one if kept is None else pc.and_(kept, on_one)
    return batch if kept is None else batch.filter(kept)


def _in_time(columns: Columns, plan: ReadPlan) -> pa.Array:
    times = _fixed(columns.count, columns.timestamp_ns)
    kept = pc.greater_equal(times, plan.not_before_ns)
    return pc.and_(kept, pc.less(times, plan.not_after_ns)) if plan.not_after_ns else kept


def _on_subjects(columns: Columns, patterns: tuple[str, ...]) -> pa.Array:
    known = _variable(
        pa.binary(), columns.count, columns.subject_offsets, columns.subject_data
    ).dictionary_encode()
    wanted = [
        any(matches(subject, pattern) for pattern in patterns)
        for subject in known.dictionary.to_pylist()
    ]
    return pa.array(wanted, pa.bool_()).take(known.indices)


def _stream(columns: Columns, plan: ReadPlan) -> pa.Array:
    return pa.repeat(pa.scalar(plan.stream, pa.string()), columns.count)


def _born(columns: Columns, plan: ReadPlan) -> pa.Array:
    return pa.repeat(pa.scalar(plan.born, pa.string()), columns.count)


def _seq(columns: Columns, plan: ReadPlan) -> pa.Array:
    return _fixed(columns.count, columns.seq)


def _subject(columns: Columns, plan: ReadPlan) -> pa.Array:
    return _strings(columns.count, columns.subject_offsets, columns.subject_data)


def _ts(columns: Columns, plan: ReadPlan) -> pa.Array:
    return pc.divide(_ts_ns(columns, plan), 1000).cast(_TIMESTAMP)


def _ts_ns(columns: Columns, plan: ReadPlan) -> pa.Array:
    return _fixed(columns.count, columns.timestamp_ns)


def _size(columns: Columns, plan: ReadPlan) -> pa.Array:
    return _fixed(columns.count, message_sizes(columns))


def _data(columns: Columns, plan: ReadPlan) -> pa.Array:
    return _variable(pa.binary(), columns.count, columns.payload_offsets, columns.payload_data)


def _reply(columns: Columns, plan: ReadPlan) -> pa.Array:
    if isinstance(columns, WireColumns) and columns.replies:
        return _strings(columns.count, columns.reply_offsets, columns.reply_data)
    return pa.nulls(columns.count, pa.string())


def _headers(columns: Columns, plan: ReadPlan) -> pa.Array:
    maps = HeaderMaps(columns)
    if maps.nulls == maps.count:
        return pa.nulls(maps.count, _HEADERS)
    values = _strings(maps.values, maps.value_offsets, maps.value_data)
    starts = pa.py_buffer(maps.list_offsets)
    lists = pa.Array.from_buffers(_VALUES, maps.keys, [None, starts], children=[values])
    names = _strings(maps.keys, maps.key_offsets, maps.key_data)
    entries = pa.StructArray.from_arrays(
        [names, lists], fields=[pa.field("key", pa.string(), nullable=False), _HEADERS.item_field]
    )
    buffers = [pa.py_buffer(maps.valid), pa.py_buffer(maps.map_offsets)]
    return pa.Array.from_buffers(
        _HEADERS, maps.count, buffers, null_count=maps.nulls, children=[entries]
    )


_MAKERS: dict[str, Callable[[Columns, ReadPlan], pa.Array]] = {
    "stream": _stream,
    "seq": _seq,
    "subject": _subject,
    "ts": _ts,
    "headers": _headers,
    "data": _data,
    "ts_ns": _ts_ns,
    "size": _size,
    "born": _born,
    "reply": _reply,
}


def _fixed(count: int, values: Buffer) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(values)])


def _variable(kind: pa.DataType, count: int, offsets: Buffer, data: Buffer) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _strings(count: int, offsets: Buffer, data: Buffer) -> pa.Array:
    made = _variable(pa.string(), count, offsets, data)
    try:
        made.validate(full=True)
    except pa.ArrowInvalid:
        pieces = _variable(pa.binary(), count, offsets, data).to_pylist()
        return pa.array([piece.decode("utf-8", "replace") for piece in pieces], pa.string())
    return made
