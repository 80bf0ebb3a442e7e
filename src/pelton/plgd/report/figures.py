"""The figures of a report as plain values: the answers of all queries over one span of time, and their sums."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .sources import Outside

if TYPE_CHECKING:
    from .sources import Tables

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Figures:
    """All figures of a span of time.

    ``since_us`` and ``until_us`` bound it (µs since 1970, the end is not part of it), ``step_us`` is the step of
    the series, ``rows`` has the answer of each of `QUERIES`.
    """

    since_us: int
    until_us: int
    step_us: int
    rows: dict[str, Rows]
    missing: list[str] = field(default_factory=list)
    """Tables that were not there."""
    outside: Outside = field(default_factory=Outside)
    """Events that the span leaves out, because their times are far from all others."""

    @property
    def is_empty(self) -> bool:
        """Whether no event fell into the span."""
        return not self.first("span").get("events")

    def first(self, name: str) -> dict[str, Any]:
        """The answer of a query that has one row; {} without."""
        rows = self.rows.get(name) or [{}]
        return rows[0]

    def total(self, name: str, column: str, **where: Any) -> int:
        """The sum of a column, over the rows that have these values."""
        return sum(
            row[column]
            for row in self.rows[name]
            if all(row[key] == value for key, value in where.items())
        )

    @property
    def summary(self) -> dict[str, Any]:
        """The few numbers at the top of the page."""
        span, latency, sync = (self.first(n) for n in ("span", "command_latency", "sync_times"))
        commands = self.total("command_outcomes", "commands")
        decided = commands - self.total("command_outcomes", "commands", outcome="pending")
        succeeded = self.total("command_outcomes", "commands", outcome="success")
        online = self.rows["online_over_time"]
        return {
            "events": span.get("events", 0),
            "devices": span.get("devices", 0),
            "owners": span.get("owners", 0),
            "hubs": span.get("hubs", 0),
            "online": online[-1]["online"] if online else 0,
            "online_most": max((row["online"] for row in online), default=0),
            "commands": commands,
            "commands_succeeded_percent": 100 * succeeded / decided if decided else None,
            "command_p50_ms": latency.get("p50"),
            "command_p95_ms": latency.get("p95"),
            "ready_p50_ms": sync.get("ready_p50"),
            "ready_p95_ms": sync.get("ready_p95"),
            "gaps": self.total("gaps", "gaps"),
            "gaps_open": self.total("gaps", "gaps", closed_by="open"),
            "gaps_repaired": self.total("gaps", "gaps", closed_by="repair"),
            "versions_missing": self.total("gaps", "missing"),
            "dead_letters": self.total("dead_letters", "messages"),
            "duplicates": self.first("duplicates").get("duplicates", 0),
        }

    def as_json(self) -> dict[str, Any]:
        """Everything, for ``--json``."""
        return {
            "since_us": self.since_us,
            "until_us": self.until_us,
            "step_us": self.step_us,
            "missing_tables": self.missing,
            "outside": vars(self.outside),
            "summary": self.summary,
            "queries": self.rows,
        }


def measure(
    tables: Tables,
    since_us: int | None = None,
    until_us: int | None = None,
    last_us: int | None = None,
) -> Figures:
    """The figures of a span of time, with the bounds of `Tables.span`.

    Raises ``ValueError`` if the span ends before it begins. DuckDB's errors come through: a file that is gone.
    """
    span = tables.span(since_us, until_us, last_us)
    answers = tables.answers(span)
    return Figures(
        span.since_us, span.until_us, span.step_us, answers, tables.missing, span.outside
    )
