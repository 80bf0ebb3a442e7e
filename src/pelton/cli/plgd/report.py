"""``pelton plgd report``: an HTML page about a hub's devices, made of the tables."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.failures import DONE
from pelton.cli.output import print_json
from pelton.cli.session import Session, command
from pelton.cli.values import DURATION
from pelton.errors import not_installed

if TYPE_CHECKING:
    from pelton.plgd.report import Figures, Tables

    _Kind = click.ParamType[tuple[bool, int]]
else:
    _Kind = click.ParamType  # not generic in every supported version of click


class Moment(_Kind):
    """A time (``2026-11-24T10:00:00Z``), or how long before the end (``24h``)."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[bool, int]:
        """Whether it is a time, and the time or the duration in µs."""
        from pelton.api.times import parse_time

        text = str(value)
        try:
            return True, parse_time(text) // 1000
        except ValueError:
            if text[:4].isdigit() and text[4:5] == "-":
                self.fail(f'"{text}" is not a time such as 2026-11-24T10:00:00Z', param, ctx)
            return False, DURATION.convert(value, param, ctx) // 1000


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("report.html"),
    show_default=True,
    help="The file of the page; - for stdout.",
)
@click.option(
    "--since", type=Moment(), help="From this time on, or this long before the end (24h)."
)
@click.option("--until", type=Moment(), help="Up to this time; by default, the last event.")
@click.option("--owner", default="", help="Only devices of the owner with this id.")
@click.option("--device", default="", help="Only this device.")
@click.option("--title", default="Devices of a plgd hub", show_default=True, help="The heading.")
@command
@click.pass_obj
def report(session: Session, /, folder: Path, output: Path, title: str, **asked: Any) -> int:
    """Make an HTML page about the devices of a hub.

    FOLDER has the tables that `pelton plgd run` or `backfill` made. The page shows devices online, events
    by type, outcomes and latency of commands, synchronization times, gaps found and repaired, dead letters.
    It is one file, and loads nothing. With --json, the figures are printed and no page is written.

    \b
    pelton plgd report ./tables --since 24h -o fleet.html
    pelton plgd report ./tables --json | jq .summary
    """
    try:
        from pelton.plgd.report import Scope, open_tables, render
    except ImportError as problem:
        raise click.ClickException(str(not_installed(problem, "plgd"))) from None
    scope = Scope(asked["owner"], asked["device"])
    with open_tables(folder, scope) as tables:
        figures = _figures(tables, asked["since"], asked["until"])
    if session.as_json:
        print_json(figures.as_json())
        return DONE
    page = render(figures, title=title, source=str(folder))
    if str(output) == "-":
        sys.stdout.write(page)
        return DONE
    _replace(output, page)
    shown = figures.summary
    print(
        f"{output}: {shown['events']:,} events of {shown['devices']:,} devices,"
        f" {shown['commands']:,} commands, {shown['gaps']:,} gaps"
    )
    return DONE


def _figures(
    tables: Tables, since: tuple[bool, int] | None, until: tuple[bool, int] | None
) -> Figures:
    """The figures of the span that the options name."""
    from pelton.plgd.report import TablesError, measure

    if until is not None and not until[0]:
        raise click.BadParameter("a time such as 2026-11-24T10:00:00Z", param_hint="--until")
    end = None if until is None else until[1]
    if since is None or since[0]:
        return measure(tables, None if since is None else since[1], end)
    if end is None and tables.rows("span")[0]["last"] is None:
        raise TablesError("the tables have no events yet")
    return measure(tables, until_us=end, last_us=since[1])


def _replace(path: Path, page: str) -> None:
    """Write the file as a whole: a reader sees the old page or the new one."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            part.write_text(page, encoding="utf-8")
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from None
