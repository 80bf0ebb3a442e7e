"""Processes that must not outlive the one that started them, and a lock that keeps two jobs from
one folder.

Three things end a child whose parent was killed: the kernel (``PR_SET_PDEATHSIG``, for children
started here), the child itself (a JVM ends when its standard input does), and the next start, which
ends what an earlier one wrote down in ``children.json`` and is still there::

    {"server": [4242, 987654], "jvm": [4250, 987900]}

Each is a process id and when it started, in clock ticks since boot.

The start time tells a child from a stranger that was given the same id later.

Knows nothing of what the processes do.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import IO

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class FolderInUseError(RuntimeError):
    """Another process works in the folder. The text is one line saying which."""


class Children:
    """The processes started for one folder. Holding the object is holding the folder's lock."""

    def __init__(self, folder: Path) -> None:
        """Take the folder, and end what a killed predecessor left running. Raises
        :class:`FolderInUseError`, OSError.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self._lock: IO[str] = (folder / "run.lock").open("a+")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.seek(0)
            holder = self._lock.read().strip() or "unknown"
            self._lock.close()
            raise FolderInUseError(f"{folder} is in use by process {holder}") from None
        self._lock.truncate(0)
        self._lock.write(str(os.getpid()))
        self._lock.flush()
        self._record = folder / "children.json"
        self._known: dict[str, tuple[int, int]] = {}
        self._end_leftovers()

    def start(self, name: str, command: list[str], log_file: Path) -> subprocess.Popen[bytes]:
        """Start a process whose output goes to a file. From the main thread, for the kernel watches
        the thread.

        Raises OSError when it cannot be started.
        """
        parent = os.getpid()

        def die_with_parent() -> None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # it died before the call above
                os._exit(1)

        with log_file.open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        self.remember(name, process.pid)
        return process

    def remember(self, name: str, pid: int) -> None:
        """Write down a process that something else started for us."""
        started = started_at(pid)
        if started is not None:
            self._known[name] = (pid, started)
            self._save()

    def forget(self, name: str) -> None:
        """The process has ended."""
        if self._known.pop(name, None):
            self._save()

    def release(self) -> None:
        """Let another process have the folder."""
        self._lock.close()

    def _save(self) -> None:
        draft = self._record.with_suffix(".draft")
        draft.write_text(json.dumps(self._known))
        draft.replace(self._record)

    def _end_leftovers(self) -> None:
        try:
            left = json.loads(self._record.read_text())
            pairs = [(int(pid), int(started)) for pid, started in left.values()]
        except (OSError, ValueError, AttributeError, TypeError):
            pairs = []
        for pid, started in pairs:
            end_process(pid, started)
        self._save()


def holder(folder: Path) -> str:
    """The process that works in a folder, "" when none does."""
    try:
        with (folder / "run.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return (folder / "run.lock").read_text().strip() or "unknown"
    except OSError:
        return ""
    return ""


def started_at(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when there is none, or only its exit
    status is left.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def end_process(pid: int, started: int, patience_seconds: float = 10.0) -> None:
    """Kill a process if it is the one that started then, and wait until it is gone."""
    deadline = time.monotonic() + patience_seconds
    while started_at(pid) == started and time.monotonic() < deadline:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        time.sleep(0.02)
