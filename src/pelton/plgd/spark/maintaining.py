"""Maintenance of a lake while a run fills it: old days are deleted, small files merged, unused
files removed.

=============  ==================================================================================================
old days       rows of days that ended longer ago than they are kept: of tables with open rows the closed ones alone
compaction     few files of a good size replace many small ones, with the same rows
unused files   files that no version of the last hours needs; of Iceberg tables the old snapshots expire first
=============  ==================================================================================================

`pelton.spark.tables.maintenance` does the last two with Delta tables, `pelton.spark.iceberg.maintenance` with
Iceberg tables. Tables with current rows keep them all: they tell duplicates and twins.

If maintenance replaces files of a batch, the run makes the batch again and continues. A run that
was killed makes its last batch again from the versions before it, however long ago that was, so
maintenance keeps these versions.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from deltalake.exceptions import CommitFailedError, DeltaError

from pelton.spark.tables.files import actions_of, relative, table_at
from pelton.spark.tables.maintenance import maintain
from pelton.spark.tables.parquet import partition_text
from pelton.spark.tables.places import TableError

from ..tables.schemas import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import date

    from pelton.spark.tables.maintenance import Plan

    from ..tables.schemas import TableSchema
    from .iceberg_lake import IcebergLake
    from .lake import Lake

TRIES = 6


@dataclass(frozen=True)
class Old:
    """A file with rows of days that go; ``entry`` is what the table's log knows of it."""

    path: str
    rows: int
    size: int
    entry: Any = None


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
            if lake.targets:
                yield of_iceberg(lake, name, schema, plan, oldest)  # type: ignore[arg-type]  # has targets
            else:
                yield of_delta(lake, name, schema, plan, oldest)
        except TableError as problem:
            yield Done(name, error=str(problem))


def goes(schema: TableSchema, partition: dict[str, str | None], oldest: date) -> bool:
    """Whether all rows of a file are of days that go."""
    if "is_open" in schema.partition_by and partition["is_open"] != "false":
        return False
    day = partition.get("day")
    return day is not None and day < oldest.isoformat()


def of_delta(lake: Lake, name: str, schema: TableSchema, plan: Plan, oldest: date | None) -> Done:
    """Maintain a Delta table."""
    where = lake.places[name]
    old = () if oldest is None else tuple(old_in_delta(lake, name, schema, oldest))
    if old and oldest is not None and not plan.dry_run:
        forget(lake, name, schema, oldest)
    plan = replace(plan, without=frozenset(one.path for one in old))
    return Done(name, old, maintain(where, replace(plan, versions=lake.of_newest_batch(name))))


def old_in_delta(lake: Lake, name: str, schema: TableSchema, oldest: date) -> Iterable[Old]:
    """The files of a Delta table whose days go."""
    table = table_at(lake.places[name])
    for row in actions_of(table).to_pylist():
        partition = {
            column: partition_text(row[f"partition.{column}"]) for column in schema.partition_by
        }
        if goes(schema, partition, oldest):
            path = relative(row["path"], table.table_uri)
            yield Old(path, row["num_records"] or 0, row["size_bytes"])


def forget(lake: Lake, name: str, schema: TableSchema, oldest: date) -> None:
    """Delete the rows of days before one from a Delta table, as whole files; open rows stay."""
    where = lake.places[name]
    closed = "is_open = false AND " if "is_open" in schema.partition_by else ""
    condition = f"{closed}day < '{oldest.isoformat()}'"
    for attempt in range(TRIES):
        try:
            table_at(where).delete(condition)
            return
        except CommitFailedError:
            time.sleep(0.05 * 2**attempt)
        except (DeltaError, OSError) as problem:
            raise TableError(f"cannot delete rows of the table {where}: {problem}") from None
    raise TableError(
        f"other writers change {where} each time before the deletion of old rows is committed"
    )


def of_iceberg(
    lake: IcebergLake, name: str, schema: TableSchema, plan: Plan, oldest: date | None
) -> Done:
    """Maintain an Iceberg table."""
    from pelton.spark.iceberg.maintenance import maintain as maintain_iceberg

    old: tuple[Old, ...] = ()
    if oldest is not None and plan.dry_run:
        old = tuple(old_in_iceberg(lake, name, schema, oldest))
    elif oldest is not None:
        old = forget_in_iceberg(lake, name, schema, oldest)
    report = maintain_iceberg(
        lake.addresses[name],
        plan.keep_hours,
        target_bytes=plan.target_bytes if plan.compact else None,
        batch_stays=True,
        without={one.path for one in old},
        dry_run=plan.dry_run,
    )
    return Done(name, old, report)


def old_in_iceberg(
    lake: IcebergLake, name: str, schema: TableSchema, oldest: date
) -> Iterable[Old]:
    """The files of an Iceberg table whose days go."""
    if "day" not in schema.partition_by:
        return
    entries = lake.now(name)
    for entry, file in zip(entries, lake.stored(name, entries), strict=True):
        if goes(schema, dict(file.partition), oldest):
            yield Old(entry.file_path, entry.record_count, entry.file_size_in_bytes, entry)


def forget_in_iceberg(
    lake: IcebergLake, name: str, schema: TableSchema, oldest: date
) -> tuple[Old, ...]:
    """Remove the files of days before one from an Iceberg table, in one commit; returns them."""
    from pyiceberg.table.snapshots import Operation

    from pelton.spark.iceberg.commits import HERE, FilesGoneError, Write

    where = lake.addresses[name]
    for _ in range(TRIES):
        old = tuple(old_in_iceberg(lake, name, schema, oldest))
        if not old:
            return ()
        removed = [one.entry for one in old]
        write = Write(lake.targets[name], removed=removed, operation=Operation.DELETE)
        try:
            HERE.commit(where, write)
        except FilesGoneError:  # by a compaction or a batch that changes them
            continue
        return old
    raise TableError(
        f"other writers change {where} each time before the deletion of old rows is committed"
    )
