"""Messages of a stream in files: JSON lines, Parquet, archives of nats-server; written and read.

    jsonl     a message on each line, as `pelton stream view --json` prints it
    parquet   one file, or a folder of files that are named after their sequences
    archive   NATSARC1 in a compressed file, or a folder that `stream restore` takes (`backup.json` beside it)

``form_of`` tells the form by the name. A writer takes batches; a reader gives rows in the file's order.
"""

from __future__ import annotations

import io
import os
import tempfile
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

import click
import msgspec

from pelton.api.times import format_time, parse_time
from pelton.cli.output import payload, payload_of
from pelton.cli.streams.ranges import Row
from pelton.errors import not_installed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pelton.api.streams import StreamConfig
    from pelton.core.bulk.columns import Columns

FORMS = ("jsonl", "parquet", "archive")
_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".natsarc": "archive"}
FACTS, ARCHIVE = "backup.json", "stream.tar.s2"
COLUMNS = ("seq", "ts", "subject", "headers", "data", "ts_ns")
_PIECE = 1 << 20


def form_of(path: Path, given: str | None) -> str:
    """The form of a file; UsageError when its name does not say it."""
    if given:
        return given
    if str(path) == "-":
        return "jsonl"
    found = _SUFFIXES.get(path.suffix)
    if found is None and path.is_dir():
        found = "archive" if (path / FACTS).exists() else "parquet"
    if found is None:
        raise click.UsageError(
            f"the name {path} says no format: end it with {', '.join(_SUFFIXES)}, or give --format"
        )
    return found


def is_folder(path: Path, form: str) -> bool:
    """Whether the form has a folder of that name."""
    return form != "jsonl" and path.suffix not in _SUFFIXES


class Writer(Protocol):
    """Where messages go."""

    def write(self, columns: Columns) -> None:
        """Take more messages."""

    def end(self) -> None:
        """End the file, and sync it."""


# -- JSON lines ---------------------------------------------------------------------------------------


class JsonLines:
    """A message on each line; the file can be continued."""

    def __init__(self, file: BinaryIO) -> None:
        """Into an open file, which stays open."""
        self._file = file

    def write(self, columns: Columns) -> None:
        """Take more messages."""
        encode = msgspec.json.encode
        lines: list[bytes] = []
        for row in columns.rows():
            lines += (encode(as_data(Row(*row))), b"\n")
        self._file.write(b"".join(lines))

    def end(self) -> None:
        """Write everything."""
        self._file.flush()


def as_data(row: Row) -> dict[str, object]:
    """A message as JSON holds it."""
    data: dict[str, object] = {
        "subject": row.subject.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
        "seq": row.seq,
        "time": format_time(row.ts_ns),
    }
    if row.headers:
        data["headers"] = row.decoded()
    return data | payload(row.data)


