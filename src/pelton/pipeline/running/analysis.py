"""Finds with Spark's analyser what is wrong with the columns, functions and types of a pipeline file.

Steps and sinks are made as a run makes them, but no query is started. Nothing is read but the columns of the
sources; those of ``jetstream`` and ``jetstream_kv`` are known without a server.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pelton.pipeline.description.functions import carry_modules, check_functions
from pelton.pipeline.description.graph import ordered, streams_of, upstream
from pelton.pipeline.description.model import REJECTED, STREAM_FORMATS
from pelton.pipeline.running.catching import catching
from pelton.pipeline.running.frames import Frames, keeps_state
from pelton.pipeline.running.preview import first_rows
from pelton.pipeline.running.schemas import Schemas, decoding_of, first_schema
from pelton.pipeline.running.stages import StepError, said
from pelton.pipeline.running.targets import (
    Findings,
    is_here,
    look_at_servers,
    look_at_sink,
    look_at_sources,
)

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from pelton.pipeline.description.model import Pipeline, Sink, Source, Step
    from pelton.pipeline.running.queries import Query


_LACKS = (
    "the table is without {}, which rejected rows keep of their messages; mergeSchema: true adds"
    " columns"
)


def analyse(
    pipeline: Pipeline, spark: SparkSession, queries: list[Query], *, ask_servers: bool = False
) -> Findings:
    """All faults that Spark and the targets on this machine report, and the parts that are not checked.

    With ``ask_servers`` also those of streams, buckets and tables elsewhere.
    """
    found = Findings(pipeline)
    carry_modules(pipeline.folder)
    # Nothing is known of tables elsewhere unless servers are asked.
    here = (
        {}
        if ask_servers
        else {s.name: frozenset[str]() for s in pipeline.sinks.values() if not is_here(s)}
    )
    schemas = _Known(pipeline, ask=ask_servers)
    frames = Frames(pipeline, spark, schemas=schemas, lacks=here)
    lost = _sources(pipeline, frames, found)
    for step in pipeline.steps.values():
        if step.decoding is not None and not schemas.known(step):
            lost.add(step.name)
            text = "what reads it is not checked, because its fields come from data"
            found.note(f"steps.{step.name}", step.line_of(step.decoding.name), text)
    lost |= {name for name in pipeline.steps if not _callable(pipeline, name)}
    look_at_steps(pipeline, frames, [*pipeline.steps], found, without=lost)
    for query in queries:
        for sink, rows in rows_of_sinks(pipeline, frames, query, found, without=lost):
            look_at_sink(pipeline, query, sink, rows.schema, found, ask=ask_servers)
    if ask_servers:
        look_at_sources(pipeline, (name for each in queries for name in each.sources), found)
        found.problems += look_at_servers(pipeline, queries)
    found.problems = sorted(dict.fromkeys(found.problems), key=_place)
    return found


class _Known(Schemas):
    """The schemas of payloads that are known without a run: declared, kept by a query, or of the first rows."""

    def __init__(self, pipeline: Pipeline, *, ask: bool) -> None:
        super().__init__(pipeline)
        self._ask = ask

    def known(self, step: Step) -> bool:
        """Whether the fields of a step are known, or may be read from a server."""
        decoding = decoding_of(step)
        stated = decoding.schema is not None or decoding.format.stated() is not None
        return stated or self._ask or self.kept(step) is not None

    def of(self, step: Step, rows: DataFrame) -> StructType:
        """The newest schema that is kept, or that a query would begin with."""
        decoding = decoding_of(step)
        if (kept := self.kept(step)) is not None:
            return kept
        return first_schema(decoding, first_rows(self.pipeline, step) if self._ask else rows)


def _callable(pipeline: Pipeline, name: str) -> bool:
    """Whether the function of a step, if it has one, is there; faults are reported without Spark."""
    only = replace(pipeline, steps={name: pipeline.steps[name]})
    return not check_functions(only)


def _place(line: str) -> int:
    """The line number of a fault."""
    number = line.partition(": ")[0].rpartition(":")[2]
    return int(number) if number.isdigit() else 0


def _sources(pipeline: Pipeline, frames: Frames, found: Findings) -> set[str]:
    """The sources whose columns are not known, as of a table that does not exist yet."""
    lost = set()
    for source in pipeline.sources.values():
        try:
            frames.node(source.name)
        except StepError as error:
            if source.format in STREAM_FORMATS or source.schema is not None:
                found.refused(error)
                continue
            lost.add(source.name)
            what = error.lines[0].partition(": ")[2].partition(": ")[2]
            label = f"sources.{source.name}"
            said_of = f"what reads it is not checked, because its columns are unknown: {what}"
            found.note(label, source.line, said_of)
    return lost


def look_at_steps(
    pipeline: Pipeline,
    frames: Frames,
    names: list[str],
    found: Findings,
    *,
    without: AbstractSet[str] = frozenset(),
) -> None:
    """Report the faults of these steps; those that read one with a fault are passed over.

    So are those that read a source of ``without``.
    """
    for name in ordered(pipeline):
        step = pipeline.steps.get(name)
        if step is None or name not in names or upstream(pipeline, name) & without:
            continue
        try:
            frames.of(name)
            if step.rejects:
                frames.of(name + REJECTED)
            if step.catches and (text := _unnamed(pipeline, step, frames.input_of(step))):
                found.problem(f"steps.{name}: onError", step.line_of("onError"), text)
        except StepError as error:
            found.refused(error)


def _unnamed(pipeline: Pipeline, step: Step, rows: DataFrame) -> str:
    """Why the messages of a step's input rows are not known; '' if they are."""
    kinds = {field.name: field.dataType.simpleString() for field in rows.schema}
    if kinds.get("seq") != "bigint":
        return (
            "rows that throw are found by their sequences: the rows of"
            f" {', '.join(step.inputs)} need the source's column seq; there are: {', '.join(kinds)}"
        )
    sources = [pipeline.sources[name] for name in streams_of(pipeline, step.name)]
    if kinds.get("stream") != "string" and (len(sources) > 1 or not one_stream(sources[0])):
        return (
            "rows of several streams are read, so the rows of"
            f" {', '.join(step.inputs)} need the source's column stream, too"
        )
    return ""


