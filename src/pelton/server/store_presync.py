"""Syncs the files of all logs in threads at a start, ahead of the recovery.

Recovery syncs every segment and folder of a stream before it trusts their content, because a killed
process may have left bytes only in the kernel's cache. Synced one after the other, each file is a wait;
several threads share the waits, and a log is opened when its files are synced here. The threads also
read ahead the segments that recovery reads as a whole. Recovery does not depend on this module: its own
sync of a synced file returns at once.
"""

import contextlib
import os
import threading
from collections.abc import Iterator

from pelton.core.base.disk import open_to_read

THREADS = 8
CLOSED = "closed"  # the mark of engine/files
FILES_MAX = 10_000  # with more files, the disk is busy without the presync


class _Folder:
    """A log whose files are being synced."""

    def __init__(self, path: str, left: int) -> None:
        self.path = path
        self.left = left  # number of files that are not synced yet


def log_files(store: str) -> Iterator[tuple[_Folder, str, bool]]:
    """Segments of all streams, their folders, and the folders of their consumers. True: recovery
    reads the file as a whole. Accounts that were closed cleanly need no sync.
    """
    for account in _folders(os.path.join(store, "jetstream")):
        if os.path.exists(os.path.join(account, CLOSED)):
            continue
        for stream in _folders(os.path.join(account, "streams")):
            path = os.path.join(stream, "log")
            with contextlib.suppress(OSError):
                names = sorted(os.listdir(path))
                indexed = {name[:-4] for name in names if name.endswith(".idx")}
                segments = [name for name in names if name.endswith(".seg")]
                folder = _Folder(path, len(segments) + 2)
                for name in segments:
                    yield folder, os.path.join(path, name), name[:-4] not in indexed
                yield folder, path, False
                yield folder, os.path.join(stream, "consumers"), False


class StorePresync:
    """The presync of one store. It starts at once; the threads end by themselves."""

    def __init__(self, store: str) -> None:
        """Never raises OSError: recovery meets the same error and reports it."""
        self._files = log_files(store)
        self._taking = threading.Lock()
        self._left = FILES_MAX
        self._done: set[str] = set()
        self.threads = [threading.Thread(target=self._work, daemon=True) for _ in range(THREADS)]
        self._working = THREADS
        for thread in self.threads:
            thread.start()

    def done(self, log_folder: str) -> bool:
        """Whether a log can be opened without a long wait for the disk; always True after the
        presync has ended.
        """
        return not self._working or self._left < 0 or log_folder in self._done

    def _work(self) -> None:
        while True:
            with self._taking:
                self._left -= 1
                found = next(self._files, None) if self._left >= 0 else None
                if found is None:
                    self._working -= 1
                    return
            folder, path, whole = found
            with contextlib.suppress(OSError):
                _sync(path, whole)
            with self._taking:
                folder.left -= 1
                if not folder.left:
                    self._done.add(folder.path)


def _sync(path: str, whole: bool) -> None:
    descriptor = open_to_read(path)
    try:
        if whole:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def _folders(path: str) -> list[str]:
    try:
        return [each.path for each in os.scandir(path) if each.is_dir(follow_symlinks=False)]
    except OSError:
        return []
