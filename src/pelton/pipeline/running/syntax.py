"""Checks the SQL of a pipeline file with Spark's own parser: queries, conditions, types.

The parser needs a JVM (two or three seconds) but no session; it does not look up names of columns
and tables. A run does not need this check, because Spark parses every text before anything runs.
"""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from pelton.pipeline.description.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.pipeline.description.model import Pipeline

_QUERY, _EXPRESSION, _SCHEMA = "parsePlan", "parseExpression", "parseTableSchema"
_ENDING_SECONDS = 15.0


class Text(NamedTuple):
    """A text of SQL, its place in the file, and the parser's method for it."""

    line: int
    label: str
    text: str
    kind: str


def check_syntax(pipeline: Pipeline) -> list[Problem]:
    """The texts that Spark's parser does not understand.

    Raises :class:`pelton.spark.java.JavaNotFoundError`.
    """
    texts = list(texts_of(pipeline))
    if not texts:
        return []
    with _parser() as parser:
        found = [(each, _refusal(parser, each)) for each in texts]
    return [
        Problem(each.line, f"{each.label}: {said} in: {' '.join(each.text.split())}")
        for each, said in found
        if said
    ]


def texts_of(pipeline: Pipeline) -> Iterator[Text]:
    """Every text of SQL in the file."""
    for source in pipeline.sources.values():
        if source.schema is not None:
            yield Text(source.line, f"sources.{source.name}: schema", source.schema, _SCHEMA)
    for step in pipeline.steps.values():
        label = f"steps.{step.name}"
        if step.sql is not None:
            yield Text(step.line, f"{label}: sql", step.sql, _QUERY)
        yield from _expressions(step.line, label, step.where, step.select)
        for key, pairs in (("columns", step.columns), ("expect", step.expect)):
            for name, text in pairs.items():
                yield Text(step.line, f"{label}: {key}: {name}", text, _EXPRESSION)
    for sink in pipeline.sinks.values():
        label = f"sinks.{sink.name}"
        yield from _expressions(sink.line, label, sink.where, sink.select)
        if sink.upsert is not None and sink.upsert.delete_when is not None:
            yield Text(sink.line, f"{label}: deleteWhen", sink.upsert.delete_when, _EXPRESSION)


def _expressions(
    line: int, label: str, where: str | None, select: tuple[str, ...]
) -> Iterator[Text]:
    if where is not None:
        yield Text(line, f"{label}: where", where, _EXPRESSION)
    for text in select:
        yield Text(line, f"{label}: select", text, _EXPRESSION)


def _refusal(parser: Any, text: Text) -> str:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # has no types

    try:
        getattr(parser, text.kind)(text.text)
    except Py4JJavaError as error:
        said = str(error.java_exception.getMessage()).strip()
        return said.partition("\n")[0].partition(" SQLSTATE")[0]
    return ""


@contextlib.contextmanager
def _parser() -> Iterator[Any]:
    """Spark's parser in a separate JVM, which ends with it."""
    from pyspark import SparkConf

    from pelton.spark.classes import java_options
    from pelton.spark.java import ensure_java
    from pelton.spark.session import launch, log_options

    options = " ".join([*log_options(), *java_options(ensure_java())])
    conf = SparkConf(loadDefaults=False).set("spark.driver.extraJavaOptions", options)
    with TemporaryDirectory() as folder:
        gateway = launch(conf, Path(folder) / "log")
        process: Any = getattr(gateway, "proc", None)
        try:
            jvm: Any = gateway.jvm
            yield jvm.org.apache.spark.sql.execution.SparkSqlParser()
        finally:
            gateway.shutdown()
            if process is not None:
                with contextlib.suppress(OSError):
                    process.stdin.close()
                try:
                    process.wait(_ENDING_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
