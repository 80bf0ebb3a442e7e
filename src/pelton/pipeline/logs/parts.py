"""The two parts of the main job that work beside its main thread: the shipper, and Spark.

The main thread reads their progress from attributes. They keep their errors for the main thread to
raise.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import zoneinfo
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pelton.client.sync import connect
from pelton.errors import not_installed
from pelton.pipeline.logs import names
from pelton.pipeline.logs.chain import Chain
from pelton.pipeline.logs.settings import RunError
from pelton.pipeline.logs.shipper import Shipper, ship_forever
from pelton.pipeline.running.supervising import (
    JvmDied,
    QueryEndedError,
    brief,
    check_query,
    stop_after_batch,
)

if TYPE_CHECKING:
    from pelton.client.base.models import StreamInfo
    from pelton.errors import PeltonError
    from pelton.pipeline.children import Children
    from pelton.pipeline.logs.landing import Landing
    from pelton.pipeline.logs.settings import Settings

_OFFSETS_PER_BATCH = 200_000
# The server is a child of this process: it is back at once, or not at all.
_RECONNECT_ATTEMPTS = 8


class ShipperThread:
    """The shipper in a separate thread, with a separate connection."""

    def __init__(self, settings: Settings, stopping: threading.Event) -> None:
        """Start nothing yet; ``stopping`` ends the shipper."""
        self.trouble = ""
        self.failure: Exception | None = None
        self.drained = False
        self._settings = settings
        self._stopping = stopping
        self._shipper: Shipper | None = None
        self._thread = threading.Thread(target=self._work, name="shipper", daemon=True)

    @property
    def files(self) -> int:
        """The number of followed files."""
        return self._shipper.files if self._shipper else 0

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
                    self.drained = True
                else:
                    ship_forever(shipper, self._stopping.wait, tell)
                shipper.close()
        except Exception as error:  # the main thread reports it, whatever it is
            self.failure = error


class SparkThread:
    """The session and the query. They take ten seconds to start, so a thread starts them."""

    def __init__(self, settings: Settings, stream: StreamInfo, children: Children) -> None:
        """Start nothing yet; ``children`` records the JVM."""
        self._settings = settings
        self._stream = stream
        self._children = children
        self._session: Any = None
        self._query: Any = None
        self._landing: Landing | None = None
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="spark", daemon=True)

    @property
    def running(self) -> bool:
        """Whether the query has been started."""
        return self._query is not None

    @property
    def rows(self) -> int:
        """Rows in the table of lines."""
        return self._landing.landed.rows if self._landing else 0

    @property
    def batches(self) -> int:
        """Micro-batches of this run."""
        return self._landing.landed.batches if self._landing else 0

    def start(self) -> None:
        """Start the thread that starts Spark."""
        self._thread.start()

    def landed_seq(self) -> int:
        """The sequence up to which everything is in the tables."""
        landed = self._landing.landed.last_seq if self._landing else 0
        with contextlib.suppress(
            Exception
        ):  # no progress yet, or the JVM is gone, which check() reports
            progress = self._query.lastProgress if self._query is not None else None
            if progress is not None:
                ended = json.loads(progress["sources"][0]["endOffset"])
                landed = max(landed, int(ended["seq"]))
        return landed

    def check(self) -> None:
        """Raise RunError if Spark has ended."""
        log = self._settings.store / "log" / "spark.log"
        if isinstance(self._failure, ModuleNotFoundError):
            raise RunError(str(not_installed(self._failure, "spark")))
        if self._failure is not None:
            raise RunError(f"Spark failed: {brief(self._failure)} (see {log})")
        if self._query is None:
            return
        try:
            check_query(self._query)
        except JvmDied as error:
            raise RunError(f"{error} (see {log}); run again to continue") from None
        except QueryEndedError as error:
            raise RunError(f"the Spark query failed: {error} (see {log})") from None

    def stop_query(self) -> Landing | None:
        """Finish the current batch and stop; the tables, or None if Spark was not up yet."""
        if self._query is None:
            return None
        stop_after_batch([self._query])
        landing = self._landing
        if landing is not None:
            landing.catch_up()
        return landing

    def close(self) -> None:
        """End the JVM."""
        from pelton.spark.session import end_session

        if self._session is not None:
            end_session(self._session)
        self._children.forget("jvm")

    def _work(self) -> None:
        try:
            self._start_query()
        except Exception as error:  # check() reports it in the main thread, whatever it is
            self._failure = error

    def _start_query(self) -> None:
        from pelton.pipeline.logs.landing import Landing, batch_function
        from pelton.pipeline.logs.transforms import parsed, shipped
        from pelton.spark.session import jvm_pid, session

        settings, stream = self._settings, self._stream
        spark = self._session = session("pelton run", log_file=settings.store / "log" / "spark.log")
        pid = jvm_pid(spark)
        if pid is not None:
            self._children.remember("jvm", pid)
        landing = Landing(settings.store / "tables", f"{stream.config.name}@{stream.created}")
        landing.catch_up()
        self._landing = landing
        messages = (
            spark.readStream.format("jetstream")
            .option("servers", settings.url)
            .option("stream", names.STREAM)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", _OFFSETS_PER_BATCH)
            .option("includeHeaders", "true")
            .load()
        )
        lines = messages.transform(shipped).transform(parsed(local_time_zone()))
        seconds = 0 if settings.once else settings.trigger_seconds
        self._query = (
            lines.writeStream.foreachBatch(batch_function(landing))
            .queryName("lines")
            .option("checkpointLocation", str(settings.store / "checkpoint"))
            .trigger(processingTime=f"{round(seconds * 1000)} milliseconds")
            .start()
        )


def local_time_zone() -> str:
    """The name of this machine's time zone, for log times without a zone; UTC if unknown."""
    named = os.environ.get("TZ", "").lstrip(":")
    parts = Path(named if "/" in named else "/etc/localtime").resolve().parts
    if "zoneinfo" in parts:
        parts = parts[parts.index("zoneinfo") + 1 :]
        named = "/".join(parts[1:] if parts[:1] in (("posix",), ("right",)) else parts)
    # A wrong name would end the query at its first row.
    return named if "/" in named and named in zoneinfo.available_timezones() else "UTC"
