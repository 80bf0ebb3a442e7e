"""Messages of a source as a fixture: JSON lines that a test can name in ``given``.

A payload is a JSON object or list where that keeps each of its characters except spaces, else a text, else in
base64. So a test is given the payloads that the source had.
"""

from __future__ import annotations

import base64
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from pelton.pipeline.description.functions import carry_modules
from pelton.pipeline.description.problems import did_you_mean
from pelton.pipeline.running.frames import Frames
from pelton.pipeline.running.stages import StepError
from pelton.pipeline.running.supervising import brief
from pelton.pipeline.testing.given import BASE64
from pelton.pipeline.testing.reporting import as_plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from pelton.pipeline.description.model import Pipeline

_JSON = msgspec.json.Encoder(decimal_format="number")
_READ = msgspec.json.Decoder(float_hook=Decimal)
_SPACE = re.compile(r'("(?:[^"\\]|\\.)*")|\s+')


def source_of(pipeline: Pipeline, name: str | None) -> str:
    """The source to sample. Raises :class:`StepError` if it is not clear which."""
    if name is None and len(pipeline.sources) == 1:
        return next(iter(pipeline.sources))
    if name is None:
        known = ", ".join(pipeline.sources)
        raise StepError(f"{pipeline.file}: name one of the sources: {known}")
    if name not in pipeline.sources:
        hint = did_you_mean(name, pipeline.sources)
        raise StepError(f"{pipeline.file}: there is no source {name}{hint}")
    return name


def samples(
    pipeline: Pipeline, spark: SparkSession, source: str, messages: int, where: str | None
) -> Iterator[str]:
    """The lines of a fixture, by a pipeline whose sources are read as a batch.

    Raises :class:`StepError` for a condition that Spark refuses, and what it raises as it reads.
    """
    carry_modules(pipeline.folder)
    frame = Frames(pipeline, spark).node(source)
    try:
        if where is not None:
            frame = frame.where(where)
        if "seq" in frame.columns:
            frame = frame.orderBy("seq")
        rows = frame.limit(messages).toArrow()
    except Exception as error:  # from Spark, for a condition that does not fit the columns
        said = pipeline.hide(brief(error))
        raise StepError(f"{pipeline.file}: sources.{source}: {said}") from error
    options = {name.lower(): text for name, text in pipeline.sources[source].options.items()}
    for row in rows.to_pylist():
        if row.get("stream") == options.get("stream"):
            row.pop("stream", None)
        yield line_of(row)


def line_of(row: dict[str, Any]) -> str:
    """A row as a line of JSON, without its nulls."""
    made: dict[str, object] = {}
    for name, value in row.items():
        if isinstance(value, bytes):
            ending, payload = payload_of(value)
            made[name + ending] = payload
        elif value is not None:
            exact = isinstance(value, str | int | float | Decimal)
            made[name] = value if exact else as_plain(value)
    return _JSON.encode(made).decode()


def payload_of(data: bytes) -> tuple[str, object]:
    """The ending of the column's name, and the payload as a value of JSON."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return BASE64, base64.b64encode(data).decode()
    if text[:1] in ("{", "["):
        try:
            value = _READ.decode(data)
            if _JSON.encode(value).decode() == _SPACE.sub(lambda found: found[1] or "", text):
                return "", value
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass
    return "", text
