"""Opening a log: from its files to one that can go on."""

from penstock.core.base.disk import Disk
from penstock.core.log.log import Log

def open_log(
    folder: str | None,
    disk: Disk | None = None,
    *,
    segment_bytes: int = 16 * 1024 * 1024,
    first_seq: int = 1,
    create: bool = True,
    cipher: object = None,
    numbered: bool = False,
) -> Log:
    """Open (and recover) the log in a folder, or make a new one; folder None: a new one in memory.

    Recovery never deletes: a torn tail is cut at the last good record and what was cut is kept
    beside it as ``*.torn-<n>``; a bad record in the middle is quarantined alone and reported in
    ``lost``. What it found written it syncs, so that all of it counts as synced afterwards.
    OSError when the folder can't be used, LogLocked (one) when it is encrypted and there is no
    key; ValueError for arguments out of range.

    numbered: its messages come with their sequences (a mirror's), so an unfinished one at the end
    comes again with the same.
    cipher: the data keys of an encrypted stream (penstock.vault.StreamCipher).
    """

class LogOpening:
    """The opening of one log, in steps of about one segment. Arguments as those of open_log()."""

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
    ) -> None:
        """Begin it. patient: a new log that the disk refuses to make is made later."""
    log: Log
    """Nothing may be asked of it before step() has said that there is no more."""

    def step(self) -> bool:
        """Open about one more segment; whether there is more to be done. Raises as open_log()."""
    def progress(self) -> tuple[int, int]:
        """How far it is: segments looked at, segments in all."""
    def abandon(self) -> None:
        """End an opening that nobody wants any more; nothing may be asked of the log afterwards."""
