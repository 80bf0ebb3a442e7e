"""Rows of one task as Parquet files with unique names, for any kind of table.

A name has the write, the task and a number, in a folder for each value of the partition columns::

    day=2026-11-20/4f1d...-000000007-2b9e61a0-00001-3-000.parquet
                   |       |         |        |     | number in the task
                   |       |         |        |     attempt of the task
                   |       |         |        task
                   |       |         this try of the batch
                   |       batch
                   query

So no try ever overwrites a file that another one has committed. Readers use the values in the table,
not the folders' names: a value that cannot be a name is written in part, with a hash.

Commits nothing, and uses only the folder of a table: subclasses of
:class:`ParquetFiles` make the description of a file for their table.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from pelton.spark.tables.evolution import conformed
from pelton.spark.tables.places import TableError, to_disk
from pelton.spark.tables.seen import CHOICES, Seen, in_footer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pelton.spark.tables.places import Folder
    from pelton.spark.tables.syncing import Syncs
    from pelton.spark.tables.table import Target

ROW_GROUP_ROWS = 128 * 1024
_HELD_BYTES = 64 * 2**20
_OPEN_FILES = 64

Values = tuple[Any, ...]
Told = TypeVar("Told")


@dataclass
class _Open:
    """A file that is being written, and the rows that wait for their row group."""

    path: str
    partition: Values
    sink: Any
    writer: Any = None
    footers: list[pq.FileMetaData] = field(default_factory=list)
    held: list[pa.RecordBatch] = field(default_factory=list)
    held_rows: int = 0
    held_bytes: int = 0
    rows: int = 0
    seen: Seen = field(default_factory=Seen)


class ParquetFiles(ABC, Generic[Told]):
    """Writes the rows of one task.

    Use it as a context manager: after an error it removes its files, which are in no table yet. A
    subclass defines with :meth:`_value` and :meth:`_told` the description of a file for its table.
    """

    def __init__(
        self,
        place: Folder,
        schema: pa.Schema,
        prefix: str,
        *,
        partition_by: Sequence[str] = (),
        rows_per_file: int | None = None,
        bytes_per_file: int | None = None,
        left_out: Sequence[str] = (),
        syncs: Syncs | None = None,
    ) -> None:
        """``schema`` is that of the rows, in the table's types.

        No other attempt uses ``prefix``; ``left_out`` are columns that files do not hold. A file that has
        ``bytes_per_file`` gets no more row groups. With ``syncs`` the files are on the disk when these have
        been waited for, not before.
        """
        self._place = place
        self._syncs = syncs
        self._files = place.files()
        self._schema = schema
        self._body = pa.schema([f for f in schema if f.name not in left_out])
        self._statistics = in_footer(self._body)
        self._partition_by = tuple(partition_by)
        self._prefix = prefix
        self._rows_per_file = rows_per_file
        self._bytes_per_file = bytes_per_file
        self._open: dict[Values, _Open] = {}
        self._held_bytes = 0
        self._number = 0
        self._made: list[str] = []
        self._done: list[Told] = []
        self._paths: list[str] = []

    def __enter__(self) -> Self:
        """Creates no file; the first row does."""
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """After an error, close and remove all files; a failure here does not replace the error."""
        if kind is None:
            return
        for each in self._open.values():
            for part in (each.writer, each.sink):
                with contextlib.suppress(Exception):  # also RuntimeError, after a failed write
                    part.close()
        for path in self._made:
            with contextlib.suppress(Exception):
                self._files.delete_file(path)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Turn errors of files and folders into the error of a table."""
        try:
            yield
        except (OSError, pa.ArrowException) as problem:
            raise TableError(f"cannot write files of {self._place}: {problem}") from problem

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows, whose columns are found by their names; those of the schema that they lack are null.

        Raises :class:`TableError` when they cannot be written.
        """
        if not batch.num_rows:
            return
        with self._writing():
            batch = conformed(batch, self._schema)
        for values, part in self._split(batch):
            with self._writing():
                self._hold(values, part)

    def finish(self) -> list[Told]:
        """Write the held rows, close all files, and sync them or have them synced; returns those that have rows.

        Raises :class:`TableError` when they cannot be written.
        """
        with self._writing():
            for values in list(self._open):
                self._close(values)
            folder = self._place.folder
            if folder is not None:
                names = {folder / above for path in self._paths for above in Path(path).parents}
                if self._syncs is not None:
                    self._syncs.folders(names)
                else:
                    for one in sorted(names, reverse=True):
                        to_disk(one)
        return self._done

    def _hold(self, values: Values, part: pa.RecordBatch) -> None:
        each = self._open.pop(values, None) or self._begin(values)
        self._open[values] = each  # keeps the most recently used file last
        each.held.append(part)
        each.held_rows += part.num_rows
        each.held_bytes += part.nbytes
        self._held_bytes += part.nbytes
        if each.held_rows >= ROW_GROUP_ROWS:
            self._flush(each)
        if self._held_bytes > _HELD_BYTES:
            self._flush(max(self._open.values(), key=lambda one: one.held_bytes))
        if self._is_full(each):
            self._close(values)

    def _is_full(self, each: _Open) -> bool:
        if self._rows_per_file and each.rows + each.held_rows >= self._rows_per_file:
            return True
        written = self._bytes_per_file is not None and not each.held
        return bool(written and each.sink.tell() >= self._bytes_per_file)

    def _begin(self, values: Values) -> _Open:
        if len(self._open) >= _OPEN_FILES:
            self._close(next(iter(self._open)))
        folders = [
            f"{folder_name(name)}={folder_name(partition_text(value))}/"
            for name, value in zip(self._partition_by, values, strict=True)
        ]
        path = f"{''.join(folders)}{self._prefix}-{self._number:03d}.parquet"
        self._number += 1
        self._made.append(path)
        if self._place.folder is not None:
            self._files.create_dir(str(Path(path).parent), recursive=True)
        sink = self._files.open_output_stream(path)
        return _Open(path, values, sink)

    def _flush(self, each: _Open) -> None:
        if each.held:
            rows = pa.Table.from_batches(each.held)
            each.seen.add(rows)
            if each.writer is None:
                each.writer = pq.ParquetWriter(
                    each.sink,
                    self._body,
                    compression="zstd",
                    use_dictionary=CHOICES.of(str(self._place), rows),
                    write_statistics=self._statistics,
                    metadata_collector=each.footers,
                )
            each.writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)
        each.rows += each.held_rows
        self._held_bytes -= each.held_bytes
        each.held, each.held_rows, each.held_bytes = [], 0, 0

    def _close(self, values: Values) -> None:
        each = self._open[values]
        self._flush(each)
        each.writer.close()
        size = each.sink.tell()
        each.sink.close()
        if self._place.folder is not None:
            sync = to_disk if self._syncs is None else self._syncs.file
            sync(self._place.folder / each.path)
        del self._open[values]
        partition = tuple(zip(self._partition_by, values, strict=True))
        self._paths.append(each.path)
        self._done.append(self._told(each.path, size, each.footers[0], partition, each.seen))

    def _split(self, batch: pa.RecordBatch) -> Iterator[tuple[Values, pa.RecordBatch]]:
        """The rows by values of the partition columns, in their order."""
        inner = batch.select(self._body.names)
        if not self._partition_by:
            yield (), inner
            return
        names = list(self._partition_by)
        rows = pa.table([batch.column(name) for name in names], names=names)
        found = rows.group_by(names, use_threads=False).aggregate([]).slice(0, 2).to_pylist()
        if len(found) == 1:
            yield tuple(self._value(found[0][name]) for name in names), inner
            return
        numbered = rows.append_column(" row", pa.array(range(batch.num_rows), pa.int32()))
        grouped = numbered.group_by(names, use_threads=False)
        for group in grouped.aggregate([(" row", "list")]).to_pylist():
            values = tuple(self._value(group[name]) for name in names)
            yield values, inner.take(pa.array(group[" row_list"], pa.int32()))

    @abstractmethod
    def _value(self, value: Any) -> Any:
        """A value of a partition column in the form of the table; hashable."""

    @abstractmethod
    def _told(
        self,
        path: str,
        size: int,
        footer: pq.FileMetaData,
        partition: tuple[tuple[str, Any], ...],
        seen: Seen,
    ) -> Told:
        """The description of a file for the table, from its footer and from what was seen of its
        rows.
        """


def write_rows(
    batches: Iterable[pa.RecordBatch],
    target: Target,
    prefix: str,
    rows_per_file: int | None = None,
    *,
    syncs: Syncs | None = None,
) -> list[Any]:
    """Write batches as files named ``PREFIX-<number>.parquet``; none when there are no rows.

    With ``syncs`` they are on the disk when these have been waited for. Raises :class:`TableError` when they cannot
    be written, on a full disk for instance, and then leaves no file.
    """
    try:
        opened = target.open(prefix, rows_per_file=rows_per_file, syncs=syncs)
    except OSError as problem:
        raise TableError(f"cannot write files of {target.folder}: {problem}") from problem
    with opened as files:
        for batch in batches:
            files.write(batch)
        return files.finish()


def partition_text(value: Any) -> str | None:
    """A partition value as text for the log; the empty string is null there."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.datetime):
        # Without a zone: it is UTC where the column has one.
        text = value.replace(tzinfo=None).isoformat(" ", timespec="microseconds")
        return text.removesuffix(".000000")
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return str(value)


def folder_name(text: str | None) -> str:
    """The name of a folder for a value; different values have different names.

    It has only characters that a URL leaves unchanged: the log holds paths as URLs, and not every reader
    decodes them.
    """
    if text is None:
        return "__HIVE_DEFAULT_PARTITION__"
    if re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", text) and not re.search(r"^__|-[0-9a-f]{12}$", text):
        return text
    safe = re.sub(r"[^A-Za-z0-9_.-]", "_", text)[:32]
    return f"{safe}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
