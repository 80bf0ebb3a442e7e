"""The tables of a folder in DuckDB: one view for each table, limited to an owner or a device if asked.

A query reads only the columns and files that it needs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pelton.errors import PeltonError

from ..tables.opening import dataset
from ..tables.schemas import TABLES
from .queries import QUERIES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    import duckdb
    import pyarrow.dataset

SECOND_US = 1_000_000
STEPS_US = [
    SECOND_US * seconds
    for seconds in (
        *(1, 2, 5, 10, 15, 30),
        *(60, 120, 300, 600, 900, 1800),
        *(3600, 7200, 10800, 21600, 43200),
        *(86400, 172800, 604800, 2592000),
    )
]
STEPS_MAX = 96
"""Of a series: as many as a picture shows apart."""

END_US = 2**53
"""Later than any time."""

DAY_US = 86400 * SECOND_US
FEW_EVENTS = 10
"""Of fewer events none is far off."""
FAR_SHARE, FAR_MAX = 1000, 10_000
"""At each end one event of so many may be far off, one at least, and no more than these."""

ID = re.compile(r"[0-9A-Za-z-]{1,64}")


class TablesError(PeltonError):
    """The tables cannot be read; the text is for a person."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The owner and the device of a report; "" means all. Raises ``ValueError`` for an invalid id."""

    owner_id: str = ""
    device_id: str = ""

    def __post_init__(self) -> None:
        """Check the ids, which become part of SQL."""
        for each in (self.owner_id, self.device_id):
            if each and not ID.fullmatch(each):
                raise ValueError(f"{each!r} is no id")

    def condition(self, columns: set[str]) -> str:
        """The condition on the rows of a table with these columns."""
        parts = ["true"]
        if self.owner_id and "owner_id" in columns:
            parts.append(f"owner_id = '{self.owner_id}'")
        elif self.owner_id and "subject" in columns:
            parts.append(f"starts_with(subject, 'plgd.owners.{self.owner_id}.')")
        if self.device_id and "device_id" in columns:
            parts.append(f"device_id = '{self.device_id}'")
        return " AND ".join(parts)


@dataclass(frozen=True)
class Outside:
    """Events whose times are far from all others, so that a span without bounds leaves them out."""

    before: int = 0
    after: int = 0
    first_us: int | None = None
    last_us: int | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """A span of time in µs since 1970, the end not part of it, and the step of its series."""

    since_us: int
    until_us: int
    step_us: int
    received: tuple[int, int] = (0, END_US)
    """The bounds of what has only the stream's time: those that were asked for."""
    outside: Outside = field(default_factory=Outside)

    @property
    def parameters(self) -> dict[str, int]:
        """The values of the queries' parameters."""
        return {
            "since": self.since_us,
            "until": self.until_us,
            "step": self.step_us,
            "received_since": self.received[0],
            "received_until": self.received[1],
        }


