"""A stream as a table that DuckDB scans: columns and filter of a query come in, Arrow batches go out.

DuckDB trusts a table that takes its filters and does not apply them again. So every batch goes
through Arrow's own evaluation of the whole filter; what a source leaves out before that (see
:mod:`pelton.sql.selection`) only saves work.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from pelton import arrow
from pelton.core.bulk.header_maps import message_sizes
from pelton.core.protocol.subjects import matches
from pelton.sql import datasets
from pelton.sql.expressions import UnreadableError, fields_of
from pelton.sql.selection import END, EVERYTHING, Selection, selection_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pelton.core.bulk.columns import Columns

    Decode = Callable[[str, bytes], object]

SCHEMA = pa.schema(
    [
        ("seq", pa.int64()),
        ("ts", arrow.TIMESTAMP),
        ("subject", pa.string()),
        ("headers", arrow.HEADERS),
        ("data", pa.binary()),
        ("text", pa.string()),
        ("size", pa.int64()),
        ("ts_ns", pa.int64()),
    ]
)
"""The columns of a stream. ``text`` is the payload as text, null where it is not UTF-8; ``size`` are the
bytes of headers and payload; ``ts_ns`` is the time in nanoseconds since 1970, which ``ts`` cuts to
microseconds."""

_PAYLOAD = frozenset(("data", "text"))
_TIMES = frozenset(("ts", "ts_ns"))


@dataclass(frozen=True)
class Needs:
    """The fields of messages that a query uses besides sequence and subject."""

    headers: bool = True
    payload: bool = True
    size: bool = True
    time: bool = True

    @classmethod
    def of(cls, columns: Sequence[str], *, time: bool = False) -> Needs:
        """The needs of these columns; ``time``: also if no column needs it."""
        return cls(
            "headers" in columns,
            not _PAYLOAD.isdisjoint(columns),
            "size" in columns,
            time or not _TIMES.isdisjoint(columns),
        )

    @property
    def subject_alone(self) -> bool:
        """Whether sequence and subject are all."""
        return not (self.headers or self.payload or self.size or self.time)


class Source(Protocol):
    """Where the messages of streams are read from."""

    def streams(self) -> list[str]:
        """The names of all streams."""

    def read(self, stream: str, wanted: Selection, needs: Needs, upto: Upto) -> Iterator[Columns]:
        """The messages of a selection, ascending, and maybe more of the stream.

        Asks ``upto`` where the stream ends for this query, and reads nothing behind it.
        """

    def stream_rows(self) -> list[dict[str, object]]:
        """A row for each stream."""

    def consumer_rows(self) -> list[dict[str, object]]:
        """A row for each consumer."""


@dataclass
class Upto:
    """The last sequence that a query sees of a stream: the same for all of its scans."""

    seq: int | None = None

    def settle(self, last_seq: int) -> int:
        """The sequence; the first scan decides it."""
        if self.seq is None:
            self.seq = last_seq
        return self.seq


@dataclass
class Scans:
    """The statistics of a query's scans, and their first error."""

    rows_read: int = 0
    bytes_read: int = 0
    error: Exception | None = None
    selections: list[tuple[str, Selection]] = field(default_factory=list)


