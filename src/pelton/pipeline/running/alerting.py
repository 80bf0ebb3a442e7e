"""Watches the queries of a run, and tells when an alert begins and when it ends, once each.

A thread of its own measures every few seconds: lag and batches by the servers and the checkpoints, so that
also a batch that hangs is noticed, and rows by the numbers of the run. The alerts that have begun are in
``alerts.json`` of the state folder: the next run does not tell them again, and tells their end. An alert
is written down after it was told; a kill in between tells it twice.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import deque
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from pelton.errors import PeltonError
from pelton.pipeline.description.alerts import subject_for
from pelton.pipeline.running.conditions import Conditions, Measured
from pelton.pipeline.running.durable import write_durably
from pelton.pipeline.running.status import status_of

if TYPE_CHECKING:
    from pathlib import Path

    from pelton.client.sync import Client
    from pelton.pipeline.description.alerts import Alerts
    from pelton.pipeline.description.model import Pipeline
    from pelton.pipeline.running.conditions import Alert
    from pelton.pipeline.running.numbers import Board, QueryNumbers

RECORD = "alerts.json"
LOOK_SECONDS = 5.0
CLOSE_SECONDS = 5.0
_WAITING_MOST = 1000
_LOOKS_PER_LIMIT = 4

Message = dict[str, Any]


class AlertMonitor:
    """Measures, and puts a message for each begin and end into ``messages``. Close it."""

    def __init__(self, pipeline: Pipeline, alerts: Alerts, board: Board) -> None:
        """Start to measure; the queries must have begun."""
        self.messages: SimpleQueue[Message] = SimpleQueue()
        """What has begun and ended, for the main thread."""
        self.notices: SimpleQueue[str] = SimpleQueue()
        """What went wrong, a line each."""
        self._told = False
        self._pipeline = pipeline
        self._board = board
        self._conditions = Conditions(alerts, _recall(pipeline.state))
        self._sender = None if alerts.subject is None else Sender(pipeline, alerts.subject)
        self._every = min(LOOK_SECONDS, (alerts.stuck_seconds or 60.0) / _LOOKS_PER_LIMIT)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pelton alerts", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Measure once more, publish what waits for a few seconds, and end."""
        self._closing.set()
        self._thread.join(2 * CLOSE_SECONDS)

    def _run(self) -> None:
        while not self._closing.wait(self._every):
            self._look()
        self._look()
        if self._sender is not None:
            self._sender.close(CLOSE_SECONDS)

    def _look(self) -> None:
        try:
            found = self._conditions.look(self._measured(), time.monotonic())
        except (
            Exception
        ) as error:  # the next look may succeed; a thread that ends would tell nothing
            if not self._told:
                said = self._pipeline.hide(" ".join(str(error).split()))
                self.notices.put(f"alerts: cannot measure: {said}")
            self._told = True
            return
        self._told = False
        for alert in found:
            message = self._message(alert)
            self.messages.put(message)
            if self._sender is not None:
                self._sender.put(message)
        if self._sender is not None:
            self._sender.send()
        if found:
            active = sorted(self._conditions.active)
            with contextlib.suppress(OSError):  # a full disk: the next run tells these again
                write_durably(self._pipeline.state / RECORD, json.dumps({"active": active}))

    def _measured(self) -> list[Measured]:
        status = {each.name: each for each in status_of(self._pipeline, tables=False).queries}
        found = []
        for query in self._board.numbers():
            known = status.get(query.name)
            lags = [] if known is None else [p.lag for p in known.places if p.lag is not None]
            found.append(
                Measured(
                    query.name,
                    -1 if known is None else known.batch,
                    sum(lags) if lags else None,
                    query.rows,
                    query.late_rows,
                    rejected_rows(self._pipeline, query),
                )
            )
        return found

    def _message(self, alert: Alert) -> Message:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return {
            "event": "alert",
            "alert": alert.kind,
            "status": alert.status,
            "pipeline": self._pipeline.name,
            "query": alert.query,
            "at": at,
            "value": round(alert.value, 3),
            "limit": alert.limit,
            "text": alert.text,
        }


def rejected_rows(pipeline: Pipeline, query: QueryNumbers) -> int:
    """The rows of a query that steps rejected; several sinks may take the same ones."""
    by_step: dict[str, int] = {}
    for name, rows in query.sinks.items():
        sink = pipeline.sinks[name]
        if sink.input in pipeline.sources or sink.input in pipeline.steps:
            continue
        by_step[sink.input] = max(rows, by_step.get(sink.input, 0))
    return sum(by_step.values())


def _recall(state: Path) -> list[tuple[str, str]]:
    """The alerts that earlier runs began."""
    try:
        data = json.loads((state / RECORD).read_text())
        return [(str(query), str(kind)) for query, kind in data["active"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


class Sender:
    """Publishes messages in their order; those that wait for a server are tried again."""

    def __init__(self, pipeline: Pipeline, template: str) -> None:
        """Connect when there is something to publish."""
        self._pipeline = pipeline
        self._template = template
        self._waiting: deque[Message] = deque(maxlen=_WAITING_MOST)
        self._client: Client | None = None

    def put(self, message: Message) -> None:
        """Take a message to publish."""
        self._waiting.append(message)

    def send(self) -> bool:
        """Try to publish what waits; whether nothing is left."""
        try:
            while self._waiting:
                self._publish(self._waiting[0])
                self._waiting.popleft()
        except (PeltonError, OSError, ValueError):
            if self._client is not None:
                self._client.close()
            self._client = None
        return not self._waiting

    def _publish(self, message: Message) -> None:
        if self._client is None or self._client.closed:
            from pelton.client.sync import connect
            from pelton.spark.connection import client_options
            from pelton.spark.parsing import parse
            from pelton.spark.servers import SERVER_ROWS, take_servers

            given = parse(SERVER_ROWS, self._pipeline.servers, format_name="alerts")
            self._client = connect(client_options(take_servers(given), reconnects=1))
        name = f"{self._pipeline.name}-{message['query']}"
        subject = subject_for(self._template, name, message["alert"])
        data = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
        self._client.publish(subject, data)
        self._client.flush()

    def close(self, seconds: float) -> None:
        """Try for a while, and disconnect."""
        deadline = time.monotonic() + seconds
        while not self.send() and time.monotonic() < deadline:
            time.sleep(0.2)
        if self._client is not None:
            self._client.close()
