"""The server of ``pelton plgd run`` without ``--server``: the one on this machine, or a new one."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import click

from pelton.cli.plgd.hub_server import configuration

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

START_SECONDS = 60.0
LOOK_SECONDS = 0.2


@contextlib.contextmanager
def server_at(folder: Path, port: int) -> Iterator[str]:
    """The address of the server on a port of this machine; one is started on a folder if there is none."""
    url = f"nats://127.0.0.1:{port}"
    if _answers(url):
        click.echo(f"using the server that runs on {url}", err=True)
        yield url
        return
    with _own_server(folder, port) as own:
        yield own


def _answers(url: str) -> bool:
    """Whether a NATS server is there, also one that requires credentials."""
    from pelton.client.sync import connect
    from pelton.errors import AuthenticationError, PeltonError

    try:
        connect(url).close()
    except AuthenticationError:
        return True
    except (PeltonError, OSError):
        return False
    return True


@contextlib.contextmanager
def _own_server(folder: Path, port: int) -> Iterator[str]:
    """A server with the stream EVENTS on a folder, for as long as the context; yields its address."""
    path = folder / "jetstream.config"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists():
        path.write_text(configuration(folder, {}), encoding="utf-8")
    log_path = folder / "server.log"
    program = [sys.executable, "-m", "pelton.server", "-c", str(path)]
    with log_path.open("ab") as log:
        child = subprocess.Popen(
            [*program, "-a", "127.0.0.1", "-p", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        url = f"nats://127.0.0.1:{port}"
        _wait_for_server(child, url, log_path)
        yield url
    finally:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(START_SECONDS)


def _wait_for_server(child: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Wait until a server answers; an error if it ends."""
    from pelton.client.sync import connect
    from pelton.errors import PeltonError

    deadline = time.monotonic() + START_SECONDS
    while True:
        if child.poll() is not None:
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines() or [""]
            said = lines[-1].partition("] ")[2].partition("] ")[2] or f"status {child.returncode}"
            raise click.ClickException(f"the server ended: {said} (see {log})")
        try:
            connect(url).close()
            return
        except (PeltonError, OSError):
            if time.monotonic() > deadline:
                raise click.ClickException(f"the server does not answer: see {log}") from None
            time.sleep(LOOK_SECONDS)
