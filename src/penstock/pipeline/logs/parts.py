"""The two parts of the main job that work beside its main thread: the shipper, and Spark with its
query.

What happens in them is told by attributes that the main thread looks at; what goes wrong is kept
for it to raise.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.client.blocking import connect_blocking
from penstock.pipeline.logs import names
from penstock.pipeline.logs.settings import RunError
from penstock.pipeline.logs.shipper import Chain, Shipper, ship_forever
from penstock.pipeline.running.supervising import (
    JvmDied,
    QueryEnded,
    brief,
    check_query,
    stop_after_batch,
)

if TYPE_CHECKING:
    from penstock.client.models import StreamInfo
    from penstock.errors import PenstockError
    from penstock.pipeline.children import Children
    from penstock.pipeline.logs.landing import Landing
    from penstock.pipeline.logs.settings import Settings

_OFFSETS_PER_BATCH = 200_000
# The server is a child of this process: it is back at once, or not at all.
_RECONNECT_ATTEMPTS = 8


class ShipperThread:
    """The shipper in a thread of its own, with its own connection."""

    def __init__(self, settings: Settings, stopping: threading.Event) -> None:
        """Not started yet; ``stopping`` ends it."""
        self.trouble = ""
        self.failure: Exception | None = None
        self.drained = False
        self._settings = settings
        self._stopping = stopping
        self._shipper: Shipper | None = None
        self._thread = threading.Thread(target=self._work, name="shipper", daemon=True)

    @property
    def files(self) -> int:
        """Files followed."""
        return self._shipper.files if self._shipper else 0

    @property
    def acked(self) -> int:
        """Lines stored in this run."""
        return self._shipper.acked if self._shipper else 0

    def start(self) -> None:
        """Begin to ship."""
        self._thread.start()

    def join(self) -> None:
        """Wait for the end, which the stop event brings."""
        if self._thread.is_alive():
            self._thread.join(timeout=15)

    def _work(self) -> None:
        settings = self._settings
        try:
            with connect_blocking(
                settings.url, name="penstock shipper", reconnect_attempts_max=_RECONNECT_ATTEMPTS
            ) as client:
                chain = Chain(client.jetstream(), names.STREAM)
                shipper = self._shipper = Shipper(
                    chain,
                    settings.logs,
                    socket.gethostname(),
                    not_below=settings.store,
                    stopped=self._stopping.is_set,
                )

                def tell(error: PenstockError | None) -> None:
                    if error is not None and client.closed:
                        raise error  # the server is gone for good, which ends the job
                    self.trouble = f"shipping waits: {error}" if error else ""

                if settings.once:
                    shipper.drain()
                    self.drained = True
                else:
                    ship_forever(shipper, self._stopping.wait, tell)
                shipper.close()
        except Exception as error:  # told by the main thread, whatever it is
            self.failure = error


class SparkThread:
    """The session and the query; starting them takes ten seconds, so it is done beside the rest."""

    def __init__(self, settings: Settings, stream: StreamInfo, children: Children) -> None:
        """Not started yet; ``children`` is told of the JVM."""
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
        """Begin to start Spark."""
        self._thread.start()

    def landed_seq(self) -> int:
        """The sequence up to which everything is in the tables."""
        landed = self._landing.landed.last_seq if self._landing else 0
        with contextlib.suppress(
            Exception
        ):  # no progress yet, or the JVM is gone, which check() tells
            progress = self._query.lastProgress if self._query is not None else None
            if progress is not None:
                ended = json.loads(progress["sources"][0]["endOffset"])
                landed = max(landed, int(ended["seq"]))
        return landed

    def check(self) -> None:
        """Raise RunError when Spark does not run any more."""
        log = self._settings.store / "log" / "spark.log"
        if self._failure is not None:
            raise RunError(f"Spark failed: {brief(self._failure)} (see {log})")
        if self._query is None:
            return
        try:
            check_query(self._query)
        except JvmDied as error:
            raise RunError(f"{error} (see {log}); run again to go on") from None
        except QueryEnded as error:
            raise RunError(f"the Spark query failed: {error} (see {log})") from None

    def stop_query(self) -> Landing | None:
        """Let the batch under way end and stop; the tables, or None when Spark was not up yet."""
        if self._query is None:
            return None
        stop_after_batch([self._query])
        landing = self._landing
        if landing is not None:
            landing.catch_up()
        return landing

    def close(self) -> None:
        """End the JVM."""
        from penstock.spark.session import end_session

        if self._session is not None:
            end_session(self._session)
        self._children.forget("jvm")

    def _work(self) -> None:
        try:
            self._start_query()
        except Exception as error:  # told by check() in the main thread, whatever it is
            self._failure = error

    def _start_query(self) -> None:
        from penstock.pipeline.logs.landing import Landing, batch_function
        from penstock.pipeline.logs.transforms import parsed, shipped
        from penstock.spark.session import jvm_pid, session

        settings, stream = self._settings, self._stream
        spark = self._session = session(
            "penstock run", log_file=settings.store / "log" / "spark.log"
        )
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
    """The name of this machine's time zone, for times in logs that name none; UTC when it cannot be
    told.
    """
    if (named := os.environ.get("TZ")) and "/" in named:
        return named.lstrip(":")
    zone = Path("/etc/localtime").resolve().parts
    if "zoneinfo" in zone:
        return "/".join(zone[zone.index("zoneinfo") + 1 :])
    return "UTC"
