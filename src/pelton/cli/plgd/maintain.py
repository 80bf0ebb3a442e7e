"""``pelton plgd maintain``: compaction, retention and unused files of a hub's tables, also beside a run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.failures import DONE
from pelton.cli.maintenance_options import DRY_RUN, NO_COMPACT, RETENTION, TARGET_SIZE
from pelton.cli.output import number, print_json, print_table, size
from pelton.cli.plgd.lakes import lake_of, table_options
from pelton.cli.session import Session, command
from pelton.cli.values import DURATION

if TYPE_CHECKING:
    from datetime import date

    from pelton.plgd.spark.maintaining import Done

_DAY_NS = 86_400_000_000_000
_COLUMNS = (
    "table",
    "rows deleted",
    "files",
    "size",
    "compacted",
    "snapshots",
    "removed",
    "seconds",
)


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--keep",
    type=DURATION,
    default=None,
    help="Delete rows of days that ended longer ago, such as 90d; current and open rows stay.",
)
@RETENTION
@TARGET_SIZE
@NO_COMPACT
@DRY_RUN
@table_options
@command
@click.pass_obj
def maintain(session: Session, /, folder: Path, **given: Any) -> int:
    """Compact the tables of a hub, delete old rows, and remove unused files.

    FOLDER is that of `pelton plgd run`, which may run meanwhile. It also expires old snapshots of
    Iceberg tables. Exit status: 1 if a table failed.

    \b
    pelton plgd maintain ./lake
    pelton plgd maintain ./lake --keep 90d --retention 1d
    """
    keep, keep_hours, dry_run = (given.pop(name) for name in ("keep", "keep_hours", "dry_run"))
    target_bytes, no_compact = given.pop("target_bytes"), given.pop("no_compact")
    if keep is not None and keep < _DAY_NS:
        raise click.BadParameter("1d or more", param_hint="--keep")
    tables = folder / "tables"
    lake = lake_of(tables, given, make=False)
    from pelton.plgd.spark.maintaining import look_after
    from pelton.spark.tables.maintenance import Plan

    plan = Plan(
        target_bytes=target_bytes,
        keep_hours=keep_hours,
        compact=not no_compact,
        dry_run=dry_run,
    )
    done = list(look_after(lake, plan, _oldest(keep)))
    if session.as_json:
        print_json([_plain(one) for one in done])
    else:
        _show([one for one in done if one.error is None], keep, dry_run=dry_run)
        for one in done:
            if one.error is not None:
                click.echo(f"pelton: {one.name}: {one.error}", err=True)
    return 1 if any(one.error for one in done) else DONE


def _oldest(keep: int | None) -> date | None:
    """The first day that is kept."""
    return (
        None if keep is None else (datetime.now(UTC) - timedelta(microseconds=keep / 1000)).date()
    )


def _plain(done: Done) -> dict[str, Any]:
    """The changes, as JSON."""
    if done.error is not None:
        return {"name": done.name, "error": done.error}
    deleted = {"deleted_rows": sum(one.rows for one in done.old), "deleted_files": len(done.old)}
    return {"name": done.name, **deleted, **vars(done.report)}


def _show(done: list[Done], keep: int | None, *, dry_run: bool) -> None:
    """The changes, as a table."""
    if not done:
        return
    has = dict.fromkeys(_COLUMNS, True)
    has["rows deleted"] = keep is not None
    has["snapshots"] = any(one.report.snapshots is not None for one in done)
    columns = tuple(name for name in _COLUMNS if has[name])
    rows = [_cells(one) for one in done]
    print_table(
        columns, [[row[name] for name in columns] for row in rows], right=frozenset(columns[1:])
    )
    if dry_run:
        print("dry run: nothing was changed; this is what would be done")


def _cells(done: Done) -> dict[str, str]:
    """The cells of a table's row, by their columns."""
    report, old = done.report, done.old
    files, into_size = report.files, size(report.bytes)
    if report.dry_run:
        files += report.into - report.compacted - len(old)
        into_size = size(report.bytes - sum(one.size for one in old))
        before = report.files_before, report.bytes_before
    else:
        gone = sum(one.size for one in old)
        before = report.files_before + len(old), report.bytes_before + gone
    return {
        "table": done.name,
        "rows deleted": number(sum(one.rows for one in old)),
        "files": f"{number(before[0])} -> {number(files)}",
        "size": f"{size(before[1])} -> {into_size}",
        "compacted": f"{number(report.compacted)} into {number(report.into)}"
        if report.compacted
        else "0",
        "snapshots": f"{number(report.snapshots_before)} -> {number(report.snapshots)}"
        if report.snapshots is not None
        else "",
        "removed": number(len(report.removed)),
        "seconds": f"{report.seconds:.2f}",
    }
