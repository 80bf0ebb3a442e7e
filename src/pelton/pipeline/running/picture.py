"""A picture of a pipeline from outside of its run, again and again. Needs no Spark.

====================  ==============================================================================
``live.json``         rows, rates, late and rejected rows, errors: the run's own numbers
the checkpoints       the last batch of each query, and the one under way
the servers           the ends of the streams, and so the lag, also during a long batch
messages              what the run publishes on ``metrics.subject``, if its state folder is on
                      another machine
====================  ==============================================================================
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pelton.errors import PeltonError
from pelton.pipeline.children import holder
from pelton.pipeline.running.live import Trace, read_live
from pelton.pipeline.running.queries import StateError, checkpoint
from pelton.pipeline.running.status import Status, status_of

if TYPE_CHECKING:
    from pelton.client.sync import Client
    from pelton.client.sync.subscription import Subscription
    from pelton.pipeline.description.model import Pipeline
    from pelton.pipeline.running.status import QueryStatus

ASK_SECONDS = 3.0
_PATIENCE_SECONDS = 0.5
_FIRST_PATIENCE_SECONDS = 5.0
_NO_ANSWER = "the servers do not answer"
_ELSEWHERE_SECONDS = 30.0
_CONNECT_AGAIN_SECONDS = 5.0


@dataclass(frozen=True)
class QueryPicture:
    """A query: its numbers since the run began, and its lag now (None: not known).

    ``busy_seconds`` is the age of the batch under way, None if there is none. ``lags`` and ``rates``
    are those of the last minutes.
    """

    name: str
    state: str
    batch: int = -1
    busy_seconds: float | None = None
    rows: int = 0
    rows_per_second: float = 0.0
    lag: int | None = None
    late_rows: int = 0
    batch_ms: int = 0
    error: str = ""
    sinks: dict[str, int] = field(default_factory=dict)
    rejected: dict[str, dict[str, int]] = field(default_factory=dict)
    lags: tuple[float, ...] = ()
    rates: tuple[float, ...] = ()


@dataclass(frozen=True)
class Picture:
    """A pipeline; ``running`` is its process, or "elsewhere" if only messages come."""

    pipeline: str
    running: str
    queries: tuple[QueryPicture, ...]
    problems: tuple[str, ...] = ()


class Asker:
    """Reads the status in a thread, because a server that is away holds a request for a minute."""

    def __init__(self, pipeline: Pipeline) -> None:
        """Ask nothing yet."""
        self._pipeline = pipeline
        self._status = Status(pipeline.name, str(pipeline.state))
        self._failure: StateError | None = None
        self._asked = float("-inf")
        self._thread: threading.Thread | None = None

    def status(self) -> tuple[Status, bool]:
        """The last status, and whether it is of now. Raises :class:`StateError`."""
        first = self._thread is None
        if first or (not self._waits() and time.monotonic() - self._asked >= ASK_SECONDS):
            self._asked = time.monotonic()
            self._thread = threading.Thread(target=self._ask, daemon=True)
            self._thread.start()
        if self._thread is not None:
            self._thread.join(_FIRST_PATIENCE_SECONDS if first else _PATIENCE_SECONDS)
        if self._failure is not None:
            raise self._failure
        return self._status, not self._waits()

    def _waits(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _ask(self) -> None:
        try:
            self._status, self._failure = status_of(self._pipeline, tables=False), None
        except StateError as failure:
            self._failure = failure


class Watcher:
    """Takes pictures; asks the servers every few seconds. Close it."""

    def __init__(self, pipeline: Pipeline) -> None:
        """Ask nothing yet."""
        self._pipeline = pipeline
        self._asker = Asker(pipeline)
        subject = None if pipeline.metrics is None else pipeline.metrics.subject
        self._messages = None if subject is None else Messages(pipeline, subject)

    def close(self) -> None:
        """End the subscription."""
        if self._messages is not None:
            self._messages.close()

    def take(self) -> Picture:
        """A picture. Raises :class:`pelton.pipeline.running.queries.StateError`."""
        pipeline = self._pipeline
        status, fresh = self._asker.status()
        running = holder(pipeline.state)
        numbers = read_live(pipeline.state)
        if not running and self._messages is not None:
            told = self._messages.numbers()
            if told:
                running, numbers = "elsewhere", told
        problems = {place.problem for query in status.queries for place in query.places}
        problems = set(filter(None, problems)) if fresh else {_NO_ANSWER}
        known = {query.name: query for query in status.queries}
        if running and numbers:
            known = {name: query for name, query in known.items() if name in numbers}
        queries = tuple(
            self._query(name, known.get(name), numbers.get(name), running, fresh=fresh)
            for name in dict.fromkeys([*numbers, *known])
        )
        return Picture(pipeline.name, running, queries, tuple(sorted(problems)))

    def _query(
        self,
        name: str,
        status: QueryStatus | None,
        numbers: dict[str, Any] | None,
        running: str,
        *,
        fresh: bool,
    ) -> QueryPicture:
        """A query; the lag is the servers', or else the last one that the run knew."""
        made = QueryPicture(name, "starting" if running else "stopped")
        if numbers is not None:
            numbers = {**_nothing(name), **numbers}  # another version may have written them
            made = QueryPicture(
                name,
                _state(str(numbers["state"]), running),
                -1 if numbers["batch"] is None else numbers["batch"],
                None,
                numbers["rows"],
                numbers["rows_per_second"] if running else 0.0,
                numbers["lag"],
                numbers["late_rows"],
                numbers["batch_ms"],
                numbers["error"],
                numbers["sinks"],
                numbers["rejected"],
                tuple(numbers["lags"]),
                tuple(numbers["rates"]),
            )
        if status is None or running == "elsewhere":
            return made
        lags = [place.lag for place in status.places if fresh and place.lag is not None]
        lag = sum(lags) if lags else made.lag
        return replace(made, batch=status.batch, lag=lag, busy_seconds=self._busy(status, running))

    def _busy(self, status: QueryStatus, running: str) -> float | None:
        """The age of the batch under way."""
        path = checkpoint(self._pipeline.state, status.name) / "offsets" / str(status.batch + 1)
        try:
            begun = path.stat().st_mtime
        except OSError:
            return None
        return max(0.0, round(time.time() - begun, 1)) if running else None


