"""The messages of a sink's sources as a batch, between two sequences of each stream."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pelton.pipeline.description.graph import streams_of
from pelton.pipeline.running.frames import Frames, keeps_state
from pelton.pipeline.running.preview import first_rows
from pelton.pipeline.running.schemas import QuerySchemas
from pelton.pipeline.running.stages import StepError
from pelton.spark.reading.lookups import Lookups
from pelton.spark.reading.options import parse_options
from pelton.spark.reading.positions import EARLIEST, Position

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from pelton.pipeline.backfilling.ranges import Span
    from pelton.pipeline.description.model import Pipeline, Sink, Source
    from pelton.spark.reading.offsets import StreamState

_BOUNDS = ("startingoffsets", "endingoffsets", "consumer")


def refusal(pipeline: Pipeline, sink: Sink, reason: str) -> StepError:
    """The error of a sink, with its place in the file."""
    return StepError(f"{pipeline.file}:{sink.line}: sinks.{sink.name}: {pipeline.hide(reason)}")


def sources_of(pipeline: Pipeline, sink: Sink) -> list[Source]:
    """The streamed sources of a sink. Raises :class:`StepError` if one is not a stream of messages."""
    found = [pipeline.sources[name] for name in streams_of(pipeline, sink.name)]
    for source in found:
        if source.format != "jetstream":
            raise refusal(
                pipeline,
                sink,
                f"its source {source.name} has format {source.format}; only messages of streams"
                " (jetstream) can be read again",
            )
    return found


def lookups_of(source: Source) -> Lookups:
    """The requests about a source's streams."""
    options = {name: text for name, text in source.options.items() if name.lower() not in _BOUNDS}
    return Lookups(parse_options(options, streaming=False))


def began_at(source: Source, lookups: Lookups, state: StreamState) -> int | None:
    """The first sequence that a query of a source reads; None if it began at the newest message.

    Raises :class:`pelton.spark.connection.ReadError`.
    """
    options = {name: text for name, text in source.options.items() if name.lower() != "consumer"}
    asked = parse_options(options, streaming=True)
    position = asked.starting_offsets.of(state.stream, Position(word=EARLIEST))
    if position.word == EARLIEST:
        return 1
    if position.word is not None:
        return None
    if position.sequence is not None:
        return position.sequence
    at = lookups.at_position(state, position)
    return state.last_seq + 1 if at is None else at


def check_stateless(pipeline: Pipeline, spark: SparkSession, sink: Sink) -> None:
    """Raises :class:`StepError` for a sink whose steps keep state over the stream."""
    with tempfile.TemporaryDirectory(prefix="pelton-") as folder:
        apart = replace(pipeline, state=Path(folder))  # a look at the plan keeps no schema
        schemas = QuerySchemas(apart, "plan", sample=first_rows)
        state = keeps_state(Frames(apart, spark, schemas=schemas).sink(sink))
    if state:
        raise refusal(
            pipeline,
            sink,
            f"its input keeps state over the stream ({', '.join(state)}), which a range of it does not"
            " have; give the sink another name and place, and it begins from nothing",
        )


def rows_between(
    pipeline: Pipeline, spark: SparkSession, sink: Sink, spans: Mapping[str, Mapping[str, Span]]
) -> DataFrame:
    """The rows of a sink for ranges of the streams of each source. Raises :class:`StepError`."""
    sources: dict[str, Any] = dict(pipeline.sources)
    for name, ranges in spans.items():
        source = sources[name]
        options = {key: text for key, text in source.options.items() if key.lower() not in _BOUNDS}
        options["startingOffsets"] = json.dumps({each: span[0] for each, span in ranges.items()})
        options["endingOffsets"] = json.dumps({each: span[1] for each, span in ranges.items()})
        sources[name] = replace(source, options=options, static=True)
    return Frames(replace(pipeline, sources=sources), spark).sink(sink)