def step_of(span_us: int) -> int:
    """The smallest round step that makes no more than `STEPS_MAX` of a span."""
    for step in STEPS_US:
        if span_us <= step * STEPS_MAX:
            return step
    return -(-span_us // STEPS_MAX)


class Tables:
    """Tables that answer the queries; close it, or use it with ``with``."""

    def __init__(
        self, datasets: Mapping[str, pyarrow.dataset.Dataset | Any], scope: Scope | None = None
    ) -> None:
        """Arrow datasets or tables by the table's name; a table that is not given is empty."""
        import duckdb

        self._connection: duckdb.DuckDBPyConnection = duckdb.connect()
        self._connection.execute("SET enable_progress_bar = false; SET TimeZone = 'UTC'")
        self.missing = sorted(TABLES.keys() - datasets.keys())
        scope = scope or Scope()
        for name, table in TABLES.items():
            source = datasets.get(name)
            if source is None:
                source = table.schema.empty_table()
            self._connection.register(f"all_{name}", source)
            columns = {column.name for column in table.columns}
            self._connection.execute(
                f'CREATE VIEW "{name}" AS SELECT * FROM "all_{name}" WHERE {scope.condition(columns)}'
            )

    @property
    def connection(self) -> duckdb.DuckDBPyConnection:
        """DuckDB, for queries of your own: each table is a view of its name."""
        return self._connection

    def span(
        self, since: int | None = None, until: int | None = None, last: int | None = None
    ) -> Span:
        """The bounds of a question in µs since 1970, and the step of its series.

        ``last`` is a duration before the end, in place of ``since``. A bound that is not given is that of the
        events without the few that are far from all others; the first step then begins at a round time.
        Raises ``ValueError`` if the span ends before it begins.
        """
        whole = {"since": since or 0, "until": END_US if until is None else until}
        first, final, outside = self._near(whole)
        begin = (first or 0) if since is None else since
        end = (final or begin) + 1 if until is None else until
        if last is not None:
            begin = end - last
        if since is not None or last is not None:
            outside = replace(outside, before=0, first_us=None)
        if until is not None:
            outside = replace(outside, after=0, last_us=None)
        if end <= begin:
            raise ValueError("the span ends before it begins")
        step = step_of(end - begin)
        received = (whole["since"] if last is None else max(begin, 0), whole["until"])
        is_round = since is None and last is None
        return Span(begin - begin % step if is_round else begin, end, step, received, outside)

    def _near(self, bounds: dict[str, int]) -> tuple[int | None, int | None, Outside]:
        """The first and the last event within bounds that is not far from all others, and the others.

        The few outermost events at each end are far off if the span of the rest, a day at least, lies between.
        """
        during = "time >= make_timestamptz($since) AND time < make_timestamptz($until)"
        ask = self._connection.execute
        count = ask(f"SELECT count(*) FROM events WHERE {during}", bounds).fetchall()[0][0]
        if count < FEW_EVENTS:
            first, last = ask(QUERIES["span"].sql, bounds).fetchall()[0][:2]
            return first, last, Outside()
        few = min(max(1, count // FAR_SHARE), FAR_MAX) + 1
        low, high = ask(
            f"SELECT min(epoch_us(time), {few})[-1], max(epoch_us(time), {few})[-1]"
            f" FROM events WHERE {during}",
            bounds,
        ).fetchall()[0]
        width = max(high - low, DAY_US)
        near = {"low": low - width, "high": high + width}
        row = ask(
            "SELECT min(us) FILTER (us BETWEEN $low AND $high), max(us) FILTER (us BETWEEN $low AND $high),"
            " count(*) FILTER (us < $low), count(*) FILTER (us > $high), min(us), max(us)"
            f" FROM (SELECT epoch_us(time) AS us FROM events WHERE {during})",
            bounds | near,
        ).fetchall()[0]
        first, last, before, after, least, most = row
        return (
            first,
            last,
            Outside(before, after, least if before else None, most if after else None),
        )

    def ask(
        self,
        name: str,
        *,
        since: int | None = None,
        until: int | None = None,
        step: int | None = None,
    ) -> duckdb.DuckDBPyConnection:
        """The result of one of `QUERIES`: ``.fetchall()``, ``.df()``, ``.arrow()``.

        ``since`` and ``until`` as in `span`; ``step`` of a series in µs, by default at most `STEPS_MAX` steps.
        Raises ``KeyError`` for an unknown query, ``ValueError`` as `span`.
        """
        span = self.span(since, until)
        values = span.parameters
        return self._ask(name, values | {"step": step} if step else values)

    def _ask(self, name: str, values: dict[str, int]) -> duckdb.DuckDBPyConnection:
        sql = QUERIES[name].sql
        used = {key: value for key, value in values.items() if re.search(rf"\${key}\b", sql)}
        return self._connection.execute(sql, used)

    def answers(self, span: Span) -> dict[str, list[dict[str, Any]]]:
        """The rows of every query over one span."""
        return {name: _rows(self._ask(name, span.parameters)) for name in QUERIES}

    def rows(self, name: str, **span: Any) -> list[dict[str, Any]]:
        """The same as a list of dicts."""
        return _rows(self.ask(name, **span))

    def close(self) -> None:
        """Let go of the files."""
        self._connection.close()

    def __enter__(self) -> Tables:
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()


def _rows(result: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    names = [column[0] for column in result.description or []]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def open_tables(folder: Path | str, scope: Scope | None = None) -> Tables:
    """The tables of a folder, Delta or Iceberg, as they are now; also of a pipeline's folder.

    Raises ``TablesError`` if the folder has none of the tables, or one that cannot be read. A table that is not
    there yet counts as empty; ``missing`` names it.
    """
    from deltalake.exceptions import DeltaError

    from pelton.spark.tables.places import TableError

    folder = Path(folder)
    if not folder.is_dir():
        raise TablesError(f"{folder} is no folder")
    if (folder / "tables").is_dir():
        folder /= "tables"
    datasets: dict[str, Any] = {}
    for name in TABLES:
        try:
            found = dataset(folder, name)
        except (DeltaError, TableError, OSError) as error:
            raise TablesError(f"table {folder / name} cannot be read: {error}") from error
        if found is not None:
            datasets[name] = found
    if not datasets:
        raise TablesError(
            f"{folder} has no table of plgd events; `pelton plgd run` makes them there"
        )
    return Tables(datasets, scope)
