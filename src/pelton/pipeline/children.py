"""Child processes that end with their parent, and a lock that keeps two jobs out of one folder.

Three mechanisms end a child whose parent was killed: the kernel (``PR_SET_PDEATHSIG``, for children
started here), the child itself (a JVM ends when its standard input closes), and the next start. The
next start ends the processes of an earlier one that are still running, from ``children.json``::

    {"server": [4242, 987654], "jvm": [4250, 987900]}

Each entry has the process id and the start time, in clock ticks since boot. The start time
distinguishes the child from another process that was given the same id later.

Does not know what the processes do.
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
    """Another process works in the folder. The text is one line that names it."""


class Children:
    """The child processes for one folder. Holds the folder's lock while it exists."""

    def __init__(self, folder: Path) -> None:
        """Lock the folder, and end the processes of a killed predecessor.

        Raises :class:`FolderInUseError`, OSError.
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
        """Start a process whose output goes to a file.

        Call it from the main thread, because the kernel watches the thread. Raises OSError if the
        process cannot be started.
        """
        parent = os.getpid()

        def die_with_parent() -> None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # the parent died before the call above
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
        """Record a process that other code has started."""
        started = started_at(pid)
        if started is not None:
            self._known[name] = (pid, started)
            self._save()

    def forget(self, name: str) -> None:
        """Record that the process has ended."""
        if self._known.pop(name, None):
            self._save()

    def release(self) -> None:
        """Release the folder for other processes."""
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
    """The process that works in a folder; "" if there is none."""
    try:
        with (folder / "run.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return (folder / "run.lock").read_text().strip() or "unknown"
    except OSError:
        return ""
    return ""


def started_at(pid: int) -> int | None:
    """The start time of a process, in clock ticks since boot.

    None if there is no such process, or only its exit status is left.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def end_process(pid: int, started: int, patience_seconds: float = 10.0) -> None:
    """Kill a process if its start time matches, and wait until it is gone."""
    deadline = time.monotonic() + patience_seconds
    while started_at(pid) == started and time.monotonic() < deadline:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        time.sleep(0.02)
