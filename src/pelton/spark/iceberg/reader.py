"""The reader of ``format("jetstream_iceberg")``: a table as it is now, or at a snapshot or time.

The driver gets the list of files from the catalog. Executors read the files with ``pyiceberg``, which
finds columns by number and leaves out deleted rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.schema import Schema
from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSourceReader, InputPartition

from pelton.spark.iceberg.catalogs import failed, load, storage_of
from pelton.spark.iceberg.schemas import table_schema
from pelton.spark.older import from_arrow, to_arrow
from pelton.spark.tables.places import TableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.snapshots import Snapshot
    from pyspark.sql.types import StructType

    from pelton.spark.iceberg.options import ReadOptions


@dataclass(frozen=True)
class FilesPartition(InputPartition):
    """Files that one task reads."""

    files: tuple[FileScanTask, ...]


def _table_at(options: ReadOptions) -> tuple[Table, Snapshot | None, Schema]:
    """The table, the snapshot to read (None for an empty table), and its columns."""
    table = load(options.address)
    if table is None:
        raise TableError(f"there is no table {options.address}")
    if options.snapshot is None and options.time is None:
        return table, table.current_snapshot(), table.schema()
    if options.snapshot is not None:
        found = table.snapshot_by_id(options.snapshot)
    else:
        assert options.time is not None
        found = table.snapshot_as_of_timestamp(int(options.time.timestamp() * 1000))
    if found is None:
        asked = (
            f"snapshot {options.snapshot}" if options.snapshot else f"snapshot of {options.time}"
        )
        raise TableError(f"the table {options.address} has no {asked}, or no longer")
    of_then = table.schema() if found.schema_id is None else table.schemas()[found.schema_id]
    return table, found, of_then


def columns(options: ReadOptions) -> StructType:
    """The columns of the table, or those that the option ``columns`` names."""
    have = table_schema(_table_at(options)[2])
    wanted = have.names if options.columns is None else list(options.columns)
    missing = [name for name in wanted if name not in have.names]
    if missing:
        raise TableError(
            f"columns names {', '.join(missing)}, but {options.address} has {', '.join(have.names)}"
        )
    fields = []
    for name in wanted:
        try:
            fields += from_arrow(pa.schema([have.field(name)])).fields
        except PySparkException:
            raise TableError(
                f"column {name} of {options.address} is {have.field(name).type}, which Spark does"
                " not read here; leave it out with the option columns"
            ) from None
    return from_arrow(pa.schema([])).__class__(fields)


class IcebergReader(DataSourceReader):
    """A batch read of one snapshot."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Loads the table. ``schema`` may have any columns of the table."""
        table, snapshot, of_then = _table_at(options)
        self._options = options
        self._schema = to_arrow(schema)
        by_name = {field.name: field for field in of_then.fields}
        missing = [name for name in self._schema.names if name not in by_name]
        if missing:
            raise TableError(f"{options.address} has no column {', '.join(missing)}")
        self._columns = Schema(*(by_name[name] for name in self._schema.names))
        self._snapshot = None if snapshot is None else snapshot.snapshot_id
        self._io = storage_of(table)
        # The metadata of files and columns, without the history, which grows.
        self._metadata = table.metadata.model_copy(
            update={"snapshots": [], "snapshot_log": [], "metadata_log": [], "refs": {}}
        )

    def __repr__(self) -> str:
        """The table's name alone, because the connection settings may be secret."""
        return f"IcebergReader({self._options.address})"

    def partitions(self) -> Sequence[InputPartition]:
        """The files of the snapshot, in groups."""
        address = self._options.address
        table = load(address)
        if table is None or self._snapshot is None:
            return []
        try:
            files = list(table.scan(snapshot_id=self._snapshot).plan_files())
        except Exception as problem:
            # Any library may raise here; the error is reported.
            raise failed("cannot plan a read of", address, problem) from None
        files.sort(key=lambda task: str(task.file.file_path))
        groups = _groups(files, self._options.partition_bytes)
        return [FilesPartition(group) for group in groups]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of a partition's files; for a batch read without partitions Spark gives None."""
        if not isinstance(partition, FilesPartition):
            return
        scan = ArrowScan(self._metadata, self._io, self._columns, AlwaysTrue())
        for task in partition.files:
            try:
                for batch in scan.to_record_batches([task]):
                    yield batch.select(self._schema.names).cast(self._schema)
            except FileNotFoundError:
                raise TableError(
                    f"a file that this snapshot of {self._options.address} needs was removed."
                    " Read a newer snapshot, or keep snapshots for longer"
                ) from None


def _groups(files: Iterable[Any], at_most_bytes: int) -> list[tuple[Any, ...]]:
    """Files in groups of about ``at_most_bytes`` bytes."""
    groups: list[list[Any]] = []
    filled = 0
    for file in files:
        size = file.file.file_size_in_bytes
        if not groups or filled + size > at_most_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(file)
        filled += size
    return [tuple(group) for group in groups]
