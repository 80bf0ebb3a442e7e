"""What Python sees of the files under a record log; see files.pxd for the rest."""

from collections.abc import Callable
from typing import Any

from penstock.core.base.disk import Disk
from penstock.core.base.quota import Usage
from penstock.core.log.segment import SegmentList
from penstock.core.log.subject_table import SubjectTable

class LogFiles:
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
    """What an opening found and did besides, a line each, for the operator."""
    compress: bool
    """Full segments are compressed by ``maintain``, one at a time; reading does not need it."""
    guard: Any
    """Who reads at recovery what the newest messages say, or None. Before the removal of a message above `guard_above` is
    written, `guard.holds(highest)` is asked; when it says True, the messages are written (and synced, where that is used), and
    `guard.save()` notes what they say; its OSError is that of the write.
    """
    guard_above: int
    owed: list[Callable[[], None]]
    """What an opening could not write and what comes before the next append; see core/log/deferred_writes."""
    late: list[Callable[[], object]]
    """... and what can wait."""
    def owe(self, error: OSError, call: Callable[[], None] | None) -> None:
        """The disk has refused with an error: no append is taken before `call` has done it (it raises OSError)."""
    condition: int
    failure: int
    segments: SegmentList
    subjects_table: SubjectTable
    usage: Usage
