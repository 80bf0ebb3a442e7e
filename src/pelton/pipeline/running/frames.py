"""Steps as DataFrames, streaming or of one micro-batch; both are made of the same steps.

A batch for several sinks is computed once: a node that several sinks read is cached (``persist``)
until the batch is done, unless one light step makes it from a cached node.

State over a stream (aggregations, deduplication, joins of streams) has another meaning in a single
batch. :func:`keeps_state` finds it in Spark's plan, not in the text of a step.
"""

from __future__ import annotations

from collections import Counter
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  the name the field knows it by

from pelton.pipeline.description.functions import function_of
from pelton.pipeline.description.graph import streams_of, upstream
from pelton.pipeline.description.model import DELTA, ICEBERG, REJECTED, node_of
from pelton.pipeline.description.payloads import ADD, FITS, REJECT
from pelton.pipeline.running.rejected import (
    REASONS,
    Thrown,
    carried,
    combined,
    is_thrown,
    lacking,
    public,
    thrown_rows,
    with_kept,
)
from pelton.pipeline.running.schemas import Schemas, payloads_of
from pelton.pipeline.running.stages import (
    Faults,
    Stage,
    StepError,
    first_key,
    said,
    sink_stages,
    stages_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from pelton.pipeline.description.model import Decoding, Pipeline, Sink, Source, Step

_STATEFUL = frozenset(
    {
        *("Aggregate", "Distinct", "Deduplicate", "DeduplicateWithinWatermark"),
        *("FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState", "TransformWithState"),
        *(
            "TransformWithStateInPySpark",
            "TransformWithStateInPandas",
            "LegacyFlatMapGroupsWithState",
        ),
        *("GlobalLimit", "LocalLimit", "Offset", "Tail", "Sort", "Window"),
        *("FlatMapGroupsInPandas", "FlatMapGroupsInArrow", "FlatMapCoGroupsInPandas"),
        *("Intersect", "Except"),
    }
)


class Frames:
    """DataFrames of a pipeline's nodes, each made once.

    ``given`` has DataFrames for some nodes, such as the cut in a micro-batch.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        *,
        consumers: dict[str, str] | None = None,
        given: dict[str, DataFrame] | None = None,
        schemas: Schemas | None = None,
        lacks: dict[str, frozenset[str]] | None = None,
    ) -> None:
        """``consumers`` names the shadow consumer of each streamed source.

        ``lacks`` has the columns of rejected rows that a sink does not take; sinks are added to it.
        """
        self._schemas = schemas or Schemas(pipeline)
        self._pipeline = pipeline
        self._spark = spark
        self._consumers = consumers or {}
        self._made = dict(given or {})
        self._given = frozenset(self._made)
        self._lacks = {} if lacks is None else lacks
        self._thrown: dict[str, Sequence[Thrown]] = {}
        self._refused: dict[str, StepError] = {}
        self._keep: frozenset[str] = frozenset()
        self._kept: list[DataFrame] = []

    def keep_for(self, sinks: Iterable[Sink], also: Iterable[str] = ()) -> None:
        """Cache the nodes that several of these sinks share, and those of ``also``."""
        self._keep = shared_nodes(self._pipeline, self._given, sinks) | {*also}
        for name in self._given & self._keep:
            self._made[name] = self._kept_frame(self._made[name])

    def release(self) -> None:
        """Drop all caches."""
        for frame in self._kept:
            frame.unpersist()
        self._kept.clear()

    def lacks(self, sink: Sink) -> list[str]:
        """The columns that rejected rows keep and that the table of a sink lacks."""
        step = self._pipeline.steps.get(node_of(sink.input))
        is_table = sink.upsert is not None or sink.format in (DELTA, ICEBERG)
        if not self._lacks.get(sink.name) or not is_table or step is None or not step.expect:
            return []
        kept = set(self.of(sink.input).columns) - {*public(self.node(step.name)).columns}
        return sorted(kept & self._lacks[sink.name])

    def sink(self, sink: Sink) -> DataFrame:
        """The rows for a sink. Raises :class:`StepError`."""
        if sink.name not in self._lacks:
            self._lacks[sink.name] = lacking(sink)
        frame = self.of(sink.input, without=self._lacks[sink.name])
        faults = Faults(self._pipeline, "sinks", sink)
        frame = faults.applied(sink_stages(sink), frame)
        if faults:
            raise faults.error()
        return frame

    def of(self, reference: str, *, without: frozenset[str] = frozenset()) -> DataFrame:
        """The rows of a node, or its rejected rows. Raises :class:`StepError`.

        Rejected rows are without the source's columns that ``without`` names.
        """
        name = node_of(reference)
        step = self._pipeline.steps.get(name)
        frame = self.node(name)
        if step is None or not step.rejects:
            return frame
        if reference == name:
            return public(self._conditioned(step, frame) if step.expect else frame)
        thrown = self._thrown.get(name, ())
        if not step.expect:
            return thrown_rows(self.of(self.streamed(step)), thrown)
        failed = with_kept(self._conditioned(step, frame, failed=True), without)
        return combined(failed, self.of(self.streamed(step)), thrown) if step.catches else failed

    def _conditioned(self, step: Step, frame: DataFrame, *, failed: bool = False) -> DataFrame:
        """The rows that meet the conditions of a step, or those that do not, with the reasons."""
        passes = [F.coalesce(F.expr(f"({each})"), F.lit(False)) for each in step.expect.values()]
        try:
            if not failed:
                return frame.where(reduce(_both, passes))
            reasons = F.array(
                *(F.when(~good, F.lit(why)) for why, good in zip(step.expect, passes, strict=True))
            )
            rejected = frame.where(~reduce(_both, passes))
            return rejected.withColumn(REASONS, F.array_compact(reasons))
        except Exception as error:  # from Spark, for conditions that do not fit the columns
            faults = Faults(self._pipeline, "steps", step)
            faults.refused(Stage("expect", step.expect), frame, error)
            raise faults.error() from error

    def streamed(self, step: Step) -> str:
        """The first streamed input of a step; one that catches errors has just one."""
        streams = (each for each in step.inputs if streams_of(self._pipeline, node_of(each)))
        return next(streams, step.inputs[0])

    def input_of(self, step: Step) -> DataFrame:
        """The rows of the streamed input of a step, without those that it rejects already."""
        rows = self.of(self.streamed(step))
        known = self._thrown.get(step.name)
        return rows.where(~is_thrown(rows, known)) if known else rows

    def whole(self, name: str, inputs: Mapping[str, DataFrame] | None = None) -> DataFrame:
        """All that a step computes, its conditions too; ``inputs`` replaces rows that it reads."""
        step = self._pipeline.steps[name]
        frame = self.node(name) if inputs is None else self._do(step, inputs)
        conditions = {
            f"pelton {number}": F.expr(f"({each})")
            for number, each in enumerate(step.expect.values())
        }
        return frame.withColumns(conditions) if conditions else frame

    def reject(self, name: str, thrown: Sequence[Thrown]) -> None:
        """Leave the rows of these messages out of a step, as rejected ones."""
        self._thrown[name] = thrown
        if (made := self._made.pop(name, None)) is not None and name in self._keep:
            made.unpersist()

    def node(self, name: str) -> DataFrame:
        """The rows of a node before ``expect`` rejects any. Raises :class:`StepError`.

        Those of a step that rejects rows have further columns, which are kept for these.
        """
        if name in self._refused:
            raise self._refused[name]
        if name not in self._made:
            source, step = self._pipeline.sources.get(name), self._pipeline.steps.get(name)
            try:
                frame = self._read(source) if step is None and source else self._do(step)  # type: ignore[arg-type]  # one of both
            except StepError as error:
                self._refused[name] = error
                raise
            self._made[name] = self._kept_frame(frame) if name in self._keep else frame
        return self._made[name]

    def _kept_frame(self, frame: DataFrame) -> DataFrame:
        kept = frame.persist()
        self._kept.append(kept)
        return kept

    def _read(self, source: Source) -> DataFrame:
        faults = Faults(self._pipeline, "sources", source)
        reader: Any = self._spark.read if source.static else self._spark.readStream
        options = {
            name: value for name, value in source.options.items() if name.lower() != "consumer"
        }
        if not source.static and (consumer := self._consumers.get(source.name)):
            options["consumer"] = consumer
        reader = reader.format(source.format).options(**options)
        key = "schema"
        try:
            if source.schema is not None:
                reader = reader.schema(source.schema)
            key = ""
            made: DataFrame = reader.load()
        except Exception as error:  # from Spark and from the formats
            faults.add(key, key, said(error, text=source.schema or ""))
            raise faults.error() from error
        return made

    def begun(self, step: Step) -> DataFrame:
        """The rows of a step after ``python`` or ``sql`` and payloads, before its other keys."""
        return self._begun(step, [self.of(each) for each in step.inputs])

    def _do(self, step: Step, inputs: Mapping[str, DataFrame] | None = None) -> DataFrame:
        given = inputs or {}
        frames = [given[each] if each in given else self.of(each) for each in step.inputs]
        if thrown := self._thrown.get(step.name):
            place = step.inputs.index(self.streamed(step))
            frames[place] = frames[place].where(~is_thrown(frames[place], thrown))
        faults = Faults(self._pipeline, "steps", step)
        key = first_key(step)
        try:
            begun = self._begun(step, frames)
        except Exception as error:  # from Spark and from users' functions
            faults.add(key, key, said(error, self._spark, step.sql or ""))
            raise faults.error() from error
        stages = list(stages_of(step))
        stars = any("*" in text for text in step.select)
        made = begun
        try:
            for stage in stages:
                made = carried(stage, made, stars=stars) if step.rejects else stage.apply(made)
        except Exception as error:  # from Spark, for texts that do not fit the columns
            expect = [Stage("expect", step.expect)] if step.expect else []
            faults.applied([*stages, *expect], begun)
            if not faults:
                faults.add("", "", said(error))
            raise faults.error() from error
        return made

    def _begun(self, step: Step, frames: list[DataFrame]) -> DataFrame:
        """The rows of a step before its other keys."""
        frame = self._combined(step, frames)
        if step.decoding is not None:
            frame = self._decoded(step, step.decoding, frame)
        return frame

    def _combined(self, step: Step, frames: list[DataFrame]) -> DataFrame:
        if step.sql is not None:
            return self._sql(step, frames)
        if step.python is not None:
            function = function_of(step.python, self._pipeline.folder)
            made: Any = function(*frames, **step.python.arguments)
            if not hasattr(made, "selectExpr"):
                raise TypeError(f"{step.python} returned {type(made).__name__}, not a DataFrame")
            return made  # type: ignore[no-any-return]  # it is one
        frame = frames[0]
        # Rejected rows of several steps have different columns.
        differ = any(each.endswith(REJECTED) for each in step.inputs)
        for other in frames[1:]:
            frame = frame.unionByName(other, allowMissingColumns=differ)
        return frame

    def _decoded(self, step: Step, decoding: Decoding, frame: DataFrame) -> DataFrame:
        from pelton.spark.payloads.frames import decoded

        frame = decoded(frame, payloads_of(decoding), self._schemas.of(step, frame))
        if decoding.evolve != REJECT:
            return frame
        value, rest = (F.col(f"`{name}`") for name in (decoding.into, decoding.rescue))
        return frame.withColumn(FITS, value.isNotNull() & rest.isNull())

    def _sql(self, step: Step, frames: list[DataFrame]) -> DataFrame:
        views = [each.replace(".", "_") for each in step.inputs]
        for view, frame in zip(views, frames, strict=True):
            frame.createOrReplaceTempView(view)
        try:
            return self._spark.sql(step.sql or "")
        finally:
            for view in views:
                self._spark.catalog.dropTempView(view)


def _both(one: Column, other: Column) -> Column:
    return one & other


def shared_nodes(
    pipeline: Pipeline, given: frozenset[str], sinks: Iterable[Sink]
) -> frozenset[str]:
    """The nodes to cache while a batch goes to all of these sinks."""
    wanted = list(sinks)
    nodes: set[str] = set()
    waiting = [node_of(sink.input) for sink in wanted]
    while waiting:
        name = waiting.pop()
        if name not in nodes:
            nodes.add(name)
            waiting += [] if name in given else pipeline.inputs(name)
    uses = Counter(node_of(sink.input) for sink in wanted)
    for name in nodes - given:
        step = pipeline.steps.get(name)
        uses.update(node_of(each) for each in (step.inputs if step else ()))
        if step is not None and step.decoding is not None and step.decoding.evolve == ADD:
            uses.update(map(node_of, step.inputs))  # the batch is looked at before it is decoded
    kept: set[str] = set()
    for name in sorted(nodes, key=lambda each: len(upstream(pipeline, each))):
        step = pipeline.steps.get(name)
        source = pipeline.sources.get(name)
        if uses[name] < 2 or (source is not None and source.static and name not in given):
            continue
        light = step is not None and step.light and name not in given
        if not (light and step is not None and node_of(step.inputs[0]) in kept):
            kept.add(name)
    return frozenset(kept)


def keeps_state(frame: DataFrame, trunk: DataFrame | None = None) -> list[str]:
    """The operators of a streaming DataFrame that keep state over the stream, by Spark's names.

    Leaves out those of ``trunk``, the DataFrame that it is made from, if given.
    """
    before = Counter[str]() if trunk is None else _stateful(trunk)
    return sorted((_stateful(frame) - before).elements())


def _stateful(frame: DataFrame) -> Counter[str]:
    found: Counter[str] = Counter()
    java: Any = frame._jdf  # only the JVM's object has the plan
    waiting = [java.queryExecution().analyzed()]
    while waiting:
        node = waiting.pop()
        if not node.isStreaming():
            continue
        children = node.children()
        each = [children.apply(place) for place in range(children.size())]
        name = node.nodeName()
        if name in _STATEFUL or (name == "Join" and all(child.isStreaming() for child in each)):
            found[name] += 1
        waiting += each
    return found
