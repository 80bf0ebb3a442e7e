"""``penstock run``: the server, the shipper and the Spark query in one command, from log files to tables.

.. code-block:: text

    penstock run ──┬── penstock-server         child process; stream LOGS under DATA/jetstream
                   ├── thread "shipper"        files ─► stream, a connection of its own
                   ├── thread "spark"          JVM, child process; stream ─► DATA/tables/{lines,counts}
                   └── main thread             watches them, shows numbers, decides when to end

Everything it keeps is below one folder, so it can be killed at any moment and started again: what is stored, shipped and
landed is read from the stream and the tables themselves.

Knows the parts only by what they promise; how each keeps its promise is in its module.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from penstock.client.blocking import connect_blocking
from penstock.client.models import StreamConfig
from penstock.errors import ConnectError, PenstockError, StreamExists
from penstock.pipeline import names
from penstock.pipeline.children import Children, FolderInUseError
from penstock.pipeline.files import DEFAULT_PATTERN, BadLogPathError, check, find_files
from penstock.pipeline.progress import Display, Numbers
from penstock.pipeline.shipper import Chain, Shipper, ship_forever

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.client.blocking import BlockingClient
    from penstock.client.models import StreamInfo
    from penstock.pipeline.landing import Landing

_SERVER_START_SECONDS = 30.0
_SERVER_STOP_SECONDS = 20.0
_LOOK_EVERY_SECONDS = 0.5
_OFFSETS_PER_BATCH = 200_000
_HOST = "127.0.0.1"


class RunError(Exception):
    """The job cannot go on. The text is one line for the user, with what to do where that is known."""


@dataclass(frozen=True)
class Settings:
    """What the command line says."""

    nats_port: int
    http_port: int
    store: Path
    logs: str | None
    once: bool
    server_command: tuple[str, ...]
    trigger_seconds: float

    @property
    def url(self) -> str:
        """Where the server listens."""
        return f"nats://{_HOST}:{self.nats_port}"


def parse_arguments(argv: Sequence[str]) -> Settings:
    """Read the arguments of ``penstock run``. Exits with 1 and one line on what it does not know."""
    parser = _Parser(prog="penstock run", description="Log files into a stream, the stream into tables.")
    parser.add_argument("--nats-port", type=_port, default=4222, help="port for NATS clients (4222)")
    parser.add_argument("--http-port", type=_port, default=8222, help="port for monitoring (8222)")
    parser.add_argument("--store", type=Path, default=Path("data"), help="folder for everything kept (./data)")
    parser.add_argument("--logs", help=f"file, folder or pattern to ship ({DEFAULT_PATTERN}); also LOGS=")
    parser.add_argument("--once", action="store_true", help="land what there is, then end; also ONCE=1")
    parser.add_argument("--server-command", help="another server to start, such as nats-server")
    parser.add_argument("--trigger-seconds", type=float, default=1.0, help="a micro-batch at most this often (1)")
    given = parser.parse_args(argv)
    own = [sys.executable, "-m", "penstock.server"]
    command = shlex.split(given.server_command) if given.server_command else own
    once = given.once or os.environ.get("ONCE", "") not in ("", "0", "false")
    logs = given.logs or os.environ.get("LOGS") or None
    return Settings(
        given.nats_port, given.http_port, given.store.absolute(), logs, once, tuple(command), given.trigger_seconds
    )  # fmt: skip


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise SystemExit(_complain(f"{message}. See: {self.prog} --help"))


def _port(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (1 to 65535)")
    return int(text)


def _complain(line: str) -> int:
    print(f"penstock run: {line}", file=sys.stderr)
    return 1


def run(argv: Sequence[str]) -> int:
    """The whole job; the exit code: 0 well, 1 not. Called by the command line, from the main thread."""
    try:
        settings = parse_arguments(argv)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    try:
        return Job(settings, Console()).run()
    except RunError as error:
        return _complain(str(error))


class Job:
    """One run. Parts are started in order and stopped in the reverse order, whatever happens."""

    def __init__(self, settings: Settings, console: Console) -> None:
        self._settings = settings
        self._console = console
        self._stopping = threading.Event()
        self._server: subprocess.Popen[bytes] | None = None
        self._shipper = ShipperThread(settings, self._stopping)
        self._spark: SparkThread | None = None
        self._stage = "starting the server"

    def run(self) -> int:
        """Run until the input is drained (``once``) or a signal comes; the exit code."""
        settings = self._settings
        self._check_input()
        children = self._take_folder()
        with contextlib.ExitStack() as cleanup:
            cleanup.callback(children.release)
            cleanup.enter_context(_signals(self._stopping))
            check_ports(settings)
            self._server = start_server(settings, children)
            cleanup.callback(stop_server, self._server, children)
            client = cleanup.enter_context(self._connect())
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
        from penstock.spark.java import JavaNotFoundError, ensure_java

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

    def _connect(self) -> BlockingClient:
        server = self._server
        assert server is not None
        deadline = time.monotonic() + _SERVER_START_SECONDS
        while True:
            try:
                return connect_blocking(self._settings.url, name="penstock run", reconnect_attempts_max=3)
            except ConnectError as error:
                if server.poll() is not None:
                    raise RunError(f"the server did not start: {last_line(server_log(self._settings))}") from None
                if time.monotonic() > deadline:
                    raise RunError(f"the server does not answer: {error}") from None
            time.sleep(0.05)

    def _watch(self, client: BlockingClient, display: Display) -> None:
        """Look at the parts until it is time to end."""
        while not self._stopping.wait(_LOOK_EVERY_SECONDS):
            self._check_parts()
            try:
                state = client.jetstream().stream_info(names.STREAM).state
            except PenstockError as error:
                self._check_parts()
                display.show(Numbers(stage=self._stage, trouble=f"the server does not answer: {error}"))
                continue
            spark = self._spark
            assert spark is not None
            landed = spark.landed_seq()
            self._stage = self._stage_now(spark)
            display.show(
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
            # Looked at in this order: the state was asked for before drained was, so nothing of the input is behind it.
            if self._settings.once and self._shipper.drained and spark.running:
                last = client.jetstream().stream_info(names.STREAM).state.last_seq
                if spark.landed_seq() >= last:
                    return

    def _stage_now(self, spark: SparkThread) -> str:
        if not spark.running:
            return "starting Spark"
        return "draining" if self._settings.once else "running"

    def _check_parts(self) -> None:
        """Raise RunError when a part has ended that must not."""
        server, spark = self._server, self._spark
        assert server is not None
        assert spark is not None
        if (code := server.poll()) is not None:
            log = server_log(self._settings)
            raise RunError(f"the server died ({_how(code)}): {last_line(log)} (see {log}); run again to go on")
        if self._shipper.failure is not None:
            raise RunError(f"shipping failed: {self._shipper.failure}")
        spark.check()

    def _finish(self, client: BlockingClient) -> int:
        """Stop what writes, then print what there is."""
        from penstock.pipeline.landing import summarise

        drained = self._settings.once and not self._stopping.is_set()
        self._stopping.set()
        self._shipper.join()
        spark = self._spark
        assert spark is not None
        landing = spark.stop_query()
        if landing is None:
            self._console.print("stopped before the first batch; the next run goes on from here")
            return 1 if self._settings.once else 0
        messages = client.jetstream().stream_info(names.STREAM).state.messages
        summary = summarise(landing, messages, drained=drained)
        summary.print(self._console, str(self._settings.store / "tables"))
        return 0 if summary.agrees or not self._settings.once else 1


def _how(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


@contextlib.contextmanager
def _signals(stopping: threading.Event) -> Any:
    """Ctrl-C and SIGTERM ask for a clean stop; a second Ctrl-C does not wait for it."""

    def ask(*_: object) -> None:
        if stopping.is_set():
            raise KeyboardInterrupt
        stopping.set()

    kept = {which: signal.signal(which, ask) for which in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for which, handler in kept.items():
            signal.signal(which, handler)


def check_ports(settings: Settings) -> None:
    """Raise RunError when somebody listens on a port already."""
    ports = (("--nats-port", settings.nats_port), ("--http-port", settings.http_port))
    for option, port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((_HOST, port))
            except OSError as error:
                raise RunError(
                    f"port {port} cannot be used ({error.strerror}): stop what uses it, or choose another with {option}"
                ) from None


def server_log(settings: Settings) -> Path:
    """Where the server's output goes."""
    return settings.store / "log" / "server.log"


