"""What Python sees of the files under a record log; see log_files.pxd for the rest."""

from penstock.core.disk import Disk
from penstock.core.segment import SegmentList
from penstock.core.subject_table import SubjectTable

class LogClosed(OSError):
    """The log no longer takes appends (a write or fsync failed, or it was closed)."""

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
    compress: bool
    """Full segments are compressed by ``maintain``, one at a time; reading does not need it."""
    condition: int
    failure: int
    segments: SegmentList
    subjects_table: SubjectTable
