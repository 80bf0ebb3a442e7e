"""``pelton tables expire``: expires old snapshots of Iceberg tables, and compacts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pelton.cli.maintenance_options import DRY_RUN, RETENTION, TARGET_SIZE
from pelton.cli.output import number, print_json, print_table, size
from pelton.cli.session import Session, command
from pelton.errors import not_installed

if TYPE_CHECKING:
    from pelton.spark.iceberg.maintenance import Report

_COLUMNS = ("table", "snapshots", "files", "bytes", "compacted", "removed", "seconds")


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAMESPACE.NAME...")
@click.option("--catalog", default="default", show_default=True, help="Name of the catalog.")
@click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="Property of the catalog, such as uri=http://rest:8181; repeatable.",
)
@RETENTION
@click.option("--compact", is_flag=True, help="First merge small files, with the same rows.")
@TARGET_SIZE
@DRY_RUN
@command
@click.pass_obj
def expire(
    session: Session,
    names: tuple[str, ...],
    catalog: str,
    properties: tuple[str, ...],
    keep_hours: int,
    compact: bool,
    target_bytes: int,
    dry_run: bool,
) -> int:
    """Expire old snapshots of the Iceberg tables NAMESPACE.NAME..., and remove unused files.

    Queries may write these tables meanwhile. Exit status: 1 if a table failed.
    """
    try:
        from pelton.spark.iceberg.maintenance import maintain
    except ImportError as problem:
        raise click.ClickException(str(not_installed(problem, "iceberg"))) from None
    from pelton.spark.iceberg.options import address
    from pelton.spark.parsing import OptionError
    from pelton.spark.tables.places import TableError

    given = dict(_pair(text) for text in properties)
    reports: list[Report] = []
    problems: list[tuple[str, str]] = []
    for name in names:
        try:
            table = address(name, catalog, given)
            merged = target_bytes if compact else None
            reports.append(maintain(table, keep_hours, target_bytes=merged, dry_run=dry_run))
        except (TableError, OptionError) as problem:
            problems.append((name, str(problem)))
    if session.as_json:
        failed = [{"table": name, "error": text} for name, text in problems]
        print_json([*(vars(report) for report in reports), *failed])
    else:
        _show(reports, dry_run=dry_run)
        for name, text in problems:
            click.echo(f"pelton: {name}: {text}", err=True)
    return 1 if problems else 0


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise click.BadParameter("NAME=VALUE", param_hint="--property")
    return name, value


def _show(reports: list[Report], *, dry_run: bool) -> None:
    if not reports:
        return
    rows = [
        (
            report.table,
            f"{number(report.snapshots_before)} -> {number(report.snapshots)}",
            f"{number(report.files_before)} -> {number(report.files)}",
            f"{size(report.bytes_before)} -> {size(report.bytes)}",
            f"{number(report.compacted)} into {number(report.into)}" if report.compacted else "0",
            number(len(report.removed)),
            f"{report.seconds:.2f}",
        )
        for report in reports
    ]
    print_table(_COLUMNS, rows, right=frozenset(_COLUMNS[1:]))
    if dry_run:
        print("dry run: nothing was changed; this is what would be done")
