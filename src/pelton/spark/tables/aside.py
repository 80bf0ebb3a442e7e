"""Rows that a table cannot hold: the write fails, or they go aside as Parquet files with the reason.

A file is named ``<query>-<batch>-<partition>.parquet``, so a batch that runs again replaces it. It
has the numbers of the row, its sequence if the rows have a column ``seq``, the reason, and the whole
row as ``data``, with its texts as bytes::

    writer   epoch   partition   row   seq   reason                             data
    5f1c...  41      0           7     1207  column name is not UTF-8: b'\\xff'   {name: b'\\xff', ...}

Does not depend on the kind of table.
"""

from __future__ import annotations

import uuid
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

from pelton.spark.tables.places import TableError
from pelton.spark.unfit import unfit_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pelton.spark.tables.aside_options import AsideOptions

SEQUENCE = "seq"


class RowUnfit(Exception):
    """A row that the table cannot hold, now or when Spark runs the task again."""


class Aside:
    """The rows of one task that the table cannot hold."""

    def __init__(
        self,
        options: AsideOptions,
        writer: str,
        epoch: int,
        partition: int,
        required: Sequence[str] = (),
    ) -> None:
        """Writes nothing yet. A null in a column of ``required`` does not fit."""
        self.count = 0
        """The number of rows that went aside."""
        self._options = options
        self._required = required
        self._task = (writer, epoch, partition)
        self._rows = 0
        self._file: pq.ParquetWriter | None = None
        self._unfinished: Path | None = None

    def fit(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that the table can hold.

        Raises :class:`RowUnfit` for another one where that fails the write.
        """
        for batch in batches:
            unfit = unfit_rows(batch)
            for name in self._required:
                for row in pc.indices_nonzero(pc.is_null(batch.column(name))).to_pylist():
                    unfit.setdefault(row, f"column {name} is null")
            if unfit:
                self._add(batch, unfit)
                kept = [row not in unfit for row in range(batch.num_rows)]
                yield batch.filter(pa.array(kept, pa.bool_()))
            else:
                yield batch
            self._rows += batch.num_rows

    def _add(self, batch: pa.RecordBatch, unfit: Mapping[int, str]) -> None:
        sequences = batch.column(SEQUENCE) if SEQUENCE in batch.schema.names else None
        if self._options.error_path is None:
            row, reason = min(unfit.items())
            about = "" if sequences is None else f" (seq {sequences[row].as_py()})"
            raise RowUnfit(
                f"row {self._rows + row} of partition {self._task[2]}{about} cannot be written:"
                f" {reason}. To write the others, set onRowError to side"
            )
        rows = sorted(unfit)
        taken = batch.take(pa.array(rows, pa.int64()))
        count = len(rows)
        writer, epoch, partition = self._task
        plain = [_as_bytes(column) for column in taken.columns]
        columns = {
            "writer": pa.array([writer] * count, pa.string()),
            "epoch": pa.array([epoch] * count, pa.int64()),
            "partition": pa.array([partition] * count, pa.int32()),
            "row": pa.array([self._rows + row for row in rows], pa.int64()),
            "seq": pa.nulls(count, pa.int64())
            if sequences is None or not types.is_integer(sequences.type)
            else taken.column(SEQUENCE).cast(pa.int64()),
            "reason": pa.array([unfit[row] for row in rows], pa.string()),
            "data": pa.StructArray.from_arrays(plain, names=batch.schema.names),
        }
        self.count += count
        try:
            self._write(pa.record_batch(columns))
        except (OSError, pa.ArrowException) as error:
            raise self._failure(error) from error

    def _write(self, rows: pa.RecordBatch) -> None:
        if self._file is None:
            path = self._path()
            path.parent.mkdir(parents=True, exist_ok=True)
            self._unfinished = path.with_suffix(f".{uuid.uuid4().hex}.tmp")
            self._file = pq.ParquetWriter(self._unfinished, rows.schema)
        self._file.write_batch(rows)

    def close(self) -> None:
        """Complete the file; without rows, remove that of an earlier attempt."""
        if self._options.error_path is None:
            return
        try:
            if self._file is None or self._unfinished is None:
                self._path().unlink(missing_ok=True)
            else:
                self._file.close()
                self._unfinished.replace(self._path())
        except (OSError, pa.ArrowException) as error:
            raise self._failure(error) from error

    def warn(self, *, stacklevel: int) -> None:
        """Warn of the rows that went aside, if there are some."""
        if self.count:
            warnings.warn(aside_text(self.count, self._options), stacklevel=stacklevel + 1)

    def _path(self) -> Path:
        writer, epoch, partition = self._task
        return Path(self._options.error_path or "") / f"{writer}-{epoch}-{partition}.parquet"

    def _failure(self, error: Exception) -> TableError:
        return TableError(f"cannot write the side output {self._path()}: {error}")


def aside_text(count: int, options: AsideOptions) -> str:
    """The warning about rows that went aside."""
    return f"{count} rows could not be written into the table; they are in {options.error_path}"


def _as_bytes(column: pa.Array) -> pa.Array:
    return column.cast(_bytes_type(column.type))


def _bytes_type(kind: pa.DataType) -> pa.DataType:
    """The type with bytes in place of texts."""
    if types.is_string(kind) or types.is_large_string(kind):
        return pa.binary() if types.is_string(kind) else pa.large_binary()
    if types.is_map(kind):
        return pa.map_(_bytes_type(kind.key_type), _bytes_type(kind.item_type))
    if types.is_list(kind):
        return pa.list_(_bytes_type(kind.value_type))
    if types.is_struct(kind):
        inner = [kind.field(number) for number in range(kind.num_fields)]
        return pa.struct([pa.field(each.name, _bytes_type(each.type)) for each in inner])
    return kind
