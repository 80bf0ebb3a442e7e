"""A table made anew from its streams, and replaced in one commit, while the pipeline is stopped.

The rows of all messages up to the position of the table's query become files of the table first, and the
commit replaces the old contents by them. Until then the table is as it was; afterwards the old version is
still there for readers of versions. The query goes on at its position, so each row is there once.

A table with ``upsert`` is built by merges into a table beside it, whose rows then replace the old ones.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pelton.pipeline.backfilling.backfill import Progress, table_of
from pelton.pipeline.backfilling.ranges import Shelf, chunks, count
from pelton.pipeline.backfilling.reading import (
    check_stateless,
    lookups_of,
    refusal,
    rows_between,
    sources_of,
)
from pelton.pipeline.description.functions import carry_modules
from pelton.pipeline.description.model import DELTA
from pelton.pipeline.description.problems import did_you_mean
from pelton.pipeline.running.queries import checkpoint, committed, recall
from pelton.pipeline.running.stages import StepError
from pelton.pipeline.running.supervising import brief
from pelton.pipeline.running.writing import write_upsert
from pelton.spark.reading.offsets import offsets_from_json
from pelton.spark.tables.commits import HERE
from pelton.spark.tables.places import TableError, place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from pelton.pipeline.backfilling.ranges import Ledger, Span
    from pelton.pipeline.description.model import Pipeline, Sink
    from pelton.spark.tables.places import Place

_BESIDE = "_rebuild"
_HEAD_LINES = 2  # of Spark's files of offsets


@dataclass(frozen=True)
class Task:
    """The table of a sink, the ranges of each source's streams, and a mark that the table lacks."""

    sink: Sink
    where: Place
    spans: dict[str, dict[str, Span]]
    born: dict[str, str]
    mark: tuple[str, int]
    ledger: Ledger | None

    @property
    def total(self) -> int:
        """How many sequences are read."""
        return count(span for ranges in self.spans.values() for span in ranges.values())


def planned(pipeline: Pipeline, name: str, *, allow_loss: bool) -> Task:
    """What a rebuild of a sink's table reads; asks the servers, needs no Spark.

    Raises :class:`StepError`.
    """
    if name not in pipeline.sinks:
        hint = did_you_mean(name, pipeline.sinks)
        raise StepError(f"{pipeline.file}: there is no sink {name}{hint}")
    sink = pipeline.sinks[name]
    iceberg = sink.upsert is not None and sink.upsert.catalog is not None
    if sink.mode != "append" or iceberg or (sink.upsert is None and sink.format != DELTA):
        what = f"format {sink.format}" if sink.mode == "append" else f"mode {sink.mode}"
        what = "a table of a catalog" if iceberg else what
        reason = (
            f"only Delta tables with mode append, and those with upsert, are rebuilt, not {what}"
        )
        raise refusal(pipeline, sink, reason)
    query = recall(pipeline.state, pipeline.name).of(name)
    batch = -1 if query is None else committed(pipeline.state, query)
    if query is None or batch < 0:
        raise refusal(pipeline, sink, "its query has done no batch yet; run the pipeline")
    where = table_of(sink)
    folder = checkpoint(pipeline.state, query)
    try:
        query_id = str(json.loads((folder / "metadata").read_text())["id"])
        ends = (folder / "offsets" / str(batch)).read_text().splitlines()[_HEAD_LINES:]
        held = HERE.batch_of(where, query_id)
    except (OSError, ValueError, KeyError, TableError) as error:
        raise refusal(pipeline, sink, f"query {query}: {error}") from None
    if held is not None and held > batch:
        raise refusal(
            pipeline,
            sink,
            f"batch {held} of query {query} was interrupted; end it first:"
            f" pelton pipeline run {pipeline.file} --once",
        )
    spans, born = _spans(pipeline, sink, query, ends, allow_loss)
    ledger = None
    if len(born) == 1:  # only such a sink is ever back-filled
        ledger = Shelf(pipeline.state).ledger(name, sink.place or "", *next(iter(born.items())))
        if ledger.current is not None:
            reason = "a back-fill of it was interrupted; run it again first, and it ends"
            raise refusal(pipeline, sink, reason)
        if ledger.rebuilt is not None:
            ledger.settle(HERE.batch_of(where, ledger.rebuilt[0]))
    mark = (query_id, batch)
    if held == batch:
        mark = (f"rebuild-{uuid.uuid4().hex}", 0) if ledger is None else (ledger.mark, ledger.next)
    return Task(sink, where, spans, born, mark, ledger)


