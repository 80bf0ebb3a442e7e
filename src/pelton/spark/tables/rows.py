"""The rows of a table's files as Arrow batches, for the executors.

Columns that a file lacks are null, and so are fields of structs; partition columns have the value in the log.

Does not depend on logs or versions.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from pelton.spark.tables.evolution import conformed_array
from pelton.spark.tables.places import TableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pelton.spark.tables.places import Folder
    from pelton.spark.tables.table import StoredFile

_SMALL_BYTES = 2**20
"""A file below this is read by one thread: to wake others takes longer than to read it."""


def read_files(
    place: Folder, files: Iterable[StoredFile], schema: pa.Schema, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    """The rows of ``files`` with the columns and types of ``schema``.

    Raises :class:`TableError` when a file is gone or does not match the table.
    """
    system = place.files()
    for file in files:
        try:
            with system.open_input_file(file.path) as source:
                yield from _rows(source, file, schema, batch_rows)
        except FileNotFoundError:
            raise TableError(
                f"{file.path} of {place} is missing: a vacuum removed a file that this version of the"
                " table needs. Read a newer version, or let vacuum keep files for longer"
            ) from None
        except pa.ArrowException as problem:
            raise TableError(f"{file.path} of {place} cannot be read: {problem}") from None


def ahead(batches: Iterator[pa.RecordBatch], many: int = 4) -> Iterator[pa.RecordBatch]:
    """The same batches; a thread reads up to ``many`` ahead while the caller works on earlier ones."""
    with ThreadPoolExecutor(1) as reader:
        coming = deque(reader.submit(next, batches, None) for _ in range(many))
        while (batch := coming.popleft().result()) is not None:
            coming.append(reader.submit(next, batches, None))
            yield batch


def _rows(
    source: pa.NativeFile, file: StoredFile, schema: pa.Schema, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    parquet = pq.ParquetFile(source, coerce_int96_timestamp_unit="us", pre_buffer=True)
    partition = dict(file.partition)
    stored = set(parquet.schema_arrow.names) - partition.keys()
    fixed = {
        field.name: _value(partition.get(field.name), field.type)
        for field in schema
        if field.name not in stored
    }
    groups = range(file.part, parquet.num_row_groups, file.parts)
    columns = [name for name in schema.names if name in stored]
    threads = file.size >= _SMALL_BYTES
    for batch in parquet.iter_batches(
        batch_rows, row_groups=list(groups), columns=columns, use_threads=threads
    ):
        arrays = []
        for field in schema:
            if field.name in fixed:
                arrays.append(pa.repeat(fixed[field.name], batch.num_rows))
            else:
                arrays.append(conformed_array(batch.column(field.name), field.type))
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """A value of a partition column from its text in the log."""
    if text is None or text == "":
        return pa.scalar(None, kind)
    if types.is_timestamp(kind):
        naive = pa.scalar(text.replace("T", " ").removesuffix("Z")).cast(pa.timestamp("us"))
        return naive.cast(kind)
    return pa.scalar(text).cast(kind)
