"""Ctrl-C while DuckDB works: Python handles a signal only when DuckDB returns, so another thread interrupts DuckDB."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from pelton.sql import Database


@contextlib.contextmanager
def interruptible(database: Database | None = None) -> Iterator[None]:
    """Ctrl-C ends the query that runs; then KeyboardInterrupt is raised, as anywhere else.

    Without a database: for imports and short statements, which DuckDB ends with errors of its own after a Ctrl-C,
    or as if there had been none.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals do not come here
        return
    heard = threading.Event()

    def hear(_: int, frame: FrameType | None) -> None:
        heard.set()
        if database is None or not _scans(frame):
            raise KeyboardInterrupt
        # DuckDB would print an exception from a table that it reads. It is interrupted again, because a
        # query that begins forgets an interrupt that came before.
        database.connection.interrupt()

    before = signal.signal(signal.SIGINT, hear)
    try:
        with _telling(database) if database else contextlib.nullcontext():
            yield
    except Exception:  # of many classes: that of a result that is read is OSError
        if heard.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)
    if heard.is_set():
        raise KeyboardInterrupt


def _scans(frame: FrameType | None) -> bool:
    """Whether DuckDB reads a stream in this thread."""
    from pelton.sql.tables import StreamTable

    while frame is not None:
        if frame.f_code is StreamTable._rows.__code__:  # where a scan is
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def _telling(database: Database) -> Iterator[None]:
    """A thread that learns of Ctrl-C at once, and tells DuckDB."""
    import duckdb

    ours, signals = socket.socketpair()
    signals.setblocking(False)
    before = signal.set_wakeup_fd(signals.fileno(), warn_on_full_buffer=False)

    def watch() -> None:
        while numbers := ours.recv(64):
            if signal.SIGINT in numbers:
                with contextlib.suppress(duckdb.Error):  # Ctrl-C came at the end: it is closed
                    database.connection.interrupt()

    watcher = threading.Thread(target=watch, name="interrupt", daemon=True)
    try:
        watcher.start()
        yield
    finally:
        signal.set_wakeup_fd(before)
        signals.close()
        if watcher.ident is not None:
            watcher.join()
        ours.close()
