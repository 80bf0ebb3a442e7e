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
from pelton.pipeline.description.graph import upstream
from pelton.pipeline.description.model import node_of
from pelton.pipeline.description.payloads import ADD, FITS, REJECT
from pelton.pipeline.running.schemas import Schemas, payloads_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame, SparkSession

    from pelton.pipeline.description.model import Decoding, Pipeline, Sink, Source, Step

REASONS = "rejected_because"
"""The additional column of rejected rows: the names of the conditions that they fail."""

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


class StepError(RuntimeError):
    """A step or sink that Spark refuses; the text names it, with its line, and the reason."""


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
    ) -> None:
        """``consumers`` names the shadow consumer of each streamed source."""
        self._schemas = schemas or Schemas(pipeline)
        self._pipeline = pipeline
        self._spark = spark
        self._consumers = consumers or {}
        self._made = dict(given or {})
        self._given = frozenset(self._made)
        self._keep: frozenset[str] = frozenset()
        self._kept: list[DataFrame] = []

    def keep_for(self, sinks: Iterable[Sink]) -> None:
        """Cache the nodes that several of these sinks share."""
        self._keep = shared_nodes(self._pipeline, self._given, sinks)
        for name in self._given & self._keep:
            self._made[name] = self._kept_frame(self._made[name])

    def release(self) -> None:
        """Drop all caches."""
        for frame in self._kept:
            frame.unpersist()
        self._kept.clear()

    def sink(self, sink: Sink) -> DataFrame:
        """The rows for a sink. Raises :class:`StepError`."""
        frame = self.of(sink.input)
        try:
            if sink.where is not None:
                frame = frame.where(sink.where)
            return frame.selectExpr(*sink.select) if sink.select else frame
        except Exception as error:  # from Spark, for expressions that do not fit the columns
            raise self._error("sinks", sink, error) from error

    def of(self, reference: str) -> DataFrame:
        """The rows of a node, or its rejected rows. Raises :class:`StepError`."""
        name = node_of(reference)
        step = self._pipeline.steps.get(name)
        frame = self.node(name)
        if step is None or not step.expect:
            return frame
        passes = [F.coalesce(F.expr(f"({each})"), F.lit(False)) for each in step.expect.values()]
        hidden = [FITS] if FITS in frame.columns else []
        try:
            if reference == name:
                return frame.where(reduce(_both, passes)).drop(*hidden)
            reasons = F.array(
                *(F.when(~good, F.lit(why)) for why, good in zip(step.expect, passes, strict=True))
            )
            rejected = frame.where(~reduce(_both, passes))
            return rejected.withColumn(REASONS, F.array_compact(reasons)).drop(*hidden)
        except Exception as error:  # as above
            raise self._error("steps", step, error) from error

    def node(self, name: str) -> DataFrame:
        """The rows of a node before ``expect`` rejects any. Raises :class:`StepError`."""
        if name not in self._made:
            source, step = self._pipeline.sources.get(name), self._pipeline.steps.get(name)
            part: Any = source or step
            try:
                frame = self._read(source) if source is not None else self._do(part)
            except StepError:
                raise
            except Exception as error:  # from Spark and from users' functions
                raise self._error("sources" if source else "steps", part, error) from error
            self._made[name] = self._kept_frame(frame) if name in self._keep else frame
        return self._made[name]

    def _kept_frame(self, frame: DataFrame) -> DataFrame:
        kept = frame.persist()
        self._kept.append(kept)
        return kept

    def _read(self, source: Source) -> DataFrame:
        reader: Any = self._spark.read if source.static else self._spark.readStream
        options = {
            name: value for name, value in source.options.items() if name.lower() != "consumer"
        }
        if not source.static and (consumer := self._consumers.get(source.name)):
            options["consumer"] = consumer
        reader = reader.format(source.format).options(**options)
        if source.schema is not None:
            reader = reader.schema(source.schema)
        made: DataFrame = reader.load()
        return made

    def _do(self, step: Step) -> DataFrame:
        frames = [self.of(each) for each in step.inputs]
        if step.python is not None:
            function = function_of(step.python, self._pipeline.folder)
            frame = function(*frames, **step.python.arguments)
            if not hasattr(frame, "selectExpr"):
                raise TypeError(f"{step.python} returned {type(frame).__name__}, not a DataFrame")
        elif step.sql is not None:
            frame = self._sql(step, frames)
        else:
            frame = frames[0]
            for other in frames[1:]:
                frame = frame.unionByName(other)
        if step.decoding is not None:
            frame = self._decoded(step, step.decoding, frame)
        if step.watermark is not None:
            frame = frame.withWatermark(*step.watermark)
        if step.where is not None:
            frame = frame.where(step.where)
        if step.columns:
            frame = frame.withColumns({name: F.expr(each) for name, each in step.columns.items()})
        if step.select:
            hidden = [f"`{FITS}`"] if FITS in frame.columns else []
            frame = frame.selectExpr(*step.select, *hidden)
        if step.drop:
            frame = frame.drop(*step.drop)
        made: DataFrame = frame
        return made

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

    def _error(self, part: str, node: Any, error: Exception) -> StepError:
        from pelton.pipeline.running.supervising import brief

        file = self._pipeline.file
        said = self._pipeline.hide(brief(error))
        return StepError(f"{file}:{node.line}: {part}.{node.name}: {said}")


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
