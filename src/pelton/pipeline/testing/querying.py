"""A query in Spark's SQL over the sources and steps of a pipeline, read as a batch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pelton.pipeline.description.functions import carry_modules
from pelton.pipeline.description.model import REJECTED
from pelton.pipeline.running.frames import Frames

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pelton.pipeline.description.model import Pipeline


def nodes_in(pipeline: Pipeline, query: str) -> tuple[str, ...]:
    """The sources, steps and sinks that a query names; ``step_rejected`` is ``step.rejected``."""
    words = {word.lower() for word in re.findall(r"\w+", query)}
    rejected = [name + REJECTED for name, step in pipeline.steps.items() if step.expect]
    nodes = [*pipeline.sources, *pipeline.steps, *pipeline.sinks, *rejected]
    return tuple(name for name in nodes if name.replace(".", "_").lower() in words)


def asked(
    pipeline: Pipeline, spark: SparkSession, names: tuple[str, ...], query: str, rows: int
) -> Any:
    """The first rows of the answer, as an Arrow table. Raises what Spark raises."""
    carry_modules(pipeline.folder)
    frames = Frames(pipeline, spark)
    views = {}
    for name in names:
        sink = pipeline.sinks.get(name)
        views[name.replace(".", "_")] = frames.of(name) if sink is None else frames.sink(sink)
    try:
        for view, frame in views.items():
            frame.createOrReplaceTempView(view)
        return spark.sql(query.rstrip().rstrip(";")).limit(rows).toArrow()
    finally:
        for view in views:
            spark.catalog.dropTempView(view)
