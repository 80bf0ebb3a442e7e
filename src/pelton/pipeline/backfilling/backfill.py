"""A range of a stream into sinks, chunk by chunk, also while their query runs.

A sink's query writes everything from the message on with which it began. So a back-fill writes what is before
that message, into a sink with ``upsert`` without ``sums`` anything: its table keeps the newest row of a key,
whoever writes it. What an earlier back-fill has written is left out.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pelton.pipeline.backfilling.ranges import Shelf, chunks, count, joined, without
from pelton.pipeline.backfilling.reading import (
    began_at,
    check_stateless,
    lookups_of,
    refusal,
    rows_between,
    sources_of,
)
from pelton.pipeline.children import Children, FolderInUseError
from pelton.pipeline.description.functions import carry_modules
from pelton.pipeline.description.model import DELTA, ICEBERG
from pelton.pipeline.description.problems import did_you_mean
from pelton.pipeline.running.queries import StateError, recall
from pelton.pipeline.running.stages import StepError
from pelton.pipeline.running.supervising import brief
from pelton.pipeline.running.writing import write_batch, write_upsert
from pelton.spark.parsing import OptionError
from pelton.spark.reading.offsets import resolve_end, resolve_start
from pelton.spark.reading.positions import position
from pelton.spark.tables.commits import HERE
from pelton.spark.tables.places import Place, place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from pelton.pipeline.backfilling.ranges import Ledger, Span
    from pelton.pipeline.description.model import Pipeline, Sink, Source
    from pelton.spark.reading.lookups import Lookups
    from pelton.spark.reading.offsets import StreamState

_ADAPTIVE = "spark.sql.adaptive.enabled"


@dataclass
class Task:
    """What one sink lacks of a range: ``left`` are the chunks, an interrupted one first."""

    sink: Sink
    source: Source
    state: StreamState
    ledger: Ledger
    left: list[Span]
    notes: list[str]


@dataclass(frozen=True)
class Progress:
    """A chunk that was written; ``done`` of ``total`` sequences."""

    sink: str
    span: Span
    done: int
    total: int
    seconds: float


@contextlib.contextmanager
def taken(state: Path) -> Iterator[Children]:
    """The lock of back-fills of a state folder, which a run of the pipeline does not need.

    Raises :class:`StateError`.
    """
    try:
        children = Children(Shelf(state).folder)
    except FolderInUseError as error:
        raise StateError(f"another back-fill is at work: {error}") from None
    except OSError as error:
        raise StateError(f"cannot use the state folder {state}: {error.strerror}") from None
    try:
        yield children
    finally:
        children.release()


def planned(
    pipeline: Pipeline, sinks: Sequence[str], begin: str, end: str, messages: int
) -> list[Task]:
    """What each sink lacks of the range between two positions; asks the servers, needs no Spark.

    Raises :class:`StepError` with a line for each sink that cannot be filled.
    """
    problems = []
    tasks = []
    for name in sinks or [each for each in pipeline.sinks if _may(pipeline.sinks[each])]:
        if name not in pipeline.sinks:
            hint = did_you_mean(name, pipeline.sinks)
            problems.append(f"{pipeline.file}: there is no sink {name}{hint}")
            continue
        sink = pipeline.sinks[name]
        try:
            tasks.append(_task(pipeline, sink, begin, end, messages))
        except StepError as error:
            problems.append(str(error))
        except (OptionError, RuntimeError, OSError) as error:
            problems.append(str(refusal(pipeline, sink, str(error))))
    if not tasks and not problems:
        problems.append(f"{pipeline.file}: no sink can be back-filled")
    if problems:
        raise StepError("\n".join(problems))
    return tasks


def _may(sink: Sink) -> bool:
    return not _unfit(sink)


def _unfit(sink: Sink) -> str:
    """Why a sink cannot be back-filled; '' if it can."""
    if sink.upsert is not None and sink.upsert.delete_when is not None:
        return (
            "with deleteWhen an older row would bring back a key that was removed; rebuild the table:"
            f" pelton pipeline rebuild FILE {sink.name}"
        )
    if sink.mode != "append":
        return f"mode {sink.mode} replaces rows; back-fill is for mode append"
    if sink.upsert is None and sink.format in ("jetstream_kv", "jetstream_object"):
        return "a bucket keeps what is written last, so older rows would replace newer ones"
    if sink.upsert is None and sink.format not in (DELTA, ICEBERG, "jetstream"):
        return f"{sink.format} does not recognize rows that it has"
    return ""


def _task(pipeline: Pipeline, sink: Sink, begin: str, end: str, messages: int) -> Task:
    if reason := _unfit(sink):
        raise refusal(pipeline, sink, reason)
    source, *more = sources_of(pipeline, sink)
    lookups = lookups_of(source)
    states = lookups.required_states()
    if more or len(states) != 1:
        raise refusal(pipeline, sink, "it reads several streams; back-fill takes a range of one")
    [state] = states.values()
    wanted = _range(lookups, state, begin, end)
    ledger = Shelf(pipeline.state).ledger(sink.name, _place_of(sink), state.stream, state.born)
    if ledger.rebuilt is not None:  # it was killed right before or after its commit
        ledger.settle(HERE.batch_of(table_of(sink), ledger.rebuilt[0]))
    notes: list[str] = []
    left = [wanted]
    if sink.upsert is None or sink.upsert.sums:
        left = _before_query(pipeline, sink, source, lookups, state, wanted, notes)
    rest = [part for span in left for part in without(span, [*ledger.done, *_current(ledger)])]
    asked = count(left)
    if written := asked - count(rest):
        notes.append(f"{written:,} sequences were back-filled before")
    return Task(sink, source, state, ledger, [*_current(ledger), *chunks(rest, messages)], notes)


def _current(ledger: Ledger) -> list[Span]:
    return [] if ledger.current is None else [ledger.current]


def _range(lookups: Lookups, state: StreamState, begin: str, end: str) -> Span:
    found = []
    for name, text in (("from", begin), ("to", end)):
        try:
            found.append(position(text))
        except OptionError as wanted:
            raise OptionError(f"--{name} is {text!r}, but must be {wanted}") from None
    first = resolve_start(found[0], state, lookups.at_position(state, found[0])) + 1
    last = resolve_end(found[1], state, lookups.at_position(state, found[1]))
    return max(first, state.first_seq), last


def _before_query(
    pipeline: Pipeline,
    sink: Sink,
    source: Source,
    lookups: Lookups,
    state: StreamState,
    wanted: Span,
    notes: list[str],
) -> list[Span]:
    """The part of a range that is before the first message of the sink's query."""
    query = recall(pipeline.state, pipeline.name).of(sink.name)
    if query is None:
        raise refusal(
            pipeline,
            sink,
            "its query has not begun, and will read from startingOffsets on; run the pipeline first",
        )
    first = began_at(source, lookups, state)
    if first is None:
        raise refusal(
            pipeline,
            sink,
            f"query {query} began at the newest message, whose sequence is not recorded: put it into"
            f" startingOffsets of sources.{source.name}, which a query that has begun ignores",
        )
    left = without(wanted, [(first, max(first, wanted[1]))])
    if own := count([wanted]) - count(left):
        notes.append(f"{own:,} sequences are from {first:,} on, where query {query} began")
    return left


