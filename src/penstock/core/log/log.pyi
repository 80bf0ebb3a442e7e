"""The Python face of the record log: state, append and read. What is built on it: maintenance, queries, recovery, disk_recovery."""

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
        """A new log in memory. One in files is opened by core/log/recovery: open_log()."""
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
    def deleted_count(self) -> int:
        """How many sequences the holes have together."""
    def size_of(self, seq: int) -> int:
        """The accounted size of a live message (as in ``bytes``); 0 when it is not there."""
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
