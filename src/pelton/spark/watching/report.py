"""Spark's reports of a streaming query as messages of one form, and the state that they add up to.

One message per event, JSON::

    {"event": "progress", "query": "orders", "id": "…", "run_id": "…", "at": "2026-11-21T07:00:00.000Z",
     "batch": 41, "rows": 500, "input_rows_per_second": 250.0, "processed_rows_per_second": 812.5,
     "batch_ms": 615, "phases_ms": {"addBatch": 480, "latestOffset": 3, "walCommit": 61},
     "late_rows": 0, "lag": 7, "streams": {"ORDERS": {"end": 41, "latest": 48, "lag": 7}}, "sink": "…"}

``event`` is ``started``, ``progress``, ``idle`` or ``terminated``. Only ``progress`` has the fields
after ``at``; ``terminated`` has ``error``, one line, for a query that failed. Lag counts sequences of
the sources of this package; a bucket is listed under the name of its stream. Late rows are those that
a watermark dropped.

Imports nothing of Spark: it takes the events as objects. Does no I/O.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_ERROR_CHARACTERS = 1000
_QUERIES_MAX = 1000

Message = dict[str, Any]


def sequences(offset: str | None) -> dict[str, int]:
    """The sequence of each stream in an offset as Spark shows it; {} for other sources."""
    try:
        value = json.loads(offset or "null")
    except ValueError:
        return {}
    if not isinstance(value, dict):
        return {}
    if isinstance(value.get("stream"), str):
        value = {value["stream"]: value}
    elif isinstance(value.get("bucket"), str):
        value = {f"KV_{value['bucket']}": {"seq": value.get("revision")}}
    return {
        str(name): place["seq"]
        for name, place in value.items()
        if isinstance(place, dict) and isinstance(place.get("seq"), int)
    }


def _streams(sources: list[Any]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for source in sources:
        ends, latest = sequences(source.endOffset), sequences(source.latestOffset)
        for name, end in ends.items():
            found[name] = {"end": end}
            if name in latest:  # Spark 4.0 and 4.1 have none
                last = max(end, latest[name])
                found[name] |= {"latest": last, "lag": last - end}
    return found


def _head(kind: str, query: str, event: Any, at: str) -> Message:
    return {
        "event": kind,
        "query": query,
        "id": str(event.id),
        "run_id": str(event.runId),
        "at": at,
    }


def progress_message(query: str, progress: Any) -> Message:
    """The message of a ``StreamingQueryProgress``."""
    streams = _streams(progress.sources)
    return {
        **_head("progress", query, progress, progress.timestamp),
        "batch": progress.batchId,
        "rows": progress.numInputRows or 0,
        "input_rows_per_second": _rate(progress.inputRowsPerSecond),
        "processed_rows_per_second": _rate(progress.processedRowsPerSecond),
        "batch_ms": progress.batchDuration,
        "phases_ms": dict(progress.durationMs),
        "late_rows": sum(each.numRowsDroppedByWatermark for each in progress.stateOperators),
        "lag": _sum([stream.get("lag") for stream in streams.values()]),
        "streams": streams,
        "sink": progress.sink.description,
    }


def _sum(lags: list[int | None]) -> int | None:
    """The lag of all streams; None if that of one is not known."""
    known = [each for each in lags if each is not None]
    return sum(known) if len(known) == len(lags) else None


def _rate(value: float | None) -> float:
    """A rate that JSON can hold: Spark gives NaN or infinity for a batch that took no time."""
    if value is None or not 0.0 <= value < float("inf"):
        return 0.0
    return round(value, 3)


def cause_of(exception: str) -> str:
    """The line of an exception of Spark that says what happened.

    Of an error in Python it is the last line of the traceback; frames of the JVM follow it.
    """
    lines = [line.strip() for line in exception.partition("\n\tat ")[0].splitlines()]
    lines = [line for line in lines if line and not line.startswith("SQLSTATE:")]
    in_python = any("Traceback (most recent call last)" in line for line in lines)
    return lines[-1 if in_python else 0][:_ERROR_CHARACTERS] if lines else "unknown"


@dataclass
class QueryState:
    """The state of one query; the counts begin with this listener."""

    query: str
    last: Message
    batches: int = 0
    rows: int = 0
    late_rows: int = 0
    active: bool = True
    failed: bool = False


@dataclass
class Reports:
    """Makes messages of events, and keeps the state of each query; not thread-safe."""

    queries: dict[str, QueryState] = field(default_factory=dict)

    def started(self, event: Any) -> Message:
        """A query began; ``event.name`` may be None."""
        message = _head("started", event.name or str(event.id), event, event.timestamp)
        state = self._state(message)
        state.active, state.failed = True, False
        return message

    def progress(self, event: Any) -> Message:
        """A batch is done, or there was none for a while."""
        progress = event.progress
        query = progress.name or str(progress.id)
        message = progress_message(query, progress)
        state = self._state(message)
        if progress.batchDuration and "addBatch" in message["phases_ms"]:
            state.batches += 1
        state.rows += message["rows"]
        state.late_rows += message["late_rows"]
        state.last = message
        return message

    def idle(self, event: Any) -> Message:
        """A query had nothing to do for a while."""
        return _head("idle", self._name(event), event, event.timestamp)

    def terminated(self, event: Any, at: str) -> Message:
        """A query ended, at a time that Spark's event does not have."""
        message = _head("terminated", self._name(event), event, at)
        if event.exception is not None:
            message["error"] = cause_of(str(event.exception))
        state = self._state(message)
        state.active, state.failed = False, event.exception is not None
        return message

    def _name(self, event: Any) -> str:
        state = self.queries.get(str(event.id))
        return str(event.id) if state is None else state.query

    def _state(self, message: Mapping[str, Any]) -> QueryState:
        key = message["id"]
        state = self.queries.get(key)
        if state is None:
            while len(self.queries) >= _QUERIES_MAX:  # remove the query that started first
                del self.queries[next(iter(self.queries))]
            state = self.queries[key] = QueryState(message["query"], dict(message))
        state.query = message["query"]
        return state
