"""Data files of an Iceberg table: Parquet files with column numbers, and their manifest entries.

Executors write the files and return the footer of each; the driver makes the manifest entries
(:func:`described`) from the footers, so executors need no ``pyiceberg``.

An entry leaves out bounds that could hide a row: those of columns with a NaN, of floats inside other
columns, and of columns without bounds in the footer because a value is long.

Does not depend on catalogs or commits.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pelton.spark.tables.evolution import conformed
from pelton.spark.tables.parquet import ParquetFiles
from pelton.spark.tables.places import TableError, to_disk

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    import pyarrow.parquet as pq
    from pyarrow import fs
    from pyiceberg.io.pyarrow import DataFileStatistics, StatisticsCollector
    from pyiceberg.manifest import DataFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema

    from pelton.spark.tables.seen import Seen


@dataclass(frozen=True)
class DataFolder:
    """The folder of a table's data files; picklable, since it travels to the executors."""

    uri: str
    _files: fs.FileSystem | None
    _path: str

    def __repr__(self) -> str:
        """The address alone, because the file system may hold secrets."""
        return f"DataFolder({self.uri!r})"

    def __str__(self) -> str:
        """The address."""
        return self.uri

    @property
    def folder(self) -> Path | None:
        """The folder on this machine; None when it is elsewhere."""
        return Path(self._path) if self._files is None else None

    def files(self) -> fs.FileSystem:
        """The folder as a file system; paths are relative to it."""
        from pyarrow import fs

        folder = self.folder
        if folder is None:
            return fs.SubTreeFileSystem(self._path, self._files)
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            to_disk(folder.parent)
        return fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())


@dataclass(frozen=True)
class Target:
    """The state of a table when files were planned for it; picklable, since it travels to
    executors.
    """

    uuid: str
    schema_id: int
    spec_id: int
    names: tuple[str, ...]
    partition_by: tuple[str, ...]
    files: pa.Schema
    folder: DataFolder

    def open(self, prefix: str, **given: Any) -> IcebergFiles:
        """A writer of files whose names begin with ``prefix``."""
        return IcebergFiles(self, prefix, **given)


@dataclass(frozen=True)
class WrittenFile:
    """One Parquet file in a table's folder, not yet part of the table; a task returns it."""

    path: str
    size: int
    partition: tuple[Any, ...]
    footer: pq.FileMetaData
    seen: Seen
    written_ms: int

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.footer.num_rows)


class IcebergFiles(ParquetFiles[WrittenFile]):
    """Writes the rows of one task; the files hold the partition columns, too.

    Raises :class:`TableError` for a null in a column that must not be null.
    """

    def __init__(self, target: Target, prefix: str, **given: Any) -> None:
        """Rows come with the columns as the table names them. ``given`` is as for :class:`ParquetFiles`."""
        in_files = dict(zip(target.names, target.files.names, strict=True))
        by = [in_files[name] for name in target.partition_by]
        super().__init__(target.folder, target.files, prefix, partition_by=by, **given)
        self._named = pa.schema(
            [each.with_name(name) for each, name in zip(target.files, target.names, strict=True)]
        )

    def write(self, batch: pa.RecordBatch) -> None:
        """Check for nulls, and give the columns their names in files."""
        with self._writing():
            named = conformed(batch, self._named)
        for field in self._named:
            if not field.nullable and named.column(field.name).null_count:
                raise TableError(f"column {field.name} must not be null, but rows are")
        super().write(named.rename_columns(self._schema.names))

    def _value(self, value: Any) -> Any:
        return value

    def _told(
        self,
        path: str,
        size: int,
        footer: pq.FileMetaData,
        partition: tuple[tuple[str, Any], ...],
        seen: Seen,
    ) -> WrittenFile:
        values = tuple(value for _, value in partition)
        return WrittenFile(path, size, values, footer, seen, int(time.time() * 1000))


def described(
    files: Iterable[WrittenFile],
    uri: str,
    schema: Schema,
    spec: PartitionSpec,
    properties: dict[str, str],
) -> Iterator[DataFile]:
    """The manifest entries of files under ``uri``.

    ``schema`` has the columns as the files name them; ``properties`` are those of the table.
    """
    from pyiceberg.io.pyarrow import (
        MetricModeTypes,
        MetricsMode,
        compute_statistics_plan,
        data_file_statistics_from_parquet_metadata,
        parquet_path_to_id_mapping,
    )
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.partitioning import partition_record_value
    from pyiceberg.typedef import Record
    from pyiceberg.types import DoubleType, FloatType

    plan = compute_statistics_plan(schema, properties)
    ids = parquet_path_to_id_mapping(schema)
    floating = {
        number: plan.pop(number)
        for number in ids.values()
        if isinstance(schema.find_type(number), FloatType | DoubleType)
    }
    # The footer has no statistics of these, and pyiceberg would warn about that.
    none = MetricsMode(MetricModeTypes.NONE)
    plan |= {number: replace(one, mode=none) for number, one in floating.items()}
    for file in files:
        found = data_file_statistics_from_parquet_metadata(file.footer, plan, ids)
        for field in schema.fields:
            if field.field_id in floating:
                _add_floating(found, floating[field.field_id], field.name, file)
        for number in _without_bounds(file, ids, floating):
            found.column_aggregates.pop(number, None)
        values = zip(spec.fields, file.partition, strict=True)
        yield DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{uri}/{file.path}",
            file_format=FileFormat.PARQUET,
            partition=Record(
                *(partition_record_value(field, value, schema) for field, value in values)
            ),
            file_size_in_bytes=file.size,
            sort_order_id=None,
            spec_id=spec.spec_id,
            equality_ids=None,
            key_metadata=None,
            **found.to_serialized_dict(),
        )


def _add_floating(
    found: DataFileStatistics, collector: StatisticsCollector, name: str, file: WrittenFile
) -> None:
    """Add the facts about a floating column; no bounds when it holds a NaN."""
    from pyiceberg.io.pyarrow import MetricModeTypes, StatsAggregator
    from pyiceberg.types import FloatType

    number, mode, seen = collector.field_id, collector.mode, file.seen
    if mode.type == MetricModeTypes.NONE:
        return
    found.value_counts[number] = file.rows
    found.null_value_counts[number] = seen.nulls[name]
    if mode.type == MetricModeTypes.COUNTS or name in seen.nan or name not in seen.bounds:
        return
    kind = collector.iceberg_type
    bounds = StatsAggregator(kind, "FLOAT" if isinstance(kind, FloatType) else "DOUBLE")
    bounds.update_min(seen.bounds[name][0])
    bounds.update_max(seen.bounds[name][1])
    found.column_aggregates[number] = bounds


def _without_bounds(
    file: WrittenFile, ids: dict[str, int], floating: Collection[int]
) -> Iterator[int]:
    """The numbers of columns whose bounds must be left out."""
    for group in range(file.footer.num_row_groups):
        row_group = file.footer.row_group(group)
        for index in range(row_group.num_columns):
            column = row_group.column(index)
            found = column.statistics
            number = ids[column.path_in_schema]
            if number in floating:
                continue
            if found is None or not (found.has_min_max or found.null_count == column.num_values):
                yield number