def _state(state: str, running: str) -> str:
    return state if running or state in ("failed", "ended") else "stopped"


class Messages:
    """The numbers of a run from the messages about its progress."""

    def __init__(self, pipeline: Pipeline, subject: str) -> None:
        """Connect when first asked."""
        self._pipeline = pipeline
        tokens = ("*" if "{" in token else token for token in subject.split("."))
        self._subject = ".".join(tokens)
        self._client: Client | None = None
        self._subscription: Subscription | None = None
        self._retry_at = 0.0
        self._told: dict[str, dict[str, Any]] = {}
        self._heard: dict[str, float] = {}
        self._traces: dict[str, tuple[Trace, Trace]] = {}

    def close(self) -> None:
        """Disconnect."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def numbers(self) -> dict[str, dict[str, Any]]:
        """The numbers by query, as ``live.json`` has them; {} if no message has come lately."""
        self._receive()
        now = time.monotonic()
        fresh = any(now - at < _ELSEWHERE_SECONDS for at in self._heard.values())
        return dict(self._told) if fresh else {}

    def _receive(self) -> None:
        try:
            subscription = self._subscribed()
            while subscription is not None and (found := subscription.next(0.0)) is not None:
                self._take(found.data)
        except (PeltonError, OSError, ValueError):
            self.close()
            self._subscription = None
            self._retry_at = time.monotonic() + _CONNECT_AGAIN_SECONDS

    def _subscribed(self) -> Subscription | None:
        if self._client is not None and self._client.closed:
            self._client = self._subscription = None
        if self._subscription is None and time.monotonic() >= self._retry_at:
            from pelton.client.sync import connect
            from pelton.spark.connection import client_options
            from pelton.spark.parsing import parse
            from pelton.spark.servers import SERVER_ROWS, take_servers

            given = parse(SERVER_ROWS, self._pipeline.servers, format_name="watch")
            self._client = connect(client_options(take_servers(given), reconnects=1))
            self._subscription = self._client.subscribe(self._subject)
            self._client.flush()
        return self._subscription

    def _take(self, data: bytes) -> None:
        try:
            message = json.loads(data)
            name, event = str(message["query"]), str(message["event"])
        except (ValueError, KeyError, TypeError):
            return
        prefix = f"{self._pipeline.name}-"
        if not name.startswith(prefix):
            return
        name = name.removeprefix(prefix)
        now = time.monotonic()
        self._heard[name] = now
        lags, rates = self._traces.setdefault(name, (Trace(), Trace()))
        numbers = self._told.setdefault(name, _nothing(name))
        if event == "progress":
            numbers |= {
                "state": "running",
                "batch": message.get("batch"),
                "rows": numbers["rows"] + (message.get("rows") or 0),
                "rows_per_second": message.get("processed_rows_per_second") or 0.0,
                "lag": message.get("lag"),
                "late_rows": numbers["late_rows"] + (message.get("late_rows") or 0),
                "batch_ms": message.get("batch_ms") or 0,
            }
        elif event == "idle":
            numbers |= {"state": "running", "rows_per_second": 0.0}
        elif event == "terminated":
            error = str(message.get("error") or "")
            numbers |= {"state": "failed" if error else "ended", "error": error}
        elif event == "started":
            numbers |= _nothing(name)
        lags.add(numbers["lag"] or 0, now)
        rates.add(numbers["rows_per_second"], now)
        numbers |= {"lags": lags.values(), "rates": rates.values()}


def _nothing(name: str) -> dict[str, Any]:
    zero: dict[str, Any] = dict.fromkeys(
        ("rows", "rows_per_second", "lag", "late_rows", "batch_ms"), 0
    )
    more: dict[str, Any] = {"sinks": {}, "rejected": {}, "lags": [], "rates": [], "batch": None}
    return {"name": name, "state": "starting", "error": "", **zero, **more}
