"""Rows of a table that may still change: a batch takes out the rows that it changes.

It leaves most open rows of a bucket as they are, in Arrow; only the touched rows become
dictionaries, and only rows that ended become closed rows.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .schemas import TableSchema

Row = dict[str, Any]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(ns: int | None) -> datetime | None:
    """A time of the hub in the type of a time; None for 0, which is none."""
    return EPOCH + timedelta(microseconds=ns // 1000) if ns else None


def day_of(ns: int | None) -> date:
    """The day of a time of the hub."""
    return (EPOCH + timedelta(microseconds=(ns or 0) // 1000)).date()


@dataclass(frozen=True)
class Ended:
    """The changes of a batch to a table with open rows."""

    open: pa.Table
    closed: pa.Table
    changed: bool
    recalled: tuple[date, ...] = ()


class OpenRows:
    """The open rows of a table in one bucket, found by one column.

    ``recall`` gives the closed rows of a day, for late events; all rows of that day are then written again.
    """

    def __init__(
        self,
        schema: TableSchema,
        table: pa.Table,
        by: str,
        recall: Callable[[date], pa.Table] | None = None,
    ) -> None:
        """No row is touched."""
        self.schema = schema
        self.table = table
        self.by = by
        self.recall = recall
        self.rows: dict[tuple[Any, ...], Row] = {}
        self.index: dict[Any, list[tuple[Any, ...]]] = {}
        self.known: set[Any] = set()
        self.recalled: dict[date, pa.Table] = {}
        self.changed = False

    def keys(self) -> pa.Array:
        """The values of the column by which rows are found."""
        return self.table[self.by].unique()

    def touch(self, values: Iterable[Any]) -> None:
        """Take the rows of these values out."""
        new = [value for value in values if value not in self.known]
        self.known.update(new)
        if new and len(self.table):
            kind = self.table.schema.field(self.by).type
            self.take(pc.is_in(self.table[self.by], value_set=pa.array(new, kind)))

    def take(self, mask: Any) -> list[Row]:
        """Take the rows of a mask out."""
        mask = pc.fill_null(mask, False)
        if not pc.any(mask).as_py():
            return []
        rows: list[Row] = self.table.filter(mask).to_pylist()
        self.table = self.table.filter(pc.invert(mask))
        for row in rows:
            self.add(row)
        return rows

    def key(self, row: Row) -> tuple[Any, ...]:
        """The key of a row."""
        return tuple(row[name] for name in self.schema.key)

    def add(self, row: Row) -> None:
        """Hold a row that is there already."""
        key = self.key(row)
        if key not in self.rows:
            self.index.setdefault(row[self.by], []).append(key)
        self.rows[key] = row

    def of(self, value: Any) -> list[Row]:
        """The touched rows of a value, which may be changed in place; then `put` them."""
        self.touch([value])
        return [self.rows[key] for key in self.index.get(value, [])]

    def get(self, key: tuple[Any, ...]) -> Row | None:
        """A touched row."""
        return self.rows.get(key)

    def put(self, row: Row) -> None:
        """A row that is new or has changed."""
        self.changed = True
        self.add(row)

    def late(self, days: Iterable[date], key: tuple[Any, ...]) -> Row | None:
        """The closed row of a key, of one of these days; the day's other rows are written again."""
        if self.recall is None:
            return None
        for day in days:
            if day not in self.recalled:
                self.recalled[day] = self.recall(day)
            found = self.recalled[day]
            places = pc.indices_nonzero(self.alike(found, key)).to_pylist()
            for place in places:
                row: Row = found.slice(place, 1).to_pylist()[0]
                if self.key(row) == key:
                    parts = [found.slice(0, place), found.slice(place + 1)]
                    self.recalled[day] = pa.concat_tables(parts)
                    self.put(row)
                    return row
        return None

    def alike(self, found: pa.Table, key: tuple[Any, ...]) -> Any:
        """Which rows have the texts of a key; rows of one device may differ in a time only."""
        parts = zip(self.schema.key, key, strict=True)
        texts = [
            pc.equal(found[name], value)
            for name, value in parts
            if name == self.by or (isinstance(value, str) and pa.types.is_string(found[name].type))
        ]
        return functools.reduce(pc.and_, texts)

    def finish(self) -> Ended:
        """The rows that are still open, and those that are closed now."""
        schema = self.schema.schema
        touched = list(self.rows.values())
        still = [row for row in touched if row["is_open"]]
        ended = [row for row in touched if not row["is_open"]]
        opened = pa.concat_tables([self.table, pa.Table.from_pylist(still, schema)])
        used = {day: rows for day, rows in self.recalled.items() if self.was_used(day)}
        closed = pa.concat_tables([pa.Table.from_pylist(ended, schema), *used.values()])
        return Ended(opened, closed, self.changed, tuple(sorted(used)))

    def was_used(self, day: date) -> bool:
        """Whether a row of a recalled day was opened again."""
        assert self.recall is not None
        return len(self.recalled[day]) < len(self.recall(day))
