"""Maintenance of a lake while a run fills it: old days are deleted, small files merged, unused
files removed.

=============  ==================================================================================================
old days       rows of days that ended longer ago than they are kept: of tables with open rows the closed ones alone
compaction     few files of a good size replace many small ones, with the same rows
unused files   files that no version of the last hours needs; of Iceberg tables the old snapshots expire first
=============  ==================================================================================================

`pelton.spark.tables.maintenance` does the last two. Tables with current rows keep them all: they tell duplicates and
twins.

If maintenance replaces files of a batch, the run makes the batch again and continues. A run that
was killed makes its last batch again from the versions before it, however long ago that was, so
maintenance keeps these versions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pelton.spark.tables.commits import HERE
from pelton.spark.tables.maintenance import maintain
from pelton.spark.tables.places import TableError
from pelton.spark.tables.table import FilesGoneError

from ..tables.schemas import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import date

    from pelton.spark.tables.maintenance import Plan
    from pelton.spark.tables.table import Active

    from ..tables.schemas import TableSchema
    from .lake import Lake

TRIES = 6


@dataclass(frozen=True)
class Old:
    """A file with rows of days that go."""

    file: Active

    @property
    def rows(self) -> int:
        """The number of its rows."""
        return self.file.rows or 0

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.file.stored.size


@dataclass(frozen=True)
class Done:
    """The changes to a table, made or planned; ``error`` if the maintenance failed."""

    name: str
    old: tuple[Old, ...] = ()
    report: Any = None
    error: str | None = None


def look_after(lake: Lake, plan: Plan, oldest: date | None) -> Iterator[Done]:
    """Maintain each table, and forget days before ``oldest``. One that fails does not stop the others."""
    for name, schema in TABLES.items():
        try:
            old = forget(lake, name, schema, oldest, dry_run=plan.dry_run)
            gone = frozenset(one.file.logged for one in old)
            report = maintain(lake.tables[name], replace(plan, without=gone, batch_stays=True))
            yield Done(name, old, report)
        except TableError as problem:
            yield Done(name, error=str(problem))


def goes(schema: TableSchema, partition: dict[str, str | None], oldest: date) -> bool:
    """Whether all rows of a file are of days that go."""
    if "is_open" in schema.partition_by and partition["is_open"] != "false":
        return False
    day = partition.get("day")
    return day is not None and day < oldest.isoformat()


def forget(
    lake: Lake, name: str, schema: TableSchema, oldest: date | None, *, dry_run: bool
) -> tuple[Old, ...]:
    """Remove the files with rows of days before one, in one commit; open rows stay. Returns the files."""
    if oldest is None or "day" not in schema.partition_by:
        return ()
    for _ in range(TRIES):
        files = HERE.there(lake.tables[name]).snapshot().files.values()
        old = [file for file in files if goes(schema, dict(file.stored.partition), oldest)]
        found = tuple(map(Old, old))
        if not old or dry_run:
            return found
        try:
            lake.take(name, None, (), old)
        except FilesGoneError:  # by a compaction or a batch that changes them
            continue
        return found
    where = lake.tables[name]
    raise TableError(
        f"other writers change {where} each time before the deletion of old rows is committed"
    )
