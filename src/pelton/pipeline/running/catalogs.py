"""Registers the Delta tables of sinks in a catalog: Unity Catalog, or AWS Glue.

A table is registered after its first commit, and again when its columns have changed. A catalog that does not
answer stops no query: the run warns, and tries again.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pelton.errors import not_installed
from pelton.spark.tables.places import Place, TableError, place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql.types import StructField, StructType

    from pelton.pipeline.description.model import Pipeline, Registration, Sink

_LOOK_SECONDS, _AGAIN_SECONDS, _TIMEOUT_SECONDS = 1.0, 60.0, 10.0
_UNITY_NAMES = {"INTEGER": "INT", "BIGINT": "LONG", "SMALLINT": "SHORT", "TINYINT": "BYTE"}


class CatalogError(Exception):
    """A catalog does not take a table; the text says why, on one line."""


class Registrations:
    """The tables of a pipeline's sinks that are to be in catalogs."""

    def __init__(self, pipeline: Pipeline, tell: Callable[[str], None]) -> None:
        """``tell`` gets a line when a catalog refuses a table or does not answer."""
        self._pipeline = pipeline
        self._tell = tell
        self._sinks = [each for each in pipeline.sinks.values() if each.register is not None]
        self._known: dict[str, StructType] = {}
        self._next = 0.0
        self._later: dict[str, float] = {}

    def look(self, *, at_last: bool = False) -> None:
        """Register the tables that have changed; called often, and works once a second."""
        now = time.monotonic()
        if not self._sinks or (now < self._next and not at_last):
            return
        for sink in self._sinks:
            if now >= self._later.get(sink.name, 0.0) or at_last:
                self._look_at(sink, now)
        self._next = time.monotonic() + _LOOK_SECONDS

    def _look_at(self, sink: Sink, now: float) -> None:
        from pelton.spark.older import from_arrow
        from pelton.spark.tables.commits import HERE

        into = sink.register
        assert into is not None
        where = _place_of(sink)
        try:
            table = HERE.opened(where)
            if table is None:
                return
            columns = from_arrow(table.columns())
            if self._known.get(sink.name) == columns:
                return
            register = register_in_unity if into.unity else register_in_glue
            register(into, where.uri, columns, table.partition_by())
        except (CatalogError, TableError, ModuleNotFoundError) as error:
            self._later[sink.name] = now + _AGAIN_SECONDS
            said = self._pipeline.hide(" ".join(str(error).split()))
            file = self._pipeline.file
            self._tell(
                f"{file}:{sink.line}: sinks.{sink.name}: {into.table} is not registered: {said}"
            )
        else:
            self._known[sink.name] = columns


def _place_of(sink: Sink) -> Place:
    storage = {
        name.partition(".")[2]: text
        for name, text in sink.options.items()
        if name.lower().startswith("storage.")
    }
    if sink.upsert is not None:
        storage = sink.upsert.storage
    return place(sink.place or "", storage or None)


def register_in_unity(
    into: Registration, location: str, columns: StructType, partition_by: tuple[str, ...]
) -> None:
    """Register an external Delta table in Unity Catalog; one that is there stays as it is.

    Unity reads the columns of a Delta table from its log. Raises :class:`CatalogError`.
    """
    catalog, schema, name = into.table.split(".")
    path = f"{str(into.unity).rstrip('/')}/api/2.1/unity-catalog/tables"
    found = _asked(into, f"{path}/{quote(into.table, safe='')}", None)
    if found is not None:
        there = str(found.get("storage_location", "")).rstrip("/")
        if there and there.removeprefix("file://") != location.rstrip("/").removeprefix("file://"):
            raise CatalogError(f"the catalog has a table of this name at {there}")
        return
    _asked(
        into,
        path,
        {
            "name": name,
            "catalog_name": catalog,
            "schema_name": schema,
            "table_type": "EXTERNAL",
            "data_source_format": "DELTA",
            "storage_location": location,
            "columns": [
                _unity_column(number, field, partition_by)
                for number, field in enumerate(columns.fields)
            ],
        },
    )


def _unity_column(number: int, field: StructField, partition_by: tuple[str, ...]) -> dict[str, Any]:
    kind = field.dataType
    name = kind.typeName().upper()
    made: dict[str, Any] = {
        "name": field.name,
        "type_text": kind.simpleString(),
        "type_json": field.json(),
        "type_name": _UNITY_NAMES.get(name, name),
        "position": number,
        "nullable": True,
    }
    if name == "DECIMAL":
        made |= {"type_precision": kind.precision, "type_scale": kind.scale}  # type: ignore[attr-defined]  # a decimal
    if field.name in partition_by:
        made["partition_index"] = partition_by.index(field.name)
    return made


def _asked(into: Registration, url: str, body: dict[str, Any] | None) -> dict[str, Any] | None:
    """The answer; None for what is not there."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    if into.token is not None:
        request.add_header("Authorization", f"Bearer {into.token}")
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
            found: dict[str, Any] = json.loads(answer.read() or b"{}")
            return found
    except urllib.error.HTTPError as problem:
        if problem.code == 404 and body is None:
            return None
        raise CatalogError(f"{url}: {problem.code} {_message(problem)}") from None
    except (OSError, ValueError) as problem:
        raise CatalogError(f"{url}: {getattr(problem, 'reason', problem)}") from None


def _message(problem: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(problem.read())["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return str(problem.reason)


def register_in_glue(
    into: Registration, location: str, columns: StructType, partition_by: tuple[str, ...]
) -> None:
    """Register a Delta table in AWS Glue, or give the one that is there its columns.

    Raises :class:`CatalogError`, and ModuleNotFoundError without ``boto3``.
    """
    try:
        import boto3  # type: ignore[import-untyped]  # has no types
        from botocore.exceptions import (  # type: ignore[import-untyped]  # has no types
            BotoCoreError,
            ClientError,
        )
    except ModuleNotFoundError as problem:
        raise not_installed(problem, "glue") from None
    database, name = into.table.split(".")
    table = {
        "Name": name,
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {
            "classification": "delta",
            "table_type": "DELTA",
            "spark.sql.sources.provider": "delta",
            "EXTERNAL": "TRUE",
        },
        "PartitionKeys": list(_glue_columns(columns, partition_by, keys=True)),
        "StorageDescriptor": {
            "Location": location,
            "Columns": list(_glue_columns(columns, partition_by, keys=False)),
        },
    }
    try:
        glue = boto3.client("glue", region_name=into.glue, endpoint_url=into.endpoint)
        try:
            there = glue.get_table(DatabaseName=database, Name=name)["Table"]
        except glue.exceptions.EntityNotFoundException:
            glue.create_table(DatabaseName=database, TableInput=table)
            return
        at = str(there.get("StorageDescriptor", {}).get("Location", "")).rstrip("/")
        if at and at != location.rstrip("/"):
            raise CatalogError(f"the catalog has a table of this name at {at}")
        glue.update_table(DatabaseName=database, TableInput=table)
    except (BotoCoreError, ClientError) as problem:
        raise CatalogError(str(problem)) from None


def _glue_columns(
    columns: StructType, partition_by: tuple[str, ...], *, keys: bool
) -> Iterator[dict[str, str]]:
    for field in columns.fields:
        if (field.name in partition_by) == keys:
            yield {"Name": field.name, "Type": field.dataType.simpleString()}
