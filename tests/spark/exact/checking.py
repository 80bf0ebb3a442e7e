"""A table against the ledger, a stream against a table: row by row, each once.

What a fault is called: ``missing``, ``doubled``, ``foreign`` (nobody published it there, or it was
removed before reading began), and ``changed`` with the name of the column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from deltalake import DeltaTable

from tests.spark.exact.job import KEYS
from tests.spark.exact.ledger import MAY, MUST, NEVER, Ledger
from tests.spark.exact.reading import Message
from tests.spark.exact.shapes import Headers, digest

_EXAMPLES = 10
_BATCH_ROWS = 2000
# Headers that say how a message was published: a copy has others.
_PUBLISHING = ("nats-msg-id", "nats-expected-", "nats-batch-")


class Row(NamedTuple):
    """One row of a table."""

    stream: str
    seq: int
    subject: str
    headers: Headers
    digest: bytes
    time_us: int


@dataclass
class Verdict:
    """What came of a comparison."""

    rows: int = 0
    expected: int = 0
    removed: int = 0
    """Rows of messages that were removed while the streams were read."""
    faults: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def fault(self, kind: str, text: str) -> None:
        """Count a fault, and keep the first ones in words."""
        self.faults[kind] += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append(f"{kind}: {text}")


def rows_of(path: str) -> Iterator[Row]:
    """The rows of a table, as a reader of Delta that is not ours finds its files."""
    columns = ["stream", "seq", "subject", "headers", "data", "ts"]
    for uri in DeltaTable(path).file_uris():
        with pq.ParquetFile(uri) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=columns):
                stream, seq, subject, headers, data = (
                    batch.column(name).to_pylist() for name in columns[:5]
                )
                ts = batch.column("ts").cast("int64").to_pylist()
                for at in range(batch.num_rows):
                    yield Row(
                        stream[at],
                        seq[at],
                        subject[at],
                        tuple(sorted((k, tuple(v)) for k, v in headers[at] or ())),
                        digest(data[at]),
                        ts[at],
                    )


def check_table(rows: Iterable[Row], ledger: Ledger, *, static: bool = False) -> Verdict:
    """A table of all streams; `static`: nothing was removed while it was made, so that nothing
    removed may be in it.
    """
    verdict = Verdict(expected=ledger.count(MUST))
    seen = {name: set[int]() for name in ledger.streams}
    for row in rows:
        verdict.rows += 1
        where = f"{row.stream} {row.seq}"
        state = ledger.streams[row.stream].state(row.seq) if row.stream in seen else None
        if state is None or state == NEVER or (static and state == MAY):
            verdict.fault("foreign", f"{where} is {state or 'unknown'}")
            continue
        if row.seq in seen[row.stream]:
            verdict.fault("doubled", where)
            continue
        seen[row.stream].add(row.seq)
        verdict.removed += state == MAY
        _compare(row, where, ledger, verdict)
    for name, seq in ledger.places(MUST):
        if seq not in seen[name]:
            verdict.fault("missing", f"{name} {seq}, message {ledger.streams[name].numbers[seq]}")
    return verdict


def _compare(row: Row, where: str, ledger: Ledger, verdict: Verdict) -> None:
    shape = ledger.shape(row.stream, row.seq)
    if row.subject != shape.subject:
        verdict.fault("changed subject", f"{where}: {row.subject} was {shape.subject}")
    if row.headers != shape.headers:
        verdict.fault("changed headers", f"{where}: {row.headers} were {shape.headers}")
    if row.digest != digest(shape.payload):
        verdict.fault("changed data", where)
    first, last = ledger.stored_between_us(row.stream, row.seq)
    if not first <= row.time_us <= last:
        verdict.fault("changed ts", f"{where}: {row.time_us} is not {first} to {last}")


def check_upserted(rows: Iterable[Row], found: Iterable[dict[str, Any]]) -> Verdict:
    """A table with the newest row of each key and the number of its rows, made from the rows of another one."""
    wanted: dict[tuple[str, int], tuple[int, int]] = {}
    for row in rows:
        key = row.stream, row.seq % KEYS
        newest, count = wanted.get(key, (0, 0))
        wanted[key] = max(newest, row.seq), count + 1
    verdict = Verdict(expected=sum(count for _, count in wanted.values()))
    seen = set[tuple[str, int]]()
    for one in found:
        key = one["stream"], one["k"]
        verdict.rows += one["n"]
        newest, count = wanted.get(key, (0, 0))
        if key in seen:
            verdict.fault("doubled key", f"{key}")
        elif one["n"] != count:
            kind = "doubled" if one["n"] > count else "missing"
            verdict.fault(kind, f"{key}: {one['n']} rows, {count} were to be counted")
        elif one["seq"] != newest:
            verdict.fault("changed seq", f"{key}: {one['seq']} was {newest}")
        seen.add(key)
    for key in wanted.keys() - seen:
        verdict.fault("missing", f"{key}")
    return verdict


def essence(subject: str, headers: Headers, data_digest: bytes) -> bytes:
    """What a message and a copy of it under the same subject have in common, short."""
    kept = tuple(pair for pair in headers if not pair[0].lower().startswith(_PUBLISHING))
    return digest(repr((subject, kept)).encode() + data_digest)


def check_copy(
    rows: Iterable[Row], messages: Iterable[Message], *, prefix: str, marks: str = "spark.progress."
) -> Verdict:
    """A stream that a table was written into, with `prefix` before the subjects. No two rows are
    alike, so each must be found once. Messages with subjects that begin with `marks` are the sink's.
    """
    wanted: Counter[bytes] = Counter()
    names: dict[bytes, str] = {}
    verdict = Verdict()
    for row in rows:
        key = essence(prefix + row.subject, row.headers, row.digest)
        wanted[key] += 1
        names[key] = f"{row.stream} {row.seq} {row.subject}"
    verdict.expected = wanted.total()
    if len(wanted) != verdict.expected:
        raise AssertionError("rows of the table are alike; this comparison would be blind")
    found: Counter[bytes] = Counter()
    for message in messages:
        if message.subject.startswith(marks):
            continue
        verdict.rows += 1
        key = essence(message.subject, message.headers, digest(message.payload))
        found[key] += 1
        if key not in wanted:
            verdict.fault("foreign", f"{message.seq} {message.subject} {message.headers}"[:300])
        elif found[key] > 1:
            verdict.fault("doubled", f"{names[key]}, again at {message.seq}")
    for key in wanted.keys() - found.keys():
        verdict.fault("missing", names[key])
    return verdict
