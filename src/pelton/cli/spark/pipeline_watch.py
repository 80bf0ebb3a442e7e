"""``pelton pipeline watch``: a live picture of a pipeline, from outside of its run."""

from __future__ import annotations

import logging
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from pelton.cli.output import accent, number, print_json_line, readable
from pelton.cli.session import Session, command
from pelton.cli.spark.pipeline import FILE, STATE, load_file
from pelton.cli.values import DURATION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from pelton.pipeline.display import Line
    from pelton.pipeline.running.picture import Picture, QueryPicture

_BARS = "▁▂▃▄▅▆▇█"
_BAR_CELLS = 24
_QUERIES = ("query", "state", "batch", "rows", "rows/s", "lag", "late", "batch time")
_TRACES = ("lag, 5 min", "rows/s, 5 min")
_SINKS = ("sink", "query", "rows", "rejected by")
_RIGHT = frozenset({"batch", "rows", "rows/s", "lag", "late", "batch time"})


@click.command()
@FILE
@STATE
@click.option("--once", is_flag=True, help="Show one picture and end.")
@click.option(
    "--every", type=DURATION, default="1s", show_default=True, help="Time between pictures."
)
@command
@click.pass_obj
def watch(session: Session, file: str, state: str | None, once: bool, every: int) -> int:
    """Show the pipeline of FILE while it runs, until interrupted: queries, lag, sinks, the last error.

    Reads the state folder, asks the servers for the lag, and takes the messages of metrics.subject if
    the run is on another machine. With --json each picture is a line. Needs no Spark.
    """
    pipeline = load_file(file, state)
    from pelton.pipeline.display import Screen
    from pelton.pipeline.running.picture import Watcher
    from pelton.pipeline.running.queries import StateError

    # The picture tells of a server that is away; without a handler Python prints errors into it.
    logging.getLogger("pelton").addHandler(logging.NullHandler())
    seconds = max(0.05, every / 1e9)
    try:
        with closing(Watcher(pipeline)) as watcher:
            if session.as_json:
                print_json_line(asdict(watcher.take()))
                while not once:
                    time.sleep(seconds)
                    print_json_line(asdict(watcher.take()))
                return 0
            console = Console()
            if once:
                _print(console, PictureView(watcher.take()))
                return 0
            with Screen(console) as screen:
                while True:
                    screen.show(PictureView(watcher.take()))
                    time.sleep(seconds)
    except StateError as error:
        raise click.ClickException(str(error)) from None


def _print(console: Console, view: PictureView) -> None:
    if console.is_terminal:
        console.print(view.table())
        return
    for line in view.lines():
        console.print(line.text, highlight=False, soft_wrap=True, markup=False)


@dataclass(frozen=True)
class PictureView:
    """A picture for :class:`pelton.pipeline.display.Screen`."""

    picture: Picture

    @property
    def _head(self) -> str:
        running = self.picture.running
        return f"{self.picture.pipeline}: " + (
            "not running"
            if not running
            else "running elsewhere"
            if running == "elsewhere"
            else f"running, process {running}"
        )

    def table(self) -> RenderableType:
        """The form for a terminal."""
        queries = self.picture.queries
        first = _table((*_QUERIES, *_TRACES))
        for query in queries:
            style = {"failed": "red", "ended": "dim", "stopped": "dim"}.get(query.state, "")
            traces = (sparkline(query.lags), sparkline(query.rates))
            first.add_row(*map(Text, (*_cells(query), *traces)), style=style)
        second = _table(_SINKS)
        for query in queries:
            for sink, rows in query.sinks.items():
                second.add_row(*map(Text, (sink, query.name, number(rows), _rejected(query, sink))))
        parts: list[RenderableType] = [Text(self._head, style="bold"), first]
        if second.row_count:
            parts.append(second)
        parts += [Text(line, style="red") for line in self._troubles()]
        return Group(*parts)

    def lines(self) -> list[Line]:
        """The form for a log: a line for each query."""
        from pelton.pipeline.display import Line

        head = self._head
        found = [Line("", head, head, head)]
        for query in self.picture.queries:
            named = zip(_QUERIES[2:], _cells(query)[2:], strict=True)
            facts = [f"{query.name}: {query.state}", *(f"{name} {x}" for name, x in named if x)]
            for sink, rows in query.sinks.items():
                by = _rejected(query, sink)
                facts.append(f"{sink} {number(rows)}" + (f" ({by})" if by else ""))
            urgent = (query.state, query.error)
            known = (urgent, query.batch, query.rows, query.lag, query.sinks)
            text = ", ".join(facts) + (f"; {query.error}" if query.error else "")
            found.append(Line(query.name, text, known, urgent))
        problems = self.picture.problems
        found += [Line(each, f"unknown: {each}", each, each) for each in problems]
        return found

    def _troubles(self) -> list[str]:
        errors = [f"{each.name}: {each.error}" for each in self.picture.queries if each.error]
        return [*errors, *(f"unknown: {each}" for each in self.picture.problems)]


def _table(columns: Sequence[str]) -> Table:
    table = Table(header_style=accent())
    for name in columns:
        table.add_column(name, justify="right" if name in _RIGHT else "left", no_wrap=True)
    return table


def _cells(query: QueryPicture) -> list[str]:
    busy = "" if query.busy_seconds is None else f" +1, {query.busy_seconds:.0f}s"
    batch = number(query.batch) if query.batch >= 0 else ""
    return [
        query.name,
        query.state,
        f"{batch}{busy}".lstrip(),
        number(query.rows),
        number(round(query.rows_per_second)),
        "" if query.lag is None else number(query.lag),
        number(query.late_rows) if query.late_rows else "",
        f"{query.batch_ms / 1000:.2f}s" if query.batch_ms else "",
    ]


def _rejected(query: QueryPicture, sink: str) -> str:
    by = query.rejected.get(sink, {})
    return ", ".join(f"{readable(name.encode())} {number(rows)}" for name, rows in by.items())


def sparkline(values: Sequence[float], cells: int = _BAR_CELLS) -> str:
    """The values as a row of bars from 0 to the greatest, which is written behind; "" without values."""
    if not values:
        return ""
    width = -(-len(values) // cells)
    groups = [values[begin : begin + width] for begin in range(0, len(values), width)]
    means = [sum(group) / len(group) for group in groups]
    most = max(means)
    if most <= 0:
        return _BARS[0] * len(means)
    top = len(_BARS) - 1
    bars = "".join(_BARS[min(top, round(max(0.0, each) / most * top))] for each in means)
    return f"{bars} {number(round(max(values)))}"