def _spans(
    pipeline: Pipeline, sink: Sink, query: str, ends: list[str], allow_loss: bool
) -> tuple[dict[str, dict[str, Span]], dict[str, str]]:
    sources = {source.name: source for source in sources_of(pipeline, sink)}
    begun = recall(pipeline.state, pipeline.name).queries[query].sources
    spans: dict[str, dict[str, Span]] = {}
    born: dict[str, str] = {}
    for name, text in zip(begun, ends, strict=False):
        if name not in sources:
            continue
        lookups = lookups_of(sources[name])
        try:
            offsets, states = offsets_from_json(json.loads(text)), lookups.required_states()
        except (RuntimeError, ValueError) as error:
            raise refusal(pipeline, sink, str(error)) from None
        spans[name] = {}
        for stream, state in states.items():
            offset = offsets.get(stream)
            if offset is None:
                continue
            if offset.born != state.born:
                raise refusal(
                    pipeline,
                    sink,
                    f"stream {stream} was created again at {state.born}, so the messages of the table's"
                    " rows are gone",
                )
            if state.first_seq > 1 and not allow_loss:
                raise refusal(
                    pipeline,
                    sink,
                    f"stream {stream} begins at {state.first_seq:,}: rows of messages before would be"
                    " lost. Allow that with --allow-loss",
                )
            spans[name][stream] = (state.first_seq, min(offset.seq, state.last_seq))
            born[stream] = state.born
    return spans, born


def rebuild(
    pipeline: Pipeline, spark: SparkSession, task: Task, messages: int
) -> Iterator[Progress]:
    """Make the table anew; the last progress comes after the commit.

    Raises :class:`StepError`; the table is then as it was.
    """
    carry_modules(pipeline.folder)
    check_stateless(pipeline, spark, task.sink)
    began = time.monotonic()
    sink, ledger = task.sink, task.ledger
    if ledger is not None:
        [last] = [span[1] for ranges in task.spans.values() for span in ranges.values()]
        ledger.rebuilt = (*task.mark, (1, last))
        Shelf(pipeline.state).keep(sink.name, ledger)
    try:
        if sink.upsert is None:
            _replace(task, rows_between(pipeline, spark, sink, task.spans))
        else:
            beside = place(f"{task.where}{_BESIDE}", task.where.storage_options)
            _remove(beside)
            yield from _merged(pipeline, spark, task, beside, messages)
            options = {f"storage.{key}": text for key, text in beside.storage}
            rows = spark.read.format(DELTA).options(**options).load(str(beside))
            _replace(task, rows)
            _remove(beside)
    except StepError:
        raise
    except Exception as error:  # from Spark, tables and users' functions
        raise refusal(pipeline, sink, brief(error)) from error
    if ledger is not None:
        ledger.settle(task.mark[1])
        Shelf(pipeline.state).keep(sink.name, ledger)
    everything = task.total
    yield Progress(sink.name, (0, 0), everything, everything, time.monotonic() - began)


def _merged(
    pipeline: Pipeline, spark: SparkSession, task: Task, beside: Place, messages: int
) -> Iterator[Progress]:
    """Merge all messages into a table beside the old one, chunk by chunk, in their order."""
    assert task.sink.upsert is not None
    into = replace(
        task.sink.upsert,
        path=str(beside),
        storage=beside.storage_options,
        maintain_every=None,
        merge_schema=True,
        if_behind="fail",
    )
    pieces = [
        (name, stream, piece)
        for name, ranges in task.spans.items()
        for stream, span in ranges.items()
        for piece in chunks([span], messages)
    ]
    if len(task.born) > 1:  # a step may need the messages of several streams together
        raise refusal(pipeline, task.sink, "it reads several streams; upserts of one are rebuilt")
    done = 0
    for number, (name, stream, piece) in enumerate(pieces):
        began = time.monotonic()
        rows = rows_between(pipeline, spark, task.sink, {name: {stream: piece}})
        write_upsert(into, rows, number, query_id="rebuild")
        done += count([piece])
        yield Progress(task.sink.name, piece, done, task.total, time.monotonic() - began)


def _replace(task: Task, rows: DataFrame) -> None:
    """Replace the contents of the table by rows, in one commit."""
    sink = task.sink
    options: dict[str, Any] = {"overwriteSchema": "true"}
    options |= {f"storage.{key}": text for key, text in task.where.storage}
    kept = ("partitionby", "maxrecordsperfile", "onrowerror", "errorpath")
    options |= {key: text for key, text in sink.options.items() if key.lower() in kept}
    options |= {"txnAppId": task.mark[0], "txnVersion": str(task.mark[1])}
    rows.write.format(DELTA).mode("overwrite").options(**options).save(str(task.where))


def _remove(where: Place) -> None:
    """Remove a table that a rebuild has made beside another one."""
    from pyarrow import fs

    HERE.forget(where)
    if where.folder is not None:
        import shutil

        shutil.rmtree(where.folder, ignore_errors=True)
        return
    files = where.files()
    found = files.get_file_info(fs.FileSelector("", recursive=True, allow_not_found=True))
    for each in found:
        if each.is_file:
            files.delete_file(each.path)
