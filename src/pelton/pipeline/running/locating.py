"""Names the message and the key of the file for which a batch has failed.

The checkpoint has the range of the batch. It is read again, the first step that throws is found, then its first
message by halving the range, then its key with that message alone. That takes some twenty small jobs, and only
after a failure.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  the name the field knows it by

from pelton.pipeline.description.graph import ordered, upstream
from pelton.pipeline.running.frames import Frames
from pelton.pipeline.running.queries import checkpoint, last_batch, offsets_of
from pelton.pipeline.running.rejected import is_thrown
from pelton.pipeline.running.stages import Stage, first_key, sink_stages, stages_of
from pelton.pipeline.running.throwing import evaluate, thrown
from pelton.spark.watching.report import sequences

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pelton.pipeline.description.model import Pipeline, Sink, Source, Step
    from pelton.pipeline.running.queries import Query
    from pelton.pipeline.running.rejected import Thrown


def located(pipeline: Pipeline, spark: SparkSession, query: Query) -> str:
    """``file:line: steps.typed: columns.total: message 412 of ORDERS (subject a.b): error``.

    '' if the failure is not that of a message, or of one of another format than ``jetstream``.
    """
    sources = _of_batch(pipeline, query)
    if sources is None:
        return ""
    found = _Batch(pipeline, spark, query, sources)
    try:
        return found.located()
    finally:
        found.close()


def _of_batch(pipeline: Pipeline, query: Query) -> dict[str, Source] | None:
    """The streamed sources of a query, each limited to its last batch."""
    folder = checkpoint(pipeline.state, query.name) / "offsets"
    batch = last_batch(folder)
    ends = offsets_of(folder / str(batch))
    begins = offsets_of(folder / str(batch - 1)) or [""] * len(ends)
    made: dict[str, Source] = {}
    if not len(query.sources) == len(ends) == len(begins):
        return None
    for name, begin, end in zip(query.sources, begins, ends, strict=True):
        source = _between(pipeline.sources[name], sequences(begin), sequences(end))
        if source is None:
            return None
        made[name] = source
    return made


def _between(source: Source, begins: dict[str, int], ends: dict[str, int]) -> Source | None:
    if source.format != "jetstream":
        return None
    skipped = {"consumer", "startingoffsets", "endingoffsets", "stream", "streampattern"}
    options = {name: text for name, text in source.options.items() if name.lower() not in skipped}
    given = {name.lower(): text for name, text in source.options.items()}
    read = {name: end for name, end in ends.items() if end > begins.get(name, 0)}
    if not read:
        read = ends
    starts = {name: begins[name] + 1 for name in read if name in begins}
    if starts:
        options["startingOffsets"] = json.dumps(starts)
    elif given.get("startingoffsets", "") in ("", "latest"):
        return None
    else:
        options["startingOffsets"] = given["startingoffsets"]
    options["stream"] = ",".join(read)
    options["endingOffsets"] = json.dumps(read)
    return replace(source, options=options, static=True)


class _Batch:
    def __init__(
        self, pipeline: Pipeline, spark: SparkSession, query: Query, sources: dict[str, Source]
    ) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._query = query
        frames = Frames(replace(pipeline, sources=sources), spark)
        self._rows = {name: frames.node(name).persist() for name in query.sources}

    def close(self) -> None:
        for rows in self._rows.values():
            rows.unpersist()

    def located(self) -> str:
        pipeline = self._pipeline
        nodes = {each for name in self._query.sinks for each in upstream(pipeline, name)}
        parts: list[Step | Sink] = [
            pipeline.steps[name]
            for name in ordered(pipeline)
            if name in nodes and name in pipeline.steps
        ]
        parts += [pipeline.sinks[name] for name in self._query.sinks]
        for part in parts:
            if evaluate(self._made(part, {})) is not None:
                return self._message(part)
        return ""

    def _made(self, part: Step | Sink, instead: dict[str, DataFrame]) -> DataFrame:
        frames = self._frames(instead)
        name = part.name
        return frames.whole(name) if name in self._pipeline.steps else frames.sink(part)  # type: ignore[arg-type]  # it is a sink

    def _frames(self, instead: dict[str, DataFrame]) -> Frames:
        return Frames(self._pipeline, self._spark, given={**self._rows, **instead})

    def _message(self, part: Step | Sink) -> str:
        for source, rows in self._rows.items():
            if "seq" not in rows.columns:
                continue
            try:
                found = thrown(rows, lambda some: self._made(part, {source: some}), most=1)  # noqa: B023  called at once
            except Exception:  # it throws without the rows of this source
                continue
            if found:
                return self._line(part, source, found[0])
        return ""

    def _line(self, part: Step | Sink, source: str, message: Thrown) -> str:
        one = self._rows[source].where(is_thrown(self._rows[source], [message]))
        frames = self._frames({source: one})
        is_step = part.name in self._pipeline.steps
        key, label = self._key(part, frames)
        subject = ""
        if "subject" in one.columns and (row := one.select("subject").first()) is not None:
            subject = f" (subject {row[0]})"
        options = {
            name.lower(): each for name, each in self._pipeline.sources[source].options.items()
        }
        stream = message.stream or options.get("stream", source)
        label = f"{'steps' if is_step else 'sinks'}.{part.name}: {label}{': ' if label else ''}"
        what = f"{label}message {message.seq} of {stream}{subject}: {message.error}"
        return self._pipeline.hide(f"{self._pipeline.file}:{part.line_of(key)}: {what}")

    def _key(self, part: Step | Sink, frames: Frames) -> tuple[str, str]:
        """The key that throws for the rows of one message, and its label."""
        step = self._pipeline.steps.get(part.name)
        if step is None:
            sink = self._pipeline.sinks[part.name]
            rows, stages = frames.of(sink.input), [*sink_stages(sink)]
        else:
            rows, stages = frames.begun(step), [*stages_of(step)]
            if evaluate(rows) is not None:
                return first_key(step), first_key(step)
        for stage in stages:
            for name in stage.texts:
                if evaluate(stage.alone(rows, name)) is not None:
                    return stage.place(name), stage.label(name)
            rows = stage.apply(rows)
        for name, text in (step.expect if step is not None else {}).items():
            if evaluate(rows.select(F.expr(f"({text})"))) is not None:
                return f"expect.{name}", Stage("expect", {}).label(name)
        return "", ""
