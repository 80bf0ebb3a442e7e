"""Segment files read without a log: for tools, and for readers beside a server."""

from collections.abc import Callable

from pelton.core.base.disk import Disk
from pelton.core.base.readonly_disk import OverlayDisk
from pelton.core.bulk.columns import Columns
from pelton.core.log.log import Log

_Patterns = tuple[bytes, ...]

HEAD_BYTES: int
INDEX_HEAD_BYTES: int

def doubted(head: bytes) -> bytes:
    """The head of an index file, marked as doubtful; other bytes are returned unchanged."""

def segment_head(first: int, salt: int) -> bytes:
    """The head of a segment that is not compressed."""

def pack_segment(data: bytes) -> bytes:
    """The compressed file of a segment's bytes."""

class SegmentReader:
    """The records of one segment file, which is read into memory; damaged bytes are a step of their own."""

    path: str
    first: int
    size: int
    stored: int
    packed: bool
    sealed: bool  # encrypted
    locked: bool  # ... and compressed, and there is no key: its records can't be looked at
    headless: bool
    mended: bool
    mended_blocks: int
    unmade: bool
    salt: int

    def __init__(
        self,
        disk: Disk,
        path: str,
        first: int,
        cipher: object = None,
        *,
        low: int = 0,
        high: int = 0,
    ) -> None:
        """Read the file; `first` is the sequence in its name, `cipher` the stream's data keys. OSError.

        With `low` (the offset of a record) and a good head of the segment, only the bytes from `low` to `high` (0: to
        the end) are read.
        """
    def piece(self, at: int, end: int) -> bytes:
        """Bytes of the segment, decompressed."""
    def sound(self) -> bool:
        """Whether the unread rest has no damaged bytes except a torn end."""
    def steps(self) -> list[tuple[int, int, int, int, int]]:
        """(kind, offset, end, sequence, time in ns) of each unread record; kind 16: damaged bytes."""

class SegmentScan:
    """One segment as the log has it, and its damage."""

    path: str
    first: int
    count: int
    live: int
    live_bytes: int
    size: int
    stored: int
    packed: bool
    headless: bool
    mended: bool
    mended_blocks: int
    salt: int
    faults: list[tuple[int, int, list[tuple[int, int, str]], bool]]
    """(offset, end, lost sequences as in `lost`, whether one flipped bit explains it) of damaged bytes."""

class LogReader:
    """The messages of a folder as an opening would find them, and a position in them."""

    log: Log
    """The log, opened on the overlay: it has the counts, lost sequences and notes."""
    overlay: OverlayDisk
    folder: str
    segments: list[SegmentScan]
    lost: list[tuple[int, int, str]]
    next_seq: int
    damages: int
    """Runs of damaged bytes that `fill` has skipped, without a torn end."""
    cipher: object

    def __init__(
        self,
        disk: Disk,
        folder: str,
        *,
        quick: bool = False,
        survey: bool = True,
        progress: Callable[[int], object] | None = None,
        cipher: object = None,
        numbered: bool = False,
    ) -> None:
        """Open a folder without changing anything in it; OSError, LogLocked when it is encrypted and
        `cipher` (the stream's data keys) does not open it. `numbered`: the log is a mirror's, see open_log().

        Each segment is read record by record; with `quick`, those whose index file holds are taken from it.
        Without `survey` nothing is said of segments (`segments` stays empty), which saves reading the last one once
        more. `progress` is called with the bytes of large reads.

        While a server writes into the folder, hold it first (core.base.readonly_disk): what is read is then a state
        that the log had, up to some message that was accepted by then.
        """
    def close(self) -> None:
        """Close the files that are open; the reader cannot be used afterwards."""
    def live_sum(self, first: int) -> int:
        """A checksum of the sequences of the live messages of the segment with that first sequence."""
    def lost_in(self, low: int, high: int) -> list[tuple[int, int, str]]:
        """The parts of `lost` from sequence `low` on, below `high`."""
    def seek(self, seq: int) -> None:
        """The next fill begins with the first message of that sequence or a higher one."""
    def fill(
        self,
        columns: Columns,
        *,
        upto: int = 0,
        patterns: _Patterns = (),
        since_ns: int = 0,
        until_ns: int = 0,
        payloads: bool = True,
    ) -> bool:
        """Add live messages until the columns are full; False: there are no more (up to sequence `upto`).

        `patterns`: subjects to take, all when there are none; times: since <= time < until, 0 for no limit.
        Without `payloads` these stay empty.
        Each record's checksum is checked. ``next_seq`` is then behind the last message added. OSError.
        """
    def fill_subjects(self, columns: Columns, *, upto: int = 0, patterns: _Patterns = ()) -> bool:
        """As `fill`, with sequences and subjects alone, out of the index: no record is read.

        Times, headers and payloads are empty. Damage inside a record is not found.
        """
