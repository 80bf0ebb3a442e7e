"""The server as a child process, and its stream.

Any program with nats-server's arguments will do; the job uses only the NATS protocol.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING

from pelton.client import sync
from pelton.client.base.models import StreamConfig
from pelton.errors import ConnectError, PeltonError, StreamExistsError
from pelton.pipeline.logs import names
from pelton.pipeline.logs.settings import LOOPBACK, RunError

if TYPE_CHECKING:
    from pathlib import Path

    from pelton.client.sync import Client
    from pelton.pipeline.children import Children
    from pelton.pipeline.logs.settings import Settings

_START_SECONDS = 30.0
_STOP_SECONDS = 20.0


def check_ports(settings: Settings) -> None:
    """Raise RunError if another program listens on a port."""
    ports = (("--nats-port", settings.nats_port), ("--http-port", settings.http_port))
    for option, port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError as error:
                raise RunError(
                    f"port {port} cannot be used ({error.strerror}):"
                    f" stop what uses it, or choose another with {option}"
                ) from None


def server_log(settings: Settings) -> Path:
    """The file for the server's output."""
    return settings.store / "log" / "server.log"


def start_server(settings: Settings, children: Children) -> subprocess.Popen[bytes]:
    """Start the server as a child that ends with this process."""
    command = [
        *settings.server_command,
        *("-js", "-a", LOOPBACK, "-p", str(settings.nats_port), "-m", str(settings.http_port)),
        *("-sd", str(settings.store / "jetstream")),
    ]
    try:
        return children.start("server", command, server_log(settings))
    except OSError as error:
        raise RunError(f"cannot start {command[0]}: {error.strerror}") from None


def stop_server(server: subprocess.Popen[bytes], children: Children) -> None:
    """Ask the server to stop, and kill it if it does not."""
    server.terminate()
    try:
        server.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    children.forget("server")


def ensure_stream(client: Client) -> None:
    """Create the stream of log lines if it does not exist."""
    jetstream = client.jetstream()
    wanted = f"{names.SUBJECT_PREFIX}.>"
    try:
        with contextlib.suppress(StreamExistsError):
            jetstream.create_stream(StreamConfig(name=names.STREAM, subjects=[wanted]))
        info = jetstream.stream_info(names.STREAM)
    except PeltonError as error:
        raise RunError(f"cannot create stream {names.STREAM}: {error}") from None
    if wanted not in (info.config.subjects or []):
        raise RunError(f"stream {names.STREAM} is not for {wanted}: choose another --store")


def last_line(path: Path) -> str:
    """The last informative line of a log."""
    try:
        lines = [line.strip() for line in path.read_text(errors="replace").splitlines()]
    except OSError:
        return f"nothing in {path}"
    return next((line for line in reversed(lines) if line), "it said nothing")


def connect(settings: Settings, server: subprocess.Popen[bytes]) -> Client:
    """A connection to the server. Raises RunError if the server ends or does not answer in time."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            return sync.connect(settings.url, name="pelton run", reconnect_attempts_max=3)
        except ConnectError as error:
            if server.poll() is not None:
                log = last_line(server_log(settings))
                raise RunError(f"the server did not start: {log}") from None
            if time.monotonic() > deadline:
                raise RunError(f"the server does not answer: {error}") from None
        time.sleep(0.05)


def check_alive(server: subprocess.Popen[bytes], settings: Settings) -> None:
    """Raise RunError if the server has ended."""
    code = server.poll()
    if code is not None:
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        log = server_log(settings)
        raise RunError(
            f"the server died ({how}): {last_line(log)} (see {log}); run again to continue"
        )