def last_line(path: Path) -> tuple[int, int]:
    """(bytes of the complete lines, sequence of the last one) of a file that was cut off."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        tail, at = b"", end
        while at and tail.count(b"\n") < 2:
            step = min(at, _PIECE)
            at -= step
            file.seek(at)
            tail = file.read(step) + tail
    whole = tail[: tail.rfind(b"\n") + 1]
    if not whole:
        return 0, 0
    last = whole[:-1].rpartition(b"\n")[2]
    try:
        return at + len(whole), int(msgspec.json.decode(last)["seq"])
    except (msgspec.DecodeError, KeyError, TypeError, ValueError):
        raise click.UsageError(
            f"{path} does not end with a message: it can't be continued"
        ) from None


def read_lines(file: BinaryIO, name: str) -> Iterator[Row]:
    """The messages of lines; UsageError names the line that is wrong."""
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        try:
            found = msgspec.json.decode(line)
            yield _row(found)
        except (ValueError, TypeError, AttributeError) as error:
            raise click.UsageError(f"{name}, line {number}: {error}") from None


def _row(found: Any) -> Row:
    if not isinstance(found, dict):
        raise ValueError("expected an object")  # of the file, told as any mistake in it
    subject, seq, time = found.get("subject", ""), found.get("seq", 0), found.get("time")
    headers = found.get("headers") or {}
    if not isinstance(subject, str) or not isinstance(seq, int) or not isinstance(headers, dict):
        raise ValueError("expected a text subject, a number seq, an object headers")
    data = payload_of(found) if "data" in found or "data_base64" in found else b""
    return Row(seq, parse_time(time) if time else 0, subject, encoded(headers), data)


def encoded(headers: dict[str, Any]) -> bytes:
    """The block of a map of headers; ValueError for an invalid header."""
    from pelton.client.base.message import encode_header_map

    for values in headers.values():
        if not isinstance(values, str | list) or not all(isinstance(v, str) for v in values):
            raise ValueError("expected texts, or lists of texts, in headers")
    return encode_header_map(headers)


# -- Parquet --------------------------------------------------------------------------------------------


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as problem:
        raise click.ClickException(str(not_installed(problem, "sql"))) from None
    return pyarrow


def _schema(config: StreamConfig) -> Any:
    pa = _pyarrow()  # first: the modules below import it
    from pelton.api.codec import encode
    from pelton.arrow import HEADERS, TIMESTAMP

    kinds = (pa.int64(), TIMESTAMP, pa.string(), HEADERS, pa.binary(), pa.int64())
    fields = list(zip(COLUMNS, kinds, strict=True))
    return pa.schema(fields, metadata={b"pelton.stream": encode(config)})


def _batch(columns: Columns, schema: Any) -> Any:
    pa = _pyarrow()
    from pelton import arrow

    count = columns.count
    arrays = [
        arrow.fixed(count, columns.seq),
        arrow.times(columns),
        arrow.strings(count, columns.subject_offsets, columns.subject_data),
        arrow.headers(columns),
        arrow.variable(pa.binary(), count, columns.payload_offsets, columns.payload_data),
        arrow.fixed(count, columns.timestamp_ns),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class ParquetFile:
    """One file, compressed with zstd."""

    def __init__(self, file: BinaryIO, config: StreamConfig) -> None:
        """Into an open file, which stays open."""
        _pyarrow()  # complains early when it is missing
        from pelton.cli import parquet

        self._schema = _schema(config)
        self._writer = parquet.writer(file, self._schema)

    def write(self, columns: Columns) -> None:
        """Take more messages."""
        self.write_batch(_batch(columns, self._schema))

    def write_batch(self, batch: Any) -> None:
        """Take a batch of ``COLUMNS``."""
        self._writer.write_batch(batch)

    def end(self) -> None:
        """Write the end of the file."""
        self._writer.close()


class ParquetFolder:
    """A folder of files ``<first sequence>-<last sequence>.parquet``; it can be continued."""

    def __init__(self, folder: Path, config: StreamConfig, rows_max: int) -> None:
        """Makes the folder."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in folder.glob("*.part"):
            left.unlink()
        self._folder, self._config, self._rows_max = folder, config, rows_max
        self._file: BinaryIO | None = None
        self._writer: ParquetFile | None = None
        self._rows = self._first = self._last = 0

    @staticmethod
    def last_seq(folder: Path) -> int:
        """The last sequence of the complete files; 0: there are none."""
        return max((end for _, end, _ in parts(folder)), default=0)

    def write(self, columns: Columns) -> None:
        """Take more messages."""
        batch = _batch(columns, _schema(self._config))
        while batch.num_rows:
            if self._writer is None:
                self._file = (self._folder / "next.part").open("wb")
                self._writer = ParquetFile(self._file, self._config)
                self._first, self._rows = batch.column(0)[0].as_py(), 0
            part = batch.slice(0, self._rows_max - self._rows)
            batch = batch.slice(part.num_rows)
            self._writer.write_batch(part)
            self._rows += part.num_rows
            self._last = part.column(0)[-1].as_py()
            if self._rows >= self._rows_max:
                self.end()

    def end(self) -> None:
        """Complete the file that is written to."""
        if self._writer is None or self._file is None:
            return
        self._writer.end()
        synced(self._file)
        self._file.close()
        self._writer = None
        name = f"{self._first:020}-{self._last:020}.parquet"
        os.rename(self._folder / "next.part", self._folder / name)


