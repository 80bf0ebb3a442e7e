"""How far the queries of a pipeline are: from what Spark's listener says, for a screen, for a log
and for programs.

Events come in a thread of Spark's; everything else asks from the main thread.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from penstock.pipeline.display import Line, Rate
from penstock.spark.watching.report import Message, Reports

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.pipeline.running.queries import Query

_COLUMNS = ("query", "state", "batch", "rows", "rows/s", "lag", "batch time", "streams")
_RIGHT = frozenset(_COLUMNS[2:7])


@dataclass(frozen=True)
class QueryNumbers:
    """How far one query is; ``sinks`` has the rows given to each in this run."""

    name: str
    state: str = "starting"
    batch: int | None = None
    batches: int = 0
    rows: int = 0
    rows_per_second: float = 0.0
    lag: int = 0
    batch_ms: int = 0
    streams: dict[str, int] = field(default_factory=dict)
    sinks: dict[str, int] = field(default_factory=dict)
    error: str = ""


class Board:
    """What is known of all queries; fed by a listener and by those who write batches."""

    def __init__(self, tell: Callable[[Message], None] | None = None) -> None:
        """``tell`` hears each message about progress, in Spark's thread."""
        self._lock = threading.Lock()
        self._reports = Reports()
        self._tell = tell
        self._names: dict[str, str] = {}
        self._numbers: dict[str, QueryNumbers] = {}
        self._rates: dict[str, Rate] = {}
        self._sinks: dict[str, Counter[str]] = {}
        self._ended: set[str] = set()

    def begin(self, query: Query, spark_name: str) -> None:
        """A query will be started, under a name that Spark's events have."""
        with self._lock:
            self._names[spark_name] = query.name
            self._numbers[query.name] = QueryNumbers(query.name)
            self._rates[query.name] = Rate()
            self._sinks[query.name] = Counter(dict.fromkeys(query.sinks, 0))

    def started(self, query: Query) -> None:
        """It was."""
        with self._lock:
            numbers = self._numbers[query.name]
            if numbers.state == "starting":
                self._numbers[query.name] = replace(numbers, state="running")

    def wrote(self, query: str, sink: str, rows: int) -> None:
        """A sink took rows of a batch."""
        with self._lock:
            self._sinks[query][sink] += rows

    def take(self, make: Callable[[Reports], Message], observed: dict[str, int]) -> None:
        """An event of Spark's; ``observed`` are the rows of sinks that Spark counted itself."""
        with self._lock:
            message = make(self._reports)
            name = self._names.get(message["query"])
            if name is not None:
                self._sinks[name].update(observed)
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
                batch_ms=message["batch_ms"] if worked else numbers.batch_ms,
                streams={each: place["end"] for each, place in message["streams"].items()},
            )
        elif message["event"] == "terminated":
            self._ended.add(name)

    def trouble(self, name: str, text: str) -> None:
        """Something was wrong with a query that goes on; it stays to be read."""
        with self._lock:
            self._ended.discard(name)
            self._numbers[name] = replace(self._numbers[name], error=text)

    def ended(self, name: str, error: str = "") -> None:
        """A query runs no more."""
        with self._lock:
            state = "failed" if error else "ended"
            said = error or self._numbers[name].error
            self._numbers[name] = replace(self._numbers[name], state=state, error=said)

    def wait_for_ends(self, names: set[str], seconds: float) -> None:
        """Wait until Spark has told all there was to tell of queries that ended."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with self._lock:
                if names <= self._ended:
                    return
            time.sleep(0.02)

    def numbers(self) -> list[QueryNumbers]:
        """Those of all queries now."""
        now = time.monotonic()
        with self._lock:
            return [
                replace(
                    each,
                    sinks=dict(self._sinks[name]),
                    rows_per_second=self._rates[name].of(each.rows, now),
                )
                for name, each in self._numbers.items()
            ]


@dataclass(frozen=True)
class QueriesView:
    """The numbers of all queries, for :class:`penstock.pipeline.display.Screen`."""

    pipeline: str
    stage: str
    queries: list[QueryNumbers]

    def table(self) -> Table:
        """For a terminal."""
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
        """For a log: one for each query."""
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
        f"{query.lag:,}",
        f"{query.batch_ms / 1000:.2f}s",
        ", ".join(f"{name} {end:,}" for name, end in query.streams.items()),
    ]


def summary_table(queries: list[QueryNumbers]) -> Table:
    """What a run has done, a row for each sink."""
    table = Table(title="Summary", title_justify="left")
    for name in ("query", "batches", "rows read", "sink", "rows written", "lag"):
        table.add_column(name, justify="left" if name in ("query", "sink") else "right")
    for query in queries:
        head = [query.name, f"{query.batches:,}", f"{query.rows:,}"]
        for place, (sink, rows) in enumerate(query.sinks.items()):
            shown = head if place == 0 else [""] * 3
            lag = f"{query.lag:,}" if place == 0 else ""
            table.add_row(*shown, sink, f"{rows:,}", lag)
    return table


def as_data(query: QueryNumbers) -> dict[str, Any]:
    """The numbers as JSON has them."""
    return {**vars(query), "rows_per_second": round(query.rows_per_second, 1)}
