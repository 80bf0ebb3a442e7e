"""``pelton run``: server, shipper and a pipeline in one command, from log files to tables.

.. code-block:: text

    pelton run ──┬── pelton-server         child process; stream LOGS under DATA/jetstream
                   ├── thread "shipper"        files ─► stream, a connection of its own
                   ├── thread "pipeline"       JVM, child process; logs.yaml: stream ─► tables
                   └── main thread             watches them, shows numbers, decides when to end

Everything is kept below one folder, so the job can be killed at any moment and started again: it
reads from the stream what is shipped, and from the pipeline's state and the tables what is landed.

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
from pelton.pipeline.logs.parts import PipelineThread, ShipperThread
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
    from pelton.pipeline.logs.tables import LogTables

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
        self._pipeline = PipelineThread(settings, self._shipper.drained, self._stopping)
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
            ensure_stream(client)
            self._shipper.start()
            cleanup.callback(self._shipper.join)
            self._pipeline.start()
            cleanup.callback(self._pipeline.close)
            cleanup.callback(self._stopping.set)
            from pelton.pipeline.logs.tables import (
                LogTables,
            )  # takes long; nothing waits for it here

            tables = LogTables(settings.tables)
            with Display(self._console) as display:
                self._watch(client, tables, display)
            return self._finish(client, tables)

    def _check_input(self) -> None:
        from pelton.spark.java import JavaNotFoundError, ensure_java

        try:
            check(self._settings.logs)
            ensure_java()
        except (BadLogPathError, JavaNotFoundError) as error:
            raise RunError(str(error)) from None
        tables, state = self._settings.tables, self._settings.state
        if (tables / "lines").exists() and not any(state.glob("checkpoints/*/offsets/*")):
            raise RunError(
                f"{tables} has lines, but {state} does not know them, so each would be written"
                f" again: remove {tables}, or choose another --store"
            )
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

    def _watch(self, client: Client, tables: LogTables, display: Display) -> None:
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
            landed = tables.landed()
            self._stage = self._stage_now()
            display.tell(
                Numbers(
                    stage=self._stage,
                    files=self._shipper.files,
                    stored=state.messages,
                    shipped=self._shipper.acked,
                    rows=landed.rows,
                    lag=max(0, state.last_seq - landed.last_seq),
                    batches=self._pipeline.batches,
                    trouble=self._shipper.trouble,
                )
            )
            if self._pipeline.ended:
                self._check_parts()
                return

    def _stage_now(self) -> str:
        if not self._pipeline.running:
            return "starting Spark"
        return "draining" if self._settings.once else "running"

    def _check_parts(self) -> None:
        """Raise RunError if a part has ended that must not."""
        assert self._server is not None
        check_alive(self._server, self._settings)
        if self._shipper.failure is not None:
            raise RunError(f"shipping failed: {self._shipper.failure}")
        self._pipeline.check()

    def _finish(self, client: Client, tables: LogTables) -> int:
        """Stop the writing parts, then print the summary."""
        drained = self._settings.once and not self._stopping.is_set()
        self._stopping.set()
        self._shipper.join()
        self._pipeline.join()
        self._check_parts()
        if not self._pipeline.running:
            self._console.print("stopped before the first batch; the next run continues from here")
            return 1 if self._settings.once else 0
        messages = client.jetstream().stream_info(names.STREAM).state.messages
        summary = tables.summarise(messages, drained=drained, unread=self._shipper.unread)
        summary.print(self._console, str(tables.folder))
        return 0 if summary.agrees or not self._settings.once else 1
