"""What Python sees of the files under a record log; see log_files.pxd for the rest."""

from typing import Protocol

from penstock.core.disk import Disk
from penstock.core.segment import SegmentList
from penstock.core.subject_table import SubjectTable
from penstock.core.usage import Usage

class LogClosed(OSError):
    """The log no longer takes appends (a write or fsync failed, or it was closed)."""

class _Guard(Protocol):
    def holds(self, top: int) -> bool:
        """Whether it wants to save before messages up to a sequence are removed."""
    def save(self) -> None:
        """Note what the messages say, durably; OSError when that can't be."""

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
    guard: _Guard | None
    """Who reads at recovery what the newest messages say, or None. Before the removal of a message above `guard_above` is
    written it is asked, and called if it wants to be: the messages are in the file by then (and on the disk, where that is used).
    """
    guard_above: int
    condition: int
    failure: int
    segments: SegmentList
    subjects_table: SubjectTable
    usage: Usage
