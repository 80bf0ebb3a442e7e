"""The progress of a pipeline's queries from Spark's listener, for a screen, a log and programs.

Events arrive in a thread of Spark; all reads come from the main thread.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from pelton.pipeline.display import Line, Rate
from pelton.spark.watching.report import Message, Reports

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.pipeline.running.counting import Counted
    from pelton.pipeline.running.queries import Query

_COLUMNS = ("query", "state", "batch", "rows", "rows/s", "lag", "late", "batch time", "streams")
_RIGHT = frozenset(_COLUMNS[2:8])


@dataclass(frozen=True)
class QueryNumbers:
    """The progress of one query; ``sinks`` has the rows given to each sink in this run.

    ``late_rows`` are rows that a watermark dropped; ``rejected`` has the rows of each sink of rejected
    rows by the condition that they failed.
    """

    name: str
    state: str = "starting"
    batch: int | None = None
    batches: int = 0
    rows: int = 0
    rows_per_second: float = 0.0
    lag: int | None = 0
    late_rows: int = 0
    batch_ms: int = 0
    streams: dict[str, int] = field(default_factory=dict)
    sinks: dict[str, int] = field(default_factory=dict)
    rejected: dict[str, dict[str, int]] = field(default_factory=dict)
    error: str = ""


class Board:
    """The progress of all queries; the listener and the writers of batches report to it."""

    def __init__(self, tell: Callable[[Message], None] | None = None) -> None:
        """``tell`` gets each message about progress, in a thread of Spark."""
        self._lock = threading.Lock()
        self._reports = Reports()
        self._tell = tell
        self._names: dict[str, str] = {}
        self._numbers: dict[str, QueryNumbers] = {}
        self._rates: dict[str, Rate] = {}
        self._sinks: dict[str, Counter[str]] = {}
        self._rejected: dict[str, dict[str, Counter[str]]] = {}
        self._ended: set[str] = set()

    def begin(self, query: Query, spark_name: str) -> None:
        """A query will start, under the name that Spark's events use."""
        with self._lock:
            self._names[spark_name] = query.name
            self._numbers[query.name] = QueryNumbers(query.name)
            self._rates[query.name] = Rate()
            self._sinks[query.name] = Counter(dict.fromkeys(query.sinks, 0))
            self._rejected[query.name] = {}

    def started(self, query: Query) -> None:
        """A query has started."""
        with self._lock:
            numbers = self._numbers[query.name]
            if numbers.state == "starting":
                self._numbers[query.name] = replace(numbers, state="running")

    def wrote(self, query: str, sink: str, counted: Counted) -> None:
        """A sink has taken rows of a batch."""
        with self._lock:
            self._count(query, sink, counted)

    def _count(self, query: str, sink: str, counted: Counted) -> None:
        self._sinks[query][sink] += counted.rows
        if counted.failed:
            self._rejected[query].setdefault(sink, Counter()).update(counted.failed)

    def take(self, make: Callable[[Reports], Message], observed: dict[str, Counted]) -> None:
        """Take an event of Spark; ``observed`` are the rows of sinks that Spark counted itself."""
        with self._lock:
            message = make(self._reports)
            name = self._names.get(message["query"])
            if name is not None:
                for sink, counted in observed.items():
                    self._count(name, sink, counted)
                self._take(name, message)
        if name is not None and self._tell is not None:
            self._tell({**message, "query": name})

    def _take(self, name: str, message: Message) -> None:
        numbers = self._numbers[name]
        if message["event"] == "progress":
            worked = "addBatch" in message["phases_ms"]
            self._numbers[name] = replace(
                numbers,
                batch=message["batch"],
                batches=numbers.batches + worked,
                rows=numbers.rows + message["rows"],
                lag=message["lag"],
                late_rows=numbers.late_rows + message["late_rows"],
                batch_ms=message["batch_ms"] if worked else numbers.batch_ms,
                streams={each: place["end"] for each, place in message["streams"].items()},
            )
        elif message["event"] == "terminated":
            self._ended.add(name)

    def trouble(self, name: str, text: str) -> None:
        """Record a problem of a query that continues; it stays visible."""
        with self._lock:
            self._ended.discard(name)
            self._numbers[name] = replace(self._numbers[name], error=text)

    def ended(self, name: str, error: str = "") -> None:
        """A query has ended."""
        with self._lock:
            state = "failed" if error else "ended"
            said = error or self._numbers[name].error
            self._numbers[name] = replace(self._numbers[name], state=state, error=said)

    def wait_for_ends(self, names: set[str], seconds: float) -> None:
        """Wait until Spark has delivered all events of ended queries."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with self._lock:
                if names <= self._ended:
                    return
            time.sleep(0.02)

    def numbers(self) -> list[QueryNumbers]:
        """The current progress of all queries."""
        now = time.monotonic()
        with self._lock:
            return [
                replace(
                    each,
                    sinks=dict(self._sinks[name]),
                    rejected={sink: dict(by) for sink, by in self._rejected[name].items()},
                    rows_per_second=self._rates[name].of(each.rows, now),
                )
                for name, each in self._numbers.items()
            ]


@dataclass(frozen=True)
class QueriesView:
    """The numbers of all queries, for :class:`pelton.pipeline.display.Screen`."""

    pipeline: str
    stage: str
    queries: list[QueryNumbers]

    def table(self) -> Table:
        """The form for a terminal."""
        table = Table(title=f"{self.pipeline}: {self.stage}", title_justify="left")
        for name in _COLUMNS:
            table.add_column(name, justify="right" if name in _RIGHT else "left")
        for query in self.queries:
            style = {"failed": "red", "ended": "dim"}.get(query.state, "")
            table.add_row(*(Text(cell) for cell in _cells(query)), style=style)
        errors = [f"{query.name}: {query.error}" for query in self.queries if query.error]
        table.caption = Text("\n".join(errors) or "Ctrl-C stops after the batch")
        return table

    def lines(self) -> list[Line]:
        """The form for a log: a line for each query."""
        found = []
        for query in self.queries or [QueryNumbers(self.pipeline)]:
            cells = dict(zip(_COLUMNS, _cells(query), strict=True))
            said = [
                f"{cells.pop('query')}: {self.stage if not self.queries else cells['state']}",
                *(f"{name} {cell}" for name, cell in cells.items() if cell and name != "state"),
            ]
            text = ", ".join(said) + (f"; {query.error}" if query.error else "")
            urgent = (self.stage if not self.queries else "", query.state, query.error)
            facts = (urgent, query.batch, query.rows, query.lag, query.streams)
            found.append(Line(query.name, text, facts, urgent))
        return found


def _cells(query: QueryNumbers) -> list[str]:
    if query.batch is None:
        return [query.name, query.state, *[""] * (len(_COLUMNS) - 2)]
    return [
        query.name,
        query.state,
        f"{query.batch:,}",
        f"{query.rows:,}",
        f"{query.rows_per_second:,.0f}",
        "" if query.lag is None else f"{query.lag:,}",
        f"{query.late_rows:,}" if query.late_rows else "",
        f"{query.batch_ms / 1000:.2f}s",
        ", ".join(f"{name} {end:,}" for name, end in query.streams.items()),
    ]


def summary_table(queries: list[QueryNumbers]) -> Table:
    """The summary of a run, with a row for each sink."""
    table = Table(title="Summary", title_justify="left")
    for name in ("query", "batches", "rows read", "late rows", "sink", "rows written", "lag"):
        table.add_column(name, justify="left" if name in ("query", "sink") else "right")
    for query in queries:
        head = [query.name, f"{query.batches:,}", f"{query.rows:,}", f"{query.late_rows:,}"]
        for place, (sink, rows) in enumerate(query.sinks.items()):
            shown = head if place == 0 else [""] * 4
            lag = f"{query.lag:,}" if place == 0 and query.lag is not None else ""
            table.add_row(*shown, sink, f"{rows:,}", lag)
    return table


def as_data(query: QueryNumbers) -> dict[str, Any]:
    """The numbers as JSON has them."""
    return {**vars(query), "rows_per_second": round(query.rows_per_second, 1)}
