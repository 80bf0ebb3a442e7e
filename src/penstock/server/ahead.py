"""What recovery will wait for is begun early: bringing the logs' files to the disk, in threads, while
the rest of the server is loaded.

Recovery syncs every segment and folder of a log before it believes what is in them: a process that
was killed may have left much that only the kernel has. One after the other that is a wait for each
stream; several at once share the disk's. Nothing depends on this having been done: recovery asks
again, and gets its answer at once.
"""

import contextlib
import os
import threading
from collections.abc import Iterator

THREADS = 8
FILES_MAX = 10_000  # more than that and the disk is busy without us


def log_files(store: str) -> Iterator[str]:
    """Segments of all streams and the folders they are in."""
    for account in _folders(os.path.join(store, "jetstream")):
        for stream in _folders(os.path.join(account, "streams")):
            folder = os.path.join(stream, "log")
            with contextlib.suppress(OSError):
                names = [name for name in os.listdir(folder) if name.endswith(".seg")]
                yield from (os.path.join(folder, name) for name in names)
                yield folder


def sync_ahead(store: str) -> list[threading.Thread]:
    """Begin; the threads end by themselves."""
    files = log_files(store)
    taking = threading.Lock()
    left = FILES_MAX

    def work() -> None:
        nonlocal left
        while True:
            with taking:
                left -= 1
                path = next(files, "") if left >= 0 else ""
            if not path:
                return
            with contextlib.suppress(OSError):  # recovery will meet the same trouble, and say it
                _sync(path)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    return threads


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def _folders(path: str) -> list[str]:
    try:
        return [each.path for each in os.scandir(path) if each.is_dir(follow_symlinks=False)]
    except OSError:
        return []
