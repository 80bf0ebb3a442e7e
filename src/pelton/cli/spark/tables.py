"""``pelton tables maintain`` and ``expire``: few files of a good size, a short history, no unused files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pelton.cli.maintenance_options import DRY_RUN, NO_COMPACT, RETENTION, TARGET_SIZE
from pelton.cli.output import number, print_json, print_table, size
from pelton.cli.session import Session, command
from pelton.errors import not_installed

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.spark.tables.maintenance import Report
    from pelton.spark.tables.table import Where


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@TARGET_SIZE
@RETENTION
@NO_COMPACT
@click.option("--no-checkpoint", is_flag=True, help="Write no checkpoint of the log.")
@click.option("--no-vacuum", is_flag=True, help="Remove no files.")
@DRY_RUN
@click.option(
    "--storage",
    multiple=True,
    metavar="NAME=VALUE",
    help="For an object store, such as aws_region=eu-west-1; repeatable.",
)
@command
@click.pass_obj
def maintain(
    session: Session,
    paths: tuple[str, ...],
    target_bytes: int,
    keep_hours: int,
    no_compact: bool,
    no_checkpoint: bool,
    no_vacuum: bool,
    dry_run: bool,
    storage: tuple[str, ...],
) -> int:
    """Compact the Delta tables at PATH..., write a checkpoint, and remove unused files.

    Queries may read and write these tables meanwhile. Exit status: 1 if a table failed.
    """
    given = dict(_pair(text, "--storage") for text in storage)

    def where(path: str) -> Where:
        from pelton.spark.tables.places import place

        return place(path, given)

    return _maintain(
        session,
        paths,
        where,
        target_bytes=target_bytes,
        keep_hours=keep_hours,
        compact=not no_compact,
        checkpoint=not no_checkpoint,
        vacuum=not no_vacuum,
        dry_run=dry_run,
    )


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
    given = dict(_pair(text, "--property") for text in properties)

    def where(name: str) -> Where:
        from pelton.spark.iceberg.options import address

        return address(name, catalog, given)

    plan = {"target_bytes": target_bytes, "keep_hours": keep_hours, "compact": compact}
    return _maintain(session, names, where, library="iceberg", dry_run=dry_run, **plan)


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise click.BadParameter("NAME=VALUE", param_hint=option)
    return name, value


def _maintain(
    session: Session,
    names: tuple[str, ...],
    where: Callable[[str], Where],
    *,
    library: str = "spark",
    **plan: int,
) -> int:
    """Maintain each table in turn; a failure does not stop the others."""
    try:
        if library == "iceberg":
            import pyiceberg  # noqa: F401  it may not be installed
        from pelton.spark.parsing import OptionError
        from pelton.spark.tables.maintenance import Plan
        from pelton.spark.tables.maintenance import maintain as look_after
        from pelton.spark.tables.places import TableError
    except ImportError as problem:
        raise click.ClickException(str(not_installed(problem, library))) from None
    reports: list[Report] = []
    problems: list[tuple[str, str]] = []
    for name in names:
        try:
            reports.append(look_after(where(name), Plan(**plan)))  # type: ignore[arg-type]  # int and bool
        except (TableError, OptionError) as problem:
            problems.append((name, str(problem)))
    if session.as_json:
        failed = [{"table": name, "error": text} for name, text in problems]
        print_json([*(vars(report) for report in reports), *failed])
    else:
        _show(reports)
        for name, text in problems:
            click.echo(f"pelton: {name}: {text}", err=True)
    return 1 if problems else 0


def _show(reports: list[Report]) -> None:
    if not reports:
        return
    rows = [_cells(report) for report in reports]
    columns = tuple(rows[0])
    print_table(columns, [tuple(row.values()) for row in rows], right=frozenset(columns[1:]))
    if reports[0].dry_run:
        print("dry run: nothing was changed; this is what would be done")


def _cells(report: Report) -> dict[str, str]:
    """The cells of a table's row, by their columns."""
    history = {"version": number(report.version)}
    if report.snapshots is not None and report.snapshots_before is not None:
        history = {"snapshots": f"{number(report.snapshots_before)} -> {number(report.snapshots)}"}
    into = f"{number(report.compacted)} into {number(report.into)}" if report.compacted else "0"
    return {
        "table": report.table,
        **history,
        "files": f"{number(report.files_before)} -> {number(report.files)}",
        "bytes": f"{size(report.bytes_before)} -> {size(report.bytes)}",
        "compacted": into,
        "removed": number(len(report.removed)),
        "seconds": f"{report.seconds:.2f}",
    }
