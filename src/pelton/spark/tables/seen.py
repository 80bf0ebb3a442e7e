"""Facts about a file's rows that its footer lacks or has wrong, collected while the file is written.

A Parquet footer has the minimum and maximum of a column's numbers. It lacks them for texts longer
than some kilobytes, and for floating numbers it ignores NaN values, so readers that trust it skip
rows with a NaN. So the footer gets no statistics of floating columns, and both kinds are noted here.

Does not depend on the location of files, or their description for a table.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from functools import lru_cache
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
_SCHEMAS = 256


@dataclass
class Seen:
    """Facts about one file.

    The columns that hold a NaN; bounds of floating columns without their NaNs, and of columns with long
    texts; the number of nulls in floating columns.
    """

    nan: set[str] = field(default_factory=set)
    bounds: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    nulls: dict[str, int] = field(default_factory=dict)

    def add(self, rows: pa.Table) -> None:
        """Collect the facts of rows that go into the file."""
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
        if low is None or low != low:  # only nulls and NaNs
            return
        if (so_far := self.bounds.get(name)) is not None:
            low, high = min(low, so_far[0]), max(high, so_far[1])
        # Zeros of both signs are equal, but not for every reader.
        self.bounds[name] = (-0.0 if low == 0.0 else low, 0.0 if high == 0.0 else high)


def leaves(schema: pa.Schema) -> Iterator[tuple[int, pa.Field]]:
    """Columns that are not nested, with their number in the footer of a file with this schema."""
    number = 0
    for one in schema:
        if not types.is_nested(one.type):
            yield number, one
        number += sum(1 for _ in _plain(one.type))


def _plain(kind: pa.DataType) -> Iterator[pa.DataType]:
    """The leaf types of a column, each of which is a column of the file."""
    if not types.is_nested(kind):
        yield kind
    elif types.is_map(kind):
        yield from _plain(kind.key_type)
        yield from _plain(kind.item_type)
    else:
        for number in range(kind.num_fields):
            yield from _plain(kind.field(number).type)


def is_unordered(kind: pa.DataType) -> bool:
    """Whether the footer has no statistics of a column: of floating ones, which may have a NaN, and nested ones."""
    return bool(types.is_floating(kind) or types.is_nested(kind))


def in_footer(schema: pa.Schema) -> bool | list[str]:
    """The columns with statistics in the footer: all but floating ones, nested or not.

    It is the argument ``write_statistics`` of ``pyarrow``'s writers.
    """
    kinds = [kind for one in schema for kind in _plain(one.type)]
    if not any(types.is_floating(kind) for kind in kinds):
        return True
    paths = _paths(schema)
    return [path for path, kind in zip(paths, kinds, strict=True) if not types.is_floating(kind)]


def with_dictionary(rows: pa.Table) -> bool | list[str]:
    """The columns with a dictionary: nested ones, and those whose values repeat in the first rows
    of a file.

    Others would be slower and larger with one. It is the argument ``use_dictionary`` of
    ``pyarrow``'s writers.
    """
    first = rows.slice(0, _LOOKED_AT_ROWS)
    plain = {one.name for one in rows.schema if not types.is_nested(one.type)}
    different = {name for name in plain if _is_different(first.column(name))}
    if not different:
        return True
    owners = [one.name for one in rows.schema for _ in _plain(one.type)]
    paths = zip(_paths(rows.schema), owners, strict=True)
    return [path for path, owner in paths if owner not in different] or False


@dataclass
class _Choice:
    """What one file's rows said, how many these were, and for how many files more it holds."""

    columns: bool | list[str]
    rows: int
    left: int


class DictionaryChoices:
    """The columns with a dictionary in the files of tables, by `with_dictionary` for one file of some.

    Files of a table are alike, and looking at one costs most of what writing it does. A file with many more rows than
    the one that was looked at is looked at itself.
    """

    FILES = 32
    MORE = 4

    def __init__(self) -> None:
        """Knows no table."""
        self._known: dict[tuple[str, pa.Schema], _Choice] = {}

    def of(self, table: str, rows: pa.Table) -> bool | list[str]:
        """The argument ``use_dictionary`` for a file that begins with these rows."""
        key = table, rows.schema
        known = self._known.get(key)
        count = min(len(rows), _LOOKED_AT_ROWS)
        if known is not None and known.left and count <= known.rows * self.MORE:
            known.left -= 1
            return known.columns
        if len(self._known) >= _SCHEMAS:
            self._known.clear()
        columns = with_dictionary(rows)
        self._known[key] = _Choice(columns, count, self.FILES - 1)
        return columns


CHOICES = DictionaryChoices()
"""Those of this process."""


def _is_different(column: pa.ChunkedArray) -> bool:
    there = len(column) - column.null_count
    return bool(2 * pc.count_distinct(column, mode="only_valid").as_py() > there)


@lru_cache(_SCHEMAS)
def _paths(schema: pa.Schema) -> tuple[str, ...]:
    """The paths of the columns in a file with this schema, as its footer has them."""
    file = io.BytesIO()
    pq.write_table(schema.empty_table(), file)
    columns = pq.read_metadata(file).schema
    return tuple(columns.column(number).path for number in range(len(columns)))
