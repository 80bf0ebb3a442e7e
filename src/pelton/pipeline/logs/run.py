"""``pelton run``: server, shipper and Spark query in one command, from log files to tables.

.. code-block:: text

    pelton run ──┬── pelton-server         child process; stream LOGS under DATA/jetstream
                   ├── thread "shipper"        files ─► stream, a connection of its own
                   ├── thread "spark"          JVM, child process; stream ─► tables
                   └── main thread             watches them, shows numbers, decides when to end

Everything is kept below one folder, so the job can be killed at any moment and started again: it
reads from the stream and the tables what is stored, shipped and landed.

Each part's own module says how the part keeps its promise.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

from rich.console import Console

from pelton.errors import PeltonError
from pelton.pipeline.children import Children, FolderInUseError
from pelton.pipeline.logs import names
from pelton.pipeline.logs.files import DEFAULT_PATTERN, BadLogPathError, check, find_files
from pelton.pipeline.logs.parts import ShipperThread, SparkThread
from pelton.pipeline.logs.progress import Display, Numbers
from pelton.pipeline.logs.server import (
    check_alive,
    check_ports,
    connect,
    ensure_stream,
    start_server,
    stop_server,
)
from pelton.pipeline.logs.settings import RunError, Settings, complain, parse_arguments
from pelton.pipeline.running.supervising import stop_signals

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

    from pelton.client.sync import Client

_LOOK_EVERY_SECONDS = 0.5


def run(argv: Sequence[str]) -> int:
    """Run the whole job, from the main thread; the exit code: 0 success, 1 failure."""
    try:
        settings = parse_arguments(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    try:
        return Job(settings, Console()).run()
    except RunError as error:
        return complain(str(error))
    except KeyboardInterrupt:
        return complain("stopped at once; the next run continues from here")


class Job:
    """One run. Starts its parts in order and always stops them in reverse order."""

    def __init__(self, settings: Settings, console: Console) -> None:
        """Start nothing yet."""
        self._settings = settings
        self._console = console
        self._stopping = threading.Event()
        self._server: subprocess.Popen[bytes] | None = None
        self._shipper = ShipperThread(settings, self._stopping)
        self._spark: SparkThread | None = None
        self._stage = "starting the server"

    def run(self) -> int:
        """Run until the input is processed (``once``) or a signal comes; the exit code."""
        settings = self._settings
        self._check_input()
        children = self._take_folder()
        with ExitStack() as cleanup:
            cleanup.callback(children.release)
            cleanup.enter_context(stop_signals(self._stopping))
            check_ports(settings)
            self._server = start_server(settings, children)
            cleanup.callback(stop_server, self._server, children)
            client = cleanup.enter_context(connect(settings, self._server))
            stream = ensure_stream(client)
            self._shipper.start()
            cleanup.callback(self._shipper.join)
            self._spark = SparkThread(settings, stream, children)
            self._spark.start()
            cleanup.callback(self._spark.close)
            cleanup.callback(self._stopping.set)
            with Display(self._console) as display:
                self._watch(client, display)
            return self._finish(client)

    def _check_input(self) -> None:
        from pelton.spark.java import JavaNotFoundError, ensure_java

        try:
            check(self._settings.logs)
            ensure_java()
        except (BadLogPathError, JavaNotFoundError) as error:
            raise RunError(str(error)) from None
        if not find_files(self._settings.logs, self._settings.store) and self._settings.once:
            where = self._settings.logs or DEFAULT_PATTERN
            raise RunError(f"no readable log file in {where}; name some with --logs or LOGS=")

    def _take_folder(self) -> Children:
        try:
            children = Children(self._settings.store)
            (self._settings.store / "log").mkdir(exist_ok=True)
        except FolderInUseError as error:
            raise RunError(f"{error}: stop it, or choose another --store") from None
        except OSError as error:
            raise RunError(f"cannot use --store {self._settings.store}: {error.strerror}") from None
        return children

    def _watch(self, client: Client, display: Display) -> None:
        """Watch the parts until it is time to end."""
        while not self._stopping.wait(_LOOK_EVERY_SECONDS):
            self._check_parts()
            try:
                state = client.jetstream().stream_info(names.STREAM).state
            except PeltonError as error:
                self._check_parts()
                display.tell(
                    Numbers(stage=self._stage, trouble=f"the server does not answer: {error}")
                )
                continue
            spark = self._spark
            assert spark is not None
            landed = spark.landed_seq()
            self._stage = self._stage_now(spark)
            display.tell(
                Numbers(
                    stage=self._stage,
                    files=self._shipper.files,
                    stored=state.messages,
                    shipped=self._shipper.acked,
                    rows=spark.rows,
                    lag=max(0, state.last_seq - landed),
                    batches=spark.batches,
                    trouble=self._shipper.trouble,
                )
            )
            # The order matters: the stream's state is read before `drained`, so no input is
            # missing from it.
            if self._settings.once and self._shipper.drained and spark.running:
                last = client.jetstream().stream_info(names.STREAM).state.last_seq
                if spark.landed_seq() >= last:
                    return

    def _stage_now(self, spark: SparkThread) -> str:
        if not spark.running:
            return "starting Spark"
        return "draining" if self._settings.once else "running"

    def _check_parts(self) -> None:
        """Raise RunError if a part has ended that must not."""
        server, spark = self._server, self._spark
        assert server is not None
        assert spark is not None
        check_alive(server, self._settings)
        if self._shipper.failure is not None:
            raise RunError(f"shipping failed: {self._shipper.failure}")
        spark.check()

    def _finish(self, client: Client) -> int:
        """Stop the writing parts, then print the summary."""
        from pelton.pipeline.logs.landing import summarise

        drained = self._settings.once and not self._stopping.is_set()
        self._stopping.set()
        self._shipper.join()
        spark = self._spark
        assert spark is not None
        landing = spark.stop_query()
        if landing is None:
            self._console.print("stopped before the first batch; the next run continues from here")
            return 1 if self._settings.once else 0
        messages = client.jetstream().stream_info(names.STREAM).state.messages
        summary = summarise(landing, messages, drained=drained)
        summary.unread = self._shipper.unread
        summary.print(self._console, str(self._settings.store / "tables"))
        return 0 if summary.agrees or not self._settings.once else 1
