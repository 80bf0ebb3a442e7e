"""The schemas of steps that decode payloads, when they come from data.

A query keeps the schemas of its steps in the state folder, each with the first batch that had it::

    schemas/raw/orders.json    [{"batch": 0, "schema": ...}, {"batch": 41, "schema": ...}]

A batch that runs again after a kill gets the schema that it had: new fields are kept before any sink is
written. Steps of a stream, before its batches are cut, keep the schema with which their query began.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pelton.pipeline.description.payloads import ADD
from pelton.pipeline.running.durable import write_durably
from pelton.pipeline.running.queries import StateError
from pelton.spark.parsing import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from pelton.pipeline.description.model import Decoding, Pipeline, Step
    from pelton.spark.payloads.frames import Payloads

_FOLDER = "schemas"
_VERSIONS = 50


def payloads_of(decoding: Decoding) -> Payloads:
    """The payloads that a step decodes."""
    from pelton.spark.payloads.frames import Payloads

    return Payloads(decoding.format, decoding.column, decoding.into, decoding.rescue)


class Schemas:
    """The schemas for a preview: those that a query has kept, or those of the rows that are read."""

    def __init__(self, pipeline: Pipeline) -> None:
        """Reads nothing yet."""
        self.pipeline = pipeline

    def of(self, step: Step, rows: DataFrame) -> StructType:
        """The schema of the payloads in ``rows``, which the step is about to decode."""
        decoding = decoding_of(step)
        found = self.kept(step) or first_schema(decoding, rows)
        return found if decoding.evolve != ADD else more_of(decoding, rows, found)

    def kept(self, step: Step) -> StructType | None:
        """The newest schema that a query has kept."""
        files = (self.pipeline.state / _FOLDER).glob(f"*/{step.name}.json")
        versions = [each for file in files for each in Versions(file).all()]
        return max(versions, key=lambda each: each[0])[1] if versions else None


class QuerySchemas(Schemas):
    """The schemas of one query's batch; those of its stream without ``batch``."""

    def __init__(
        self,
        pipeline: Pipeline,
        query: str,
        batch: int | None = None,
        *,
        sample: Callable[[Pipeline, Step], DataFrame] | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        """``sample`` reads the first rows that a step of a stream decodes; ``tell`` gets a line about new fields."""
        super().__init__(pipeline)
        self._query = query
        self._batch = batch
        self._sample = sample
        self._tell = tell

    def of(self, step: Step, rows: DataFrame) -> StructType:
        """The schema of the batch's payloads; kept before it is used."""
        decoding = decoding_of(step)
        if decoding.schema is not None and decoding.evolve != ADD:
            return declared(decoding)
        versions = Versions(self.pipeline.state / _FOLDER / self._query / f"{step.name}.json")
        if rows.isStreaming:
            return self._of_stream(step, decoding, versions)
        batch = self._batch or 0
        since, kept = versions.at(batch)
        if kept is not None and (since == batch or decoding.evolve != ADD):
            return kept
        have = first_schema(decoding, rows) if kept is None else kept
        found = have if decoding.evolve != ADD else more_of(decoding, rows, have)
        if found != kept:
            versions.keep(batch, found)
            if kept is not None:
                self._say(step, kept, found, batch)
        return found

    def _of_stream(self, step: Step, decoding: Decoding, versions: Versions) -> StructType:
        kept = versions.newest()
        if kept is not None:
            return kept
        if self._sample is None:
            return declared(decoding)
        found = first_schema(decoding, self._sample(self.pipeline, step))
        if found.fields:
            versions.keep(0, found)
        return found

    def _say(self, step: Step, old: StructType, new: StructType, batch: int) -> None:
        if self._tell is not None:
            lines = ", ".join(sorted(_leaves(new) - _leaves(old)))
            self._tell(
                f"{self.pipeline.file}:{step.line}: steps.{step.name}: new fields from batch {batch} on:"
                f" {lines}"
            )


def decoding_of(step: Step) -> Decoding:
    """The decoding of a step that has one."""
    assert step.decoding is not None
    return step.decoding


def declared(decoding: Decoding) -> StructType:
    """The schema that the file gives; without fields if it gives none. Spark must run."""
    from pyspark.sql.types import StructType

    from pelton.spark.older import from_arrow

    if decoding.schema is not None:
        return _columns(decoding.schema)
    if (stated := decoding.format.stated()) is not None:
        import pyarrow as pa

        return from_arrow(pa.schema(stated.fields))
    types = ", ".join(f"`{name}` {kind}" for name, kind in decoding.types.items())
    return _columns(types) if types else StructType([])


def _columns(text: str) -> StructType:
    from pyspark.sql.types import StructType

    found = StructType.fromDDL(text)
    if not isinstance(found, StructType):
        raise OptionError(f"columns with types, such as id long, name string; not {text!r}")
    return found


def first_schema(decoding: Decoding, rows: DataFrame) -> StructType:
    """The schema that a query begins with: declared, or found in the first rows."""
    have = declared(decoding)
    if decoding.schema is not None or decoding.format.stated() is not None:
        return have
    return more_of(decoding, rows.limit(decoding.infer), have)


def more_of(decoding: Decoding, rows: DataFrame, have: StructType) -> StructType:
    """A schema with the fields of these rows that it lacks."""
    from pelton.spark.payloads.frames import schema_seen

    found = schema_seen(rows, payloads_of(decoding), have if have.fields else None)
    return have if found is None else found


class Versions:
    """A file with the schemas of a step, each with its first batch."""

    def __init__(self, path: Path) -> None:
        """Reads nothing yet."""
        self._path = path

    def all(self) -> list[tuple[int, StructType]]:
        """All that are kept, by batch. Raises :class:`StateError`."""
        from pyspark.sql.types import StructType

        try:
            told = json.loads(self._path.read_text())
            return [(int(each["batch"]), StructType.fromJson(each["schema"])) for each in told]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StateError(f"{self._path} cannot be read: {error!r}") from None

    def at(self, batch: int) -> tuple[int, StructType | None]:
        """The schema of a batch, and the batch since which it is the schema."""
        found = [each for each in self.all() if each[0] <= batch]
        return found[-1] if found else (-1, None)

    def newest(self) -> StructType | None:
        """The last schema."""
        found = self.all()
        return found[-1][1] if found else None

    def keep(self, batch: int, schema: StructType) -> None:
        """Keep a schema durably."""
        versions = [each for each in self.all() if each[0] < batch]
        versions = [*versions, (batch, schema)][-_VERSIONS:]
        told: list[dict[str, Any]] = [
            {"batch": number, "schema": each.jsonValue()} for number, each in versions
        ]
        write_durably(self._path, json.dumps(told))


def _leaves(kind: Any, path: str = "") -> set[str]:
    """The fields of a schema with their types, those of structs by path."""
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(kind, StructType):
        parts: Iterable[set[str]] = (
            _leaves(each.dataType, f"{path}.{each.name}".lstrip(".")) for each in kind.fields
        )
        return set().union(*parts)
    if isinstance(kind, ArrayType):
        return _leaves(kind.elementType, f"{path}[]")
    return {f"{path} {kind.simpleString()}"}
