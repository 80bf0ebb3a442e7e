"""The Python face of the record log: what the control plane, recovery and tests call."""

from typing import NamedTuple

from penstock.core.base.disk import Disk
from penstock.core.base.quota import Usage
from penstock.core.log.files import LogClosed as LogClosed
from penstock.core.log.files import LogFiles

class StoredMessage(NamedTuple):
    seq: int
    ts_ns: int
    subject: str
    headers: bytes
    payload: bytes

class Log(LogFiles):
    def __init__(
        self,
        folder: str | None,
        disk: Disk | None = None,
        *,
        segment_bytes: int = 16 * 1024 * 1024,
        first_seq: int = 1,
        create: bool = True,
        cipher: object = None,
        gradually: bool = False,
        numbered: bool = False,
    ) -> None:
        """Open (and recover) the log in a folder, or make a new one; folder None: in memory.

        Recovery never deletes: a torn tail is cut at the last good record and what was cut is kept
        beside it as ``*.torn-<n>``; a bad record in the middle is quarantined alone and reported in
        ``lost``. What it found written it syncs, so that all of it counts as synced afterwards.
        OSError when the folder can't be used, LogLocked (one) when it is encrypted and there is no
        key; ValueError for arguments out of range.

        numbered: its messages come with their sequences (a mirror's), so an unfinished one at the end
        comes again with the same.
        gradually: it is not open before open_more() said so; nothing else may be asked until then.
        cipher: the data keys of an encrypted stream (penstock.vault.StreamCipher).
        """
    def open_more(self) -> bool:
        """Open about one more segment; whether there is more to be done. Raises as the opening."""
    def opening(self) -> tuple[int, int]:
        """How far an opening is: segments looked at, segments in all."""
    def abandon(self) -> None:
        """End an opening that nobody wants any more; nothing may be asked of the log afterwards."""
    @property
    def first_ts_ns(self) -> int:
        """Timestamp of the first live message; 0 when there is none."""
    def add(self, ts_ns: int, subject: str, payload: bytes, headers: bytes = b"") -> int:
        """Append one message; its sequence. LogClosed, or OSError ENOSPC while the disk is full."""
    def skip(self, next_seq: int) -> None:
        """The next message gets this sequence; ValueError when it is given already."""
    def join(self, usage: Usage | None) -> None:
        """Count its bytes there from now on (None: nowhere), no longer where they were counted."""
    def get(self, seq: int) -> StoredMessage | None:
        """One message, or None when it is not there (or damaged: then ``lost`` tells)."""
    def delete(self, seq: int, erase: bool = False) -> bool:
        """Remove one message; with erase, its bytes on disk are overwritten first, durably."""
    def purge(self, below: int | None = None) -> int:
        """Remove every message (below that sequence); how many. One record, whatever the count."""
    def purge_subjects(self, pattern: str, below: int | None = None, keep: int = 0) -> int:
        """Remove those whose subject matches, below a sequence and/or all but the newest `keep`."""
    def deleted(self) -> list[tuple[int, int]]:
        """Holes between first_seq and last_seq, as (first, count), ascending."""
    def deleted_count(self) -> int:
        """How many sequences the holes have together."""
    def subjects(self, pattern: str = ">") -> dict[str, int]:
        """Subject -> live messages, for subjects that match."""
    def subjects_page(self, pattern: str, offset: int, limit: int) -> tuple[int, dict[str, int]]:
        """How many subjects match, and, ordered by name, `limit` of them from `offset` on."""
    def last_of_each(self, patterns: list[str], upto: int, most: int) -> list[int] | None:
        """For each subject that matches one of the patterns, the last sequence <= upto, ascending.

        None: there are more than `most`.
        """
    def subject_state(self, subject: str) -> tuple[int, int, int]:
        """(live messages, first sequence, last sequence) of one subject; zeros when it has none."""
    def size_of(self, seq: int) -> int:
        """The accounted size of a live message (as in ``bytes``); 0 when it is not there."""
    def count_from(self, seq: int, pattern: str = ">") -> int:
        """Live messages with that sequence or a higher one whose subject matches."""
    def last_of(self, pattern: str, upto: int | None = None) -> StoredMessage | None:
        """The newest message (with sequence <= upto) whose subject matches."""
    def next_of(self, pattern: str, start: int) -> StoredMessage | None:
        """The oldest message with sequence >= start whose subject matches."""
    def next_seq(self, pattern: str, start: int) -> int:
        """The lowest live sequence >= start whose subject matches; 0 when there is none."""
    def last_seq_of(self, pattern: str) -> int:
        """The highest live sequence whose subject matches; 0 when there is none."""
    def at_time(self, ts_ns: int) -> int:
        """The lowest live sequence with that timestamp or a later one; last_seq + 1 if none."""
    def flush(self) -> None:
        """accepted -> written."""
    def fsync(self) -> None:
        """accepted -> written -> synced."""
    def sync_start(self) -> tuple[list[int], int]:
        """For an owner that syncs in a worker: (handles to fdatasync, what to pass to sync_done).

        No handles: nothing to do (or another sync is running).
        """
    def sync_done(self, upto: int, error: int = 0) -> None:
        """The handles of sync_start are synced; with an errno: LogClosed, now and for good."""
    @property
    def unconverted(self) -> int:
        """Segments that are not encrypted as new ones are."""
    def mend(self) -> bool:
        """Try to take appends again after a failed write or fsync, a piece per call; True: they are
        taken, and all that was accepted is on the disk. To be called now and then while ``condition``
        is FULL or FAILED. OSError: the disk is not well yet. What was lost is told in ``lost``.
        """
    def maintain(self) -> bool:
        """Compact one segment that is mostly dead, convert or compress one; whether one was. It may take 0.1 s."""
    def close(self) -> None:
        """Flush, fsync, update the index files; it takes nothing afterwards, reads go on."""
    def destroy(self) -> None:
        """Close and remove its folder."""
