"""What a pipeline reads from and writes to, looked up before any query runs: all of it, so that
everything wrong is told at once and nothing was committed.

What must fit is for the formats' own plans of a write to say, each with the columns of its sink, and
with the sink's checkpoint, which knows what the target held.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.core.protocol.subjects import collide
from penstock.errors import PenstockError
from penstock.pipeline.description.formats import ICEBERG
from penstock.pipeline.description.model import DELTA
from penstock.pipeline.running.queries import checkpoint
from penstock.spark.connection import ReadError, stream_info
from penstock.spark.parsing import OptionError
from penstock.spark.tables.places import TableError
from penstock.spark.writing.row_errors import WriteError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql.types import StructType

    from penstock.pipeline.description.model import Pipeline, Sink, Source
    from penstock.pipeline.running.queries import Query

    Look = Callable[[Mapping[str, str], StructType], object]

_WRONG = (OptionError, WriteError, TableError, ReadError, PenstockError, OSError)


@dataclass
class Findings:
    """What is wrong, and what may be meant: a line for each, with its place in the file."""

    pipeline: Pipeline
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def problem(self, label: str, line: int, error: object) -> None:
        """Something wrong with a part."""
        self.problems.append(self._line(label, line, error))

    def warn(self, label: str, line: int, text: str) -> None:
        """Something about a part that may be a mistake."""
        self.warnings.append(self._line(label, line, text))

    def _line(self, label: str, line: int, text: object) -> str:
        said = self.pipeline.hide(" ".join(str(text).split()))
        return f"{self.pipeline.file}:{line}: {label}: {said}"


def look_at_sources(pipeline: Pipeline, queries: list[Query], found: Findings) -> None:
    """The streams and buckets that are read."""
    for name in dict.fromkeys(each for query in queries for each in query.sources):
        source = pipeline.sources[name]
        label = f"sources.{name}"
        try:
            _look_at_source(source, label, found)
        except _WRONG as error:
            found.problem(label, source.line, error)


def _look_at_source(source: Source, label: str, found: Findings) -> None:
    options = {key: value for key, value in source.options.items() if key.lower() != "consumer"}
    if source.format == "jetstream_kv":
        from penstock.spark.buckets.kv_options import parse_kv_options

        kv = parse_kv_options(options, streaming=not source.static)
        stream_info(kv.servers, f"KV_{kv.bucket}")
    elif source.format == "jetstream":
        from penstock.spark.reading.options import parse_options

        asked = parse_options(options, streaming=not source.static)
        for stream in asked.streams:
            taken = stream_info(asked.servers, stream).config.subjects or ()
            for subject in asked.subjects:
                if taken and not any(collide(subject, each) for each in taken):
                    found.warn(
                        label,
                        source.line,
                        f"stream {stream} takes no subject {subject}, so nothing of it is read; it"
                        f" takes {', '.join(taken)}",
                    )


def look_at_sink(
    pipeline: Pipeline, query: Query, sink: Sink, schema: StructType, found: Findings
) -> None:
    """The table, stream or bucket that rows with these columns go into."""
    where = checkpoint(pipeline.state, query.name)
    try:
        if sink.upsert is not None:
            _look_at_upsert(sink, schema, where)
        elif (look := _looks(sink).get(sink.format or "")) is not None:
            look({**sink.options, "checkpointLocation": str(where)}, schema)
    except _WRONG as error:
        found.problem(f"sinks.{sink.name}", sink.line, error)


def _looks(sink: Sink) -> dict[str, Look]:
    from penstock.spark.buckets.kv_sink import plan_kv_write
    from penstock.spark.buckets.object_sink import plan_object_write
    from penstock.spark.writing.writer import plan_write

    return {
        "jetstream": plan_write,
        "jetstream_kv": plan_kv_write,
        "jetstream_object": plan_object_write,
        DELTA: lambda options, schema: _look_at_delta(sink, options, schema),
        ICEBERG: lambda options, schema: _look_at_iceberg(options),
    }


def _look_at_delta(sink: Sink, options: Mapping[str, str], schema: StructType) -> None:
    from penstock.spark.tables.options import parse_write
    from penstock.spark.tables.writer import DeltaStreamWriter

    # Made as for each batch, which only looks.
    DeltaStreamWriter(parse_write(options, streaming=True), schema, sink.mode == "complete")


def _look_at_iceberg(options: Mapping[str, str]) -> None:
    from penstock.spark.holding import FAIL, memory_of, table_behind, table_missing
    from penstock.spark.iceberg.catalogs import load
    from penstock.spark.iceberg.commits import batch_of
    from penstock.spark.iceberg.options import parse_write

    asked = parse_write(options, streaming=True)
    table = load(asked.address)
    memory = memory_of(asked.checkpoint, str(asked.address))
    held = memory.recall()
    batch = None if held is None else batch_of(table, held.query)
    behind = table_behind(held, table is not None, batch)
    if table is None and memory.begun and not memory.known:
        behind = table_missing(memory.where)
    if behind and asked.if_behind == FAIL:
        raise TableError(behind)


def _look_at_upsert(sink: Sink, schema: StructType, where: Path) -> None:
    from penstock.spark.holding import memory_of, table_missing
    from penstock.spark.tables.commits import HERE, Write, check
    from penstock.spark.tables.places import place
    from penstock.spark.tables.schemas import arrow_schema, check_rules
    from penstock.spark.tables.upserts import look_at

    into: Any = sink.upsert
    for name in (*into.keys, into.sequence):
        if name not in schema.names:
            raise TableError(f"upsert needs the column {name}; there are {', '.join(schema.names)}")
    table_place = place(into.path, into.storage or None)
    memory = memory_of(where, str(table_place))
    look_at(table_place, memory, into.if_behind)
    table = HERE.opened(table_place)
    rows = arrow_schema(schema)
    if table is not None:
        check(table, Write(schema=rows, merge_schema=into.merge_schema), table_place)
        check_rules(table)
    elif memory.begun and not memory.known and into.if_behind == "fail":
        raise TableError(table_missing(str(table_place)))
