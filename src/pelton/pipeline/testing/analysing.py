"""A pipeline's steps and sinks as Spark analyses them: unknown columns and functions, without any row."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pelton.pipeline.description.cases import CaseError
from pelton.pipeline.description.functions import carry_modules
from pelton.pipeline.running.frames import Frames, StepError
from pelton.pipeline.running.preview import MESSAGES, readable
from pelton.pipeline.testing.given import schema_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pelton.pipeline.description.model import Pipeline, Step


def analyse(pipeline: Pipeline, spark: SparkSession) -> list[str]:
    """The faults that Spark finds, a line each.

    Asks no server, unless a step has its schema from data; reads the columns of tables that are sources.
    """
    carry_modules(pipeline.folder)
    if any(_from_data(step) for step in pipeline.steps.values()):
        try:
            read = readable(pipeline, tuple(pipeline.sinks), begin=None, messages=MESSAGES)
        except StepError as error:
            return [str(error)]
        return _faults(read, Frames(read, spark))
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
    return [*problems, *_faults(pipeline, frames)]


def _from_data(step: Step) -> bool:
    decoding = step.decoding
    return decoding is not None and decoding.schema is None and decoding.format.stated() is None


def _faults(pipeline: Pipeline, frames: Frames) -> list[str]:
    problems = []
    for sink in pipeline.sinks.values():
        try:
            _ = frames.sink(sink).schema
        except StepError as error:
            problems.append(str(error))
    return list(dict.fromkeys(problems))
