"""The buffers of ``core/bulk`` as Arrow arrays: the bytes are shared, and no work is done per message.

Arrow's strings are UTF-8. In a subject or a header with other bytes, U+FFFD, the replacement
character, stands for each invalid part; payloads are bytes and stay as they are.

Needs pyarrow. Does not depend on servers, files or tables.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pelton.core.bulk.header_maps import HeaderMaps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pelton.core.bulk.columns import Buffer, Columns

TIMESTAMP = pa.timestamp("us", "UTC")
_VALUES = pa.list_(pa.string())
HEADERS = pa.map_(pa.string(), _VALUES)
"""The type of the headers of a message: a name has one value or several."""


def fixed(count: int, values: Buffer | bytes) -> pa.Array:
    """``count`` int64 values."""
    return pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(values)])


def variable(
    kind: pa.DataType, count: int, offsets: Buffer | bytes, data: Buffer | bytes
) -> pa.Array:
    """``count`` values of a binary or string type; the bytes are not looked at."""
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def flags(values: Sequence[bool]) -> pa.Array:
    """Booleans. ``pa.array`` would import pandas, which takes a new process 0.2 s."""
    numbers = pa.Array.from_buffers(pa.uint8(), len(values), [None, pa.py_buffer(bytes(values))])
    return numbers.cast(pa.bool_())


def strings(count: int, offsets: Buffer, data: Buffer) -> pa.Array:
    """``count`` strings, with U+FFFD for what is not UTF-8."""
    made = variable(pa.string(), count, offsets, data)
    try:
        made.validate(full=True)
    except pa.ArrowInvalid:
        pieces = variable(pa.binary(), count, offsets, data).to_pylist()
        return pa.array([piece.decode("utf-8", "replace") for piece in pieces], pa.string())
    return made


def constant(value: str | int) -> pa.Scalar:
    """A text or an int64. ``pa.scalar`` would import pandas, which takes a new process 0.2 s."""
    if isinstance(value, int):
        return fixed(1, value.to_bytes(8, sys.byteorder, signed=True))[0]
    text = value.encode()
    offsets = bytes(4) + len(text).to_bytes(4, sys.byteorder)
    return variable(pa.string(), 1, offsets, text)[0]


def times(columns: Columns) -> pa.Array:
    """When the messages were stored, cut to microseconds."""
    return pc.divide(fixed(columns.count, columns.timestamp_ns), constant(1000)).cast(TIMESTAMP)


def headers(columns: Columns) -> pa.Array:
    """The headers as maps of lists; null for a message without headers."""
    maps = HeaderMaps(columns)
    if maps.nulls == maps.count:
        return pa.nulls(maps.count, HEADERS)
    values = strings(maps.values, maps.value_offsets, maps.value_data)
    starts = pa.py_buffer(maps.list_offsets)
    lists = pa.Array.from_buffers(_VALUES, maps.keys, [None, starts], children=[values])
    names = strings(maps.keys, maps.key_offsets, maps.key_data)
    entries = pa.StructArray.from_arrays(
        [names, lists], fields=[pa.field("key", pa.string(), nullable=False), HEADERS.item_field]
    )
    buffers = [pa.py_buffer(maps.valid), pa.py_buffer(maps.map_offsets)]
    return pa.Array.from_buffers(
        HEADERS, maps.count, buffers, null_count=maps.nulls, children=[entries]
    )
