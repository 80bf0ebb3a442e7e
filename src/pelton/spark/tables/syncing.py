"""Syncs of written files in threads: the files of many tables wait for the disk at once.

::

    write a file ──► write the next ──► ... ──► wait
          └─ sync        └─ sync                 └─ sync their folders, then all are on the disk

Does not depend on the contents of the files.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING

from pelton.spark.tables.places import TableError, to_disk

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

THREADS = 8
"""Syncs at a time: a file system with a journal takes those that come together as one."""


@cache
def _threads() -> ThreadPoolExecutor:
    """The threads of this process, which has none before its first sync: it may be forked until then."""
    return ThreadPoolExecutor(THREADS, "sync")


class Syncs:
    """The files and folders that one piece of work must have on the disk when it ends."""

    def __init__(self) -> None:
        """Syncs nothing yet."""
        self._files: list[Future[None]] = []
        self._folders: set[Path] = set()

    def file(self, path: Path) -> None:
        """Begin to sync a file that is closed."""
        self._files.append(_threads().submit(to_disk, path))

    def folders(self, paths: Iterable[Path]) -> None:
        """Folders with names of files; `wait` syncs each once."""
        self._folders.update(paths)

    def wait(self) -> None:
        """Return when all of it is on the disk. Raises :class:`TableError` if something is not."""
        files, self._files = self._files, []
        folders, self._folders = self._folders, set()
        _finish(files)
        _finish([_threads().submit(to_disk, folder) for folder in sorted(folders)])


def _finish(syncs: list[Future[None]]) -> None:
    """Wait for all, also behind one that failed."""
    problems = [problem for sync in syncs if (problem := sync.exception()) is not None]
    if problems:
        raise TableError(f"cannot sync the written files: {problems[0]}") from problems[0]
