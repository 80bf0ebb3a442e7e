"""Readers of Delta tables: for each, which rows it finds in a table, and which it finds among the
same rows where there is nothing to leave out.

Conditions are of one column; rows are known by their column ``seq``. What a NaN is equal to or
above of is the reader's own affair.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable, QueryBuilder
from deltalake.transaction import AddAction

OPERATORS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class Condition:
    """``column operator value``; without a value ``is null``, ``is not null`` or ``isnan``."""

    column: str
    operator: str
    value: Any = None

    def of(self, column: Any) -> Any:
        """The condition as an expression of pyarrow or Polars."""
        arrow = isinstance(column, ds.Expression)
        if self.operator == "is null":
            return column.is_null()
        if self.operator == "is not null":
            return column.is_valid() if arrow else column.is_not_null()
        if self.operator == "isnan":
            return pc.is_nan(column) if arrow else column.is_nan()
        return OPERATORS[self.operator](column, self.value)

    def sql(self, kind: pa.DataType) -> str:
        """The condition in SQL."""
        if self.operator == "isnan":
            return f'isnan("{self.column}")'
        if self.value is None:
            return f'"{self.column}" {self.operator}'
        return f'"{self.column}" {self.operator} {_literal(self.value, kind)}'


def _literal(value: Any, kind: pa.DataType) -> str:
    if isinstance(value, bool | int):
        return str(value)
    if isinstance(value, float):
        name = "FLOAT" if kind == pa.float32() else "DOUBLE"
        text = str(value) if math.isfinite(value) else "inf" if value > 0 else "-inf"
        return f"CAST('{text}' AS {name})"
    if isinstance(value, Decimal):
        return f"CAST('{value:f}' AS DECIMAL({kind.precision}, {kind.scale}))"
    if isinstance(value, datetime):
        zone = "TIMESTAMPTZ" if kind.tz else "TIMESTAMP"
        return f"CAST('{value.isoformat(sep=' ')}' AS {zone})"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    return "'" + value.replace("'", "''") + "'"


def _seqs(table: Any) -> list[int]:
    return sorted(pa.table(table)["seq"].to_pylist())


@functools.cache
def _database() -> duckdb.DuckDBPyConnection:
    database = duckdb.connect(config={"threads": 1})
    database.execute("SET GLOBAL TimeZone = 'UTC'")
    return database


def _duckdb(source: Any, condition: Condition, kind: pa.DataType) -> list[int]:
    with _database().cursor() as cursor:
        cursor.register("source", source)
        found = cursor.execute(f"SELECT seq FROM source WHERE {condition.sql(kind)}").fetchall()
    return sorted(seq for (seq,) in found)


def _datafusion(table: DeltaTable, condition: Condition, kind: pa.DataType) -> list[int]:
    query = f"SELECT seq FROM t WHERE {condition.sql(kind)}"
    return _seqs(QueryBuilder().register("t", table).execute(query).read_all())


def _arrow(source: Any, condition: Condition) -> list[int]:
    return _seqs(source.to_table(filter=condition.of(ds.field(condition.column))))


def _polars(frame: pl.LazyFrame, condition: Condition) -> list[int]:
    found = frame.filter(condition.of(pl.col(condition.column))).select("seq").collect()
    return sorted(found["seq"].to_list())


class _Opened:
    """What readers make of a table before they know a condition, made once for all conditions."""

    last: _Opened | None = None

    def __init__(self, table: DeltaTable) -> None:
        self.table = table

    @functools.cached_property
    def dataset(self) -> ds.Dataset:
        return self.table.to_pyarrow_dataset()

    @functools.cached_property
    def frame(self) -> pl.LazyFrame:
        return pl.scan_delta(self.table)

    @functools.cached_property
    def arrow_frame(self) -> pl.LazyFrame:
        return pl.scan_delta(self.table, use_pyarrow=True)


def _opened(table: DeltaTable) -> _Opened:
    if _Opened.last is None or _Opened.last.table is not table:
        _Opened.last = _Opened(table)
    return _Opened.last


@dataclass(frozen=True)
class Reader:
    """``found`` is by the table, ``expected`` by the table without statistics, or its rows."""

    name: str
    found: Callable[[DeltaTable, Condition, pa.DataType], list[int]]
    expected: Callable[[DeltaTable, pa.Table, Condition, pa.DataType], list[int]]
    knows: Callable[[Condition], bool] = lambda _: True


def _simple(condition: Condition) -> bool:
    return condition.value is not None


def _no_evaluated_value(condition: Condition) -> bool:
    """Polars makes a text of a condition for pyarrow, and reads it back; not of each value."""
    return not isinstance(condition.value, float) or math.isfinite(condition.value)


def _pairs(condition: Condition) -> list[Any]:
    return [(condition.column, condition.operator, condition.value)]


READERS = [
    Reader(
        "to_pyarrow_dataset",
        lambda table, asked, kind: _arrow(_opened(table).dataset, asked),
        lambda bare, rows, asked, kind: _arrow(ds.dataset(rows), asked),
    ),
    Reader(
        "to_pandas",
        lambda table, asked, kind: sorted(table.to_pandas(filters=_pairs(asked))["seq"]),
        lambda bare, rows, asked, kind: _arrow(ds.dataset(rows), asked),
        _simple,
    ),
    Reader(
        "DuckDB",
        lambda table, asked, kind: _duckdb(_opened(table).dataset, asked, kind),
        lambda bare, rows, asked, kind: _duckdb(ds.dataset(rows), asked, kind),
    ),
    Reader(
        "scan_delta",
        lambda table, asked, kind: _polars(_opened(table).frame, asked),
        lambda bare, rows, asked, kind: _polars(pl.from_arrow(rows).lazy(), asked),
    ),
    Reader(
        "scan_delta(use_pyarrow=True)",
        lambda table, asked, kind: _polars(_opened(table).arrow_frame, asked),
        lambda bare, rows, asked, kind: _polars(pl.scan_pyarrow_dataset(ds.dataset(rows)), asked),
        _no_evaluated_value,
    ),
    Reader(
        "QueryBuilder",
        lambda table, asked, kind: _datafusion(table, asked, kind),
        lambda bare, rows, asked, kind: _datafusion(bare, asked, kind),
    ),
]


def without_statistics(table: DeltaTable, where: str, files: dict[str, int]) -> DeltaTable:
    """A table at ``where`` with the same files, by name and size, of which the log says nothing."""
    bare = DeltaTable.create(where, table.schema())
    bare.create_write_transaction(
        [AddAction(path, size, {}, 0, True, "{}") for path, size in files.items()],
        mode="append",
        schema=bare.schema(),
        partition_by=[],
    )
    bare.update_incremental()
    return bare
