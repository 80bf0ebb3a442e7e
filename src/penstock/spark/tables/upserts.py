"""Micro-batches into tables from ``foreachBatch``: rows appended, or the newest row of each key kept.

:func:`upsert` keeps one row per key, the one with the greatest sequence::

    batch          table before          after
    k=1 seq=7      k=1 seq=5             k=1 seq=7     newer: replaced
    k=2 seq=3      k=2 seq=4             k=2 seq=4     older: left
    k=3 seq=9                            k=3 seq=9     new: inserted

So a batch that comes again changes nothing, even without its mark, which the commit carries as
well. Spark takes the newest row of each key in the batch; the merge is made on the driver, in one
process (:mod:`penstock.spark.tables.merges`), for tables of up to some gigabytes.

:func:`append` is for several tables out of one batch, such as good rows and bad ones.

Knows nothing of streams: what orders rows is a column.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.filling import repeated_until
from penstock.spark.holding import FAIL, memory_of
from penstock.spark.tables.behind import Watched
from penstock.spark.tables.commits import HERE, Write, batch_of, last_of
from penstock.spark.tables.marks import Mark
from penstock.spark.tables.merges import Merge
from penstock.spark.tables.merges_by_rules import Rows, Upserted
from penstock.spark.tables.options import FORMAT
from penstock.spark.tables.places import Place, TableError, place
from penstock.spark.tables.schemas import table_type

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession


# Columns beside those of the table, under names that no table has.
_NULL = "penstock null"
_DELETE = "penstock delete"


def upsert(
    rows: DataFrame,
    batch_id: int,
    path: str | os.PathLike[str],
    *,
    keys: Sequence[str],
    sequence: str = "seq",
    delete_when: str | None = None,
    merge_schema: bool = False,
    storage: Mapping[str, str] | None = None,
    query_id: str | None = None,
    if_behind: str = FAIL,
) -> Upserted:
    """Keep in the table at ``path`` the row with the greatest ``sequence`` of each of ``keys``.

    For ``foreachBatch``: ``lambda rows, batch: upsert(rows, batch, "gold", keys=["device"])``. The
    table is made when there is none. ``delete_when`` is a condition of Spark's SQL over the columns:
    a row that meets it removes its key's row when it is newer, and is not inserted; an older row
    that comes in a later batch inserts the key again. ``merge_schema`` adds columns that the table
    does not have. ``query_id`` is that of the query that runs the batch, unless given.
    ``if_behind="begin"`` goes on with a table that is gone or holds less than it did;
    ``if_behind="fill"`` puts the query back to where the table is, and ends it.

    Raises :class:`TableError`: the table is behind its query, a key or sequence is null, the columns
    don't fit, another driver runs the same query, or the store fails.
    """
    from pyspark.sql import functions as F  # noqa: N812  the name the field knows it by

    for name in (*keys, sequence):
        if name not in rows.columns:
            raise TableError(f"upsert needs the column {name}; there are {', '.join(rows.columns)}")
    newest = F.max_by(F.struct(*map(_column, rows.columns)), _column(sequence)).alias("newest")
    nulls = F.count("*") != F.count(_column(sequence))
    grouped = rows.groupBy(*map(_column, keys)).agg(newest, nulls.alias(_NULL))
    found = grouped.select("newest.*", _NULL)
    if delete_when is not None:
        found = found.withColumn(_DELETE, F.coalesce(F.expr(delete_when), F.lit(False)))
    where = place(path, storage)
    mark = _mark(rows, batch_id, query_id)
    checkpoint = checkpoint_of(rows)
    watched = Watched(memory_of(checkpoint, str(where)), if_behind)
    look_at(where, watched, batch=batch_id)
    each = checkpoint is not None and watched.memory.checkpoint is None
    if each:
        watched.compare(last_of(HERE.opened(where), mark.name), batch_id)
    with _adaptive(rows.sparkSession):
        newest_rows = found.toArrow()
    done = merge(
        newest_rows,
        where,
        keys=keys,
        sequence=sequence,
        mark=mark,
        merge_schema=merge_schema,
        again_until=repeated_until(watched.memory.checkpoint),
        each=each,
    )
    watched.taken(mark, rows=newest_rows.num_rows > 0)
    return done


def look_at(where: Place, watched: Watched, *, batch: int | None = None) -> None:
    """Compare a table, before anything is written, with what is remembered of it.

    Raises :class:`TableError` when rows of batches before are missing.
    """
    table = HERE.opened(where)
    watched.look(
        table is not None,
        lambda query: batch_of(table, query),
        batch=batch,
    )


@contextlib.contextmanager
def _adaptive(spark: SparkSession) -> Iterator[None]:
    """Let Spark have as many tasks for a shuffle as its rows are worth, which it does not for batches
    of a query: by default 200, of which a second goes by for a few rows.
    """
    name = "spark.sql.adaptive.enabled"
    kept = spark.conf.get(name)
    spark.conf.set(name, "true")
    try:
        yield
    finally:
        spark.conf.set(name, kept or "false")


def _column(name: str) -> Any:
    from pyspark.sql import functions as F  # noqa: N812  the name the field knows it by

    return F.col("`" + name.replace("`", "``") + "`")


def append(
    rows: DataFrame,
    batch_id: int,
    path: str | os.PathLike[str],
    *,
    query_id: str | None = None,
    **options: str,
) -> None:
    """Append a batch to the table at ``path``, once however often it comes. For ``foreachBatch``.

    ``options`` are those of ``format("jetstream_delta")``. Executors write the rows. Errors are
    Spark's, with the text of the :class:`TableError`.
    """
    mark = _mark(rows, batch_id, query_id)
    writer = rows.write.format(FORMAT).mode("append").options(**options)
    if (checkpoint := checkpoint_of(rows)) is not None:
        writer = writer.option("checkpointLocation", checkpoint)
    writer = writer.option("txnAppId", mark.name).option("txnVersion", str(mark.number))
    writer.save(place(path).uri)


def _mark(rows: DataFrame, batch_id: int, query_id: str | None) -> Mark:
    if query_id is not None:
        return Mark(query_id, batch_id)
    context = rows.sparkSession.sparkContext
    found = context.getLocalProperty("sql.streaming.queryId")
    if found is None:
        raise TableError("not called by foreachBatch of a query; give query_id")
    return Mark(found, batch_id, context.getLocalProperty("spark.jobGroup.id") or "")


def checkpoint_of(rows: DataFrame) -> str | None:
    """The checkpoint of the query that hands a batch to ``foreachBatch``; None in no query."""
    spark = rows.sparkSession
    query = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    if query is None:
        return None
    with contextlib.suppress(Exception):  # Spark's own; without it nothing is compared
        java: Any = spark._jsparkSession  # the only way to a query of another session
        running = java.sharedState().activeStreamingQueries()
        found = running.get(spark._jvm.java.util.UUID.fromString(query))  # type: ignore[union-attr]  # there is a JVM
        return str(found.resolvedCheckpointRoot())
    return None


def merge(
    rows: pa.Table,
    where: Place,
    *,
    keys: Sequence[str],
    sequence: str,
    mark: Mark,
    merge_schema: bool = False,
    again_until: int = -1,
    each: bool = False,
) -> Upserted:
    """What :func:`upsert` does, of rows that are here: one per key.

    Two columns are not for the table: one that is true where there were nulls, one that is true
    where the row deletes. Without rows nothing is committed, but for the mark with ``each``.
    """
    names = [name for name in rows.column_names if name not in (_NULL, _DELETE)]
    nulls = [pc.any(rows[_NULL]).as_py()] if _NULL in rows.column_names else []
    if any(nulls) or any(rows[name].null_count for name in (*keys, sequence)):
        raise TableError(f"upsert: {', '.join(keys)} and {sequence} must not be null")
    schema = pa.schema([pa.field(name, _type(rows.schema.field(name))) for name in names])
    write = Write(
        schema=schema,
        mark=mark,
        merge_schema=merge_schema,
        check_again=False,
        again_until=again_until,
        each=each,
    )
    if not rows.num_rows:
        if each:
            HERE.commit(where, write)
        elif HERE.opened(where) is None:
            HERE.create(where, schema)
        return Upserted()
    deletes = pa.repeat(False, rows.num_rows)
    if _DELETE in rows.column_names:
        deletes = rows[_DELETE].combine_chunks().fill_null(False)
    batch = Rows(rows.select(names).cast(schema), deletes, tuple(keys), sequence)
    made = Merge(batch, write, where)
    return made.did if HERE.once(where, write, made.commit) else Upserted()


def _type(field: pa.Field) -> pa.DataType:
    try:
        return table_type(field.type)
    except TypeError:
        raise TableError(
            f"column {field.name} is {field.type}, which a Delta table does not hold"
        ) from None
