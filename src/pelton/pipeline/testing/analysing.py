"""A pipeline's steps and sinks as Spark analyses them: unknown columns and functions, without any row."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pelton.pipeline.description.cases import CaseError
from pelton.pipeline.description.functions import carry_modules
from pelton.pipeline.running.frames import Frames, StepError
from pelton.pipeline.testing.given import schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pelton.pipeline.description.model import Pipeline


def analyse(pipeline: Pipeline, spark: SparkSession) -> list[str]:
    """The faults that Spark finds, a line each. Asks no server; reads the columns of tables that are sources."""
    carry_modules(pipeline.folder)
    given = {}
    problems: list[str] = []
    for name, source in pipeline.sources.items():
        try:
            schema = schema_of(source, None)
        except CaseError as error:
            problems.append(f"{pipeline.file}:{source.line}: sources.{name}: {error}")
            continue
        if schema is not None:
            given[name] = spark.createDataFrame([], schema)
    static = {name: replace(source, static=True) for name, source in pipeline.sources.items()}
    frames = Frames(replace(pipeline, sources=static), spark, given=given)
    for sink in pipeline.sinks.values():
        try:
            _ = frames.sink(sink).schema
        except StepError as error:
            problems.append(str(error))
    return list(dict.fromkeys(problems))
