"""The Python face of the log: state, append and read. See also maintenance, queries, recovery and disk_recovery."""

from typing import NamedTuple

from penstock.core.base.quota import Usage
from penstock.core.log.disk_condition import LogClosed as LogClosed
from penstock.core.log.files import LogFiles

class StoredMessage(NamedTuple):
    seq: int
    ts_ns: int
    subject: str
    headers: bytes
    payload: bytes

class Log(LogFiles):
    def __init__(self, *, segment_bytes: int = 16 * 1024 * 1024, first_seq: int = 1) -> None:
        """Make a new log in memory. open_log() in core/log/recovery opens a log in files."""
    @property
    def first_ts_ns(self) -> int:
        """Timestamp of the first live message; 0 when there is none, or when it cannot be read."""
    def add(self, ts_ns: int, subject: str, payload: bytes, headers: bytes = b"") -> int:
        """Append one message; return its sequence. LogClosed, or OSError ENOSPC while the disk is full."""
    def skip(self, next_seq: int) -> None:
        """The next message gets the sequence `next_seq`; ValueError when that is given already.

        The sequences that are skipped have no message.
        """
    def join(self, usage: Usage | None) -> None:
        """Count the bytes of the log in `usage` from now on, and no longer in the previous one; None: in no quota."""
    def get(self, seq: int) -> StoredMessage | None:
        """One message; None when there is no live message with this sequence.

        A damaged message counts as lost from then on: ``lost`` lists it.
        """
    def deleted_count(self) -> int:
        """The number of sequences between first_seq and last_seq without a live message."""
    def size_of(self, seq: int) -> int:
        """The accounted size of a live message (its part of ``bytes``); 0 when there is none."""
    def at_time(self, ts_ns: int) -> int:
        """The lowest live sequence with this timestamp or a later one; last_seq + 1 when there is none."""
    def flush(self) -> None:
        """Write everything accepted to the file."""
    def fsync(self) -> None:
        """Write everything accepted to the file, and sync it."""
    def sync_start(self) -> tuple[list[int], int]:
        """Begin a sync for a worker thread: (handles to fdatasync, the `upto` for sync_done).

        No handles: nothing to do, or another sync is running.
        """
    def sync_done(self, upto: int, error: int = 0) -> None:
        """End the sync of sync_start. `error`: its errno; then this call and every append raise LogClosed until mend() succeeds."""