def one_stream(source: Source) -> bool:
    """Whether a source reads one stream, or one bucket."""
    options = {name.lower(): text for name, text in source.options.items()}
    return "streampattern" not in options and "," not in options.get("stream", "")


def rows_of_sinks(
    pipeline: Pipeline,
    frames: Frames,
    query: Query,
    found: Findings,
    *,
    without: AbstractSet[str] = frozenset(),
) -> list[tuple[Sink, DataFrame]]:
    """The sinks of a query with their rows; reports those that Spark refuses."""
    made = []
    for sink in (pipeline.sinks[name] for name in query.sinks):
        if upstream(pipeline, sink.name) & without:
            continue
        try:
            rows = frames.sink(sink)
            caught = catching(pipeline, [sink.name])
            if (query.shared or caught) and (state := keeps_state(rows, frames.node(query.cut))):
                text = f"its input keeps state over the stream ({', '.join(state)}), "
                if caught:
                    text += (
                        f"so steps.{caught[0].name} cannot have onError: reject: use try_cast and"
                    )
                    text += " expect there"
                    line = caught[0].line_of("onError")
                else:
                    text += "which needs its own query: add query: own"
                    line = sink.line_of("from")
                found.problem(f"sinks.{sink.name}", line, text)
                continue
        except StepError as error:
            found.refused(error)
            continue
        if lacks := frames.lacks(sink):
            found.warn(f"sinks.{sink.name}", sink.line, _LACKS.format(", ".join(lacks)))
        if _deletes(pipeline, sink, rows, found):
            made.append((sink, rows))
    return made


def _deletes(pipeline: Pipeline, sink: Sink, rows: DataFrame, found: Findings) -> bool:
    """Whether Spark takes the condition ``deleteWhen``, if there is one."""
    text = None if sink.upsert is None else sink.upsert.delete_when
    try:
        if text is not None:
            rows.where(f"({text})")
    except Exception as error:  # from Spark
        label = f"sinks.{sink.name}: deleteWhen"
        found.problem(label, sink.line_of("deleteWhen"), said(error, rows.sparkSession, text or ""))
        return False
    return True
