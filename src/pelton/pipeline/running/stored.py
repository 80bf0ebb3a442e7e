"""Messages of streams by their sequences, as rows of the sources that read them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from pelton.spark.connection import stream_info
from pelton.spark.reading.options import parse_options

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from pelton.pipeline.description.model import Source

Message = tuple[str, int]
"""A stream and a sequence."""
_RANGES = 16


def stored(
    spark: SparkSession, sources: Sequence[Source], messages: Iterable[Message]
) -> dict[str, DataFrame]:
    """The rows of these messages for each source, in one partition, in order; without those that are gone."""
    wanted: dict[str, list[int]] = {}
    for stream, seq in messages:
        wanted.setdefault(stream, []).append(seq)
    return {source.name: _rows(spark, source, wanted) for source in sources}


def dropped(sources: Sequence[Source], message: Message) -> str:
    """Why a message cannot be read. Raises what the server's answer does."""
    stream, seq = message
    for source in sources:
        asked = parse_options(_plain(source), streaming=False)
        if asked.selects(stream):
            state = stream_info(asked.servers, stream).state
            if seq < state.first_seq:
                return f"the stream begins at {state.first_seq} now"
            if seq > state.last_seq:
                return f"the stream ends at {state.last_seq}"
            return "it is not in the stream any more"
    return f"no source of the step reads {stream} now"


def ranges(numbers: Iterable[int], most: int = _RANGES) -> list[tuple[int, int]]:
    """At most so many ranges that hold these numbers, with the largest gaps left out."""
    ordered = sorted(numbers)
    gaps = sorted(
        range(1, len(ordered)), key=lambda at: ordered[at] - ordered[at - 1], reverse=True
    )
    cuts = sorted(at for at in gaps[: most - 1] if ordered[at] - ordered[at - 1] > 1)
    begins = [0, *cuts] if ordered else []
    ends = [*cuts, len(ordered)]
    return [(ordered[a], ordered[b - 1]) for a, b in zip(begins, ends, strict=False)]


def _plain(source: Source) -> dict[str, str]:
    bounds = {"consumer", "startingoffsets", "endingoffsets", "failondataloss"}
    return {name: text for name, text in source.options.items() if name.lower() not in bounds}


def _rows(spark: SparkSession, source: Source, wanted: dict[str, list[int]]) -> DataFrame:
    reader = spark.read.format(source.format)
    if source.schema is not None:
        reader = reader.schema(source.schema)
    plain = _plain(source)
    asked = parse_options(plain, streaming=False)
    alone = {k: v for k, v in plain.items() if k.lower() not in ("stream", "streampattern")}
    schema = reader.options(**plain).load().schema
    parts: list[pa.Table] = []
    for stream, seqs in sorted(wanted.items()):
        if not asked.selects(stream):
            continue
        state = stream_info(asked.servers, stream).state
        there = [seq for seq in seqs if state.first_seq <= seq <= state.last_seq]
        for first, last in ranges(there):
            between = {"startingOffsets": first, "endingOffsets": last}
            bounds = {name: json.dumps({stream: seq}) for name, seq in between.items()}
            few = [seq for seq in there if first <= seq <= last]
            rows = reader.options(**alone, **bounds, stream=stream, failOnDataLoss="false").load()
            chosen = rows.where(f"seq in ({', '.join(map(str, few))})")
            parts.append(chosen.toArrow().sort_by("seq"))
    if not parts:
        return spark.createDataFrame([], schema)
    return spark.createDataFrame(pa.concat_tables(parts), schema).coalesce(1)
