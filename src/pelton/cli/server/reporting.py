"""The common part of the reports about servers: which servers, the order of rows, watching.

A report is made of rows, which are JSON objects; ``columns`` says how a row is shown in a table.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pelton.cli.output import number, print_json, print_table, size
from pelton.cli.server.asking import Source, Where, source
from pelton.cli.session import Session, command
from pelton.cli.values import Whole, Word

if TYPE_CHECKING:
    from pelton.cli.server.asking import Answer

F = TypeVar("F", bound=Callable[..., Any])
Row = Mapping[str, Any]

GLOBAL = "$G"
"""The account of users who are in no other; pages leave it out."""


@dataclass(frozen=True)
class Column:
    """A column of a table: the field of the row, and how its value is shown."""

    title: str
    field: str
    show: Callable[[Any], str] = str

    @property
    def numeric(self) -> bool:
        """Whether it is a number, which is shown at the right."""
        return self.show in (number, size)


Columns = Sequence[Column]


@dataclass(frozen=True)
class Table:
    """Rows under a title; ``totals`` is a last row with sums."""

    columns: Columns
    rows: Sequence[Row]
    totals: Row | None = None
    title: str = ""

    def print(self) -> None:
        """Print the table."""
        if self.title:
            print(f"{self.title}:")
        rows = [*self.rows, *([self.totals] if self.totals is not None and self.rows else [])]
        cells = [[_cell(column, row) for column in self.columns] for row in rows]
        right = frozenset(column.title for column in self.columns if column.numeric)
        print_table([column.title for column in self.columns], cells, right=right)


def _cell(column: Column, row: Row) -> str:
    value = row.get(column.field)
    return "" if value is None else column.show(value)


@dataclass(frozen=True)
class Report:
    """The contents of a report: tables for people, data for programs."""

    tables: Sequence[Table]
    data: Any = None
    status: int = 0


_REVERSE_HELP = "The other way round."
REVERSE = click.option("-R", "--reverse/--no-reverse", default=False, help=_REVERSE_HELP)


def report(*sorts: str) -> Callable[[F], click.Command]:
    """A command that makes a Report from the answers of servers.

    ``sorts`` are the values of ``--sort``, the usual one first. The function gets the source and its own options.
    """

    def wrap(function: F) -> click.Command:
        @click.option("--host", "--name", "name", default="", help="Only this server.")
        @click.option("--cluster", default="", help="Only servers of this cluster.")
        @click.option("--tags", multiple=True, metavar="TAG", help="Only servers with this tag.")
        @click.option("--watch", default=0.0, metavar="SECONDS", help="Report again and again.")
        @click.option(
            "--archive",
            type=click.Path(exists=True, dir_okay=False),
            default=None,
            help="Read an audit archive instead.",
        )
        @command
        @click.pass_obj
        def made(session: Session, /, limit: int | None = None, **given: Any) -> int:
            where = Where(
                given.pop("name"),
                "",
                given.pop("cluster"),
                given.pop("tags"),
                limit or 0,
                given.pop("archive") or "",
            )
            seconds = given.pop("watch")
            if seconds and where.archive:
                raise click.UsageError("--watch and --archive exclude each other")
            with source(session, where) as servers:
                while True:
                    status = show_report(session, function(servers, **given), clear=bool(seconds))
                    if not seconds:
                        return status
                    time.sleep(seconds)

        made.__name__, made.__doc__ = function.__name__, function.__doc__
        own, found = click.command()(function).params, click.command()(made)
        found.params = [*own, *found.params]
        if not any(each.name == "limit" for each in own):
            found.params.append(click.Argument(["limit"], type=Whole(1), required=False))
        if sorts:
            found.params += _order(sorts)
        return found

    return wrap


def _order(sorts: Sequence[str]) -> list[click.Parameter]:
    return [
        click.Option(
            ["--sort", "sort"],
            type=Word(sorts),
            default=sorts[0],
            show_default=True,
            help="Order of the rows.",
        ),
        click.Option(
            ["-R", "--reverse/--no-reverse", "reverse"], default=False, help=_REVERSE_HELP
        ),
    ]


def show_report(session: Session, found: Report, *, clear: bool = False) -> int:
    """Print a report; its exit status."""
    if session.as_json:
        print_json(found.data)
        return found.status
    if clear and sys.stdout.isatty():
        print("\x1b[2J\x1b[H", end="")
    for index, table in enumerate(found.tables):
        if index:
            print()
        table.print()
    sys.stdout.flush()
    return found.status


COMPACT = click.option(
    "--compact/--no-compact",
    default=True,
    help="Leave out the domain that all names of servers end with.",
)


def compacted(names: Sequence[str]) -> list[str]:
    """The names without the labels at the end that all have in common; the first label stays."""
    labels = [name.split(".") for name in names]
    common = 0
    while len(labels) > 1 and all(
        len(each) > common + 1 and each[-1 - common] == labels[0][-1 - common] for each in labels
    ):
        common += 1
    return [".".join(each[: len(each) - common]) for each in labels]


def total(rows: Sequence[Row], *fields: str, **fixed: Any) -> dict[str, Any]:
    """A row with the sums of these fields."""
    return {**fixed, **{name: sum(row.get(name) or 0 for row in rows) for name in fields}}


def connections(servers: Source, wanted: Mapping[str, Any]) -> list[tuple[Answer, Row]]:
    """All connections of the servers, however many pages they are."""
    from pelton.cli.server.asking import sound

    found: list[tuple[Answer, Row]] = []
    offset, step = 0, 1024
    while True:
        answers = sound(servers.ask("CONNZ", {**wanted, "offset": offset, "limit": step}))
        for answer in answers:
            found += [
                (answer, {**each, "account": each.get("account") or GLOBAL})
                for each in answer.data.get("connections") or ()
            ]
        offset += step
        if all(int(answer.data.get("total") or 0) <= offset for answer in answers):
            return found
