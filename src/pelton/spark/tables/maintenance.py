"""Maintenance of tables: few files of a good size, a short history, no unused files.

A stream of micro-batches leaves many small files. :func:`maintain` does, in this order,

===============  ===============================================================================
compaction       makes one file from many small ones; readers and streams of the table see the same
                 rows, and a query can append at the same time
checkpoint       of a Delta table: writes one file with the result of all commits
history, files   expires snapshots of an Iceberg table that were replaced more than ``keep_hours`` ago,
                 and removes files that no version of the last ``keep_hours`` names, such as files of
                 attempts that failed
===============  ===============================================================================

It never removes files younger than an hour, because a batch under way may be about to commit them.
Does not depend on Spark or the format.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pelton.spark.tables import compaction
from pelton.spark.tables.commits import HERE, Tables, format_of
from pelton.spark.tables.options import KEEP_HOURS, LEAST_KEEP_HOURS
from pelton.spark.tables.places import TableError

if TYPE_CHECKING:
    from collections.abc import Collection

    from pelton.spark.tables.table import Where

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
    """Names of files that a dry run takes as removed already."""
    batch_stays: bool = False
    """Whether the files of the newest version of a query stay, and those of the one before it."""


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
    snapshots_before: int | None = None
    snapshots: int | None = None
    """How many snapshots an Iceberg table has."""
    dry_run: bool = False
    seconds: float = 0.0


def maintain(where: Where, plan: Plan) -> Report:
    """Carry out the plan on one table.

    Raises :class:`TableError` when there is no table, when other writers change its rows each time
    a compaction is about to end, or when the catalog or store fails.
    """
    if plan.keep_hours < LEAST_KEEP_HOURS:
        raise TableError("files are kept for an hour at least: a batch may be about to commit them")
    began = time.monotonic()
    form = format_of(where)
    try:
        report = _maintain(Tables(), where, plan)
    except TableError:
        raise
    except form.failures as problem:
        raise form.failed("cannot maintain the table", where, problem) from None
    report.seconds = round(time.monotonic() - began, 3)
    return report


def maintain_regularly(where: Where, every: int, keep_hours: int) -> None:
    """Maintain a table if the number of its commits is a multiple of ``every``.

    The batch is committed already, so an error is only a warning.
    """
    try:
        table = HERE.opened(where)
        if table is not None and table.version() % every == 0:
            maintain(where, Plan(keep_hours=keep_hours))
    except TableError as problem:
        warnings.warn(str(problem), stacklevel=2)


def _maintain(tables: Tables, where: Where, plan: Plan) -> Report:
    table = tables.there(where)
    report = Report(str(where), table.version(), dry_run=plan.dry_run)
    report.snapshots_before, size = table.snapshots(), table.totals()
    report.files_before, report.bytes_before = size.files, size.bytes
    if plan.compact and plan.dry_run:
        groups = compaction.plan(table, plan.target_bytes, plan.without)
        report.compacted, report.into = sum(map(len, groups)), len(groups)
    elif plan.compact:
        report.compacted, report.into = compaction.compact(where, plan.target_bytes)
    report.removed, expired = tables.there(where).tidy(plan)
    table = tables.there(where)
    size = table.totals()
    report.version, report.files, report.bytes = table.version(), size.files, size.bytes
    if (left := table.snapshots()) is not None:
        report.snapshots = left - (expired if plan.dry_run else 0)
    return report
