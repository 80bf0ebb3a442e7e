"""Report how streaming queries do: as messages on a subject, and for Prometheus.

::

    watch(spark, servers="nats://127.0.0.1:4222", metrics_port=9408)

    Spark ──event──► listener ──message──► queue ──thread──► spark.progress.<query>
                        └──► state ──► /metrics

Spark calls the listener from a separate thread and waits for it: the listener only makes a message
and puts it into a queue. A message that can't be published is counted and dropped, whatever the
reason; a query never waits for a server and never fails because of one.

:mod:`pelton.spark.watching.report` has the form of the messages,
:mod:`pelton.spark.watching.metrics` the metrics.
"""

from __future__ import annotations

import json
import queue
import re
import threading
import time
import warnings
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pelton.client.sync import connect
from pelton.errors import PeltonError
from pelton.spark.connection import client_options
from pelton.spark.parsing import OptionError, parse
from pelton.spark.servers import SERVER_ROWS, Servers, take_servers
from pelton.spark.watching.listening import Listener
from pelton.spark.watching.report import Message, Reports

if TYPE_CHECKING:
    from collections.abc import Callable
    from wsgiref.simple_server import WSGIServer

    from pyspark.sql import SparkSession

    from pelton.client.sync import Client

SUBJECT = "spark.progress.{name}"
QUEUE_MESSAGES = 1000
RETRY_SECONDS = 5.0
CLOSE_SECONDS = 5.0
_PLACEHOLDERS = ("{name}", "{id}")


def watch(
    spark: SparkSession,
    servers: str | Servers | None = None,
    *,
    subject: str | None = SUBJECT,
    metrics_port: int | None = None,
    metrics_host: str = "127.0.0.1",
    **options: str,
) -> Watch:
    """Publish the progress of this session's streaming queries, and serve it as metrics.

    ``servers``: addresses with commas between; ``options`` are the connection options of the formats
    (``user``, ``creds``, ``tlsCa`` ...); or a whole ``Servers``. In ``subject``, ``{name}`` is the
    query's name and ``{id}`` its id; None publishes nothing. ``metrics_port`` 0 takes a free port, None
    serves nothing. Raises OptionError for arguments that can't work; a server that is away is tried
    again. ``close`` ends it.
    """
    made = Watch(_servers(servers, options), subject)
    try:
        if metrics_port is not None:
            made.serve_metrics(metrics_host, metrics_port)
    except BaseException:
        made.close()
        raise
    made.attach(spark)
    return made


def _servers(servers: str | Servers | None, options: dict[str, str]) -> Servers:
    if isinstance(servers, Servers):
        if options:
            raise OptionError(f"give {', '.join(sorted(options))} in Servers")
        return servers
    given = options if servers is None else {"servers": servers, **options}
    made = take_servers(parse(SERVER_ROWS, given, format_name="watch"))
    try:
        client_options(made)
    except ValueError as error:
        raise OptionError(f"cannot connect to {made}: {error}") from None
    return made


def subject_of(template: str, message: Message) -> str:
    """The subject of a message; characters that a token can't hold become ``_``."""
    for placeholder, field in zip(_PLACEHOLDERS, ("query", "id"), strict=True):
        token = re.sub(r"[\s.*>\x00-\x1f\x7f]", "_", message[field]) or "_"
        template = template.replace(placeholder, token)
    return template


def _check_subject(template: str) -> None:
    tokens = template.split(".")
    plain = template.replace("{name}", "x").replace("{id}", "x")
    if not all(tokens) or re.search(r"[\s*>{}]", plain):
        raise OptionError(
            f"subject is {template!r}, but must be a subject without wildcards, in which {{name}}"
            f" and {{id}} may stand, such as {SUBJECT}"
        )


