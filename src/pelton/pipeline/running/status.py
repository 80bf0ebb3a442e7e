"""The progress of a pipeline from its state folder, its tables and its servers, without Spark.

Works also while the pipeline runs. The checkpoint of a query is a folder of Spark's::

    offsets/41     the end of batch 41: a line v1, a line of settings, a line for each source
    commits/41     exists when batch 41 is done

Knows the formats of this package; for other sources and sinks it shows what Spark recorded.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pelton.pipeline.children import holder
from pelton.pipeline.description.model import DELTA
from pelton.pipeline.running.queries import checkpoint, committed, offsets_of, recall
from pelton.spark.watching.report import sequences

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pelton.pipeline.description.model import Pipeline, Sink, Source
    from pelton.pipeline.running.queries import Begun, Memory
    from pelton.spark.servers import Servers


@dataclass(frozen=True)
class Place:
    """The position of a query in one stream; ``last`` and ``lag`` are None if no server answered."""

    source: str
    stream: str
    sequence: int
    last: int | None = None
    lag: int | None = None
    problem: str = ""


@dataclass(frozen=True)
class SinkStatus:
    """The state of a sink's table; None for targets that are not such a table or do not exist."""

    name: str
    place: str = ""
    version: int | None = None
    rows: int | None = None
    problem: str = ""


@dataclass(frozen=True)
class QueryStatus:
    """The progress of a query: the last batch that is done (-1: none), and when."""

    name: str
    batch: int
    at: str = ""
    under_way: bool = False
    places: tuple[Place, ...] = ()
    offsets: tuple[str, ...] = ()
    sinks: tuple[SinkStatus, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Status:
    """The progress of a pipeline; ``running`` is the id of the process that works on it."""

    pipeline: str
    state: str
    running: str = ""
    queries: tuple[QueryStatus, ...] = field(default=())
    not_begun: tuple[str, ...] = ()


def status_of(pipeline: Pipeline, *, tables: bool = True) -> Status:
    """Read the status; with ``tables`` also the logs of the sinks' tables.

    Raises :class:`pelton.pipeline.running.queries.StateError`.
    """
    memory = recall(pipeline.state, pipeline.name)
    return Status(
        pipeline.name,
        str(pipeline.state),
        holder(pipeline.state),
        tuple(
            _query(pipeline, name, begun, tables=tables) for name, begun in memory.queries.items()
        ),
        tuple(name for name in pipeline.sinks if not _begun(memory, name)),
    )


def _begun(memory: Memory, sink: str) -> bool:
    return memory.of(sink) is not None


def _query(pipeline: Pipeline, name: str, begun: Begun, *, tables: bool) -> QueryStatus:
    folder = checkpoint(pipeline.state, name)
    batch = committed(pipeline.state, name)
    offsets = offsets_of(folder / "offsets" / str(batch)) if batch >= 0 else []
    places: list[Place] = []
    others: list[str] = []
    for source_name, offset in zip(begun.sources, offsets, strict=False):
        found = sequences(offset)
        source = pipeline.sources.get(source_name)
        places += [_place(pipeline, source_name, source, *each) for each in found.items()]
        if not found:
            others.append(f"{source_name} {offset}")
    names = begun.sinks if tables else ()
    sinks = [pipeline.sinks[each] for each in names if each in pipeline.sinks]
    return QueryStatus(
        name,
        batch,
        _time_of(folder / "commits" / str(batch)),
        (folder / "offsets" / str(batch + 1)).exists(),
        tuple(places),
        tuple(others),
        tuple(_shown(pipeline, _sink(sink, folder)) for sink in sinks),
        tuple(begun.left),
    )


def _time_of(path: Path) -> str:
    try:
        seconds = path.stat().st_mtime
    except OSError:
        return ""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _place(
    pipeline: Pipeline, name: str, source: Source | None, stream: str, sequence: int
) -> Place:
    servers = None if source is None else _servers(source)
    if servers is None:
        return Place(name, stream, sequence)
    from pelton.spark.connection import ReadError, stream_info
    from pelton.spark.parsing import OptionError

    try:
        last = stream_info(servers, stream).state.last_seq
    except (ReadError, OptionError) as error:
        return Place(name, stream, sequence, problem=pipeline.hide(str(error)))
    return Place(name, stream, sequence, last, max(0, last - sequence))


def _servers(source: Source) -> Servers | None:
    options = {key: value for key, value in source.options.items() if key.lower() != "consumer"}
    found: dict[str, Callable[[], Servers]] = {
        "jetstream": lambda: _stream_servers(options),
        "jetstream_kv": lambda: _bucket_servers(options),
    }
    return found[source.format]() if source.format in found else None


def _stream_servers(options: dict[str, str]) -> Servers:
    from pelton.spark.reading.options import parse_options

    return parse_options(options, streaming=True).servers


def _bucket_servers(options: dict[str, str]) -> Servers:
    from pelton.spark.buckets.kv_options import parse_kv_options

    return parse_kv_options(options, streaming=True).servers


def _shown(pipeline: Pipeline, sink: SinkStatus) -> SinkStatus:
    return replace(sink, place=pipeline.hide(sink.place), problem=pipeline.hide(sink.problem))


def _sink(sink: Sink, folder: Path) -> SinkStatus:
    if sink.upsert is None and sink.format != DELTA:
        folded = {key.lower(): value for key, value in sink.options.items()}
        names = (folded.get(key) for key in ("path", "stream", "bucket", "subject"))
        return SinkStatus(sink.name, f"{sink.format} {next(filter(None, names), '')}".rstrip())
    from pelton.spark.holding import memory_of, table_behind
    from pelton.spark.tables.commits import HERE
    from pelton.spark.tables.places import TableError
    from pelton.spark.tables.upserts import location

    storage = {
        key.partition(".")[2]: value
        for key, value in sink.options.items()
        if key.lower().startswith("storage.")
    }
    into = sink.upsert
    if into is None:
        where = location(sink.place or "", storage)
    else:
        where = location(into.path, into.storage, into.catalog, into.catalog_properties)
    try:
        table = HERE.opened(where)
    except TableError as error:
        return SinkStatus(sink.name, str(where), problem=str(error))
    held = memory_of(folder, str(where)).recall()
    batch = None if held is None or table is None else table.last(held.query)
    problem = table_behind(held, table is not None, batch)
    if table is None:
        return SinkStatus(sink.name, str(where), problem=problem)
    return SinkStatus(sink.name, str(where), table.version(), table.totals().rows, problem)
