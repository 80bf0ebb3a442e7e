"""Match a table's rows with the rows of a batch by their keys, and find files that may hold such rows.

Keys are compared as Spark groups by them: a NaN equals a NaN, and zeros of both signs are equal; a
null equals nothing. A key of several columns becomes one number, column by column::

    k1    k2     number of k1    number of k2    both        row of the batch
    "a"   7      0               0               0 * 2 + 0   0
    "a"   8      0               1               0 * 2 + 1   1
    "b"   7      1               0               1 * 2 + 0   2

Files are left out by the values of partition columns, and by bounds that every writer gets right:
those of whole numbers, dates, times (which some writers cut to milliseconds) and texts (which some
cut, too). Bounds of decimals and floating numbers are not used.

Knows of a file only its entry in the log.
"""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from pelton.spark.tables.parquet import partition_text
from pelton.spark.tables.places import TableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

Bounds = tuple[Any, Any]
# The bound of a longer text may be only its beginning.
_TEXT_CHARACTERS = 31
_CUT_TIME_US = 999


class Keys:
    """The keys of a batch's rows."""

    def __init__(self, rows: pa.Table, names: Sequence[str]) -> None:
        """None of the ``names`` has nulls in ``rows``.

        Raises :class:`TableError` when two rows have the same key.
        """
        self.names = tuple(names)
        self._known: list[pa.Array] = []
        self._pairs: list[pa.Array] = []
        self._ranges = {name: _Values(rows.column(name)) for name in names}
        numbers: pa.Array | None = None
        for name in names:
            values = _comparable(rows.column(name))
            self._known.append(pc.unique(values))
            if len(names) == 1:
                break
            found = pc.index_in(values, self._known[-1]).cast(pa.int64())
            if numbers is None:
                numbers = found
                continue
            both = _both(numbers, found, len(self._known[-1]))
            self._pairs.append(pc.unique(both))
            numbers = pc.index_in(both, self._pairs[-1]).cast(pa.int64())
        # Values are numbered in order of appearance: if all differ, by the number of their row.
        if len((self._pairs or self._known)[-1]) < rows.num_rows:
            raise TableError(f"a batch to be merged has several rows of one {', '.join(names)}")

    def rows_of(self, rows: pa.RecordBatch) -> np.ndarray[Any, Any]:
        """For each row of a table, the number of the batch's row with the same key; -1 for none."""
        numbers: pa.Array | None = None
        for position, name in enumerate(self.names):
            found = pc.index_in(_comparable(rows.column(name)), self._known[position])
            if numbers is None:
                numbers = found
                continue
            both = _both(numbers.cast(pa.int64()), found, len(self._known[position]))
            numbers = pc.index_in(both, self._pairs[position - 1], skip_nulls=True)
        found_rows: np.ndarray[Any, Any] = pc.fill_null(numbers, -1).to_numpy(zero_copy_only=False)
        return found_rows

    def may_be_in(self, partition: Mapping[str, str | None], bounds: Mapping[str, Bounds]) -> bool:
        """Whether a file with this partition and these bounds may hold rows with these keys."""
        for name, values in self._ranges.items():
            if name in partition:
                if not values.hold(partition[name]):
                    return False
            elif name in bounds and not values.any_between(*bounds[name]):
                return False
        return True


def _both(first: pa.Array, second: pa.Array, many: int) -> pa.Array:
    return pc.add(pc.multiply(first, pa.scalar(many, pa.int64())), second.cast(pa.int64()))


def _comparable(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The column with values that are equal as keys turned into values with the same bytes."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    kind = column.type
    if types.is_floating(kind):
        positive = pc.add(column, pa.scalar(0.0, kind))
        return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), kind), positive)
    if types.is_nested(kind):
        texts = (None if one is None else repr(_plain(one)) for one in column.to_pylist())
        return pa.array(texts, pa.string())
    return column


def _plain(value: Any) -> Any:
    """A nested value in which every zero has the same sign."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value + 0.0 if isinstance(value, float) else value


def comparable_bounds(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> list[Any] | None:
    """Bounds of a column of type ``kind`` as Python values; None for bounds that prove nothing."""
    if types.is_string(kind):
        texts: list[Any] = column.cast(pa.string()).to_pylist()
        return texts
    if column.type != kind or not ordered(kind):
        return None
    numbers: list[Any] = _numbers(column).to_pylist()
    return numbers


def ordered(kind: pa.DataType) -> bool:
    """Whether bounds of values of a type are numbers that every writer gets right."""
    return bool(types.is_integer(kind) or types.is_date32(kind) or types.is_timestamp(kind))


def _numbers(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    if types.is_date32(column.type):
        column = column.cast(pa.int32())
    return column.cast(pa.int64())


class _Values:
    """The values of one key column; sets for lookups are made at first use."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._column = column
        self._kind = column.type
        self._texts: set[str | None] | None = None
        self._sorted: Any = None

    def hold(self, text: str | None) -> bool:
        """Whether a key has this value of a partition column."""
        if text is None:
            return False
        if not (types.is_string(self._kind) or types.is_integer(self._kind)):
            return True
        if self._texts is None:
            # An empty text is itself where it is a value of the partition, and not null.
            values = pc.unique(self._column).to_pylist()
            self._texts = {one if one == "" else partition_text(one) for one in values}
        return text in self._texts

    def any_between(self, low: Any, high: Any) -> bool:
        """Whether a key has a value between these bounds."""
        if low is None or high is None:
            return True
        if types.is_string(self._kind):
            return self._any(low[:_TEXT_CHARACTERS], high[:_TEXT_CHARACTERS], _beginning)
        if types.is_timestamp(self._kind):
            high += _CUT_TIME_US
        return self._any(low, high, _value)

    def _any(self, low: Any, high: Any, key: Callable[[pa.Scalar], Any]) -> bool:
        if self._sorted is None:
            text = types.is_string(self._kind)
            unique = pc.unique(self._column if text else _numbers(self._column))
            self._sorted = unique.take(pc.sort_indices(unique))
        at = bisect.bisect_left(self._sorted, low, key=key)
        return at < len(self._sorted) and bool(key(self._sorted[at]) <= high)


def _value(one: pa.Scalar) -> Any:
    return one.as_py()


def _beginning(one: pa.Scalar) -> str:
    text: str = one.as_py()
    return text[:_TEXT_CHARACTERS]
