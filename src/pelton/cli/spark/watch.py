"""``pelton spark watch``: a table of the messages that ``pelton.spark.watch`` publishes about
queries.

On a terminal the table is updated in place; elsewhere each message is a line. Needs no Spark.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.output import accent, number, print_json_line, readable
from pelton.cli.session import Session, command
from pelton.cli.values import DURATION, Whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

    from pelton.client.sync.subscription import Subscription

COLUMNS = ("QUERY", "STATE", "BATCH", "ROWS/S", "BATCH TIME", "LAG", "STREAMS", "AGE")
_RIGHT = frozenset({"BATCH", "ROWS/S", "BATCH TIME", "LAG", "AGE"})
_EVENTS = ("started", "progress", "idle", "terminated")
_REDRAW_SECONDS = 1.0


class Queries:
    """The last messages about each query; of a name the newest run counts."""

    def __init__(self) -> None:
        """Start without messages."""
        self._seen: dict[str, tuple[dict[str, Any], dict[str, Any], float]] = {}

    def take(self, message: dict[str, Any], now: float) -> None:
        """Take a message, at a time in seconds; keeps the last progress of a query."""
        query = str(message["query"])
        progress = self._seen[query][1] if query in self._seen else {}
        if message["event"] in ("progress", "started"):
            progress = message
        self._seen[query] = message, progress, now

    def rows(self, now: float) -> list[list[str]]:
        """The rows of the table, by name of the query."""
        return [
            _cells(message, progress, now - at)
            for _, (message, progress, at) in sorted(self._seen.items())
        ]


def _state(message: dict[str, Any]) -> str:
    if message["event"] == "terminated":
        return "failed" if message.get("error") else "ended"
    return {"started": "starting", "idle": "idle"}.get(message["event"], "running")


def _cells(message: dict[str, Any], progress: dict[str, Any], age_seconds: float) -> list[str]:
    cells = [readable(str(message["query"]).encode()), _state(message)]
    if progress.get("event") == "progress":
        streams = progress.get("streams") or {}
        cells += [
            str(progress.get("batch", "")),
            number(round(progress.get("processed_rows_per_second") or 0)),
            f"{(progress.get('batch_ms') or 0) / 1000:.2f}s",
            "" if progress.get("lag") is None else number(progress["lag"]),
            ", ".join(
                f"{readable(name.encode())} {place['end']}" for name, place in streams.items()
            ),
        ]
    else:
        cells += [""] * 5
    return [*cells, f"{age_seconds:.0f}s"]


def parse_message(data: bytes) -> dict[str, Any] | None:
    """A message of ``pelton.spark.watch``; None for any other message on the subject."""
    try:
        message = json.loads(data)
    except ValueError:
        return None
    if not isinstance(message, dict) or message.get("event") not in _EVENTS:
        return None
    if not isinstance(message.get("query"), str):
        return None
    try:
        _cells(message, message, 0.0)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    return message


def line_of(message: dict[str, Any], at: float) -> str:
    """One message as a line of a log."""
    queries = Queries()
    queries.take(message, at)
    [cells] = queries.rows(at)
    names = [name.lower() for name in COLUMNS[2:-1]]
    facts = [f"{name} {cell}" for name, cell in zip(names, cells[2:-1], strict=True) if cell]
    if message.get("error"):
        facts.append(readable(str(message["error"]).encode()))
    return "  ".join([str(message.get("at", "")), cells[0], cells[1], *facts])


def _table(queries: Queries, now: float) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(header_style=accent())
    for name in COLUMNS:
        table.add_column(
            name, justify="right" if name in _RIGHT else "left", no_wrap=name != "STREAMS"
        )
    for row in queries.rows(now):
        style = {"failed": "red", "ended": "dim"}.get(row[1], "")
        table.add_row(*(Text(cell) for cell in row), style=style)
    return table


@click.command()
@click.option(
    "--subject",
    default="spark.progress.>",
    show_default=True,
    help="The subject of pelton.spark.watch.",
)
@click.option("-n", "--count", default=0, type=Whole(0), help="End after this many messages.")
@click.option("--wait", type=DURATION, default=0, help="End after this time without a message.")
@command
@click.pass_obj
def watch(session: Session, subject: str, count: int, wait: int) -> None:
    """Show the progress of streaming queries until interrupted."""
    patience = wait / 1e9 if wait else float("inf")
    with session.connect() as client:
        subscription = client.subscribe(subject)
        client.flush()
        if client.last_error is not None:
            raise client.last_error
        if session.as_json:
            _follow(subscription, count, patience, print_json_line)
        elif sys.stdout.isatty():
            _live(subscription, count, patience)
        else:
            _follow(subscription, count, patience, lambda m: print(line_of(m, 0.0), flush=True))


def _next(subscription: Subscription, seconds: float) -> dict[str, Any] | None:
    """The next valid message; None if none comes in time."""
    deadline = time.monotonic() + seconds
    while True:
        found = subscription.next(max(0.0, deadline - time.monotonic()))
        if found is None:
            return None
        if (message := parse_message(found.data)) is not None:
            return message


def _follow(
    subscription: Subscription,
    count: int,
    patience: float,
    show: Callable[[dict[str, Any]], None],
) -> None:
    received = 0
    while (not count or received < count) and (message := _next(subscription, patience)):
        received += 1
        show(message)


def _live(subscription: Subscription, count: int, patience: float) -> None:
    from rich.live import Live

    queries = Queries()
    received, last = 0, time.monotonic()
    with Live(_table(queries, last), auto_refresh=False) as live:
        while not count or received < count:
            message = _next(subscription, min(_REDRAW_SECONDS, patience))
            now = time.monotonic()
            if message is not None:
                received, last = received + 1, now
                queries.take(message, now)
            elif now - last >= patience:
                return
            live.update(_table(queries, now), refresh=True)
