"""The log file: appended to, reopened by name, rotated when it reaches its size limit.

    server.log                                  in use
    server.log.2026.01.31.14.05.09.123456789    rotated at that time; the oldest are removed

A line that cannot be written is dropped: a full disk must not stop the server.
"""

import os
import re
import time

from pelton.server.errors import StartError

_SET_ASIDE = re.compile(r"\.\d{4}(?:\.\d\d){5}\.\d{9}")


class LogFile:
    """One log file, with or without a limit."""

    def __init__(self, path: str, limit: int = 0, keep: int = 0) -> None:
        """Append to the file. limit: size in bytes above which it is rotated (0: never); keep:
        number of files (0: any). StartError when the file can't be opened.
        """
        self.path = path
        self.limit = limit
        self.keep = keep
        self._fd, self._size = self._open()

    def _open(self) -> tuple[int, int]:
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
            return fd, os.fstat(fd).st_size
        except OSError as problem:
            raise StartError(
                f"can't open log file {self.path}: {problem.strerror}; choose another file with -l"
            ) from None

    def reopen(self) -> None:
        """Open the file again by its name. StartError when that fails; the old file then stays in
        use.
        """
        fresh = self._open()
        os.close(self._fd)
        self._fd, self._size = fresh

    def write(self, text: str) -> list[str]:
        """Append a line. Returns log lines about the file itself, such as its rotation."""
        data = text.encode("utf-8", "backslashreplace")
        try:
            self._size += os.write(self._fd, data)
        except OSError:
            return []
        return self._put_aside() if 0 < self.limit < self._size else []

    def _put_aside(self) -> list[str]:
        ns = time.time_ns()
        stamp = time.strftime("%Y.%m.%d.%H.%M.%S", time.localtime(ns // 1_000_000_000))
        aside = f"{self.path}.{stamp}.{ns % 1_000_000_000:09d}"
        try:
            os.rename(self.path, aside)
            self.reopen()
        except (OSError, StartError) as problem:
            self._size = 0  # the next attempt follows after the same number of bytes
            return [f"Unable to put the log file aside: {problem}"]
        return [f'Rotated log, backup saved as "{aside}"', *self._purge()]

    def _purge(self) -> list[str]:
        if self.keep <= 0:
            return []
        folder, name = os.path.split(self.path)
        try:
            old = sorted(
                each
                for each in os.listdir(folder or ".")
                if each.startswith(name) and _SET_ASIDE.fullmatch(each, len(name))
            )
            gone = old[: max(len(old) - (self.keep - 1), 0)]
            for each in gone:
                os.unlink(os.path.join(folder, each))
        except OSError as problem:
            return [f"Unable to remove old log files: {problem}"]
        return [f'Purged log file "{each}"' for each in gone]

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)
