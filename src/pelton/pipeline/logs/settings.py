"""The arguments of ``pelton run``, and the one kind of error that its user sees.

Does not know the parts of the job.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pelton.pipeline.logs.files import DEFAULT_PATTERN

if TYPE_CHECKING:
    from collections.abc import Sequence

LOOPBACK = "127.0.0.1"


class RunError(Exception):
    """The job cannot continue. The text is one line for the user that says what to do."""


@dataclass(frozen=True)
class Settings:
    """The options of the command line."""

    nats_port: int
    http_port: int
    store: Path
    logs: str | None
    once: bool
    server_command: tuple[str, ...]
    trigger_seconds: float

    @property
    def state(self) -> Path:
        """The state folder of the pipeline."""
        return self.store / "state"

    @property
    def tables(self) -> Path:
        """The folder of both tables."""
        return self.store / "tables"

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"nats://{LOOPBACK}:{self.nats_port}"


def parse_arguments(argv: Sequence[str]) -> Settings:
    """Parse the arguments of ``pelton run``; exits with 1 and one line for a mistake."""
    parser = _Parser(
        prog="pelton run", description="Log files into a stream, the stream into tables."
    )
    parser.add_argument(
        "--nats-port", type=_port, default=4222, help="port for NATS clients (4222)"
    )
    parser.add_argument("--http-port", type=_port, default=8222, help="port for monitoring (8222)")
    parser.add_argument(
        "--store", type=Path, default=Path("data"), help="folder for everything kept (./data)"
    )
    parser.add_argument(
        "--logs", help=f"file, folder or pattern to ship ({DEFAULT_PATTERN}); also LOGS="
    )
    parser.add_argument(
        "--once", action="store_true", help="land what there is, then end; also ONCE=1"
    )
    parser.add_argument("--server-command", help="another server to start, such as nats-server")
    parser.add_argument(
        "--trigger-seconds", type=_seconds, default=1.0, help="a micro-batch at most this often (1)"
    )
    given = parser.parse_args(argv)
    own = [sys.executable, "-m", "pelton.server"]
    command = shlex.split(given.server_command) if given.server_command else own
    once = given.once or os.environ.get("ONCE", "") not in ("", "0", "false")
    logs = given.logs or os.environ.get("LOGS") or None
    return Settings(
        nats_port=given.nats_port,
        http_port=given.http_port,
        store=given.store.absolute(),
        logs=logs,
        once=once,
        server_command=tuple(command),
        trigger_seconds=given.trigger_seconds,
    )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise SystemExit(complain(f"{message}. See: {self.prog} --help"))


def _port(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (1 to 65535)")
    return int(text)


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= (seconds := float(text)) < float("inf"):
            return seconds
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")


def complain(line: str) -> int:
    """Print one line to standard error; the exit code."""
    print(f"pelton run: {line}", file=sys.stderr)
    return 1
