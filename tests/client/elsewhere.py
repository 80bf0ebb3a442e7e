"""A program for ``python -m tests.client.elsewhere URL``: client and command line where nothing of Linux is.

What Windows or macOS lack is hidden before Pelton is imported: modules, functions, signals and kinds of sockets. The
standard library has been imported by then: it chooses its own parts by the name of the system.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import multiprocessing.util
import os
import pkgutil
import select
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import uuid

MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty", "uvloop")
ATTRIBUTES = {
    os: (
        "eventfd fchmod fdatasync fork geteuid getloadavg getuid mkfifo posix_fadvise posix_fallocate pread preadv "
        "pwrite register_at_fork sched_getaffinity sched_yield sendfile setsid statvfs uname wait3"
    ),
    select: "epoll poll",
    signal: (
        "SIGALRM SIGCHLD SIGHUP SIGKILL SIGPIPE SIGQUIT SIGTSTP SIGUSR1 SIGUSR2 SIGWINCH alarm pthread_kill "
        "pthread_sigmask setitimer sigwait"
    ),
    socket: "AF_UNIX SO_REUSEPORT MSG_DONTWAIT MSG_NOSIGNAL TCP_USER_TIMEOUT",
}
# Commands and packages that are for a server's machine, Spark or plgd's hub: nobody imports them without asking.
ELSEWHERE = (
    "pelton.cli.bench",
    "pelton.cli.live.latency",  # with the loops of the benchmark
    "pelton.cli.plgd",
    "pelton.cli.spark",
    "pelton.cli.store",
    "pelton.cli.server.throwaway",
    "pelton.sql.folders",
)


def hide() -> None:
    """Take away what other systems lack; libraries of others choose by the system's name, too."""
    for name in ("numpy", "pandas", "pyarrow.parquet", "duckdb", "hcl2", "rich.live", "yaml"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    core = importlib.import_module("pelton.core")
    for finder in sys.meta_path:
        if isinstance(finder, core.Finder):
            finder.linux = None
    pair, family = socket.socketpair, socket.AF_UNIX
    socket.socketpair = lambda *_: pair(family)  # type: ignore[assignment]  # of one kind
    for name in MODULES:
        sys.modules[name] = None  # type: ignore[assignment]  # so importing it fails
    for module, names in ATTRIBUTES.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)

    # these refuse, as those of Windows do
    for method in ("add_signal_handler", "remove_signal_handler", "add_reader", "add_writer"):
        setattr(asyncio.BaseEventLoop, method, getattr(asyncio.AbstractEventLoop, method))
    del asyncio.SelectorEventLoop.add_signal_handler  # type: ignore[misc]  # the base has it
    del asyncio.SelectorEventLoop.remove_signal_handler  # type: ignore[misc]  # the same


def import_all() -> int:
    """Import every module that a client or a command may load."""
    count = 0
    for package in ("api", "apply", "cli", "client", "errors", "kombu", "nkeys", "nuid", "sql"):
        found = importlib.import_module(f"pelton.{package}")
        for each in pkgutil.walk_packages(getattr(found, "__path__", ()), f"pelton.{package}."):
            if not each.name.startswith(ELSEWHERE):
                importlib.import_module(each.name)
                count += 1
    return count


async def use(url: str, name: str) -> None:
    """A client in a loop: messages, a stream, a bucket."""
    from pelton import StreamConfig, connect

    async with await connect(url) as client:
        heard = await client.subscribe(f"{name}.core")
        await client.publish(f"{name}.core", b"hello", headers={"K": "v"})
        assert (await heard.next(timeout=20)).data == b"hello"
        stream = client.jetstream()
        await stream.create_stream(StreamConfig(name=name, subjects=[f"{name}.s.*"]))
        assert (await stream.publish(f"{name}.s.a", b"1")).seq == 1
        await stream.delete_stream(name)


def use_blocking(url: str, name: str) -> None:
    """The same in a thread that blocks, and with columns."""
    from pelton import StreamConfig, sync

    with sync.connect(url) as client:
        heard = client.subscribe(f"{name}.core")
        client.publish(f"{name}.core", b"hello")
        assert heard.next(timeout=20).data == b"hello"
        stream = client.jetstream()
        stream.create_stream(StreamConfig(name=name, subjects=[f"{name}.s.*"]))
        assert stream.publish(f"{name}.s.a", b"1").seq == 1


def command(*words: str) -> str:
    """Run one command of ``pelton`` in this process; what it prints."""
    import io

    from pelton.cli.__main__ import main

    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(out):
        status = main(words)
        out.flush()
    text = out.buffer.getvalue().decode()
    assert status == 0, (words, status, text)
    return text


def use_commands(url: str, name: str, folder: str) -> None:
    """Publishing, listing, and a backup of the stream that is there."""
    at = ("--server", url)
    command(*at, "pub", f"{name}.s.b", "two")
    assert name in command(*at, "stream", "ls")
    assert "two" in command(*at, "stream", "get", name, "2")
    command(*at, "stream", "backup", name, f"{folder}/backup")
    command(*at, "stream", "rm", name, "--force")
    command(*at, "stream", "restore", f"{folder}/backup")
    assert "two" in command(*at, "stream", "get", name, "2")
    command(*at, "stream", "rm", name, "--force")


def main(url: str) -> None:
    """All of it."""
    hide()
    name = f"E{uuid.uuid4().hex[:12]}"
    print("imported", import_all())
    asyncio.run(use(url, name))
    use_blocking(url, name)
    with tempfile.TemporaryDirectory() as folder:
        use_commands(url, name, folder)
    print("done")


if __name__ == "__main__":
    assert ssl
    assert subprocess
    assert multiprocessing.util
    main(sys.argv[1])
