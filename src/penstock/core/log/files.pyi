"""The Python face of the files of a log; files.pxd has the rest."""

from collections.abc import Callable
from typing import Any

from penstock.core.base.disk import Disk
from penstock.core.base.quota import Usage
from penstock.core.log.owed_writes import OwedWrites
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
    """Lines for the operator about what recovery found and did."""
    compress: bool
    """Whether ``maintain`` compresses full segments, one at a time. The log reads compressed segments in any case."""
    guard: Any
    """None, or an object that reads the newest messages at recovery. Before the log writes the removal of a message above
    `guard_above`, it calls `guard.holds(highest)`. If that is True, the log writes the messages (and syncs them, if the owner
    syncs) and calls `guard.save()`, which saves what they say. The write raises the OSError of `save`.
    """
    guard_above: int
    owed: OwedWrites
    """Writes that the disk has refused; see core/log/owed_writes."""
    def owe(self, error: OSError, call: Callable[[], None] | None) -> None:
        """The disk refused a write with `error`: `call` repeats it before the next append (None: the next write repeats it).

        `call` raises OSError as long as the disk refuses.
        """
    condition: int
    failure: int
    segments: SegmentList
    subjects_table: SubjectTable
    usage: Usage
