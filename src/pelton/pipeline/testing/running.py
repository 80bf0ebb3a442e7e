"""Runs the tests of a pipeline file on one session, without any server.

Each batch of ``given`` goes through the steps as a micro-batch. Rows of steps that keep state over the
stream come from a real streaming query, which reads the batches from Parquet files, one for each batch. A
sink with ``upsert`` writes a real table in a temporary folder, whose rows are compared.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from pelton.pipeline.description.cases import CaseError, rows_in
from pelton.pipeline.description.functions import carry_modules
from pelton.pipeline.description.model import Step, node_of
from pelton.pipeline.running.frames import Frames, keeps_state
from pelton.pipeline.running.schemas import QuerySchemas
from pelton.pipeline.running.stages import StepError
from pelton.pipeline.running.supervising import brief
from pelton.pipeline.running.writing import write_upsert
from pelton.pipeline.testing.comparing import Difference, compare
from pelton.pipeline.testing.given import Tables, schema_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from pelton.pipeline.description.cases import Case, Rows
    from pelton.pipeline.description.model import Pipeline, Sink, Upsert

_QUERY = "test"
_ADAPTIVE = "spark.sql.adaptive.enabled"
_STORE = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@dataclass(frozen=True)
class Outcome:
    """The result of a test; ``problem`` is the line of one that could not run to its end."""

    case: Case
    seconds: float
    differences: tuple[Difference, ...] = ()
    problem: str = ""

    @property
    def passed(self) -> bool:
        """Whether all rows are as expected."""
        return not self.differences and not self.problem


def run_cases(pipeline: Pipeline, spark: SparkSession, cases: Iterable[Case]) -> Iterator[Outcome]:
    """The result of each test, as soon as it is known."""
    carry_modules(pipeline.folder)
    kept = str(spark.conf.get(_ADAPTIVE))
    spark.conf.set(_ADAPTIVE, "false")  # as in a micro-batch
    try:
        for case in cases:
            began = time.monotonic()
            differences: tuple[Difference, ...] = ()
            problem = ""
            try:
                with tempfile.TemporaryDirectory(prefix="pelton-test-") as folder:
                    differences = tuple(_Trial(pipeline, spark, case, Path(folder)).differences())
            except (StepError, CaseError) as error:
                problem = pipeline.hide(str(error))
            yield Outcome(case, time.monotonic() - began, differences, problem)
    finally:
        spark.conf.set(_ADAPTIVE, kept)


class _Trial:
    """One test."""

    def __init__(self, pipeline: Pipeline, spark: SparkSession, case: Case, folder: Path) -> None:
        # Schemas from data are those of the rows that are given, not those that a run has kept.
        self._pipeline = replace(pipeline, state=folder / "state")
        self._spark = spark
        self._case = case
        self._folder = folder
        self._schemas: dict[str, StructType] = {}
        self._batches: list[dict[str, pa.Table]] = [{} for _ in case.given]
        self._frames: list[Frames] = []

    def differences(self) -> Iterator[Difference]:
        """How each expected step or sink differs."""
        for name in self._given_nodes():
            self._give(name)
        for name, rows in self._case.expect.items():
            try:
                made = self._rows(name)
            except (StepError, CaseError):
                raise
            except Exception as error:  # from Spark and from users' functions
                said = self._pipeline.hide(brief(error))
                raise StepError(f"{rows.place}: {name}: {said}") from error
            found = self._compared(name, rows, made)
            if found is not None:
                yield found

    def _compared(self, name: str, rows: Rows, made: pa.Table) -> Difference | None:
        if rows.count is not None:
            same = rows.count == made.num_rows
            return None if same else Difference(name, rows.count, made.num_rows)
        expected = [self._expected(each.place, each.value) for each in rows_in(rows)]
        got, columns = made.to_pylist(), made.column_names
        return compare(name, expected, got, columns, ordered=self._case.ordered)

    def _expected(self, place: str, value: object) -> dict[str, object]:
        if isinstance(value, dict):
            return value
        raise CaseError(f"{place}: an expected row is names and values: {{id: 7}}")

    def _given_nodes(self) -> list[str]:
        """The nodes whose rows a test gives: all sources that are read, unless a step behind is given."""
        given = {name for batch in self._case.given for name in batch}
        found: list[str] = []
        waiting = [node_of(name) for name in self._case.expect]
        done: set[str] = set()
        while waiting:
            name = waiting.pop()
            if name in done:
                continue
            done.add(name)
            if name in given or name in self._pipeline.sources:
                found.append(name)
            else:
                waiting += self._pipeline.inputs(name)
        return found

    def _give(self, name: str) -> None:
        source = self._pipeline.sources.get(name)
        rows = [batch.get(name) for batch in self._case.given]
        schema = schema_of(source, next(filter(None, rows), None))
        if schema is None:
            what = "step" if source is None else f"source of format {source.format}"
            raise CaseError(
                f"{self._case.place}: the columns of {what} {name} are not known: give them, as in"
                f" {name}: {{schema: 'id long, name string', rows: [{{id: 7}}]}}"
            )
        self._schemas[name] = schema
        tables = Tables(name, source, schema)
        static = source is not None and source.static
        last = None
        for batch, each in zip(self._batches, rows, strict=True):
            if each is not None or last is None or not static:  # a static one stays as it was
                last = tables.table(each)
            batch[name] = last

    def _rows(self, name: str) -> pa.Table:
        if self._stateful(name):
            return self._streamed(name)
        if not self._frames:
            self._frames = [self._of_batch(number) for number in range(len(self._batches))]
        frames = [self._frame(name, each) for each in self._frames]
        sink = self._pipeline.sinks.get(name)
        if sink is not None and sink.upsert is not None:
            into = self._upsert(name, sink.upsert)
            for number, frame in enumerate(frames):
                write_upsert(into, frame, number, query_id=_QUERY)
            return _table_at(into.path, frames[0])
        if sink is not None and sink.mode == "complete":
            frames = frames[-1:]
        return _together([frame.toArrow() for frame in frames])

    def _of_batch(self, number: int, pipeline: Pipeline | None = None) -> Frames:
        batch = self._batches[number]
        given = {name: self._frame_of(name, table) for name, table in batch.items()}
        schemas = QuerySchemas(self._pipeline, _QUERY, number)
        return Frames(pipeline or self._pipeline, self._spark, given=given, schemas=schemas)

    def _first_rows(self, pipeline: Pipeline, step: Step) -> DataFrame:
        """The rows of the first batch that a step decodes."""
        bare = Step(step.name, step.line, step.inputs, python=step.python, sql=step.sql)
        pipeline = replace(pipeline, steps={**pipeline.steps, step.name: bare})
        return self._of_batch(0, pipeline).node(step.name)

    def _frame_of(self, name: str, table: pa.Table) -> DataFrame:
        made: DataFrame = self._spark.createDataFrame(table, self._schemas[name])
        return made

    def _frame(self, name: str, frames: Frames) -> DataFrame:
        sink = self._pipeline.sinks.get(name)
        return frames.of(name) if sink is None else frames.sink(sink)

    def _upsert(self, name: str, into: Upsert) -> Upsert:
        """The same upsert into a table of this test."""
        path, errors = (str(self._folder / part / name) for part in ("tables", "errors"))
        made = replace(into, path=path, storage={}, maintain_every=None, if_behind="fail")
        return replace(made, error_path=None if into.error_path is None else errors)

    # -- steps that keep state ------------------------------------------------------------------------

    def _stateful(self, name: str) -> bool:
        steps = self._pipeline.steps.values()
        if all(step.sql is None and step.python is None for step in steps):
            return False
        return bool(keeps_state(self._frame(name, self._of_stream())))

    def _of_stream(self) -> Frames:
        """Frames over folders with a file for each batch; static sources as they are."""
        given = {}
        for name, schema in self._schemas.items():
            source = self._pipeline.sources.get(name)
            if source is not None and source.static:
                given[name] = self._frame_of(name, self._batches[-1][name])
                continue
            folder = self._folder / "given" / name
            if not folder.exists():
                folder.mkdir(parents=True)
                for number, batch in enumerate(self._batches):
                    path = folder / f"{number:06}.parquet"
                    pq.write_table(batch[name], path)
                    os.utime(path, (number, number))  # the order in which Spark reads them
            reader = self._spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
            given[name] = reader.parquet(str(folder))
        schemas = QuerySchemas(self._pipeline, f"{_QUERY}_stream", sample=self._first_rows)
        return Frames(self._pipeline, self._spark, given=given, schemas=schemas)

    def _streamed(self, name: str) -> pa.Table:
        rows = self._frame(name, self._of_stream())
        sink = self._pipeline.sinks.get(name)
        mode = sink.mode if sink is not None else self._mode_of(name)
        into = None if sink is None or sink.upsert is None else self._upsert(name, sink.upsert)
        made: list[pa.Table] = []
        failed: list[Exception] = []

        def take(batch: DataFrame, number: int) -> None:
            try:
                if into is not None:
                    write_upsert(into, batch, number)
                else:
                    made.append(batch.toArrow())
            except Exception as error:
                failed.append(error)
                raise

        writer = rows.writeStream.outputMode(mode).foreachBatch(take).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", (self._folder / "checkpoints" / name).as_uri())
        with ExitStack() as cleanup:
            if any(each.startswith("TransformWithState") for each in keeps_state(rows)):
                cleanup.callback(self._spark.conf.set, _STORE, str(self._spark.conf.get(_STORE)))
                self._spark.conf.set(_STORE, _ROCKSDB)
            query = writer.start()
            cleanup.callback(query.stop)
            try:
                query.awaitTermination()
            except Exception:
                if failed:
                    raise failed[0] from None
                raise
        if into is not None:
            return _table_at(into.path, rows)
        if mode == "complete":
            made = made[-1:]
        return _together(made) if made else _empty(rows)

    def _mode_of(self, name: str) -> str:
        """The mode of the sinks that read a step, if all have the same."""
        node = node_of(name)
        modes = {sink.mode for sink in self._pipeline.sinks.values() if self._reads(sink, node)}
        if len(modes) == 1:
            return modes.pop()
        raise CaseError(
            f"{self._case.expect[name].place}: {name} keeps state over the stream, and its sinks have"
            f" modes {', '.join(sorted(modes))}: expect the rows of a sink"
        )

    def _reads(self, sink: Sink, node: str) -> bool:
        from pelton.pipeline.description.graph import upstream

        return node in upstream(self._pipeline, sink.name)


def _together(tables: list[pa.Table]) -> pa.Table:
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="default")


def _table_at(path: str, rows: DataFrame) -> pa.Table:
    """The rows of a table; without rows there may be none."""
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(path):
        return _empty(rows)
    return pa.table(DeltaTable(path).to_pyarrow_table())


def _empty(rows: DataFrame) -> pa.Table:
    return pa.table({name: pa.array([], pa.null()) for name in rows.columns})


def session_settings(pipeline: Pipeline) -> Pipeline:
    """The pipeline with a master on this machine: tests need no cluster."""
    master: Any = pipeline.spark.get("master", "")
    if not master or master.startswith("local"):
        return pipeline
    return replace(pipeline, spark={**pipeline.spark, "master": "local[2,4]"})
