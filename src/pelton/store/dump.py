"""Reads the messages of a stream from its folder, in any state of the folder."""

from collections.abc import Iterator
from dataclasses import dataclass

from pelton.core.base.readonly_disk import ReadOnlyDisk
from pelton.core.bulk.columns import Columns
from pelton.core.log.segment_reader import LogReader, SegmentReader
from pelton.store.layout import StoreError, StreamFolder

ROWS = 4096
Row = tuple[int, int, str, bytes, bytes]


@dataclass(frozen=True)
class MessageFilter:
    """A selection of messages: sequences (both limits included), time (since <= t < until),
    subjects.
    """

    first: int = 1
    last: int = 0  # 0: no limit
    since_ns: int = 0
    until_ns: int = 0
    subjects: tuple[str, ...] = ()


@dataclass(frozen=True)
class Damage:
    """Damaged bytes of a segment, and the sequences that they destroyed."""

    file: str
    offset: int
    data: bytes
    lost: list[tuple[int, int, str]]


def messages(disk: ReadOnlyDisk, place: StreamFolder, choice: MessageFilter) -> Iterator[Row]:
    """Yield (sequence, time, subject, headers, payload), ascending. StoreError: there is no log."""
    try:
        if not disk.hold(place.log_folder):
            raise StoreError(f"{place.folder} has no messages")
        reader = LogReader(disk, place.log_folder, quick=True, cipher=place.cipher(disk))
        reader.seek(choice.first)
        patterns = tuple(each.encode("utf-8", "surrogateescape") for each in choice.subjects)
        more = True
        while more:
            columns = Columns(ROWS)
            more = reader.fill(
                columns,
                upto=choice.last,
                patterns=patterns,
                since_ns=choice.since_ns,
                until_ns=choice.until_ns,
            )
            yield from columns.rows()
    finally:
        disk.release(place.log_folder)


def damages(disk: ReadOnlyDisk, place: StreamFolder) -> Iterator[Damage]:
    """Yield every run of damaged bytes, segment by segment, from a read of all records."""
    try:
        if not disk.hold(place.log_folder):
            raise StoreError(f"{place.folder} has no messages")
        cipher = place.cipher(disk)
        reader = LogReader(disk, place.log_folder, cipher=cipher)
        for segment in reader.segments:
            if segment.faults:
                data = SegmentReader(disk, segment.path, segment.first, cipher)
                for at, end, lost, _ in segment.faults:
                    yield Damage(segment.path, at, data.piece(at, end), lost)
    finally:
        disk.release(place.log_folder)
