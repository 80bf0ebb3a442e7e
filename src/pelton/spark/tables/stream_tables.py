"""Delta tables that take every micro-batch exactly once, through ``deltalake``, without a JVM.

A commit carries two application transactions of the Delta protocol::

    (query id, batch id)         Spark runs a batch again when it died before it noted its end
    (stream identity, last seq)  the table's own mark: rows up to this sequence are in the table,
                                 whatever happened to the checkpoint

A commit whose transactions the table has already is not made. If two drivers race for one batch,
only one can win, because the protocol refuses the second.

Executors write Parquet files with unique names into the table's folder (:func:`write_files`,
:mod:`pelton.spark.tables.data_files`); the driver puts the names of those that were returned into
one commit. Files of failed attempts stay invisible until :meth:`Table.maintain` removes them.

Does not depend on streams or logs; of the columns it uses only the one with the sequence.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction

from pelton.spark.tables.commits import CHECKPOINT_INTERVAL
from pelton.spark.tables.compaction import compact
from pelton.spark.tables.data_files import DataFile, write_rows
from pelton.spark.tables.files import actions_of
from pelton.spark.tables.maintenance import vacuum
from pelton.spark.tables.places import place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame

    from pelton.spark.tables.places import Place

__all__ = ["Batch", "Table", "write_files"]

SEQUENCE_COLUMN = "seq"
_COMPACT_TARGET_BYTES = 64 * 2**20
# Long enough for a reader that opened an older version, and for the files of a batch that is still
# being written.
_VACUUM_AFTER_HOURS = 1


@dataclass(frozen=True)
class Batch:
    """The identity of a commit: Spark's query and batch, and the last sequence of a stream in the
    table.
    """

    query_id: str
    batch_id: int
    source_id: str
    last_seq: int

    def properties(self) -> CommitProperties:
        """The commit properties that carry both transactions."""
        return CommitProperties(
            app_transactions=[
                Transaction(app_id=self.query_id, version=self.batch_id),
                Transaction(app_id=self.source_id, version=self.last_seq),
            ]
        )


_FILE_SCHEMA = "path string, size long, rows long, stats string, written_ms long"


class Table:
    """A Delta table with a fixed schema, opened once and kept up to date.

    One thread of the driver uses it.
    """

    def __init__(self, path: Path, schema: pa.Schema, *, maintain_every: int = 50) -> None:
        """Open the table, or create it empty. ``maintain_every`` counts commits."""
        self.path = path
        self.schema = schema
        self._maintain_every = maintain_every
        path.mkdir(parents=True, exist_ok=True)
        self._delta = DeltaTable.create(
            path,
            schema,
            mode="ignore",
            configuration={"delta.checkpointInterval": CHECKPOINT_INTERVAL},
        )
        self._delta.update_incremental()

    @property
    def delta(self) -> DeltaTable:
        """The table in ``deltalake``, at the version last seen or made."""
        return self._delta

    def mark(self, source_id: str) -> int:
        """The sequence up to which the table has all of a stream; 0 for none."""
        return self._delta.transaction_version(source_id) or 0

    def rows(self) -> int:
        """The number of rows, from the files' statistics alone."""
        actions = actions_of(self._delta)
        if not actions.num_rows:
            return 0
        return int(pc.sum(pc.cast(actions["num_records"], pa.int64())).as_py() or 0)

    def has(self, query_id: str, batch_id: int) -> bool:
        """Whether the table has this batch, or a later one of the query."""
        version = self._delta.transaction_version(query_id)
        return version is not None and version >= batch_id

    def _holds(self, batch: Batch) -> bool:
        return (
            self.has(batch.query_id, batch.batch_id) or self.mark(batch.source_id) >= batch.last_seq
        )

    def append(self, files: Sequence[DataFile], batch: Batch) -> bool:
        """Make the files part of the table, all or none; False when the table has this batch
        already.

        Raises ``deltalake.exceptions.CommitFailedError`` when another driver commits the same batch
        or stream.
        """
        if self._holds(batch):
            return False
        self._delta.create_write_transaction(
            [file.add_action() for file in files],
            mode="append",
            schema=self.schema,
            commit_properties=batch.properties(),
        )
        self._delta.update_incremental()
        return True

    def add_up(
        self, changes: pa.Table, keys: Sequence[str], sums: Sequence[str], batch: Batch
    ) -> bool:
        """Add ``sums`` to the rows with the same ``keys``, which are never null; insert new keys.

        Like :meth:`append`, one commit or none; False when the table has this batch already.
        """
        if self._holds(batch):
            return False
        same_keys = " AND ".join(f"old.{key} = new.{key}" for key in keys)
        merge = self._delta.merge(
            changes,
            predicate=same_keys,
            source_alias="new",
            target_alias="old",
            commit_properties=batch.properties(),
        )
        merge = merge.when_matched_update({name: f"old.{name} + new.{name}" for name in sums})
        merge.when_not_matched_insert_all().execute()
        return True

    def scan(self, columns: Sequence[str], after: int, last: int) -> pa.Table:
        """Columns of the rows with a sequence in ``(after, last]``; opens only files that may have
        some.
        """
        wanted = (pc.field(SEQUENCE_COLUMN) > after) & (pc.field(SEQUENCE_COLUMN) <= last)
        return self._delta.to_pyarrow_dataset().to_table(columns=list(columns), filter=wanted)

    def maintain(self) -> bool:
        """Every ``maintain_every`` commits, compact small files and remove files that no reader can
        see.

        Returns whether it did.
        """
        if self._delta.version() == 0 or self._delta.version() % self._maintain_every:
            return False
        compact(self._delta, place(self.path), _COMPACT_TARGET_BYTES)
        vacuum(self._delta, _VACUUM_AFTER_HOURS, dry_run=False)
        self._delta.update_incremental()
        return True


def write_files(rows: DataFrame, table: Table, prefix: str) -> list[DataFile]:
    """Write a DataFrame as Parquet files into a table's folder, on the executors, without a commit.

    The columns are those of the table. Partitions without rows make no file.
    """
    writer = _writer(place(table.path), table.schema, prefix)
    done = rows.mapInArrow(writer, _FILE_SCHEMA).collect()
    return [DataFile(partition=(), **row.asDict()) for row in done]


def _writer(
    where: Place, schema: pa.Schema, prefix: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for file in write_rows(batches, where, schema, f"{prefix}-{uuid.uuid4().hex}"):
            row = {name: value for name, value in vars(file).items() if name != "partition"}
            yield pa.RecordBatch.from_pylist([row])

    return write
