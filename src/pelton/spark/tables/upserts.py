"""Micro-batches into tables from ``foreachBatch``: append rows, or keep the newest row of each key.

:func:`upsert` keeps one row per key, the one with the greatest sequence::

    batch          table before          after
    k=1 seq=7      k=1 seq=5             k=1 seq=7     newer: replaced
    k=2 seq=3      k=2 seq=4             k=2 seq=4     older: left
    k=3 seq=9                            k=3 seq=9     new: inserted

So a batch that runs again changes nothing, even without its mark, which the commit has as well. Only
columns that are summed up depend on the mark. Spark selects the newest row of each key in the batch;
the driver makes the merge in one process (:mod:`pelton.spark.tables.merges`), for tables of up to some
gigabytes.

:func:`append` is for several tables from one batch, such as good rows and bad ones.

Does not depend on streams: a column orders the rows.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import replace
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from pelton.spark.filling import repeated_until
from pelton.spark.holding import FAIL, memory_of
from pelton.spark.tables.aside import Aside, RowUnfit
from pelton.spark.tables.aside_options import SIDE, AsideOptions
from pelton.spark.tables.behind import Watched
from pelton.spark.tables.commits import HERE, format_of
from pelton.spark.tables.evolution import conformed
from pelton.spark.tables.fitting import fits
from pelton.spark.tables.histories import (
    PARTITION_BY,
    HistoryMerge,
    check_table,
    with_validity,
)
from pelton.spark.tables.maintenance import maintain_regularly
from pelton.spark.tables.marks import Mark
from pelton.spark.tables.merges import DELETED_AT, Merge
from pelton.spark.tables.options import KEEP_HOURS
from pelton.spark.tables.places import TableError, place
from pelton.spark.tables.table import KeyedRows, Upserted, Write

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from pelton.spark.tables.table import TableFormat, Where


# Additional columns, with names that no table has.
_NULL = "pelton null"
_UNFIT = "pelton unfit"
_DELETE = "pelton delete"
_SUM = "pelton sum "


def upsert(
    rows: DataFrame,
    batch_id: int,
    path: str | os.PathLike[str],
    *,
    keys: Sequence[str],
    sequence: str = "seq",
    sums: Sequence[str] = (),
    delete_when: str | None = None,
    keep_deleted_hours: int | None = None,
    history: bool = False,
    merge_schema: bool = False,
    storage: Mapping[str, str] | None = None,
    catalog: str | None = None,
    catalog_properties: Mapping[str, str] | None = None,
    query_id: str | None = None,
    if_behind: str = FAIL,
    maintain_every: int | None = None,
    keep_hours: int = KEEP_HOURS,
    on_row_error: str = FAIL,
    error_path: str | os.PathLike[str] | None = None,
) -> Upserted:
    """Keep in the table at ``path``, for each of ``keys``, the row with the greatest ``sequence``.

    For ``foreachBatch``: ``lambda rows, batch: upsert(rows, batch, "gold", keys=["device"])``. Creates the table
    when it does not exist: a Delta table, or with a ``catalog`` or ``catalog_properties`` an Iceberg table of the
    name ``path``. docs/reference/pipeline.md has all arguments as keys of a sink.

    Rows of a key with a greater sequence stay, but all add to ``sums``. ``delete_when`` is a condition of Spark's
    SQL: a row that meets it removes an older row of its key; ``keep_deleted_hours`` keeps it so long with
    the time in ``deleted_at``, so that no older row comes back. ``history`` keeps every version
    (:mod:`pelton.spark.tables.histories`). A row with a text that is not UTF-8, a date outside the years 1 to 9999, or
    a null as key or sequence fails the batch, or goes to ``error_path`` (``on_row_error="side"``).

    Raises :class:`TableError`, also when the table is behind its query or another driver runs the query.
    """
    check_columns(rows.schema, keys, sequence, sums, delete_when)
    check_together(sums, delete_when, keep_deleted_hours, history=history)
    aside = AsideOptions(on_row_error, None if error_path is None else os.fspath(error_path))
    required = (*keys, sequence) if aside.on_row_error == SIDE else ()
    where = location(path, storage, catalog, catalog_properties)
    mark = _mark(rows, batch_id, query_id)
    watched, each = _watched(rows, where, mark, if_behind)
    side = Aside(aside, mark.name, mark.number, 0, required)
    found = (
        _every_row(rows, delete_when, side)
        if history
        else _collected(rows, keys, sequence, sums, delete_when, required, side)
    )
    forget_before = None
    if keep_deleted_hours is not None:
        found, forget_before = _with_tombstones(found, time.time(), keep_deleted_hours)
    done = merge(
        found,
        where,
        keys=keys,
        sequence=sequence,
        sums=sums,
        mark=mark,
        merge_schema=merge_schema,
        again_until=repeated_until(watched.memory.checkpoint),
        each=each,
        history=history,
        forget_before=forget_before,
    )
    watched.taken(mark, rows=found.num_rows > 0)
    if done != Upserted() and maintain_every is not None:
        maintain_regularly(where, maintain_every, keep_hours)
    side.warn(stacklevel=3)
    return done


def check_columns(
    schema: StructType,
    keys: Sequence[str],
    sequence: str,
    sums: Sequence[str],
    delete_when: str | None,
) -> None:
    """Raises :class:`TableError` for rows that lack a column, or columns that cannot be summed up."""
    for name in (*keys, sequence, *sums):
        if name not in schema.names:
            raise TableError(f"upsert needs the column {name}; there are {', '.join(schema.names)}")
    for name in sums:
        kind = schema[name].dataType.simpleString()
        if name in (*keys, sequence) or kind not in ("bigint", "double"):
            raise TableError(
                f"upsert: {name} is {kind}; sums are columns of type bigint or double that are"
                " neither a key nor the sequence"
            )
    if sums and delete_when is not None:
        raise TableError("upsert: sums of rows that are deleted are unknown; leave out one of both")


def _watched(rows: DataFrame, where: Where, mark: Mark, if_behind: str) -> tuple[Watched, bool]:
    """The note of what the table held, and whether every batch must leave its mark."""
    checkpoint = checkpoint_of(rows)
    watched = Watched(memory_of(checkpoint, str(where)), if_behind)
    look_at(where, watched, batch=mark.number)
    each = checkpoint is not None and watched.memory.checkpoint is None
    if each:
        watched.compare(HERE.last_of(where, Mark(mark.name, 0)), mark.number)
    return watched, each


def check_together(
    sums: Sequence[str], delete_when: str | None, keep_deleted_hours: int | None, *, history: bool
) -> None:
    """Raises :class:`TableError` for arguments that contradict one another."""
    if history and sums:
        raise TableError("upsert: a history has every row; leave out sums or history")
    if history and keep_deleted_hours is not None:
        raise TableError("upsert: a history keeps deleted rows; leave out how long")
    if keep_deleted_hours is not None and delete_when is None:
        raise TableError("upsert: no row is deleted without delete_when, so none is kept")


def _every_row(rows: DataFrame, delete_when: str | None, aside: Aside) -> pa.Table:
    """All rows of a batch; those that do not fit go aside."""
    from pyspark.sql import functions as F  # noqa: N812  the customary name

    if delete_when is not None:
        rows = rows.withColumn(_DELETE, F.coalesce(F.expr(delete_when), F.lit(False)))
    found = rows.toArrow()
    try:
        kept = list(aside.fit(found.to_batches()))
    except RowUnfit as error:
        raise TableError(f"upsert: {error}") from None
    aside.close()
    return pa.Table.from_batches(kept, found.schema)


def _with_tombstones(rows: pa.Table, now: float, keep_hours: int) -> tuple[pa.Table, float]:
    """Rows that delete become rows of the table, with the time in a column; and before when others are forgotten."""
    if DELETED_AT in rows.column_names:
        raise TableError(
            f"upsert: the table has its own column {DELETED_AT}; rename that of the rows"
        )
    kind = pa.timestamp("us", "UTC")
    at = pa.scalar(int(now * 1_000_000), pa.int64()).cast(kind)
    deleted = pc.if_else(rows[_DELETE].fill_null(False), at, pa.scalar(None, kind))
    kept = rows.drop_columns([_DELETE]).append_column(pa.field(DELETED_AT, kind), deleted)
    return kept, now - keep_hours * 3600


def _collected(
    rows: DataFrame,
    keys: Sequence[str],
    sequence: str,
    sums: Sequence[str],
    delete_when: str | None,
    required: Sequence[str],
    aside: Aside,
) -> pa.Table:
    """The newest row of each key; rows that do not fit go aside."""
    found = _newest(rows, keys, sequence, sums, delete_when, required)
    with _adaptive(rows.sparkSession):
        counted = _totals(rows, keys, sequence, sums, required)
        return _without_unfit(found.toArrow() if counted is None else counted, aside)


def _newest(
    rows: DataFrame,
    keys: Sequence[str],
    sequence: str,
    sums: Sequence[str],
    delete_when: str | None,
    required: Sequence[str],
) -> DataFrame:
    """The newest row of each key, and with it all rows of the key that do not fit, such as those with
    a null in a column of ``required``.
    """
    from pyspark.sql import functions as F  # noqa: N812  the customary name

    order, whole = _column(sequence), F.struct(*map(_column, rows.columns))
    good = _good(rows, required)
    if good is None:
        unfit = F.lit(None)
        nulls = F.count("*") != F.count(order)
    else:
        unfit = F.collect_list(F.when(~good, whole))
        nulls = F.count(F.when(good, F.lit(1))) != F.count(F.when(good, order))
        order, whole = F.when(good, order), F.when(good, whole)
    newest = F.max_by(whole, order).alias("newest")
    added = [F.sum(_column(name) if good is None else F.when(good, _column(name))) for name in sums]
    totals = [column.alias(_SUM + name) for name, column in zip(sums, added, strict=True)]
    columns = [newest, nulls.alias(_NULL), unfit.alias(_UNFIT)]
    found = rows.groupBy(*map(_column, keys)).agg(*columns, *totals)
    found = found.select("newest.*", _NULL, _UNFIT, *(_column(_SUM + name) for name in sums))
    if sums:
        found = found.withColumns({name: _column(_SUM + name) for name in sums})
        found = found.drop(*(_SUM + name for name in sums))
    if delete_when is not None:
        found = found.withColumn(_DELETE, F.coalesce(F.expr(delete_when), F.lit(False)))
    return found


def _good(rows: DataFrame, required: Sequence[str]) -> Column | None:
    """Whether a row fits and has the columns of ``required``; None if all do."""
    good = fits(rows)
    conditions = [] if good is None else [good]
    conditions += [_column(name).isNotNull() for name in required]
    return reduce(and_, conditions) if conditions else None


def _totals(
    rows: DataFrame,
    keys: Sequence[str],
    sequence: str,
    sums: Sequence[str],
    required: Sequence[str],
) -> pa.Table | None:
    """The rows of :func:`_newest` where there is no column but keys, sequence and sums.

    Spark computes them in half the time, without sorting. None if this is not possible, or if some
    row does not fit.
    """
    from pyspark.sql import functions as F  # noqa: N812  the customary name

    if {*rows.columns} != {*keys, sequence, *sums} or not sums:
        return None
    good, order = _good(rows, required), _column(sequence)
    found = rows.groupBy(*map(_column, keys)).agg(
        F.max(order).alias(sequence),
        *(F.sum(_column(name)).alias(name) for name in sums),
        (F.count("*") != F.count(order)).alias(_NULL),
        F.count(F.lit(None) if good is None else F.when(~good, F.lit(1))).alias(_UNFIT),
    )
    made = found.select(*map(_column, rows.columns), _NULL, _UNFIT).toArrow()
    unfit = made.column_names.index(_UNFIT)
    if pc.any(pc.greater(made[_UNFIT], 0)).as_py():
        return None
    return made.set_column(unfit, _UNFIT, pa.nulls(made.num_rows))


def _without_unfit(found: pa.Table, aside: Aside) -> pa.Table:
    """The newest rows; those that do not fit go aside. Raises :class:`TableError` for one that fails."""
    unfit = found[_UNFIT].combine_chunks()
    found = found.drop_columns([_UNFIT])
    if pa.types.is_null(unfit.type) or not len(unfit.flatten()):
        aside.close()
        return found
    lists = [unfit] if isinstance(unfit, pa.Array) else unfit.chunks
    batches = [pa.RecordBatch.from_struct_array(each.flatten()) for each in lists]
    try:
        for _ in aside.fit(batches):
            pass
    except RowUnfit as error:
        raise TableError(f"upsert: {error}") from None
    aside.close()
    # Of a key without a row that fits there is no newest one.
    names = [name for name in found.column_names if name not in (_NULL, _DELETE)]
    there = [pc.is_valid(found[name]) for name in names]
    return found.filter(reduce(pc.or_, there))


def location(
    path: str | os.PathLike[str],
    storage: Mapping[str, str] | None = None,
    catalog: str | None = None,
    catalog_properties: Mapping[str, str] | None = None,
) -> Where:
    """The location of a Delta table; with a catalog that of an Iceberg table.

    Raises :class:`OptionError` for a path or name of another kind.
    """
    if catalog is None and not catalog_properties:
        return place(path, storage)
    from pelton.spark.iceberg.options import DEFAULT_CATALOG, address

    return address(os.fspath(path), catalog or DEFAULT_CATALOG, catalog_properties or {})


def look_at(
    where: Where,
    watched: Watched,
    *,
    batch: int | None = None,
    begun: bool = False,
    replaces: bool = False,
) -> None:
    """Compare a table with its note, before anything is written.

    Raises :class:`TableError` when rows of earlier batches are missing.
    """
    table = HERE.opened(where)
    watched.look(
        table is not None,
        lambda query: None if table is None else table.last(query),
        batch=batch,
        begun=begun,
        replaces=replaces,
    )


@contextlib.contextmanager
def _adaptive(spark: SparkSession) -> Iterator[None]:
    """Let Spark choose the number of tasks of a shuffle by its rows.

    Spark does not do so for batches of a query: its default of 200 tasks takes a second for a few rows.
    """
    name = "spark.sql.adaptive.enabled"
    kept = spark.conf.get(name)
    spark.conf.set(name, "true")
    try:
        yield
    finally:
        spark.conf.set(name, kept or "false")


def _column(name: str) -> Any:
    from pyspark.sql import functions as F  # noqa: N812  the customary name

    return F.col("`" + name.replace("`", "``") + "`")


def append(
    rows: DataFrame,
    batch_id: int,
    path: str | os.PathLike[str],
    *,
    query_id: str | None = None,
    **options: str,
) -> None:
    """Append a batch to the table at ``path`` once, even when it runs again; for ``foreachBatch``.

    ``options`` are those of ``format("jetstream_delta")``. Executors write the rows. Errors are Spark's,
    with the text of the :class:`TableError`.
    """
    mark = _mark(rows, batch_id, query_id)
    writer = rows.write.format("jetstream_delta").mode("append").options(**options)
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
    """The checkpoint of the query that gives a batch to ``foreachBatch``; None outside a query."""
    spark = rows.sparkSession
    query = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    if query is None:
        return None
    # Errors of Spark; without a checkpoint nothing is compared.
    with contextlib.suppress(Exception):
        java: Any = spark._jsparkSession  # the only way to a query of another session
        running = java.sharedState().activeStreamingQueries()
        found = running.get(spark._jvm.java.util.UUID.fromString(query))  # type: ignore[union-attr]  # there is a JVM
        return str(found.resolvedCheckpointRoot())
    return None


def merge(
    rows: pa.Table,
    where: Where,
    *,
    keys: Sequence[str],
    sequence: str,
    mark: Mark,
    sums: Sequence[str] = (),
    merge_schema: bool = False,
    again_until: int = -1,
    each: bool = False,
    history: bool = False,
    forget_before: float | None = None,
) -> Upserted:
    """Do the work of :func:`upsert` for collected rows, one per key; all of them with ``history``.

    Rows that were deleted before ``forget_before`` (seconds since 1970) are left out of files that are written anew.
    Two columns are not for the table: one is true where there were nulls, one where the row deletes.
    Without rows nothing is committed except, with ``each``, the mark.
    """
    names = [name for name in rows.column_names if name not in (_NULL, _DELETE)]
    nulls = [pc.any(rows[_NULL]).as_py()] if _NULL in rows.column_names else []
    if any(nulls) or any(rows[name].null_count for name in (*keys, sequence)):
        raise TableError(f"upsert: {', '.join(keys)} and {sequence} must not be null")
    form = format_of(where)
    schema = pa.schema([pa.field(name, _type(rows.schema.field(name), form)) for name in names])
    deletes = pa.repeat(False, rows.num_rows)
    if _DELETE in rows.column_names:
        deletes = rows[_DELETE].combine_chunks().fill_null(False)
    if history:
        schema = with_validity(schema, sequence, deletes=_DELETE in rows.column_names)
    by = PARTITION_BY if history else None
    need = Write(schema=schema, partition_by=by, merge_schema=merge_schema)
    if (table := HERE.opened(where)) is not None:
        check_table(table, history=history)
    table = HERE.prepare(where, need) if form.columns_first else table
    target = None
    if table is not None:
        # Keys are compared with those of files: in the table's types and under its names.
        schema = table.check(need).columns
        called = dict(zip(need.schema.names, schema.names, strict=True))
        keys, sequence = [called[key] for key in keys], called[sequence]
        sums = [called[name] for name in sums]
        target = table.target(schema) if form.columns_first else None
    write = replace(
        need,
        schema=schema,
        mark=mark,
        check_again=False,
        again_until=again_until,
        each=each,
        target=target,
    )
    if not rows.num_rows:
        return _without_rows(where, write)
    own = pa.schema(list(schema)[: len(names)])
    batches = [conformed(each, own) for each in rows.select(names).to_batches()]
    keyed = KeyedRows(
        pa.Table.from_batches(batches, own), deletes, tuple(keys), sequence, tuple(sums)
    )
    merging = HistoryMerge(keyed, write) if history else Merge(keyed, write, forget_before)
    return merging.did if HERE.once(where, write, merging.commit) else Upserted()


def _without_rows(where: Where, write: Write) -> Upserted:
    if write.each:
        HERE.commit(where, write)
    elif HERE.opened(where) is None:
        HERE.create(where, write.schema, write.partition_by or ())
    return Upserted()


def _type(field: pa.Field, form: TableFormat) -> pa.DataType:
    try:
        return form.fit(field.type)
    except TypeError:
        raise TableError(
            f"column {field.name} is {field.type}, which {form.kind} does not hold"
        ) from None
