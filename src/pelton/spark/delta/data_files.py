"""Data files of a Delta table: Parquet files, and their entries in the table's log.

Does not depend on commits: the files are not part of a table yet.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltalake.transaction import AddAction

from pelton.spark.delta.statistics import statistics, with_nulls
from pelton.spark.tables.parquet import ParquetFiles, partition_text
from pelton.spark.tables.seen import is_unordered

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pyarrow as pa
    import pyarrow.parquet as pq

    from pelton.spark.tables.places import Place
    from pelton.spark.tables.seen import Seen
    from pelton.spark.tables.syncing import Syncs


@dataclass(frozen=True)
class DataFile:
    """One Parquet file in a table's folder, not yet part of the table."""

    path: str
    size: int
    rows: int
    partition: tuple[tuple[str, str | None], ...]
    stats: str
    written_ms: int

    def add_action(self, lacking: Sequence[str] = (), *, data_change: bool = True) -> AddAction:
        """The Delta action that adds the file to the table, with statistics that let readers skip it.

        ``lacking`` are columns that the table has and the file lacks. Without ``data_change`` the table held
        the rows of the file before.
        """
        values = dict(self.partition)
        stats = with_nulls(self.stats, lacking) if lacking else self.stats
        return AddAction(self.path, self.size, values, self.written_ms, data_change, stats)

    def maximum(self, column: str) -> Any:
        """The greatest value of a column, None when the statistics lack it."""
        return json.loads(self.stats)["maxValues"].get(column)

    def nulls(self, column: str) -> int | None:
        """The number of nulls in a column, None when the statistics lack it."""
        for name, value in self.partition:
            if name == column:
                return self.rows if value is None else 0
        found: int | None = json.loads(self.stats)["nullCount"].get(column)
        return found


class DataFiles(ParquetFiles["DataFile"]):
    """Writes the rows of one task; only the log has the partition columns."""

    def __init__(
        self,
        place: Place,
        schema: pa.Schema,
        prefix: str,
        *,
        partition_by: Sequence[str] = (),
        rows_per_file: int | None = None,
        bytes_per_file: int | None = None,
        syncs: Syncs | None = None,
        bounded: Collection[str] | None = None,
    ) -> None:
        """As :class:`ParquetFiles`. ``bounded`` are the columns that get statistics in the log; else all."""
        self._bounded = None if bounded is None else frozenset(bounded)
        super().__init__(
            place,
            schema,
            prefix,
            partition_by=partition_by,
            rows_per_file=rows_per_file,
            bytes_per_file=bytes_per_file,
            left_out=partition_by,
            syncs=syncs,
        )
        if self._bounded is not None:
            # Columns without statistics in the log need none in the footer: they take an eighth of
            # the work on a file.
            told = [one for one in self._body if one.name in self._bounded]
            self._statistics = [one.name for one in told if not is_unordered(one.type)]

    def _value(self, value: Any) -> str | None:
        return partition_text(value)

    def _told(
        self,
        path: str,
        size: int,
        footer: pq.FileMetaData,
        partition: tuple[tuple[str, Any], ...],
        seen: Seen,
    ) -> DataFile:
        stats = statistics(footer, self._body, seen, self._bounded)
        now_ms = int(time.time() * 1000)
        return DataFile(path, size, footer.num_rows, partition, stats, now_ms)


@dataclass(frozen=True)
class DeltaTarget:
    """What writers of a Delta table's files must know.

    ``bounded`` are the columns that get statistics, for a table whose property ``delta.dataSkippingStatsColumns``
    names them; else all.
    """

    folder: Place
    columns: pa.Schema
    partition_by: tuple[str, ...] = ()
    bounded: frozenset[str] | None = None

    def open(
        self,
        prefix: str,
        *,
        rows_per_file: int | None = None,
        bytes_per_file: int | None = None,
        syncs: Syncs | None = None,
    ) -> DataFiles:
        """A writer of files whose names begin with ``prefix``."""
        return DataFiles(
            self.folder,
            self.columns,
            prefix,
            partition_by=self.partition_by,
            rows_per_file=rows_per_file,
            bytes_per_file=bytes_per_file,
            syncs=syncs,
            bounded=self.bounded,
        )
