"""``penstock plgd maintain``: compaction, retention and unused files of a hub's tables, also beside a run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.failures import DONE
from penstock.cli.output import number, print_json, print_table
from penstock.cli.plgd.lakes import lake_of, table_options
from penstock.cli.session import Session, command
from penstock.cli.values import DURATION

if TYPE_CHECKING:
    from datetime import date

_HOUR_NS = 3_600_000_000_000
_DAY_NS = 24 * _HOUR_NS
_COLUMNS = ("table", "files", "compacted", "snapshots", "removed", "seconds")


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--keep",
    type=DURATION,
    default=None,
    help="Delete rows of days that ended longer ago, such as 90d; current and open rows stay. Delta only.",
)
@click.option(
    "--retention",
    type=DURATION,
    default="7d",
    show_default=True,
    help="Keep files of versions that are younger than this; at least an hour.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@table_options
@command
@click.pass_obj
def maintain(session: Session, /, folder: Path, **given: Any) -> int:
    """Compact the tables of a hub, delete old rows, and remove unused files.

    FOLDER is that of `penstock plgd run`, which may run meanwhile. Iceberg tables are not compacted; their old
    snapshots expire.

    \b
    penstock plgd maintain ./lake
    penstock plgd maintain ./lake --keep 90d --retention 1d
    """
    keep, retention, dry_run = (given.pop(name) for name in ("keep", "retention", "dry_run"))
    if retention < _HOUR_NS:
        text = "1h or more: a batch under way may be about to commit younger files"
        raise click.BadParameter(text, param_hint="--retention")
    if keep is not None and keep < _DAY_NS:
        raise click.BadParameter("1d or more", param_hint="--keep")
    tables = folder / "tables"
    if not tables.is_dir() and not given["catalog"]:
        raise click.ClickException(f"there are no tables at {tables}")
    lake = lake_of(tables, given)
    if keep is not None and lake.targets:
        raise click.UsageError("--keep is for Delta tables; these are Iceberg tables")
    from penstock.plgd.spark.maintaining import look_after
    from penstock.spark.tables.maintenance import Plan
    from penstock.spark.tables.places import TableError

    plan = Plan(keep_hours=-(-retention // _HOUR_NS), dry_run=dry_run)
    try:
        reports = [vars(report) for report in look_after(lake, plan, _oldest(keep))]
    except TableError as error:
        raise click.ClickException(str(error)) from None
    if session.as_json:
        print_json(reports)
        return DONE
    print_table(_COLUMNS, [_cells(one) for one in reports], right=frozenset(_COLUMNS[1:]))
    if dry_run:
        print("dry run: nothing was changed; this is what would be done")
    return DONE


def _oldest(keep: int | None) -> date | None:
    """The first day that is kept."""
    return (
        None if keep is None else (datetime.now(UTC) - timedelta(microseconds=keep / 1000)).date()
    )


def _cells(report: dict[str, Any]) -> list[str]:
    files = number(report["files"])
    if "files_before" in report:
        files = f"{number(report['files_before'])} -> {files}"
    snapshots = ""
    if "snapshots" in report:
        snapshots = f"{number(report['snapshots_before'])} -> {number(report['snapshots'])}"
    return [
        report["table"],
        files,
        number(report.get("compacted", 0)),
        snapshots,
        number(len(report["removed"])),
        f"{report['seconds']:.2f}",
    ]
