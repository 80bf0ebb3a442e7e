"""Recovery: opening a log from its files."""

from collections.abc import Callable

from pelton.core.base.disk import Disk
from pelton.core.log.log import Log

def open_log(
    folder: str | None,
    disk: Disk | None = None,
    *,
    segment_bytes: int = 16 * 1024 * 1024,
    first_seq: int = 1,
    create: bool = True,
    cipher: object = None,
    numbered: bool = False,
    synced: bool = False,
) -> Log:
    """Open (and recover) the log in a folder, or make a new one; folder None: a new log in memory.

    Recovery deletes nothing. It cuts a torn end behind the last good record and keeps the bytes as
    ``*.torn-<n>``. A bad record in the middle costs only its own message, which ``lost`` reports.
    Recovery syncs the records that it finds, so all of them count as synced afterwards. With
    ``synced`` they are on the disk already, because the log was closed cleanly.

    numbered: the messages come with their sequences (a mirror), so a torn message at the end comes
    again with the same sequence.
    cipher: the data keys of an encrypted stream (pelton.vault.StreamCipher).

    OSError when the folder cannot be used; LogLocked (an OSError) when the log is encrypted and there
    is no key for it; ValueError for arguments out of range.
    """

def begin_log(
    folder: str,
    disk: Disk,
    before: Callable[[], object],
    *,
    segment_bytes: int = 16 * 1024 * 1024,
    first_seq: int = 1,
    cipher: object = None,
) -> Log:
    """Begin a new log in memory; its first write makes the folder and the file.

    That write calls `before` first, and fails with its OSError; the next write calls it again.
    """

class LogOpening:
    """The opening of one log in steps of about one segment each. The arguments are those of open_log()."""

    def __init__(
        self,
        folder: str,
        disk: Disk | None = None,
        *,
        segment_bytes: int = 16 * 1024 * 1024,
        first_seq: int = 1,
        create: bool = True,
        cipher: object = None,
        numbered: bool = False,
        patient: bool = True,
        synced: bool = False,
    ) -> None:
        """Begin the opening. patient: when the disk refuses to make a new log, its files are made later."""
    log: Log
    """The log; the caller must not use it before step() has returned False."""

    def step(self) -> bool:
        """Open about one more segment; whether there is more to do. Raises the same errors as open_log()."""
    def progress(self) -> tuple[int, int]:
        """(segments done, segments in all)."""
    def abandon(self) -> None:
        """End the opening before it is complete; the caller must not use the log afterwards."""
