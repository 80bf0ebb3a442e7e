"""The rows of a step or sink for some messages of the sources: to see what a file does, without a run.

Every source is read as a batch: of a stream the last messages, or those from a position on. There is no
checkpoint, and nothing is written.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pelton.pipeline.description.functions import carry_modules
from pelton.pipeline.description.graph import upstream
from pelton.pipeline.description.model import Step, node_of
from pelton.pipeline.description.problems import did_you_mean
from pelton.pipeline.running.frames import Frames
from pelton.pipeline.running.stages import StepError
from pelton.pipeline.running.targets import Findings, look_at_sources
from pelton.spark.connection import ReadError, stream_info
from pelton.spark.parsing import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from pelton.pipeline.description.model import Pipeline, Source

MESSAGES = 1000
_OF_SQL = ("spark.sql.", "spark.jars")
# What a JVM of some seconds is started fastest with.
_SHORT = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class Preview(NamedTuple):
    """The first rows of a step, of its rejected rows, or of what a sink is given."""

    name: str
    rows: pa.Table


def named(pipeline: Pipeline, name: str | None) -> tuple[str, ...]:
    """What to show: a source, a step, ``step.rejected`` or a sink; without a name every sink.

    Raises :class:`StepError` for a name that the file does not have.
    """
    if name is None:
        return tuple(pipeline.sinks)
    node = node_of(name)
    step = pipeline.steps.get(node)
    if name != node and (step is None or not step.rejects):
        raise StepError(
            f"{pipeline.file}: {node} has neither expect nor onError: reject, so it rejects no rows"
        )
    known = [*pipeline.sources, *pipeline.steps, *pipeline.sinks]
    if node not in known:
        raise StepError(
            f"{pipeline.file}: there is no source, step or sink {node}{did_you_mean(node, known)}"
        )
    return (name,)


def readable(
    pipeline: Pipeline, names: tuple[str, ...], *, begin: str | None, messages: int
) -> Pipeline:
    """The pipeline with sources that are read as a batch; the servers are asked where streams end.

    ``begin`` is a position, such as 41 or a time; without it the last ``messages`` of each stream are read.
    Raises :class:`StepError` for streams and buckets that are missing, and for a position that is none.
    """
    nodes = {each for name in names for each in upstream(pipeline, node_of(name))}
    sources = [name for name in pipeline.sources if name in nodes]
    found = Findings(pipeline)
    look_at_sources(pipeline, sources, found)
    made = dict(pipeline.sources)
    for name in sources:
        try:
            made[name] = _as_batch(pipeline.sources[name], begin, messages)
        except (OptionError, ReadError) as error:
            found.problem(f"sources.{name}", pipeline.sources[name].line, error)
    if found.problems:
        raise StepError("\n".join(dict.fromkeys(found.problems)))
    return replace(pipeline, sources=made)


def _as_batch(source: Source, begin: str | None, messages: int) -> Source:
    if source.static or source.format not in ("jetstream", "jetstream_kv"):
        return replace(source, static=True)
    bounds = ("startingoffsets", "endingoffsets", "consumer")
    options = {name: text for name, text in source.options.items() if name.lower() not in bounds}
    if source.format == "jetstream_kv":  # a batch read is the state of the bucket
        return replace(source, options=options, static=True)
    from pelton.spark.reading.options import parse_options

    if begin is not None:
        options["startingOffsets"] = begin
    asked = parse_options(options, streaming=False)
    starts, ends = {}, {}
    for stream in asked.streams:
        state = stream_info(asked.servers, stream).state
        if not state.messages:
            continue
        if begin is None:
            starts[stream] = max(state.first_seq, state.last_seq - messages + 1)
        elif begin.isdigit():
            ends[stream] = min(state.last_seq, int(begin) + messages - 1)
    if starts:
        options["startingOffsets"] = json.dumps(starts)
    if ends and all(end >= int(begin or 0) for end in ends.values()):
        options["endingOffsets"] = json.dumps(ends)
    return replace(source, options=options, static=True)


def previews(
    pipeline: Pipeline, spark: SparkSession, names: tuple[str, ...], rows: int
) -> Iterator[Preview]:
    """The first rows of each, by a pipeline that :func:`readable` made. Raises :class:`StepError`."""
    carry_modules(pipeline.folder)
    frames = Frames(pipeline, spark)
    for name in names:
        sink = pipeline.sinks.get(name)
        frame = frames.of(name) if sink is None else frames.sink(sink)
        try:
            yield Preview(name, frame.limit(rows).toArrow())
        except Exception as error:  # from Spark and from users' functions, at the first row
            from pelton.pipeline.running.supervising import brief

            said = pipeline.hide(brief(error))
            raise StepError(f"{pipeline.file}: {name}: {said}") from error


def first_rows(pipeline: Pipeline, step: Step) -> DataFrame:
    """The first rows that a step decodes, read as a batch. Raises :class:`StepError`."""
    from pyspark.sql import SparkSession

    bare = Step(step.name, step.line, step.inputs, python=step.python, sql=step.sql)
    pipeline = replace(pipeline, steps={**pipeline.steps, step.name: bare})
    messages = MESSAGES if step.decoding is None else step.decoding.infer
    pipeline = readable(pipeline, (step.name,), begin="earliest", messages=messages)
    return Frames(pipeline, SparkSession.active()).node(step.name)


@contextlib.contextmanager
def session_of(pipeline: Pipeline, *, to_analyse: bool = False) -> Iterator[SparkSession]:
    """A session with the file's settings.

    To analyse only, it is a small one on this machine, whatever ``master`` the file names. Raises
    :class:`StepError` when Spark does not start, as for a master that does not answer.
    """
    from pelton.pipeline.running.supervising import brief
    from pelton.spark.session import end_session, session

    settings = {name: each for name, each in pipeline.spark.items() if name != "master"}
    master = pipeline.spark.get("master", "local[2,4]")
    if to_analyse:
        master = "local[1]"
        settings = {name: each for name, each in settings.items() if name.startswith(_OF_SQL)}
    with tempfile.TemporaryDirectory(prefix="pelton-show-") as folder:
        try:
            spark = session(
                f"pelton {pipeline.name}",
                master=master,
                settings=settings,
                log_file=Path(folder) / "spark.log",
                java=_SHORT if to_analyse else (),
            )
        except Exception as error:  # from Spark, of many classes
            said = pipeline.hide(brief(error))
            raise StepError(f"{pipeline.file}: Spark does not start: {said}") from error
        try:
            yield spark
        finally:
            end_session(spark)
