"""The Python face of the log: state, append and read. See also maintenance, queries, recovery and disk_recovery."""

import builtins
from collections.abc import Callable
from typing import Any, NamedTuple

from pelton.core.base.disk import Disk
from pelton.core.base.quota import Quota
from pelton.core.log.deferred_writes import DeferredWrites
from pelton.core.log.disk_condition import LogClosed as LogClosed
from pelton.core.log.segment_list import SegmentList
from pelton.core.log.subject_table import SubjectTable

class StoredMessage(NamedTuple):
    seq: int
    ts_ns: int
    subject: str
    headers: bytes
    payload: bytes

class Log:
    disk: Disk | None
    folder: str | None
    memory: bool
    first_seq: int
    last_seq: int
    written_seq: int
    synced_seq: int
    msgs: int
    bytes: int
    appended: int
    removed: int
    last_ts_ns: int
    subject_ids: int
    subject_count: int
    lost: list[tuple[int, int, str]]
    notes: list[str]
    """Lines for the operator about what recovery found and did."""
    compress: bool
    """Whether ``maintain`` compresses full segments, one at a time. The log reads compressed segments in any case."""
    guard: Any
    """None, or an object that reads the newest messages at recovery; see guard_with()."""
    def guard_with(self, guard: Any, above: int = 0) -> None:
        """Ask `guard` about messages with a sequence above `above` before their removal is written; None: ask nothing.

        The guard reads the newest messages at recovery. Before the log writes the removal of a message above `above`, it calls
        `guard.holds(highest)`. If that is True, the log writes the messages (and syncs them, if the owner syncs) and calls `guard.save()`,
        which saves what they say. The write raises the OSError of `save`.
        """
    deferred: DeferredWrites
    """Writes that the disk has refused; see core/log/deferred_writes."""
    def defer(self, error: OSError, call: Callable[[], None] | None) -> None:
        """The disk refused a write with `error`: `call` repeats it before the next append (None: the next write repeats it).

        `call` raises OSError as long as the disk refuses.
        """
    condition: int
    failure: int
    segments: SegmentList
    subjects_table: SubjectTable
    quota: Quota
    def __init__(self, *, segment_bytes: int = 16 * 1024 * 1024, first_seq: int = 1) -> None:
        """Make a new log in memory. open_log() in core/log/recovery opens a log in files."""
    @property
    def first_ts_ns(self) -> int:
        """Timestamp of the first live message; 0 when there is none, or when it cannot be read."""
    def add(
        self, ts_ns: int, subject: str, payload: builtins.bytes, headers: builtins.bytes = b""
    ) -> int:
        """Append one message; return its sequence. LogClosed, or OSError ENOSPC while the disk is full."""
    def skip(self, next_seq: int) -> None:
        """The next message gets the sequence `next_seq`; ValueError when that is given already.

        The sequences that are skipped have no message.
        """
    def join(self, quota: Quota | None) -> None:
        """Count the bytes of the log in `quota` from now on, and no longer in the previous one; None: in no quota."""
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
