"""Maintenance of tables: few files of a good size, a log that opens fast, no unused files.

A stream of micro-batches leaves many small files. :func:`maintain` does, in this order,

=============  =================================================================================
compaction     makes one file from many small ones; readers and streams of the table see the same
               rows, and a query can append at the same time
checkpoint     writes one file with the result of all commits
vacuum         removes files that no version of the last ``keep_hours`` names, and files of
               attempts that failed
=============  =================================================================================

It never removes files younger than an hour, because a batch under way may be about to commit them.
Does not depend on Spark.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from pelton.spark.tables import compaction
from pelton.spark.tables.files import actions_of
from pelton.spark.tables.options import KEEP_HOURS, LEAST_KEEP_HOURS
from pelton.spark.tables.places import TableError

if TYPE_CHECKING:
    from collections.abc import Collection

    from pelton.spark.tables.places import Place

TARGET_BYTES = 128 * 2**20


@dataclass(frozen=True)
class Plan:
    """The steps of a maintenance. ``keep_hours`` is at least 1."""

    target_bytes: int = TARGET_BYTES
    keep_hours: int = KEEP_HOURS
    compact: bool = True
    checkpoint: bool = True
    vacuum: bool = True
    dry_run: bool = False
    without: Collection[str] = ()
    """Paths of files that a dry run takes as removed already."""
    versions: Collection[int] = ()
    """Versions whose files stay, however old."""


@dataclass
class Report:
    """The changes that were made to a table, or that a dry run would make."""

    table: str
    version_before: int
    version: int = 0
    files_before: int = 0
    files: int = 0
    bytes_before: int = 0
    bytes: int = 0
    compacted: int = 0
    into: int = 0
    removed: list[str] = field(default_factory=list)
    dry_run: bool = False
    seconds: float = 0.0


def maintain(place: Place, plan: Plan) -> Report:
    """Carry out the plan on one table.

    Raises :class:`TableError` when there is no table, when other writers change its rows each time
    a compaction is about to end, or when the store fails.
    """
    if plan.keep_hours < LEAST_KEEP_HOURS:
        raise TableError("files are kept for an hour at least: a batch may be about to commit them")
    began = time.monotonic()
    try:
        table = DeltaTable(place.uri, storage_options=place.storage_options or None)
        report = _maintain(table, place, plan)
    except TableNotFoundError:
        raise TableError(f"there is no table at {place}") from None
    except (DeltaError, OSError) as problem:
        raise TableError(f"cannot maintain the table {place}: {problem}") from None
    report.seconds = round(time.monotonic() - began, 3)
    return report


def maintain_regularly(place: Place, table: DeltaTable | None, every: int, keep_hours: int) -> None:
    """Maintain a table if its new version is a multiple of ``every``.

    The batch is committed already, so an error is only a warning.
    """
    if table is None or table.version() % every:
        return
    try:
        maintain(place, Plan(keep_hours=keep_hours))
    except TableError as problem:
        warnings.warn(str(problem), stacklevel=2)


def _maintain(table: DeltaTable, place: Place, plan: Plan) -> Report:
    report = Report(str(place), table.version(), dry_run=plan.dry_run)
    report.files_before, report.bytes_before = _size(table)
    if plan.compact:
        if plan.dry_run:
            groups = compaction.plan(table, plan.target_bytes, plan.without)
            report.compacted, report.into = sum(map(len, groups)), len(groups)
        else:
            report.compacted, report.into = compaction.compact(table, place, plan.target_bytes)
    if plan.checkpoint and not plan.dry_run:
        table.create_checkpoint()
        table.cleanup_metadata()
    if plan.vacuum:
        removed = vacuum(table, plan.keep_hours, plan.versions, dry_run=plan.dry_run)
        report.removed = sorted(removed)
    table.update_incremental()
    report.version = table.version()
    report.files, report.bytes = _size(table)
    return report


def vacuum(
    table: DeltaTable, keep_hours: int, versions: Collection[int] = (), *, dry_run: bool
) -> list[str]:
    """Remove files that neither a version of the last hours nor ``versions`` name; returns paths in
    the table's folder.
    """
    return table.vacuum(
        retention_hours=keep_hours,
        dry_run=dry_run,
        enforce_retention_duration=False,
        full=True,
        keep_versions=list(versions) or None,
    )


def _size(table: DeltaTable) -> tuple[int, int]:
    """The number of files, and their bytes."""
    sizes = actions_of(table)["size_bytes"]
    return len(sizes), int(pc.sum(sizes).as_py() or 0)