def start_server(settings: Settings, children: Children) -> subprocess.Popen[bytes]:
    """Start the server as a child that ends with us."""
    command = [
        *settings.server_command,
        *("-js", "-a", _HOST, "-p", str(settings.nats_port), "-m", str(settings.http_port)),
        *("-sd", str(settings.store / "jetstream")),
    ]
    try:
        return children.start("server", command, server_log(settings))
    except OSError as error:
        raise RunError(f"cannot start {command[0]}: {error.strerror}") from None


def stop_server(server: subprocess.Popen[bytes], children: Children) -> None:
    """Ask the server to end, and make it when it does not."""
    server.terminate()
    try:
        server.wait(_SERVER_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    children.forget("server")


def ensure_stream(client: BlockingClient) -> StreamInfo:
    """The stream of log lines, made if it is not there."""
    jetstream = client.jetstream()
    wanted = f"{names.SUBJECT_PREFIX}.>"
    try:
        with contextlib.suppress(StreamExists):
            return jetstream.create_stream(StreamConfig(name=names.STREAM, subjects=[wanted]))
        info = jetstream.stream_info(names.STREAM)
    except PenstockError as error:
        raise RunError(f"cannot create stream {names.STREAM}: {error}") from None
    if wanted not in (info.config.subjects or []):
        raise RunError(f"stream {names.STREAM} is there, but not for {wanted}: choose another --store")
    return info


def last_line(path: Path) -> str:
    """The last line of a log that says something."""
    try:
        lines = [line.strip() for line in path.read_text(errors="replace").splitlines()]
    except OSError:
        return f"nothing in {path}"
    return next((line for line in reversed(lines) if line), "it said nothing")


class ShipperThread:
    """The shipper in a thread of its own, with its own connection."""

    def __init__(self, settings: Settings, stopping: threading.Event) -> None:
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
            self._thread.join(timeout=30)

    def _work(self) -> None:
        settings = self._settings
        try:
            with connect_blocking(settings.url, name="penstock shipper", reconnect_attempts_max=-1) as client:
                chain = Chain(client.jetstream(), names.STREAM)
                shipper = self._shipper = Shipper(
                    chain, settings.logs, socket.gethostname(), not_below=settings.store
                )
                if settings.once:
                    shipper.drain()
                    self.drained = True
                else:
                    ship_forever(shipper, self._pause, self._tell)
                shipper.close()
        except Exception as error:  # told by the main thread, whatever it is
            self.failure = error

    def _pause(self, seconds: float) -> bool:
        self.trouble = ""
        return self._stopping.wait(seconds) if seconds else self._stopping.is_set()

    def _tell(self, error: PenstockError) -> None:
        self.trouble = f"shipping waits: {error}"


class SparkThread:
    """The session and the query; starting them takes ten seconds, so it is done beside the rest."""

    def __init__(self, settings: Settings, stream: StreamInfo, children: Children) -> None:
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
        with contextlib.suppress(Exception):  # no progress yet, or the JVM is gone, which check() tells
            progress = self._query.lastProgress if self._query is not None else None
            if progress is not None:
                import json

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
            active, failure = self._query.isActive, self._query.exception()
        except Exception:
            raise RunError(f"Spark's JVM died (see {log}); run again to go on") from None
        if failure is not None:
            raise RunError(f"the Spark query failed: {brief(failure)} (see {log})")
        if not active:
            raise RunError(f"the Spark query ended by itself (see {log})")

    def stop_query(self) -> Landing | None:
        """Let the batch under way end and stop; the tables, or None when Spark was not up yet."""
        if self._query is None:
            return None
        with contextlib.suppress(Exception):  # a JVM that is gone is stopped
            self._query.stop()
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
        from penstock.pipeline.landing import Landing, batch_function
        from penstock.pipeline.transforms import parsed, shipped
        from penstock.spark.session import jvm_pid, session

        settings, stream = self._settings, self._stream
        spark = self._session = session("penstock run", log_file=settings.store / "log" / "spark.log")
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
    """The name of this machine's time zone, for times in logs that name none; UTC when it cannot be told."""
    if (named := os.environ.get("TZ")) and "/" in named:
        return named.lstrip(":")
    zone = Path("/etc/localtime").resolve().parts
    if "zoneinfo" in zone:
        return "/".join(zone[zone.index("zoneinfo") + 1 :])
    return "UTC"


def brief(error: Exception) -> str:
    """The one line of Spark's pages of text that says what went wrong: that of the innermost error of ours."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("penstock.")]
    chosen = (ours or lines or [type(error).__name__])[-1 if ours else 0]
    return chosen.partition(": ")[2] if ours else chosen
