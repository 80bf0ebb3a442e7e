"""Segment files read without a log: for tools, and for readers beside a server."""

from collections.abc import Callable

from penstock.core.columns import Columns
from penstock.core.disk import Disk

def is_segment_name(name: str) -> bool:
    """Whether a file name is a segment's: 20 digits and `.seg`."""

class Opener:
    """Gives the plain bytes of records whose file holds them sealed; this one is for files that don't."""

class SegmentReader:
    """The records of one segment file, all of it in memory; damaged bytes are a step of their own."""

    path: str
    first: int
    size: int
    stored: int
    packed: bool
    headless: bool
    mended: bool
    unmade: bool
    salt: int

    def __init__(self, disk: Disk, path: str, first: int) -> None:
        """Read the file; `first` is the sequence in its name. OSError."""
    def piece(self, at: int, end: int) -> bytes:
        """Bytes of the segment, decompressed."""
    def steps(self) -> list[tuple[int, int, int, int, int]]:
        """(kind, offset, end, sequence, time in ns) of what is left to read; kind 16: damaged bytes."""

class SegmentScan:
    """What one segment holds, and which of its messages live."""

    path: str
    first: int
    count: int
    messages: int
    live: int
    live_bytes: int
    size: int
    stored: int
    packed: bool
    headless: bool
    mended: bool
    unmade: bool
    removals: int
    skips: int
    erased: int
    good_end: int
    cut: int
    last_seq: int
    first_live: int
    last_live: int
    first_ts_ns: int
    last_ts_ns: int
    damaged: list[tuple[int, int]]
    faults: list[tuple[int, int, list[tuple[int, int, str]]]]
    whole: bool
    @property
    def lost(self) -> list[tuple[int, int, str]]:
        """(first sequence, count, reason) of what damage took, less what was removed anyway."""

class LogReader:
    """The segments of a folder, and a place in their messages."""

    segments: list[SegmentScan]
    msgs: int
    bytes: int
    first_seq: int
    last_seq: int
    lost: list[tuple[int, int, str]]
    next_seq: int
    unopened: int
    folder: str

    def __init__(
        self,
        disk: Disk,
        folder: str,
        *,
        quick: bool = False,
        opener: Opener | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        """Look at all segments of a folder, the newest first; OSError.

        Each is read record by record; with `quick`, those whose index file holds are taken from it, all but
        the last (then `bytes` counts what such a segment had when the index was written). What is found is
        what an opening of the log would find. `progress` is called with the bytes of each file.

        While a server writes into the folder, hold it first (core.readonly): what is read is then a state
        that the log had, up to some message that was accepted by then.
        """
    def seek(self, seq: int) -> None:
        """The next fill begins with the first message of that sequence or a higher one."""
    def fill(
        self,
        columns: Columns,
        *,
        upto: int = 0,
        patterns: tuple[bytes, ...] = (),
        since_ns: int = 0,
        until_ns: int = 0,
    ) -> bool:
        """Add live messages until the columns are full; False: there are no more (up to sequence `upto`).

        `patterns`: subjects to take, all when there are none; times: since <= time < until, 0 for no limit.
        Each record's checksum is checked. ``next_seq`` is then behind the last message added. OSError.
        """
