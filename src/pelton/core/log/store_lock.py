"""The lock of a store folder: one process at a time writes in it. Other processes can read which process has the lock.

The lock is flock on `<folder>/lock`, which holds two lines: the process id and the JetStream domain of the last owner.
The lock ends with the process. Does not depend on the contents of the folder.
"""

from __future__ import annotations

import contextlib
import errno
import os

NAME = "lock"
TRIES = 5


class FolderInUse(Exception):
    """Another process has the folder: its process id, and its domain ("" for none)."""

    def __init__(self, folder: str, pid: int, domain: str) -> None:
        """`pid` and `domain` come from the lock file; process id 0 when it names none."""
        super().__init__(f"store folder {folder} is in use by another server (pid {pid})")
        self.folder = folder
        self.pid = pid
        self.domain = domain


def make_private(folder: str) -> None:
    """Make a folder and its missing parents, all with mode 0700. A folder that exists is not changed.
    OSError.
    """
    above = os.path.dirname(os.path.abspath(folder))
    if not os.path.isdir(above):
        make_private(above)
    os.makedirs(folder, mode=0o700, exist_ok=True)


class FolderLock:
    """Holds a folder for this process alone, until close() or the end of the process."""

    def __init__(self, folder: str, domain: str = "") -> None:
        """Lock an existing folder; FolderInUse, OSError. `domain` is written for other processes."""
        path = os.path.join(folder, NAME)
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # not writable, but flock works
        if not _locked(self._fd):
            said = os.read(self._fd, 300)
            os.close(self._fd)
            raise FolderInUse(folder, *_owner(said))
        said = f"{os.getpid()}\n{domain}\n".encode()
        try:
            # overwrites in place, so that this also works on a full disk
            os.pwrite(self._fd, said, 0)
            os.ftruncate(self._fd, len(said))
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, 0)  # the lock holds; the file does not name the process

    def close(self) -> None:
        """Release the lock."""
        os.close(self._fd)


def _locked(handle: int) -> bool:
    # owner_of() in another process holds the lock for a moment: that must not stop a server.
    import fcntl  # Linux has it; clients use this module for `make_private` alone

    for _ in range(TRIES):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.sched_yield()
        else:
            return True
    return False


def owner_of(folder: str) -> int | None:
    """The process id that has the lock now (0: not known); None: no process has. Makes no file."""
    import fcntl

    try:
        handle = os.open(os.path.join(folder, NAME), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _owner(os.read(handle, 300))[0]
    finally:
        os.close(handle)
    return None


def _owner(said: bytes) -> tuple[int, str]:
    lines = said.decode("utf-8", "replace").split("\n")
    pid = int(lines[0]) if lines[0].strip().isdigit() else 0
    return pid, lines[1] if len(lines) > 1 else ""