def parts(folder: Path) -> list[tuple[int, int, Path]]:
    """The files of a folder with their sequences, in order."""
    found = []
    for path in folder.glob("*.parquet"):
        first, _, last = path.stem.partition("-")
        if first.isdigit() and last.isdigit():
            found.append((int(first), int(last), path))
    return sorted(found)


def read_parquet(path: Path) -> Iterator[Row]:
    """The messages of a file, or of the files of a folder in the order of their names."""
    pa = _pyarrow()
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise click.UsageError(f"{path} has no Parquet files")
    for each in files:
        try:
            opened = pa.parquet.ParquetFile(each)
        except pa.ArrowInvalid as error:
            raise click.UsageError(f"{each}: {error}") from None
        names = set(opened.schema_arrow.names)
        data = next((name for name in ("data", "text", "value") if name in names), None)
        if data is None:
            raise click.UsageError(f"{each} has no column data or text")
        wanted = [n for n in ("seq", "ts_ns", "ts", "subject", "headers") if n in names]
        for batch in opened.iter_batches(columns=[*wanted, data]):
            yield from _parquet_rows(batch, data)


def _parquet_rows(batch: Any, data: str) -> Iterator[Row]:
    pa = _pyarrow()

    def column(name: str, default: Any) -> Iterable[Any]:
        if name not in batch.schema.names:
            return [default] * batch.num_rows
        found: list[Any] = batch.column(name).to_pylist()
        return found

    times = column("ts_ns", None)
    if "ts_ns" not in batch.schema.names and "ts" in batch.schema.names:
        times = batch.column("ts").cast(pa.timestamp("ns")).cast(pa.int64()).to_pylist()
    rows = zip(
        column("seq", 0),
        times,
        column("subject", ""),
        column("headers", None),
        column(data, None),
        strict=True,
    )
    for seq, ts_ns, subject, headers, body in rows:
        block = encoded(dict(headers)) if headers else b""
        text = body.encode() if isinstance(body, str) else body or b""
        yield Row(seq or 0, ts_ns or 0, subject or "", block, text)


# -- archives -------------------------------------------------------------------------------------------


class Archive:
    """NATSARC1, compressed. The counts that stand first are known last, so the rest waits in a file."""

    def __init__(self, file: BinaryIO, folder: Path) -> None:
        """Into an open file, which stays open; ``folder``: where the rest waits."""
        self._file = file
        self._rest = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # closed by end()
        self.state: dict[str, Any] = {
            "messages": 0,
            "bytes": 0,
            "first_seq": 0,
            "first_ts": "0001-01-01T00:00:00Z",
            "last_seq": 0,
            "last_ts": "0001-01-01T00:00:00Z",
            "consumer_count": 0,
        }

    def write(self, columns: Columns) -> None:
        """Take more messages."""
        from pelton.api.archives import packed

        rows = columns.rows()
        state = self.state
        if not state["messages"]:
            state["first_seq"], state["first_ts"] = rows[0][0], format_time(rows[0][1])
        state["last_seq"], state["last_ts"] = rows[-1][0], format_time(rows[-1][1])
        state["messages"] += len(rows)
        entries = [packed(subject, ts, seq, head, data) for seq, ts, subject, head, data in rows]
        self._rest.write(b"".join(entries))
        state["bytes"] += sum(map(len, entries)) + 16 * len(entries)

    def end(self) -> None:
        """Write the archive."""
        from pelton.api.archives import END, MAGIC, STATE, packed
        from pelton.core.base.s2 import FrameWriter

        frames = FrameWriter()
        state = msgspec.json.encode(self.state)
        frames.put(MAGIC + packed(STATE, 0, 0, b"", state))
        self._rest.seek(0)
        while piece := self._rest.read(_PIECE):
            frames.put(piece)
            self._take(frames)
        frames.put(END)
        frames.finish()
        self._take(frames)
        self._rest.close()

    def _take(self, frames: Any) -> None:
        while len(frames):
            self._file.write(frames.take(_PIECE))


def synced(file: BinaryIO) -> None:
    """Sync the written bytes."""
    file.flush()
    if isinstance(file, io.BufferedWriter):
        os.fsync(file.fileno())
