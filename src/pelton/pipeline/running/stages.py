"""The keys of a step or sink as stages, which are applied to rows one after the other.

A stage has one text of SQL or several, and each can be applied alone. So the one that Spark refuses, or
that throws for a row, is known by its key: ``columns.total``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  the name the field knows it by

from pelton.pipeline.running.supervising import brief

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from pelton.pipeline.description.model import Pipeline, Sink, Source, Step

_CODES = re.compile(r"\s*SQLSTATE: \w+.*$")
_NO_ROUTINE = re.compile(r"\[UNRESOLVED_ROUTINE\] Cannot resolve routine `([^`]+)`")


@dataclass(frozen=True)
class Stage:
    """One key: ``texts`` has its expressions by name; the only one of ``where`` has the name ''."""

    key: str
    texts: Mapping[str, str]

    def apply(self, rows: DataFrame) -> DataFrame:
        """The rows after all of its texts."""
        if self.key == "columns":
            return rows.withColumns({name: F.expr(text) for name, text in self.texts.items()})
        if self.key == "select":
            return rows.selectExpr(*self.texts.values())
        if self.key == "watermark":
            for column, delay in self.texts.items():
                rows = rows.withWatermark(column, delay)
            return rows
        if self.key == "drop":
            return rows.drop(*self.texts)
        for text in self.texts.values():  # where, and each condition of expect
            rows = rows.where(f"({text})")
        return rows

    def alone(self, rows: DataFrame, name: str) -> DataFrame:
        """The rows after one of its texts."""
        return Stage(self.key, {name: self.texts[name]}).apply(rows)

    def without(self, names: Sequence[str]) -> Stage:
        """The stage without some of its texts."""
        return Stage(
            self.key, {name: text for name, text in self.texts.items() if name not in names}
        )

    def place(self, name: str) -> str:
        """The key of a text in the file, by which its line is known."""
        return f"{self.key}.{name}" if name and self.key != "watermark" else self.key

    def label(self, name: str) -> str:
        """The key of a text for messages: an expression of ``select`` has no name there."""
        return self.key if self.key == "select" else self.place(name)


def first_key(step: Step) -> str:
    """The key that makes the rows of a step before its stages."""
    if step.python is not None:
        return "python"
    if step.sql is not None:
        return "sql"
    return "from" if step.decoding is None else step.decoding.name


def stages_of(step: Step) -> Iterator[Stage]:
    """What a step does to its rows after ``python`` and ``sql``, but for ``expect``."""
    if step.watermark is not None:
        yield Stage("watermark", {step.watermark[0]: step.watermark[1]})
    if step.where is not None:
        yield Stage("where", {"": step.where})
    if step.columns:
        yield Stage("columns", step.columns)
    if step.select:
        yield Stage("select", _numbered(step.select))
    if step.drop:
        yield Stage("drop", dict.fromkeys(step.drop, ""))


def sink_stages(sink: Sink) -> Iterator[Stage]:
    """What a sink does to the rows of its input."""
    if sink.where is not None:
        yield Stage("where", {"": sink.where})
    if sink.select:
        yield Stage("select", _numbered(sink.select))


def _numbered(texts: Sequence[str]) -> dict[str, str]:
    return {str(number): text for number, text in enumerate(texts)}


class StepError(RuntimeError):
    """Steps, sinks or sources that Spark refuses: a line for each fault, with its place in the file."""

    @property
    def lines(self) -> list[str]:
        """One line for each fault."""
        return str(self).splitlines()


class Faults:
    """The faults of one part of the file."""

    def __init__(self, pipeline: Pipeline, kind: str, part: Source | Step | Sink) -> None:
        """``kind`` is the section of the file: sources, steps or sinks."""
        self._pipeline = pipeline
        self._label = f"{kind}.{part.name}"
        self._part = part
        self._lines: list[str] = []

    def add(self, key: str, label: str, said: str) -> None:
        """Report a fault of a key."""
        what = ": ".join(filter(None, (self._label, label, self._pipeline.hide(said))))
        self._lines.append(f"{self._pipeline.file}:{self._part.line_of(key)}: {what}")

    def error(self) -> StepError:
        """All faults so far."""
        return StepError("\n".join(dict.fromkeys(self._lines)))

    def __bool__(self) -> bool:
        """Whether there are faults."""
        return bool(self._lines)

    def applied(self, stages: Iterable[Stage], rows: DataFrame) -> DataFrame:
        """The rows after all stages. After a fault the other texts are still checked.

        A text that uses a column with a fault is passed over, and so is all after a faulty ``select``.
        """
        unknown: list[str] = []
        for stage in stages:
            good = stage.without(
                [name for name, each in stage.texts.items() if _uses(each, unknown)]
            )
            try:
                rows = good.apply(rows) if good.texts else rows
            except Exception as error:  # from Spark, for texts that do not fit the columns
                wrong = self.refused(good, rows, error)
                if stage.key == "select":
                    break
                unknown += wrong if stage.key == "columns" else []
                rest = good.without(wrong)
                rows = rest.apply(rows) if rest.texts else rows
        return rows

    def refused(self, stage: Stage, rows: DataFrame, error: Exception) -> list[str]:
        """Report the texts of a stage that are refused alone; returns their names."""
        found: dict[str, Exception] = {}
        for name in stage.texts:
            try:
                stage.alone(rows, name)
            except Exception as refusal:  # as in applied
                found[name] = refusal
        if not found:
            self.add(stage.key, stage.key, said(error, rows.sparkSession))
            return list(stage.texts)
        for name, refused in found.items():
            text = said(refused, rows.sparkSession, stage.texts[name])
            self.add(stage.place(name), stage.label(name), text)
        return list(found)


def _uses(text: str, names: Sequence[str]) -> bool:
    return any(re.search(rf"\b{re.escape(name)}\b", text) for name in names)


def said(error: Exception, spark: SparkSession | None = None, text: str = "") -> str:
    """Spark's first line about an error without its codes; with the text, if that cannot be parsed.

    Adds the name of a function that is like one that does not exist.
    """
    line = _CODES.sub("", brief(error)).rstrip()
    if text and line.startswith("[PARSE_"):
        return f"{line.rstrip('.')} in: {' '.join(text.split())}"
    if spark is not None and (match := _NO_ROUTINE.match(line)):
        from pelton.spark.parsing import nearest

        names = [each.name for each in spark.catalog.listFunctions()]
        if near := nearest(match[1], names):
            return f"{match[0]}; did you mean {near}?"
        return match[0]
    return line
