"""``pelton tables maintain``: compacts Delta tables and removes unused files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from pelton.cli.maintenance_options import DRY_RUN, NO_COMPACT, RETENTION, TARGET_SIZE
from pelton.cli.output import number, print_json, print_table, size
from pelton.cli.session import Session, command
from pelton.errors import not_installed

if TYPE_CHECKING:
    from pelton.spark.tables.maintenance import Plan, Report

_COLUMNS = ("table", "version", "files", "bytes", "compacted", "removed", "seconds")
_NUMBERS = frozenset(_COLUMNS[1:])


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
    try:
        from pelton.spark.tables.maintenance import Plan
    except ImportError as problem:
        raise click.ClickException(str(not_installed(problem, "spark"))) from None
    plan = Plan(
        target_bytes=target_bytes,
        keep_hours=keep_hours,
        compact=not no_compact,
        checkpoint=not no_checkpoint,
        vacuum=not no_vacuum,
        dry_run=dry_run,
    )
    given = dict(_pair(text) for text in storage)
    reports, problems = _all(paths, given, plan)
    if session.as_json:
        failed = [{"table": path, "error": text} for path, text in problems]
        print_json([*(vars(report) for report in reports), *failed])
    else:
        _show(reports, dry_run=dry_run)
        for path, text in problems:
            click.echo(f"pelton: {path}: {text}", err=True)
    return 1 if problems else 0


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise click.BadParameter("NAME=VALUE", param_hint="--storage")
    return name, value


def _all(
    paths: tuple[str, ...], storage: dict[str, str], plan: Plan
) -> tuple[list[Report], list[tuple[str, str]]]:
    """Maintain each table in turn; a failure does not stop the others."""
    from pelton.spark.parsing import OptionError
    from pelton.spark.tables.maintenance import maintain as look_after
    from pelton.spark.tables.places import TableError, place

    reports, problems = [], []
    for path in paths:
        try:
            reports.append(look_after(place(path, storage), plan))
        except (TableError, OptionError) as problem:
            problems.append((path, str(problem)))
    return reports, problems


def _show(reports: list[Report], *, dry_run: bool) -> None:
    if not reports:
        return
    rows = [
        (
            report.table,
            number(report.version),
            f"{number(report.files_before)} -> {number(report.files)}",
            f"{size(report.bytes_before)} -> {size(report.bytes)}",
            f"{number(report.compacted)} into {number(report.into)}" if report.compacted else "0",
            number(len(report.removed)),
            f"{report.seconds:.2f}",
        )
        for report in reports
    ]
    print_table(_COLUMNS, rows, right=_NUMBERS)
    if dry_run:
        print("dry run: nothing was changed; this is what would be done")