def table_of(sink: Sink) -> Place:
    """The table of a sink that has one."""
    storage = {
        key.partition(".")[2]: value
        for key, value in sink.options.items()
        if key.lower().startswith("storage.")
    }
    return place(sink.place or "", sink.upsert.storage if sink.upsert else storage)


def _place_of(sink: Sink) -> str:
    if sink.upsert is not None and sink.upsert.catalog is not None:
        return f"{sink.upsert.catalog}.{sink.upsert.path}"
    folded = {key.lower(): value for key, value in sink.options.items()}
    return sink.place or next(filter(None, map(folded.get, ("stream", "subject", "table"))), "")


def write(pipeline: Pipeline, spark: SparkSession, tasks: Sequence[Task]) -> Iterator[Progress]:
    """Write the chunks of all tasks; each is told when it is in its sink.

    Raises :class:`StepError`; what was written before then stays, and the next call continues.
    """
    carry_modules(pipeline.folder)
    for task in tasks:
        check_stateless(pipeline, spark, task.sink)
    spark.conf.set(_ADAPTIVE, "false")  # a repeated chunk must have the same partitions
    shelf = Shelf(pipeline.state)
    for task in tasks:
        ledger, total, done = task.ledger, count(task.left), 0
        for span in task.left:
            began = time.monotonic()
            ledger.current = span
            shelf.keep(task.sink.name, ledger)
            try:
                rows = rows_between(
                    pipeline, spark, task.sink, {task.source.name: {task.state.stream: span}}
                )
                write_chunk(task.sink, rows, ledger.mark, ledger.next)
            except StepError:
                raise
            except Exception as error:  # from Spark, sinks and users' functions
                said = f"sequences {span[0]:,} to {span[1]:,}: {brief(error)}"
                raise refusal(pipeline, task.sink, said) from error
            ledger.current = None
            ledger.next += 1
            ledger.done = joined([*ledger.done, span])
            shelf.keep(task.sink.name, ledger)
            done += count([span])
            yield Progress(task.sink.name, span, done, total, time.monotonic() - began)


def write_chunk(sink: Sink, rows: DataFrame, mark: str, number: int) -> None:
    """Write all rows of a chunk into a sink, unless the sink has this number of the mark."""
    if sink.upsert is not None:
        write_upsert(sink.upsert, rows, number, query_id=mark)
    elif sink.format == ICEBERG:
        writer = rows.write.format(ICEBERG).mode("append").options(**_plain(sink))
        writer.option("txnAppId", mark).option("txnVersion", str(number)).save()
    else:
        write_batch(_without_checks(sink), rows, mark, number)


def _plain(sink: Sink) -> dict[str, str]:
    """The options of a sink without those about its query's position."""
    return {name: text for name, text in sink.options.items() if name.lower() != "ifbehind"}


def _without_checks(sink: Sink) -> Sink:
    return replace(sink, options=_plain(sink))
