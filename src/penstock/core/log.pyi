"""The Python face of the record log: what the control plane, recovery and tests call."""

from typing import NamedTuple

from penstock.core.disk import Disk

class StoredMessage(NamedTuple):
    seq: int
    ts_ns: int
    subject: str
    headers: bytes
    payload: bytes

class LogClosed(OSError):
    """The log no longer takes appends (a write or fsync failed, or it was closed)."""

class Log:
    def __init__(
        self,
        folder: str | None,
        disk: Disk | None = None,
        *,
        segment_bytes: int = 16 * 1024 * 1024,
        first_seq: int = 1,
        create: bool = True,
    ) -> None:
        """Open (and recover) the log in a folder, or make a new one; folder None: in memory.

        Recovery never deletes: a torn tail is cut at the last good record and the cut bytes are kept beside it as ``*.torn``;
        a bad record in the middle is quarantined alone and reported in ``lost``. OSError when the folder can't be used.
        """
    first_seq: int
    last_seq: int
    written_seq: int
    synced_seq: int
    msgs: int
    bytes: int
    first_ts_ns: int
    last_ts_ns: int
    subject_count: int
    lost: list[tuple[int, int, str]]
    def add(self, ts_ns: int, subject: str, payload: bytes, headers: bytes = b"") -> int: ...
    def get(self, seq: int) -> StoredMessage | None: ...
    def delete(self, seq: int, erase: bool = False) -> bool:
        """Remove one message; with erase, its bytes on disk are overwritten too (before this returns, durably)."""
    def purge(self, below: int | None = None) -> int:
        """Remove every message (below that sequence); returns how many. One record, whatever the count."""
    def purge_subjects(self, pattern: str, below: int | None = None, keep: int = 0) -> int:
        """Remove messages whose subject matches the pattern, below a sequence and/or all but the newest `keep`."""
    def deleted(self) -> list[tuple[int, int]]:
        """Holes between first_seq and last_seq, as (first, count), ascending."""
    def deleted_count(self) -> int: ...
    def subjects(self, pattern: str = ">") -> dict[str, int]:
        """Subject -> live messages, for subjects that match."""
    def last_of(self, pattern: str, upto: int | None = None) -> StoredMessage | None:
        """The newest message (with sequence <= upto) whose subject matches."""
    def next_of(self, pattern: str, start: int) -> StoredMessage | None:
        """The oldest message with sequence >= start whose subject matches."""
    def at_time(self, ts_ns: int) -> int: ...
    def flush(self) -> None:
        """accepted -> written."""
    def fsync(self) -> None:
        """accepted -> written -> synced."""
    def close(self) -> None:
        """Flush, fsync, seal index files; the log takes nothing afterwards."""
    def destroy(self) -> None:
        """Close and remove its folder."""
