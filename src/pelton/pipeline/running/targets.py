"""Checks what a pipeline reads and writes before any query runs.

So all faults are reported at once, before anything is committed. The formats' own plans of a write
decide what fits, each with the columns of its sink and with the sink's checkpoint, which knows what
the target held before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pelton.api.keyvalue import stream_of
from pelton.core.protocol.subjects import collide
from pelton.errors import PeltonError
from pelton.pipeline.description.model import DELTA, ICEBERG
from pelton.pipeline.description.problems import did_you_mean
from pelton.pipeline.running.queries import checkpoint
from pelton.spark.connection import ReadError, stream_info
from pelton.spark.holding import FAIL, FILL, memory_of
from pelton.spark.parsing import OptionError
from pelton.spark.tables.behind import TableBehind, Watched, fill
from pelton.spark.tables.places import TableError
from pelton.spark.writing.row_errors import WriteError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql.types import StructType

    from pelton.pipeline.description.model import Pipeline, Sink, Source, Upsert
    from pelton.pipeline.running.queries import Query
    from pelton.pipeline.running.stages import StepError

    Look = Callable[[Mapping[str, str], StructType], object]

_WRONG = (OptionError, WriteError, TableError, ReadError, PeltonError, OSError)


@dataclass(frozen=True)
class Hole:
    """A table that lacks batches of its query behind ``batch``, and is to be filled."""

    query: str
    sink: Sink
    batch: int


@dataclass
class Findings:
    """Faults and probable mistakes: a line for each, with its place in the file."""

    pipeline: Pipeline
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)
    schemas: dict[str, StructType] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """Parts that could not be checked, a line each."""

    def problem(self, label: str, line: int, error: object) -> None:
        """Report a fault of a part."""
        self.problems.append(self._line(label, line, error))

    def note(self, label: str, line: int, text: object) -> None:
        """Report a part that could not be checked."""
        self.notes.append(self._line(label, line, text))

    def refused(self, error: StepError) -> None:
        """Report what Spark refuses."""
        self.problems += [line for line in error.lines if line not in self.problems]

    def warn(self, label: str, line: int, text: str) -> None:
        """Report a probable mistake in a part."""
        self.warnings.append(self._line(label, line, text))

    def _line(self, label: str, line: int, text: object) -> str:
        said = self.pipeline.hide(" ".join(str(text).split()))
        return f"{self.pipeline.file}:{line}: {label}: {said}"


def look_at_sources(pipeline: Pipeline, names: Iterable[str], found: Findings) -> None:
    """Check the streams and buckets that these sources read."""
    for name in dict.fromkeys(names):
        source = pipeline.sources[name]
        label = f"sources.{name}"
        try:
            _look_at_source(source, label, found)
        except _WRONG as error:
            found.problem(label, source.line, error)


def _look_at_source(source: Source, label: str, found: Findings) -> None:
    options = {key: value for key, value in source.options.items() if key.lower() != "consumer"}
    if source.format == "jetstream_kv":
        from pelton.spark.buckets.kv_options import parse_kv_options

        kv = parse_kv_options(options, streaming=not source.static)
        stream_info(kv.servers, stream_of(kv.bucket))
    elif source.format == "jetstream":
        from pelton.spark.reading.options import parse_options

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


def look_at_servers(pipeline: Pipeline, queries: list[Query]) -> list[str]:
    """What is missing on the servers, a line each; asked before Spark starts, which takes long.

    Streams and buckets alone: the columns of the rows are known when Spark runs.
    """
    found = Findings(pipeline)
    look_at_sources(pipeline, (each for query in queries for each in query.sources), found)
    for name in dict.fromkeys(each for query in queries for each in query.sinks):
        sink = pipeline.sinks[name]
        try:
            _find_target(sink)
        except _WRONG as error:
            found.problem(f"sinks.{sink.name}", sink.line, error)
    return found.problems


def _find_target(sink: Sink) -> None:
    from pelton.spark.writing.target import find

    if sink.format == "jetstream":
        from pelton.spark.writing.options import parse_write_options

        options = parse_write_options(sink.options)
        subject = options.subject
        find(options, None if subject is None else subject.wildcards)
    elif sink.format == "jetstream_kv":
        from pelton.spark.buckets.kv_sink import parse_kv_write

        find(parse_kv_write(sink.options).options, None, kind="bucket")
    elif sink.format == "jetstream_object":
        from pelton.spark.buckets.object_sink import parse_object_write

        find(parse_object_write(sink.options).options, None, kind="object store")


def look_at_sink(
    pipeline: Pipeline,
    query: Query,
    sink: Sink,
    schema: StructType,
    found: Findings,
    *,
    ask: bool = True,
) -> None:
    """Check the table, stream or bucket for rows with these columns.

    Without ``ask`` only the columns are checked, with tables in folders of this machine.
    """
    found.schemas[sink.name] = schema
    label = f"sinks.{sink.name}"
    if not _fits(sink, schema, found) or not (ask or is_here(sink)):
        return
    where = checkpoint(pipeline.state, query.name)
    given = {key: value for key, value in sink.options.items() if key.lower() != "ifbehind"}
    if_behind = _if_behind(sink)
    # Tables to fill are only found here; they are filled when there is no other fault.
    table = sink.upsert is not None or sink.format in (DELTA, ICEBERG)
    now = FAIL if if_behind == FILL and table and sink.mode != "complete" else if_behind
    try:
        if sink.upsert is not None:
            _look_at_upsert(sink, schema, where, now)
        elif (look := _looks(sink).get(sink.format or "")) is not None:
            look({**given, "ifBehind": now, "checkpointLocation": str(where)}, schema)
    except TableBehind as behind:
        if if_behind == FILL:
            found.holes.append(Hole(query.name, sink, behind.batch))
        else:
            found.problem(label, sink.line_of("path"), behind)
    except _WRONG as error:
        found.problem(label, _line_of_columns(sink) if "column" in str(error) else sink.line, error)


def is_here(sink: Sink) -> bool:
    """Whether the target is a table in a folder of this machine."""
    if sink.upsert is None and sink.format != DELTA:
        return False
    path = sink.place or ""
    return "://" not in path or path.startswith("file:")


def _line_of_columns(sink: Sink) -> int:
    return sink.line_of("select" if sink.select else "from")


def _fits(sink: Sink, schema: StructType, found: Findings) -> bool:
    """Whether a target can have such columns at all; sends no request."""
    label = f"sinks.{sink.name}"
    if sink.upsert is not None:
        wrong = list(_wrong_columns(sink.upsert, schema))
        for key, text in wrong:
            found.problem(label, sink.line_of(key), text)
        return not wrong
    from pelton.spark.buckets.kv_sink import fit_kv_columns
    from pelton.spark.buckets.object_sink import fit_object_columns
    from pelton.spark.writing.writer import fit_columns

    looks: dict[str, Look] = {
        "jetstream": fit_columns,
        "jetstream_kv": fit_kv_columns,
        "jetstream_object": lambda _, columns: fit_object_columns(columns),
    }
    try:
        if (look := looks.get(sink.format or "")) is not None:
            look(sink.options, schema)
    except _WRONG as error:
        found.problem(label, _line_of_columns(sink), error)
        return False
    return True


def _wrong_columns(into: Upsert, schema: StructType) -> Iterator[tuple[str, str]]:
    """The faults of ``keys``, ``sequence`` and ``sums``, each with its key."""
    from pelton.spark.tables.upserts import check_columns

    lacking = False
    for key, names in (("keys", into.keys), ("sequence", (into.sequence,)), ("sums", into.sums)):
        for name in names:
            if name not in schema.names:
                lacking = True
                yield key, f"{key}: there is no column {name}{did_you_mean(name, schema.names)}"
    if not lacking:
        for name in into.sums:
            try:
                check_columns(schema, into.keys, into.sequence, (name,), None)
            except TableError as error:
                yield "sums", str(error)


def _if_behind(sink: Sink) -> str:
    if sink.upsert is not None:
        return sink.upsert.if_behind
    folded = {key.lower(): value for key, value in sink.options.items()}
    return folded.get("ifbehind", FAIL).lower()


def fill_holes(pipeline: Pipeline, found: Findings) -> None:
    """Put the queries back whose tables are to be filled; each to where the oldest of them is."""
    for query in dict.fromkeys(hole.query for hole in found.holes):
        holes = [hole for hole in found.holes if hole.query == query]
        behind = min(holes, key=lambda hole: hole.batch)
        where = checkpoint(pipeline.state, query)
        label = f"sinks.{behind.sink.name}"
        try:
            said = fill(where, behind.sink.place or behind.sink.name, behind.batch)
        except TableError as error:
            found.problem(label, behind.sink.line, error)
        else:
            found.warn(label, behind.sink.line, said)


def _looks(sink: Sink) -> dict[str, Look]:
    from pelton.spark.buckets.kv_sink import plan_kv_write
    from pelton.spark.buckets.object_sink import plan_object_write
    from pelton.spark.writing.writer import plan_write

    return {
        "jetstream": plan_write,
        "jetstream_kv": plan_kv_write,
        "jetstream_object": plan_object_write,
        DELTA: lambda options, schema: _look_at_delta(sink, options, schema),
        ICEBERG: lambda options, _: _look_at_iceberg(options, sink.mode == "complete"),
    }


def _look_at_delta(sink: Sink, options: Mapping[str, str], schema: StructType) -> None:
    from pelton.spark.delta.options import parse_write
    from pelton.spark.tables.writer import TableStreamWriter

    # The same plan as for each batch; planning writes nothing.
    TableStreamWriter(parse_write(options, streaming=True), schema, sink.mode == "complete")


def _look_at_iceberg(options: Mapping[str, str], replaces: bool) -> None:
    from pelton.spark.iceberg.options import parse_write
    from pelton.spark.tables.upserts import look_at

    # Not the plan of a batch, which makes the table.
    asked = parse_write(options, streaming=True)
    memory = memory_of(asked.checkpoint, str(asked.where))
    begun = memory.begun and not memory.known
    look_at(asked.where, Watched(memory, asked.if_behind), begun=begun, replaces=replaces)


def _look_at_upsert(sink: Sink, schema: StructType, where: Path, if_behind: str) -> None:
    from pelton.spark.tables.commits import HERE, format_of
    from pelton.spark.tables.histories import check_table, with_validity
    from pelton.spark.tables.schemas import arrow_schema
    from pelton.spark.tables.table import Write
    from pelton.spark.tables.upserts import location, look_at

    into: Any = sink.upsert
    place = location(into.path, into.storage, into.catalog, into.catalog_properties)
    memory = memory_of(where, str(place))
    look_at(place, Watched(memory, if_behind), begun=memory.begun and not memory.known)
    table = HERE.opened(place)
    if table is not None:
        rows = arrow_schema(schema, format_of(place))
        check_table(table, history=into.history)
        if into.history:
            rows = with_validity(rows, into.sequence, deletes=into.delete_when is not None)
        table.check(Write(schema=rows, merge_schema=into.merge_schema))
        table.check_rules()
