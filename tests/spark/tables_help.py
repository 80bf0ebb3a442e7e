"""Rows, files and writes for tests of tables."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pyarrow as pa
from deltalake import DeltaTable

from pelton.spark.delta.data_files import DataFile, DeltaTarget
from pelton.spark.tables.commits import Tables
from pelton.spark.tables.marks import Mark
from pelton.spark.tables.parquet import write_rows as written
from pelton.spark.tables.places import Place
from pelton.spark.tables.table import Table, Write

SCHEMA = pa.schema([("seq", pa.int64()), ("word", pa.string())])
_numbers = itertools.count()


def batch_of(seqs: Iterable[int], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    """One row per sequence."""
    rows = [{"seq": seq, "word": f"w{seq % 3}"} for seq in seqs]
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def table_at(place: Place, *given: object) -> Table:
    """The table now, at a version or at a time, as a process that has just started opens it."""
    return Tables().at(place, *given)


def write_rows(
    batches: Iterable[pa.RecordBatch],
    place: Place,
    schema: pa.Schema,
    prefix: str,
    *,
    partition_by: Iterable[str] = (),
    bounded: frozenset[str] | None = None,
    **given: object,
) -> list[DataFile]:
    """Files of a Delta table, not committed."""
    target = DeltaTarget(place, schema, tuple(partition_by), bounded)
    return written(batches, target, prefix, **given)


def files_of(
    place: Place, seqs: Iterable[int], schema: pa.Schema = SCHEMA, **given: object
) -> list[DataFile]:
    """Files with one row per sequence, not committed."""
    prefix = f"f{next(_numbers)}"
    return write_rows([batch_of(seqs, schema)], place, schema, prefix, **given)


def write_of(place: Place, seqs: Iterable[int], mark: Mark | None = None, **given: object) -> Write:
    """A write of one row per sequence."""
    schema = given.pop("schema", SCHEMA)
    by = given.get("partition_by") or ()
    return Write(
        schema=schema, files=files_of(place, seqs, schema, partition_by=by), mark=mark, **given
    )


def sequences(place: Place) -> list[int]:
    """What another reader finds in the table, in order."""
    table = DeltaTable(place.uri)
    return sorted(table.to_pyarrow_table(columns=["seq"])["seq"].to_pylist())
