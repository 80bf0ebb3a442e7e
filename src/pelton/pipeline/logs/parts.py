"""The two parts of the main job that work beside its main thread: the shipper, and the pipeline.

The main thread reads their progress from attributes. They keep their errors for the main thread to
raise.
"""

from __future__ import annotations

import os
import socket
import threading
import zoneinfo
from pathlib import Path
from typing import TYPE_CHECKING

from pelton.client.sync import connect
from pelton.errors import not_installed
from pelton.pipeline.logs import names
from pelton.pipeline.logs.chain import Chain
from pelton.pipeline.logs.settings import RunError
from pelton.pipeline.logs.shipper import Shipper, ship_forever
from pelton.pipeline.running.supervising import JvmDied, QueryEndedError, brief

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pelton.errors import PeltonError
    from pelton.pipeline.description.model import Pipeline
    from pelton.pipeline.logs.settings import Settings
    from pelton.pipeline.running.job import Job
    from pelton.pipeline.running.numbers import QueryNumbers

_FILE = Path(__file__).with_name("logs.yaml")
# The server is a child of this process: it is back at once, or not at all.
_RECONNECT_ATTEMPTS = 8


class ShipperThread:
    """The shipper in a separate thread, with a separate connection."""

    def __init__(self, settings: Settings, stopping: threading.Event) -> None:
        """Start nothing yet; ``stopping`` ends the shipper."""
        self.trouble = ""
        self.failure: Exception | None = None
        self.drained = threading.Event()
        """With ``once``: no more lines will be shipped."""
        self._settings = settings
        self._stopping = stopping
        self._shipper: Shipper | None = None
        self._files = 0  # when they were closed
        self._thread = threading.Thread(target=self._work, name="shipper", daemon=True)

    @property
    def files(self) -> int:
        """The number of followed files; after the end, of those that were."""
        return self._files or (self._shipper.files if self._shipper else 0)

    @property
    def acked(self) -> int:
        """The number of lines stored in this run."""
        return self._shipper.acked if self._shipper else 0

    @property
    def unread(self) -> dict[str, str]:
        """Files whose lines are not shipped, or not all of them, with the reason."""
        return self._shipper.unread if self._shipper else {}

    def start(self) -> None:
        """Start to ship."""
        self._thread.start()

    def join(self) -> None:
        """Wait for the end after the stop event."""
        if self._thread.is_alive():
            self._thread.join(timeout=15)

    def _work(self) -> None:
        settings = self._settings
        try:
            with connect(
                settings.url, name="pelton shipper", reconnect_attempts_max=_RECONNECT_ATTEMPTS
            ) as client:
                chain = Chain(client.jetstream(), names.STREAM)
                shipper = self._shipper = Shipper(
                    chain,
                    settings.logs,
                    socket.gethostname(),
                    not_below=settings.store,
                    stopped=self._stopping.is_set,
                )

                def tell(error: PeltonError | None) -> None:
                    if error is not None and client.closed:
                        raise error  # the server is gone for good, which ends the job
                    self.trouble = f"shipping waits: {error}" if error else ""

                if settings.once:
                    shipper.drain()
                else:
                    ship_forever(shipper, self._stopping.wait, tell)
                self._files = shipper.files
                shipper.close()
        except Exception as error:  # the main thread reports it, whatever it is
            self.failure = error
        finally:
            self.drained.set()


class PipelineThread:
    """The pipeline of ``logs.yaml`` in a separate thread, because Spark takes seconds to start."""

    def __init__(
        self, settings: Settings, drained: threading.Event, stopping: threading.Event
    ) -> None:
        """Start nothing yet. ``stopping`` ends the pipeline at the end of a batch.

        With ``once`` it ends when it has processed what was in the stream after ``drained`` was set.
        """
        self.running = False
        self.batches = 0
        self._settings = settings
        self._drained = drained
        self._stopping = stopping
        self._session: SparkSession | None = None
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="pipeline", daemon=True)

    @property
    def ended(self) -> bool:
        """Whether the pipeline and its JVM have ended."""
        return not self._thread.is_alive()

    def start(self) -> None:
        """Start Spark and the pipeline."""
        self._thread.start()

    def join(self) -> None:
        """Wait for the end after the stop event."""
        self._thread.join()

    def close(self) -> None:
        """End the JVM, also in the middle of a batch."""
        from pelton.spark.session import end_session

        if (spark := self._session) is not None:
            end_session(spark)
        self._thread.join(timeout=15)

    def check(self) -> None:
        """Raise RunError if the pipeline has failed."""
        error = self._failure
        if error is None:
            return
        if isinstance(error, ModuleNotFoundError):
            raise RunError(str(not_installed(error, "spark")))
        from pelton.pipeline.running.queries import StateError
        from pelton.pipeline.running.stages import StepError

        plain = isinstance(error, QueryEndedError | StepError | StateError)
        text = "; ".join(str(error).splitlines()) if plain else f"Spark failed: {brief(error)}"
        again = "; run again to continue" if isinstance(error, JvmDied) else ""
        raise RunError(f"{text} (see {self._settings.state / 'log' / 'spark.log'}){again}")

    def _work(self) -> None:
        try:
            self._run()
        except Exception as error:  # check() reports it in the main thread, whatever it is
            self._failure = error

    def _run(self) -> None:
        from pelton.pipeline.running.job import own_session, taken
        from pelton.spark.connection import forget_all

        once = self._settings.once
        with taken(bundled(self._settings)) as job, own_session(job) as spark:
            self._session = spark
            try:
                # Land lines while others are still shipped; then what there is up to the last one.
                if once and not self._drained.is_set():
                    self._go(job, spark, stopping=self._drained)
                if not self._stopping.is_set():
                    self._go(job, spark, once=once, stopping=self._stopping)
            finally:
                self._session = None
                forget_all()  # the server is about to end

    def _go(
        self, job: Job, spark: SparkSession, *, stopping: threading.Event, once: bool = False
    ) -> None:
        before = self.batches

        def show(queries: list[QueryNumbers]) -> None:
            self.running = True
            self.batches = before + sum(query.batches for query in queries)

        job.run(spark, once=once, stopping=stopping, show=show)


def bundled(settings: Settings) -> Pipeline:
    """The pipeline of ``logs.yaml``, with its variables."""
    from pelton.pipeline.description.reading import load

    milliseconds = 0 if settings.once else round(settings.trigger_seconds * 1000)
    variables = {
        "SERVER": settings.url,
        "TABLES": str(settings.tables),
        "TIME_ZONE": local_time_zone(),
        "TRIGGER": f"{milliseconds}ms" if milliseconds else "0",
    }
    return load(_FILE, state=settings.state, environment=variables)


def local_time_zone() -> str:
    """The name of this machine's time zone, for log times without a zone; UTC if unknown."""
    named = os.environ.get("TZ", "").lstrip(":")
    parts = Path(named if "/" in named else "/etc/localtime").resolve().parts
    if "zoneinfo" in parts:
        parts = parts[parts.index("zoneinfo") + 1 :]
        named = "/".join(parts[1:] if parts[:1] in (("posix",), ("right",)) else parts)
    # A wrong name would end the query at its first row.
    return named if "/" in named and named in zoneinfo.available_timezones() else "UTC"