class StreamTable(datasets.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """One stream, or the part of it that ``within`` selects."""

    def __init__(
        self,
        source: Source,
        stream: str,
        *,
        upto: Upto | None = None,
        within: Selection = EVERYTHING,
        scans: Scans | None = None,
        decode: Decode | None = None,
    ) -> None:
        """Reads nothing yet. ``decode`` makes ``text`` of a subject and a payload; ValueError: null."""
        self.stream = stream
        self.upto = upto or Upto()
        self.within = within
        self.scans = scans or Scans()
        self._source = source
        self._decode = decode

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return SCHEMA

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002  # its name in pyarrow
        **_: object,
    ) -> _Scanner:
        """Called by DuckDB for each scan; nothing is read before its first batch is wanted."""
        names = SCHEMA.names if columns is None else list(columns)
        return _Scanner(
            pa.schema([SCHEMA.field(name) for name in names]), self._rows(names, filter)
        )

    def _rows(self, names: list[str], condition: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        wanted = self.within.also(selection_of(condition))
        self.scans.selections.append((self.stream, wanted))
        used = names if condition is None else _used(names, condition)
        needs = Needs.of(used, time=self.within.since_ns > 0 or self.within.until_ns < END)
        try:
            for columns in self._source.read(self.stream, wanted, needs, self.upto):
                self.scans.rows_read += columns.count
                self.scans.bytes_read += columns.nbytes
                batch = to_batch(columns, used, self._decode)
                inside = _inside(columns, self.within)
                if inside is not None:
                    batch = batch.filter(inside)
                yield from _batches(batch, names, condition)
        except Exception as error:
            # DuckDB makes a text of it; Database.query raises the error itself
            self.scans.error = self.scans.error or error
            raise


def _inside(columns: Columns, within: Selection) -> pa.Array | None:
    """Which rows the table itself has; None for all. No filter of DuckDB repeats that."""
    kept = None
    if within.first > 1 or within.stop < END:
        seq = arrow.fixed(columns.count, columns.seq)
        kept = pc.and_(pc.greater_equal(seq, within.first), pc.less(seq, within.stop))
    if within.since_ns or within.until_ns < END:
        ns = arrow.fixed(columns.count, columns.timestamp_ns)
        timely = pc.and_(pc.greater_equal(ns, within.since_ns), pc.less(ns, within.until_ns))
        kept = timely if kept is None else pc.and_(kept, timely)
    if within.subjects is not None:
        known = arrow.variable(
            pa.binary(), columns.count, columns.subject_offsets, columns.subject_data
        ).dictionary_encode()
        names = [each.decode("utf-8", "surrogateescape") for each in known.dictionary.to_pylist()]
        wanted = [any(matches(name, each) for each in within.subjects) for name in names]
        there = arrow.flags(wanted).take(known.indices)
        kept = there if kept is None else pc.and_(kept, there)
    return kept


class _Scanner:
    """The object from which DuckDB gets a reader."""

    def __init__(self, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        self.projected_schema = schema
        self._batches = batches

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows; read once."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._batches)


def _used(names: list[str], condition: pc.Expression) -> list[str]:
    """The columns of the result, and behind them those of the filter alone."""
    try:
        wanted = fields_of(condition)
    except UnreadableError:
        wanted = set(SCHEMA.names)
    return names + [name for name in SCHEMA.names if name in wanted and name not in names]


def _batches(
    batch: pa.RecordBatch, names: list[str], condition: pc.Expression | None
) -> Iterator[pa.RecordBatch]:
    if condition is None:
        if batch.num_rows:
            yield batch.select(names)
        return
    table = pa.Table.from_batches([batch]).filter(condition).select(names)
    yield from (each for each in table.to_batches() if each.num_rows)


def to_batch(
    columns: Columns, names: Sequence[str], decode: Decode | None = None
) -> pa.RecordBatch:
    """The named columns; they share the memory of ``columns``, but for those that are made of it."""
    arrays = [
        _decoded_text(columns, decode) if decode and name == "text" else _MAKERS[name](columns)
        for name in names
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([SCHEMA.field(n) for n in names]))


def _text(columns: Columns) -> pa.Array:
    made = arrow.variable(pa.string(), columns.count, columns.payload_offsets, columns.payload_data)
    try:
        made.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([_decoded(each) for each in _data(columns).to_pylist()], pa.string())
    return made


def _decoded_text(columns: Columns, decode: Decode) -> pa.Array:
    found: list[str | None] = []
    for _, _, subject, _, data in columns.rows():
        try:
            found.append(json.dumps(decode(subject, data), ensure_ascii=False))
        except ValueError:
            found.append(None)
    return pa.array(found, pa.string())


def _decoded(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _data(columns: Columns) -> pa.Array:
    return arrow.variable(pa.binary(), columns.count, columns.payload_offsets, columns.payload_data)


_MAKERS: dict[str, Callable[[Columns], pa.Array]] = {
    "seq": lambda columns: arrow.fixed(columns.count, columns.seq),
    "ts": arrow.times,
    "subject": lambda columns: arrow.strings(
        columns.count, columns.subject_offsets, columns.subject_data
    ),
    "headers": arrow.headers,
    "data": _data,
    "text": _text,
    "size": lambda columns: arrow.fixed(columns.count, message_sizes(columns)),
    "ts_ns": lambda columns: arrow.fixed(columns.count, columns.timestamp_ns),
}
