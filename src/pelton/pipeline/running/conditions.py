"""When an alert begins and ends: limits with hysteresis over measurements of the queries.

An alert begins when its value reaches the limit, and ends when it falls below half of the limit. So a
value that swings around the limit is one alert and not many. Knows no clock, no server and no Spark.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pelton.pipeline.description.alerts import Alerts

LAG, LATE, REJECTED, STUCK = "lag", "late", "rejected", "stuck"
KINDS = (LAG, LATE, REJECTED, STUCK)
FIRING, RESOLVED = "firing", "resolved"


@dataclass(frozen=True)
class Measured:
    """A query at a moment. The rows are counted from the start of the run.

    ``lag`` is None if no server says it: the last one known then counts.
    """

    query: str
    batch: int
    lag: int | None
    rows: int = 0
    late_rows: int = 0
    rejected_rows: int = 0


@dataclass(frozen=True)
class Alert:
    """The begin (``firing``) or the end (``resolved``) of an alert of a query."""

    query: str
    kind: str
    status: str
    value: float
    limit: float
    text: str


class Conditions:
    """The alerts of all queries; ``active`` has those that an earlier run began, as (query, kind)."""

    def __init__(self, alerts: Alerts, active: Iterable[tuple[str, str]] = ()) -> None:
        """Measure nothing yet."""
        self._alerts = alerts
        self.active = set(active)
        self._queries: dict[str, _Query] = {}

    def look(self, measured: Iterable[Measured], now: float) -> list[Alert]:
        """What begins and ends now; times are seconds of a monotonic clock."""
        found = []
        for each in measured:
            query = self._queries.setdefault(each.query, _Query(now))
            values = query.values(each, now, self._alerts)
            for kind in KINDS:
                limit = self._limit(kind)
                key = (each.query, kind)
                if limit is None:
                    self.active.discard(key)  # the file does not ask for it any more
                    continue
                if kind not in values:
                    continue
                value = values[kind]
                if value >= limit and key not in self.active:
                    self.active.add(key)
                    found.append(self._alert(key, FIRING, value, limit, query))
                elif value < limit / 2 and key in self.active:
                    self.active.remove(key)
                    found.append(self._alert(key, RESOLVED, value, limit, query))
        return found

    def _limit(self, kind: str) -> float | None:
        alerts = self._alerts
        rejected = None if alerts.rejected is None else alerts.rejected.value
        limits = {
            LAG: alerts.lag,
            LATE: alerts.late,
            REJECTED: rejected,
            STUCK: alerts.stuck_seconds,
        }
        return limits[kind]

    def _alert(
        self, key: tuple[str, str], status: str, value: float, limit: float, query: _Query
    ) -> Alert:
        name, kind = key
        window = f"in {self._alerts.window_seconds:g}s"
        if kind == LAG:
            said = f"lag is {value:,.0f} messages, limit {limit:,.0f}"
        elif kind == LATE:
            said = f"{value:,.0f} late rows {window}, limit {limit:,.0f}"
        elif kind == REJECTED:
            share = self._alerts.rejected
            percent = share is not None and share.percent
            shown = f"{value:.3g}% of the rows" if percent else f"{value:,.0f} rows"
            said = f"{shown} rejected {window}, limit {share or 'none'}"
        else:
            said = f"no batch for {value:,.0f}s with a lag of {query.lag:,}, limit {limit:g}s"
        text = f"query {name}: {said}" + (" (resolved)" if status == RESOLVED else "")
        return Alert(name, kind, status, value, limit, text)


class _Query:
    def __init__(self, now: float) -> None:
        self.lag = 0
        self._lag_known = False
        self._batch: int | None = None
        self._moved = False
        self._waits_since = now
        # The first entry is from before the window, or from the start, when all counts were 0.
        self._counts: deque[tuple[float, int, int, int]] = deque([(now, 0, 0, 0)])

    def values(self, found: Measured, now: float, alerts: Alerts) -> dict[str, float]:
        """The value of each kind that is known.

        A run that has not seen a batch yet does not know that a query of the run before has moved.
        """
        if found.lag is not None:
            self.lag, self._lag_known = found.lag, True
        done = self._batch is not None and found.batch != self._batch
        idle = self._lag_known and self.lag == 0
        if done or idle:
            self._waits_since, self._moved = now, True
        self._batch = found.batch
        counts = self._counts
        counts.append((now, found.rows, found.late_rows, found.rejected_rows))
        while len(counts) > 2 and counts[1][0] <= now - alerts.window_seconds:
            counts.popleft()
        rows, late, rejected = (counts[-1][place] - counts[0][place] for place in (1, 2, 3))
        share: float = rejected
        if alerts.rejected is not None and alerts.rejected.percent:
            share = 100.0 * rejected / max(rows, rejected) if rejected else 0.0
        values: dict[str, float] = {LATE: late, REJECTED: share}
        waits = now - self._waits_since
        if self._lag_known:
            values[LAG] = self.lag
            if self._moved or waits >= (alerts.stuck_seconds or 0.0):
                values[STUCK] = waits
        return values
