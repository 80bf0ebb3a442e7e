"""What is seen of rows while they become a file, and its footer does not say, or says wrongly.

A Parquet footer has minimum and maximum of a column's numbers, but not of a text that is longer
than some kilobytes, and of floating numbers without those that are NaN: readers that believe it
pass over rows with a NaN. So the footer has no statistics of floating columns, and both is noted
here.

Knows nothing of where files are, and of what a table is told of them.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

if TYPE_CHECKING:
    from collections.abc import Iterator

# Parquet keeps no bounds of values longer than 4096 bytes.
_LONG_TEXT = 1024
_LOOKED_AT_ROWS = 16 * 1024


@dataclass
class Seen:
    """Of one file: the columns that hold a NaN; bounds of floating columns without their NaNs, and
    of columns with long texts; the number of nulls in floating columns.
    """

    nan: set[str] = field(default_factory=set)
    bounds: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    nulls: dict[str, int] = field(default_factory=dict)

    def add(self, rows: pa.Table) -> None:
        """Look at rows that go into the file."""
        for one in rows.schema:
            if types.is_floating(one.type):
                self._add_numbers(one.name, rows.column(one.name))
            elif types.is_string(one.type):
                longest = pc.max(pc.binary_length(rows.column(one.name))).as_py()
                if longest is not None and longest > _LONG_TEXT:
                    self._widen(one.name, rows.column(one.name))

    def _add_numbers(self, name: str, column: pa.ChunkedArray) -> None:
        self.nulls[name] = self.nulls.get(name, 0) + column.null_count
        if name not in self.nan and pc.any(pc.is_nan(column)).as_py():
            self.nan.add(name)
        self._widen(name, column)

    def _widen(self, name: str, column: pa.ChunkedArray) -> None:
        found = pc.min_max(column).as_py()
        low, high = found["min"], found["max"]
        if low is None or low != low:  # nothing but nulls and NaNs
            return
        if (so_far := self.bounds.get(name)) is not None:
            low, high = min(low, so_far[0]), max(high, so_far[1])
        # A zero of either sign equals the other one, but not for every reader.
        self.bounds[name] = (-0.0 if low == 0.0 else low, 0.0 if high == 0.0 else high)


def leaves(schema: pa.Schema) -> Iterator[tuple[int, pa.Field]]:
    """Columns of a file with this schema that are not nested, by their number in the footer."""
    number = 0
    for one in schema:
        if not types.is_nested(one.type):
            yield number, one
        number += sum(1 for _ in _plain(one.type))


def _plain(kind: pa.DataType) -> Iterator[pa.DataType]:
    """The types of a column's values, which a file holds as a column each."""
    if not types.is_nested(kind):
        yield kind
    elif types.is_map(kind):
        yield from _plain(kind.key_type)
        yield from _plain(kind.item_type)
    else:
        for number in range(kind.num_fields):
            yield from _plain(kind.field(number).type)


def in_footer(schema: pa.Schema) -> bool | list[str]:
    """Which columns get statistics in the footer: all but the floating ones, nested or not. What
    the writers of ``pyarrow`` call ``write_statistics``.
    """
    kinds = [kind for one in schema for kind in _plain(one.type)]
    if not any(types.is_floating(kind) for kind in kinds):
        return True
    paths = _paths(schema)
    return [path for path, kind in zip(paths, kinds, strict=True) if not types.is_floating(kind)]


def with_dictionary(rows: pa.Table) -> bool | list[str]:
    """Which columns get a dictionary, by the first rows of a file: nested ones, and those whose
    values repeat; others would be slower and larger for it. What the writers of ``pyarrow`` call
    ``use_dictionary``.
    """
    first = rows.slice(0, _LOOKED_AT_ROWS)
    plain = {one.name for one in rows.schema if not types.is_nested(one.type)}
    different = {name for name in plain if _is_different(first.column(name))}
    if not different:
        return True
    owners = [one.name for one in rows.schema for _ in _plain(one.type)]
    paths = zip(_paths(rows.schema), owners, strict=True)
    return [path for path, owner in paths if owner not in different] or False


def _is_different(column: pa.ChunkedArray) -> bool:
    there = len(column) - column.null_count
    return bool(2 * pc.count_distinct(column, mode="only_valid").as_py() > there)


def _paths(schema: pa.Schema) -> list[str]:
    """Names of the columns that a file with this schema has, as its footer tells them."""
    file = io.BytesIO()
    pq.write_table(schema.empty_table(), file)
    columns = pq.read_metadata(file).schema
    return [columns.column(number).path for number in range(len(columns))]
