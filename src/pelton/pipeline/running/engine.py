"""Starts, watches and stops the queries of a pipeline on a session.

A shared query streams up to its cut, and hands each micro-batch to its sinks, one after the other.
Each sink takes a batch once, however often it comes (:mod:`pelton.pipeline.running.writing`). So
a kill leaves some sinks with the batch and some without, and the next start gives it to all of them
again. Other queries are plain Spark: a source, steps, a sink.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from pelton.pipeline.description.functions import carry_modules
from pelton.pipeline.description.graph import upstream
from pelton.pipeline.description.sections import NO_CONSUMER
from pelton.pipeline.running.analysis import look_at_steps, rows_of_sinks
from pelton.pipeline.running.catching import Catch, catching
from pelton.pipeline.running.counting import counted_of
from pelton.pipeline.running.frames import Frames, keeps_state
from pelton.pipeline.running.locating import located
from pelton.pipeline.running.numbers import Board
from pelton.pipeline.running.preview import first_rows
from pelton.pipeline.running.queries import checkpoint
from pelton.pipeline.running.schemas import QuerySchemas
from pelton.pipeline.running.stages import StepError
from pelton.pipeline.running.supervising import (
    WORKER_GONE,
    QueryEndedError,
    brief,
    check_query,
    is_ours,
    stop_after_batch,
    wait_for_begin,
)
from pelton.pipeline.running.targets import Findings, fill_holes, look_at_sink, look_at_sources
from pelton.pipeline.running.writing import (
    Counts,
    query_of,
    streamed,
    write_batch,
    writer_name,
)
from pelton.spark.session import use_in_thread
from pelton.spark.versions import number_of
from pelton.spark.watching.listening import Listener

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from pelton.pipeline.description.model import Pipeline, Sink
    from pelton.pipeline.running.queries import Query
    from pelton.spark.watching.progress import Watch

_TELL_SECONDS = 5.0
# Each query starts Python workers, and Spark waits ten seconds for them: all at once may be late.
_BEGIN_SECONDS = 15.0
RESTARTS = 3
_OPEN = (
    "groups that its watermark has not passed are not written by --once: they stay in the state, and"
    " a later run writes them when newer rows have come"
)
_STORE = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Engine:
    """The queries of one pipeline. Start once; close in any case."""

    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        queries: Sequence[Query],
        *,
        once: bool = False,
        board: Board | None = None,
    ) -> None:
        """Start nothing yet. With ``once`` each query ends when the available input is processed."""
        self.board = board or Board()
        self.queries = list(queries)
        self.schemas: dict[str, StructType] = {}
        """The columns of the rows for each sink; known after the start."""
        self._pipeline = pipeline
        self._spark = spark
        self._once = once
        self._running: dict[str, Any] = {}
        self._failures: dict[str, str] = {}
        self._refusals: dict[str, str] = {}  # lines with the place in the file
        self._ours: set[str] = set()  # queries that failed by an error of this package
        self._counts: list[Counts] = []
        self._restarts: Counter[str] = Counter()
        self._lacks: dict[str, frozenset[str]] = {}
        self._timed: set[str] = set()  # queries with transformWithState
        self._listener: Listener | None = None
        self._watch: Watch | None = None
        self.warnings: list[str] = []
        """Probable mistakes, a line each; known after the start."""
        self.notices: SimpleQueue[str] = SimpleQueue()
        """What happens while it runs, a line each."""

    def start(self) -> None:
        """Start all queries.

        Raises :class:`StepError` with a line for each fault that Spark or a target reports; then
        nothing runs.
        """
        pipeline = self._pipeline
        use_in_thread(self._spark)
        carry_modules(pipeline.folder)
        prepared = self._looked_over()
        if pipeline.metrics is not None:
            self._watch = _watch(self._spark, pipeline)
        self._listener = _Listener(self.board)
        self._spark.streams.addListener(self._listener)
        for query, writer in prepared:
            self.board.begin(query, f"{pipeline.name}-{query.name}")
            self._start(query, writer)
            if query is not self.queries[-1]:
                wait_for_begin(self._running[query.name], _BEGIN_SECONDS)

    def _looked_over(self) -> list[tuple[Query, Any]]:
        """The queries that can start, after all their sources and targets are checked."""
        found = Findings(self._pipeline)
        prepared = []
        sources = (each for query in self.queries for each in query.sources)
        look_at_sources(self._pipeline, sources, found)
        for query in self.queries:
            before = len(found.problems)
            try:
                writer = self._prepare(query, found)
            except StepError as error:
                found.refused(error)
            else:
                prepared += [(query, writer)] if len(found.problems) == before else []
        if not found.problems:
            fill_holes(self._pipeline, found)
        self.warnings = list(dict.fromkeys(found.warnings))
        self.schemas = found.schemas
        if found.problems:
            raise StepError("\n".join(dict.fromkeys(found.problems)))
        return prepared

    def _start(self, query: Query, writer: Any) -> None:
        where = checkpoint(self._pipeline.state, query.name)
        where.mkdir(parents=True, exist_ok=True)
        try:
            with self._with_store_of(query):
                self._running[query.name] = (
                    writer.queryName(f"{self._pipeline.name}-{query.name}")
                    .option("checkpointLocation", where.as_uri())
                    .start()
                )
        except Exception as error:  # from Spark: a checkpoint of another plan, a refused sink
            said = self._pipeline.hide(brief(error))
            raise StepError(f"query {query.name}: {said}") from error
        self.board.started(query)

    @contextlib.contextmanager
    def _with_store_of(self, query: Query) -> Iterator[None]:
        """Let a query begin with RocksDB, which transformWithState needs; a file may name another store."""
        conf = self._spark.conf
        kept = str(conf.get(_STORE))
        needed = query.name in self._timed and _STORE not in self._pipeline.spark
        if needed:
            conf.set(_STORE, _ROCKSDB)
        try:
            yield
        finally:
            if needed:
                conf.set(_STORE, kept)

    def look(self) -> bool:
        """Whether any query still runs. Raises :class:`QueryEndedError` if one has failed."""
        active = False
        for query in self.queries:
            try:
                runs = check_query(self._running[query.name], may_end=self._once)
            except QueryEndedError as error:
                said = self._pipeline.hide(self._failures.pop(query.name, "") or str(error))
                if self._may_try_again(query, said):
                    self._start(query, self._prepare(query))
                    active = True
                    continue
                line = self._located(query, error)
                self.board.ended(query.name, line or said)
                raise type(error)(line or f"query {query.name}: {said}") from None
            if not runs and not self._took_all(query):
                self._start(query, self._prepare(query))
                runs = True
            if not runs:
                self.board.ended(query.name)
            active |= runs
        return active

    def _located(self, query: Query, error: QueryEndedError) -> str:
        """The failure of a query as a line that names a message and a key of the file, if it has one."""
        cause = error.__cause__
        if query.name in self._refusals:
            return self._refusals.pop(query.name)
        if cause is None or query.name in self._ours or is_ours(cause):
            return ""
        with contextlib.suppress(Exception):  # the JVM, the server or the messages may be gone
            return located(self._pipeline, self._spark, query)
        return ""

    def _took_all(self, query: Query) -> bool:
        """Whether a query that has ended took all that there was: Spark 4.0 and 4.1 end it after a batch."""
        if number_of(self._spark.version) >= (4, 2):
            return True
        last = self._running[query.name].lastProgress
        return last is None or not last["numInputRows"]

    def _may_try_again(self, query: Query, said: str) -> bool:
        """Whether a query failed because a Python worker did not start or was killed.

        Neither the data nor the pipeline is the cause, so the query may start again a few times.
        """
        if not any(text in said for text in WORKER_GONE):
            return False
        self._restarts[query.name] += 1
        if self._restarts[query.name] > RESTARTS:
            return False
        times = self._restarts[query.name]
        self.board.trouble(query.name, f"{said.rstrip('.')}; started again ({times})")
        return True

    def stop(self) -> None:
        """Stop each query at the end of its current batch."""
        stop_after_batch(list(self._running.values()))

    def close(self) -> None:
        """Wait for the last numbers and release the session; the queries must be stopped."""
        if self._listener is not None:
            self.board.wait_for_ends(set(self._running), _TELL_SECONDS)
            for counts in self._counts:
                counts.finish(_TELL_SECONDS)
            with contextlib.suppress(Exception):  # the JVM and its listener may be gone
                self._spark.streams.removeListener(self._listener)
            self._listener = None
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _prepare(self, query: Query, found: Findings | None = None) -> Any:
        """A query as a ``writeStream`` without name, checkpoint and start.

        Adds the faults of its steps, sinks and targets to ``found``.
        """
        pipeline = self._pipeline
        sinks = [pipeline.sinks[name] for name in query.sinks]
        frames = Frames(
            pipeline,
            self._spark,
            consumers=self._consumers(query),
            schemas=QuerySchemas(pipeline, query.name, sample=first_rows),
            lacks=self._lacks,
        )
        if found is not None:
            self._look_over(query, frames, found)
        seconds = pipeline.trigger_seconds
        if query.shared or catching(pipeline, query.sinks):
            writer = frames.node(query.cut).writeStream.foreachBatch(self._batches(query, sinks))
        else:
            [sink] = sinks
            seconds = seconds if sink.trigger_seconds is None else sink.trigger_seconds
            rows = frames.sink(sink)
            state = keeps_state(rows)
            if any(name.startswith("TransformWithState") for name in state):
                self._timed.add(query.name)
            if found is not None and self._once and sink.mode == "append" and "Aggregate" in state:
                found.warn(f"sinks.{sink.name}", sink.line, _OPEN)
            writer = streamed(sink, rows, lambda error: self._failed(query, sink, error))
        if self._once:
            return writer.trigger(availableNow=True)
        return writer.trigger(processingTime=f"{round(seconds * 1000)} milliseconds")

    def _look_over(self, query: Query, frames: Frames, found: Findings) -> None:
        pipeline = self._pipeline
        nodes = {each for name in query.sinks for each in upstream(pipeline, name)}
        look_at_steps(pipeline, frames, [name for name in pipeline.steps if name in nodes], found)
        for sink, rows in rows_of_sinks(pipeline, frames, query, found):
            look_at_sink(pipeline, query, sink, rows.schema, found)

    def _batches(self, query: Query, sinks: list[Sink]) -> Any:
        counts = Counts(lambda sink, rows: self.board.wrote(query.name, sink, rows))
        self._counts.append(counts)

        pipeline = self._pipeline
        caught = catching(pipeline, query.sinks)

        def take(rows: DataFrame, batch_id: int) -> None:
            # A repeated batch must have the same partitions.
            rows.sparkSession.conf.set("spark.sql.adaptive.enabled", "false")
            schemas = QuerySchemas(pipeline, query.name, batch_id, tell=self.notices.put)
            given = {query.cut: rows}
            frames = Frames(
                pipeline, rows.sparkSession, given=given, schemas=schemas, lacks=self._lacks
            )
            sink = sinks[0]
            try:
                frames.keep_for(sinks, (step.name for step in caught))
                if caught:
                    Catch(pipeline, query.name, batch_id).take(frames, caught)
                for sink in sinks:
                    counted, counting = counts.count(frames.sink(sink), sink)
                    query_id = query_of(rows)
                    # The ids of messages are those that Spark's own writer would give them.
                    writer = writer_name(query_id, sink.name) if query.shared else query_id
                    write_batch(sink, counted, query_id, batch_id, writer=writer)
                    counts.written(sink, counting)
            except Exception as error:
                self._failed(query, sink, error)
                raise
            finally:
                frames.release()

        return take

    def _failed(self, query: Query, sink: Sink, error: Exception) -> None:
        self._failures.setdefault(query.name, f"sink {sink.name}: {brief(error)}")
        if isinstance(error, StepError):
            self._refusals[query.name] = str(error)
        elif is_ours(error):
            self._ours.add(query.name)

    def _consumers(self, query: Query) -> dict[str, str]:
        """The shadow consumers of the streams that a query reads, by source."""
        found = {}
        readers: dict[str, int] = {}
        for each in self.queries:
            for name in each.sources:
                readers[name] = readers.get(name, 0) + 1
        for name in query.sources:
            source = self._pipeline.sources[name]
            given = {key.lower(): value for key, value in source.options.items()}.get("consumer")
            if source.format == "jetstream" and given != NO_CONSUMER:
                found[name] = consumer_name(
                    self._pipeline.name, name, query, given, alone=readers[name] == 1
                )
        return found


def consumer_name(
    pipeline: str, source: str, query: Query, given: str | None, *, alone: bool
) -> str:
    """The shadow consumer of a query on a source; the file's own name if one query reads it."""
    if given is not None:
        return given if alone else f"{given}-{query.name}"
    place = query.name if len(query.sources) == 1 else f"{query.name}-{source}"
    return f"{pipeline}-{place}"


class _Listener(Listener):
    """Passes Spark's events about the session's queries to the board."""

    def __init__(self, board: Board) -> None:
        self._board = board

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  Spark's name
        self._board.take(lambda reports: reports.started(event), {})

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802  Spark's name
        rows = {
            name.removeprefix("sink "): counted_of(found)
            for name, found in (event.progress.observedMetrics or {}).items()
            if name.startswith("sink ")
        }
        self._board.take(lambda reports: reports.progress(event), rows)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802  Spark's name
        self._board.take(lambda reports: reports.idle(event), {})

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802  Spark's name
        self._board.take(lambda reports: reports.terminated(event, ""), {})


def _watch(spark: SparkSession, pipeline: Pipeline) -> Watch:
    from pelton.spark import watch

    assert pipeline.metrics is not None
    return watch(
        spark,
        subject=pipeline.metrics.subject,
        metrics_port=pipeline.metrics.port,
        metrics_host=pipeline.metrics.host,
        **pipeline.servers,
    )
