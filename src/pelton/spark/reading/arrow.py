"""Batches of columns as Arrow batches, as a plan wants them (:mod:`pelton.arrow` makes the arrays).

Does not depend on servers or files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pelton.arrow import constant, fixed, headers, strings, times, variable
from pelton.core.bulk.header_maps import message_sizes
from pelton.core.bulk.wire_columns import WireColumns
from pelton.core.protocol.subjects import matches

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.core.bulk.columns import Columns
    from pelton.spark.reading.plan import ReadPlan


def to_arrow(columns: Columns, plan: ReadPlan) -> pa.RecordBatch:
    """The columns that the plan asks for, in its order; shares the memory of ``columns``.

    Leaves out rows outside the plan's times. With several subjects it also leaves out rows that match
    none of them, because not every transport can apply more than one filter.
    """
    names = list(plan.needed)
    arrays = [_MAKERS[name](columns, plan) for name in names]
    batch = pa.RecordBatch.from_arrays(arrays, names)
    kept = None
    if plan.not_before_ns or plan.not_after_ns:
        kept = _in_time(columns, plan)
    if len(plan.subjects) > 1:
        on_one = _on_subjects(columns, plan.subjects)
        kept = on_one if kept is None else pc.and_(kept, on_one)
    batch = batch if kept is None else batch.filter(kept)
    if plan.where is None:
        return batch
    return plan.where.kept(batch).select(list(plan.columns))


def _in_time(columns: Columns, plan: ReadPlan) -> pa.Array:
    stored = fixed(columns.count, columns.timestamp_ns)
    kept = pc.greater_equal(stored, constant(plan.not_before_ns))
    if not plan.not_after_ns:
        return kept
    return pc.and_(kept, pc.less(stored, constant(plan.not_after_ns)))


def _on_subjects(columns: Columns, patterns: tuple[str, ...]) -> pa.Array:
    known = variable(
        pa.binary(), columns.count, columns.subject_offsets, columns.subject_data
    ).dictionary_encode()
    wanted = [
        any(matches(subject, pattern) for pattern in patterns)
        for subject in known.dictionary.to_pylist()
    ]
    return pa.array(wanted, pa.bool_()).take(known.indices)


def _stream(columns: Columns, plan: ReadPlan) -> pa.Array:
    return pa.repeat(constant(plan.stream), columns.count)


def _born(columns: Columns, plan: ReadPlan) -> pa.Array:
    return pa.repeat(constant(plan.born), columns.count)


def _seq(columns: Columns, plan: ReadPlan) -> pa.Array:
    return fixed(columns.count, columns.seq)


def _subject(columns: Columns, plan: ReadPlan) -> pa.Array:
    return strings(columns.count, columns.subject_offsets, columns.subject_data)


def _ts(columns: Columns, plan: ReadPlan) -> pa.Array:
    return times(columns)


def _ts_ns(columns: Columns, plan: ReadPlan) -> pa.Array:
    return fixed(columns.count, columns.timestamp_ns)


def _size(columns: Columns, plan: ReadPlan) -> pa.Array:
    return fixed(columns.count, message_sizes(columns))


def _data(columns: Columns, plan: ReadPlan) -> pa.Array:
    return variable(pa.binary(), columns.count, columns.payload_offsets, columns.payload_data)


def _reply(columns: Columns, plan: ReadPlan) -> pa.Array:
    if isinstance(columns, WireColumns) and columns.replies:
        return strings(columns.count, columns.reply_offsets, columns.reply_data)
    return pa.nulls(columns.count, pa.string())


def _headers(columns: Columns, plan: ReadPlan) -> pa.Array:
    return headers(columns)


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
