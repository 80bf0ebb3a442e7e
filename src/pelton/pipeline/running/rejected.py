"""The rows that a step rejects, and their columns.

A row that fails ``expect`` has the columns of the step. It keeps the columns of the source that the step's
rows had and the step left out, so that the message can be found and processed again. Until the rows are
read they have names that no column has; ``step`` itself is without them::

    step: seq, data -> select: [seq, amount]     seq, amount, "pelton kept data"
    step            seq, amount
    step.rejected   seq, amount, data, rejected_because

A row that throws never got the step's columns: it has those of the step's input.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F  # noqa: N812  the name the field knows it by

from pelton.pipeline.description.model import DELTA, ICEBERG, REJECTED
from pelton.pipeline.description.payloads import FITS
from pelton.spark.reading.plan import DEFAULT_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pyspark.sql import Column, DataFrame

    from pelton.pipeline.description.model import Sink
    from pelton.pipeline.running.stages import Stage

REASONS = "rejected_because"
"""The additional column of rejected rows: the conditions that they fail, or the error that they throw."""
_KEPT = "pelton kept "


class Thrown(NamedTuple):
    """A message whose rows throw, and the error; ``stream`` is '' where rows do not name it."""

    stream: str
    seq: int
    error: str


def carried(stage: Stage, rows: DataFrame, *, stars: bool) -> DataFrame:
    """The rows after a stage, with the source's columns that it leaves out or replaces.

    With ``stars`` an expression names all columns, and a replaced one is not kept.
    """
    if stage.key == "columns" and not stars:
        lost = [name for name in _sources_of(rows) if name in stage.texts]
        columns = {name: F.expr(text) for name, text in stage.texts.items()}
        return rows.withColumns({**columns, **{_KEPT + name: F.col(name) for name in lost}})
    if stage.key == "select":
        made = stage.apply(rows)
        kept = [name for name in rows.columns if _hidden(name)]
        lost = [name for name in _sources_of(rows) if name not in made.columns]
        if not kept and not lost:
            return made
        chosen = [F.expr(text) for text in stage.texts.values()]
        more = [_named(name).alias(_KEPT + name) for name in lost]
        return rows.select(*chosen, *more, *map(_named, kept))
    if stage.key == "drop":
        lost = [name for name in _sources_of(rows) if name in stage.texts]
        return rows.withColumnsRenamed({name: _KEPT + name for name in lost}).drop(*stage.texts)
    return stage.apply(rows)


def _sources_of(rows: DataFrame) -> list[str]:
    """The columns of the source that the rows have and that are not kept yet."""
    there = set(rows.columns)
    return [name for name in DEFAULT_COLUMNS if name in there and _KEPT + name not in there]


def message_columns(rows: DataFrame, stream: str) -> list[Column] | None:
    """The columns ``stream`` and ``seq`` of a step's rows, also if they are only kept; None without them.

    ``stream`` is the only one that they can come from, or ''.
    """
    found = []
    for name in ("stream", "seq"):
        if name in rows.columns or _KEPT + name in rows.columns:
            there = _KEPT + name if _KEPT + name in rows.columns else name
            found.append(_named(there).alias(name))
        elif name == "stream" and stream:
            found.append(F.lit(stream).alias(name))
        else:
            return None
    return found


def public(rows: DataFrame) -> DataFrame:
    """The rows without the columns that are kept for rejected rows."""
    hidden = [name for name in rows.columns if _hidden(name)]
    return rows.drop(*hidden) if hidden else rows


def _hidden(name: str) -> bool:
    return name.startswith(_KEPT) or name == FITS


def with_kept(rows: DataFrame, without: Collection[str]) -> DataFrame:
    """Rejected rows with the columns that were kept for them, but for those of ``without``."""
    there = set(rows.columns)
    columns = []
    for name in rows.columns:
        plain = name.removeprefix(_KEPT)
        if plain == name:
            columns += [_named(name)] if name != FITS else []
        elif plain not in there and plain not in without:
            columns.append(_named(name).alias(plain))
    return rows.select(*columns)


def is_thrown(rows: DataFrame, thrown: Iterable[Thrown]) -> Column:
    """Whether a row belongs to one of these messages."""
    by_stream: dict[str, list[int]] = {}
    for each in thrown:
        by_stream.setdefault(each.stream, []).append(each.seq)
    found = F.lit(False)
    for stream, seqs in by_stream.items():
        one = F.expr(f"seq in ({', '.join(map(str, seqs))})")
        found = found | ((F.col("stream") == stream) & one if stream else one)
    return F.coalesce(found, F.lit(False))


def thrown_rows(rows: DataFrame, thrown: Sequence[Thrown]) -> DataFrame:
    """The rows of these messages with the errors as their reasons."""
    if not thrown:
        return rows.where(F.lit(False)).withColumn(REASONS, F.array(F.lit("")))
    texts = json.dumps({f"{each.stream} {each.seq}": each.error for each in thrown})
    stream = F.col("stream") if any(each.stream for each in thrown) else F.lit("")
    key = F.concat(stream, F.lit(" "), F.col("seq").cast("string"))
    errors = F.from_json(F.lit(texts), "map<string, string>")
    return rows.where(is_thrown(rows, thrown)).withColumn(
        REASONS, F.array(F.element_at(errors, key))
    )


def combined(failed: DataFrame, inputs: DataFrame, thrown: Sequence[Thrown]) -> DataFrame:
    """Rows that fail conditions, and with them rows that throw.

    They have the columns of both. Where a step gives a column another type, it is null in rows that throw.
    """
    more = [field for field in inputs.schema if field.name not in failed.columns]
    columns = [_named(name) for name in failed.columns if name != REASONS]
    nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in more]
    made = failed.select(*columns, *nulls, REASONS)
    if not thrown:
        return made
    types = {field.name: field.dataType for field in inputs.schema}
    same = [
        _named(field.name)
        if types.get(field.name) == field.dataType or field.name == REASONS
        else F.lit(None).cast(field.dataType).alias(field.name)
        for field in made.schema
    ]
    return made.unionByName(thrown_rows(inputs, thrown).select(*same))


def lacking(sink: Sink) -> frozenset[str]:
    """The source's columns that a sink of rejected rows does not take.

    A table that has not got them and may not get them is left as it is; other formats take the columns of
    the step alone, unless ``select`` names more.
    """
    if not sink.input.endswith(REJECTED) or sink.select:
        return frozenset()
    if sink.upsert is None and sink.format not in (DELTA, ICEBERG):
        return frozenset(DEFAULT_COLUMNS)
    options = {name.lower(): text for name, text in sink.options.items()}
    merges = sink.upsert.merge_schema if sink.upsert else options.get("mergeschema") == "true"
    names = None if merges else _columns_of_table(sink)
    if names is None:
        return frozenset()
    folded = {name.lower() for name in names}
    return frozenset(name for name in DEFAULT_COLUMNS if name not in folded)


def _columns_of_table(sink: Sink) -> Sequence[str] | None:
    """The columns of a sink's table; None if it does not exist, or cannot be looked at."""
    from pelton.spark.connection import ReadError
    from pelton.spark.parsing import OptionError
    from pelton.spark.tables.commits import HERE
    from pelton.spark.tables.places import TableError
    from pelton.spark.tables.upserts import location

    try:
        if (into := sink.upsert) is not None:
            where = location(into.path, into.storage, into.catalog, into.catalog_properties)
        elif sink.format == ICEBERG:
            from pelton.spark.iceberg.options import parse_write

            where = parse_write(sink.options, streaming=True).where
        else:
            from pelton.spark.delta.options import parse_write as parse_delta

            where = parse_delta(sink.options, streaming=True).where
        table = HERE.opened(where)
        return None if table is None else list(table.columns().names)
    except (OptionError, ReadError, TableError, OSError):
        return None  # the target's own check reports it


def _named(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")
