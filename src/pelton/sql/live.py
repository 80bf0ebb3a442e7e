"""Messages of a running server, read in columns over the network.

Each scan has a connection and a consumer of its own, so scans of one query run side by side. A stream
with interest or work queue retention is read with one request for each message: a consumer would take
messages away from others. The server applies the subjects, and leaves out payloads that no column needs.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from pelton.client.sync.columns import ROWS, read_range
from pelton.client.sync.gets import read_stored, sequence_at
from pelton.sql.selection import END, Selection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pelton.client.sync import Client
    from pelton.client.sync.jetstream import JetStream
    from pelton.core.bulk.columns import Columns
    from pelton.sql.tables import Needs, Upto

BATCH_ROWS = 2 * ROWS


class LiveSource:
    """The streams of a server."""

    def __init__(self, dial: Callable[[], Client], domain: str | None = None) -> None:
        """``dial`` opens a connection; it is called for each scan."""
        self._dial = dial
        self._domain = domain

    @contextlib.contextmanager
    def _jetstream(self) -> Iterator[JetStream]:
        with self._dial() as client:
            yield client.jetstream(domain=self._domain)

    def streams(self) -> list[str]:
        """The names of all streams."""
        with self._jetstream() as js:
            return js.stream_names()

    def read(self, stream: str, wanted: Selection, needs: Needs, upto: Upto) -> Iterator[Columns]:
        """The messages of a selection. ApiError (StreamNotFoundError ...), and what ``read_range`` raises."""
        with self._jetstream() as js:
            info = js.stream_info(stream)
            last = upto.settle(info.state.last_seq)
            if wanted.empty:
                return
            first = max(wanted.first, info.state.first_seq)
            stop = min(wanted.stop, last + 1)
            if wanted.since_ns:
                first = sequence_at(js, stream, wanted.since_ns, first, stop)
            if wanted.until_ns < END:
                stop = sequence_at(js, stream, wanted.until_ns, first, stop)
            subjects = wanted.subjects or ()
            if first >= stop:
                return
            if info.config.retention == "limits":
                yield from read_range(
                    js,
                    stream,
                    first,
                    stop,
                    filter_subjects=subjects,
                    rows=BATCH_ROWS,
                    headers_only=not needs.payload,
                )
            else:
                yield from read_stored(js, stream, first, stop, filter_subjects=subjects)

    def stream_rows(self) -> list[dict[str, object]]:
        """A row for each stream."""
        from pelton.sql.described import stream_row

        with self._jetstream() as js:
            return [stream_row(info.config, info.state, info.created) for info in js.streams()]

    def consumer_rows(self) -> list[dict[str, object]]:
        """A row for each consumer."""
        from pelton.sql.described import consumer_row

        with self._jetstream() as js:
            return [
                consumer_row(name, each)
                for name in js.stream_names()
                for each in js.consumers(name)
            ]