class Watch:
    """A listener and the publishing of its messages; made by :func:`watch`."""

    def __init__(self, servers: Servers, subject: str | None) -> None:
        """Start the publisher's thread unless ``subject`` is None; it connects later."""
        self.metrics_port: int | None = None
        """The port that serves metrics."""
        self._publisher: Publisher | None = None
        self._lock = threading.Lock()
        self._reports = Reports()
        self._server: tuple[WSGIServer, threading.Thread] | None = None
        self._detach: Callable[[], None] | None = None
        if subject is not None:
            _check_subject(subject)
            self._publisher = Publisher(servers, subject)

    @property
    def failures(self) -> int:
        """The number of messages that could not be published."""
        return 0 if self._publisher is None else self._publisher.failures

    def serve_metrics(self, host: str, port: int) -> None:
        """Serve ``/metrics``; OptionError when the port is not available."""
        from pelton.spark.watching.metrics import QueryCollector, serve

        collector = QueryCollector(self._reports, self._lock, lambda: self.failures)
        self._server = serve(collector, host, port)
        self.metrics_port = self._server[0].server_port

    def attach(self, spark: SparkSession) -> None:
        """Listen to the queries of a session."""
        listener = QueryListener(self)
        spark.streams.addListener(listener)
        self._detach = lambda: spark.streams.removeListener(listener)

    def take(self, make: Callable[[Reports], Message]) -> None:
        """Make a message of an event and queue it; never raises, never waits."""
        try:
            with self._lock:
                message = make(self._reports)
        except Exception as error:  # an event of an unknown form must not harm the query
            warnings.warn(f"an event of Spark was not understood: {error!r}", stacklevel=2)
            return
        if self._publisher is not None:
            self._publisher.put(message)

    def close(self) -> None:
        """Stop listening, publish the queued messages for a few seconds, and stop serving."""
        if self._detach is not None:
            detach, self._detach = self._detach, None
            detach()
        if self._publisher is not None:
            self._publisher.close()
        if self._server is not None:
            (server, thread), self._server = self._server, None
            server.shutdown()
            server.server_close()
            thread.join(CLOSE_SECONDS)


class QueryListener(Listener):
    """The listener that Spark calls; it hands every call to the :class:`Watch`."""

    def __init__(self, watch: Watch) -> None:
        """Not attached yet."""
        self._watch = watch

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  Spark's name
        """A query began."""
        self._watch.take(lambda reports: reports.started(event))

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802  Spark's name
        """A batch is done."""
        self._watch.take(lambda reports: reports.progress(event))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802  Spark's name
        """A query has nothing to do."""
        self._watch.take(lambda reports: reports.idle(event))

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802  Spark's name
        """A query ended."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._watch.take(lambda reports: reports.terminated(event, at))


class Publisher:
    """Publishes messages from a separate thread; drops and counts those it can't publish."""

    def __init__(self, servers: Servers, subject: str) -> None:
        """Start the thread."""
        self.failures = 0
        self._servers = servers
        self._subject = subject
        self._queue: queue.Queue[Message | None] = queue.Queue(QUEUE_MESSAGES)
        self._client: Client | None = None
        self._retry_at = 0.0
        self._told = False
        self._thread = threading.Thread(target=self._run, name="pelton watch", daemon=True)
        self._thread.start()

    def put(self, message: Message) -> None:
        """Queue a message; never waits."""
        try:
            self._queue.put_nowait(message)
        except queue.Full:
            self.failures += 1

    def close(self) -> None:
        """Publish the queued messages for a few seconds, and end the thread."""
        try:
            self._queue.put(None, timeout=CLOSE_SECONDS)
        except queue.Full:
            return  # a daemon thread that waits for a server ends with the process
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while (message := self._queue.get()) is not None:
            try:
                self._publish(message)
            except (PeltonError, OSError, ValueError) as error:
                self._failed(error)
        if self._client is not None:
            self._client.close()

    def _publish(self, message: Message) -> None:
        client = self._client
        if client is None or client.closed:
            if time.monotonic() < self._retry_at:
                self.failures += 1
                return
            client = self._client = connect(client_options(self._servers, reconnects=1))
        complaint = client.last_error
        data = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
        client.publish(subject_of(self._subject, message), data)
        client.flush()
        if client.last_error is not None and client.last_error is not complaint:
            self._failed(client.last_error)  # a refused permission, for one: the connection is fine
        else:
            self._told = False

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        self._retry_at = time.monotonic() + RETRY_SECONDS
        if not self._told:
            self._told = True
            warnings.warn(
                f"cannot publish the progress of queries to {self._servers}; the queries go on:"
                f" {error}",
                stacklevel=2,
            )
