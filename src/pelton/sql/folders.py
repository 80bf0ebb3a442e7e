"""Messages of a store folder, read from its segment files without a server.

The folder is opened as the next start would find it (core/log/segment_reader); nothing is written. A
server may write to it meanwhile: a scan sees the state of one moment. Segments outside the selected
sequences and times are not read. A query for subjects and sequences alone reads index files and no
messages.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from pelton.core.base.readonly_disk import ReadOnlyDisk
from pelton.core.bulk.columns import Columns
from pelton.core.log.segment_reader import LogReader
from pelton.sql.described import stored_consumer_row, stream_row
from pelton.sql.selection import END, Selection
from pelton.store.describe import consumer_states, described
from pelton.store.layout import StoreError, find

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.sql.tables import Needs, Upto
    from pelton.store.layout import StreamFolder
    from pelton.vault import Vault

BATCH_ROWS = 65_536
BATCH_BYTES = 32 * 2**20


class FolderSource:
    """The streams of a store folder. A name that several accounts have has the account before it."""

    def __init__(self, path: str, vault: Vault | None = None, account: str = "") -> None:
        """``account``: only its streams. StoreError: the folder is no store, or has no such account."""
        self.disk = ReadOnlyDisk()
        self.store = find(self.disk, path, vault)
        if account:
            streams = [each for each in self.store.streams if each.account == account]
            if not streams:
                raise StoreError(f"{path} has no account {account}")
            self.store = replace(self.store, streams=streams)

    def streams(self) -> list[str]:
        """The names of all streams."""
        counts = Counter(each.name for each in self.store.streams)
        return sorted(
            each.name if counts[each.name] == 1 else each.label for each in self.store.streams
        )

    def stream_rows(self) -> list[dict[str, object]]:
        """A row for each stream; reads its index files, and no messages. StoreError."""
        rows = []
        for name in self.streams():
            place = self.place(name)
            info = described(self.disk, place)
            rows.append(stream_row(info.config, info.state, info.created) | {"name": name})
        return rows

    def consumer_rows(self) -> list[dict[str, object]]:
        """A row for each consumer."""
        return [
            stored_consumer_row(name, told)
            for name in self.streams()
            for told in consumer_states(self.disk, self.place(name))[0]
        ]

    def place(self, stream: str) -> StreamFolder:
        """The folder of a stream; StoreError."""
        return self.store.one(stream)

    def read(self, stream: str, wanted: Selection, needs: Needs, upto: Upto) -> Iterator[Columns]:
        """The messages of a selection. StoreError, OSError."""
        place = self.place(stream)
        disk = ReadOnlyDisk()
        if not disk.hold(place.log_folder):
            raise StoreError(f"{place.folder} has no messages")
        try:
            reader = LogReader(
                disk, place.log_folder, quick=True, survey=False, cipher=place.cipher(disk)
            )
            try:
                yield from fill(reader, wanted, needs, upto)
            finally:
                reader.close()
        finally:
            disk.release(place.log_folder)


def fill(reader: LogReader, wanted: Selection, needs: Needs, upto: Upto) -> Iterator[Columns]:
    """The messages of a selection from an open folder."""
    log = reader.log
    last = min(upto.settle(log.last_seq), wanted.stop - 1)
    if wanted.empty:
        return
    first = max(wanted.first, log.first_seq)
    if wanted.since_ns:
        first = max(first, log.at_time(wanted.since_ns))
    if wanted.until_ns < END:
        last = min(last, log.at_time(wanted.until_ns) - 1)
    subjects = wanted.subjects or ()
    patterns = tuple(each.encode("utf-8", "surrogateescape") for each in subjects)
    reader.seek(first)
    payloads = needs.payload or needs.size
    more = first <= last
    while more:
        columns = Columns(BATCH_ROWS, BATCH_BYTES)
        if needs.subject_alone:
            more = reader.fill_subjects(columns, upto=last, patterns=patterns)
        else:
            more = reader.fill(columns, upto=last, patterns=patterns, payloads=payloads)
        if columns.count:
            yield columns
