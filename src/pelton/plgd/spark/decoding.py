"""Events as columns of a DataFrame: `decoded` for any DataFrame with messages of a hub's bus.

Batches of Arrow go to `pelton.plgd.decode_batch` as they are; no row becomes an object of Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ..columns import SCHEMA, decode_batch
from ..numbers import fitting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

UNSIGNED = {"version", "sequence"}
PAYLOAD = "payload"


def column_type(field: pa.Field) -> pa.DataType:
    """The type of a column in Spark, which has no unsigned one."""
    return pa.int64() if field.name in UNSIGNED else field.type


COLUMNS = pa.schema([(f.name, column_type(f)) for f in SCHEMA] + [(PAYLOAD, pa.binary())])
"""The columns that `decoded` adds."""


def decoded(messages: DataFrame, *, content: str = "raw", keep: str = "stream seq ts") -> DataFrame:
    """The messages of a bus as typed columns, one row for each; also for streaming DataFrames.

    ``messages`` has the columns ``subject`` and ``data``, as ``format("jetstream")`` does. Of its columns
    those in ``keep`` that it has stay. The others are those of `pelton.plgd.SCHEMA`, with ``error`` and
    ``error_detail`` where a message is no event, and then its bytes in ``payload``. ``content="json"`` also fills
    ``content_json``. A column that is in both has the name of the hub's.
    """
    names = [
        name for name in keep.split() if name in messages.columns and name not in COLUMNS.names
    ]
    from pyspark.sql.types import StructType

    from pelton.spark.older import from_arrow

    taken = messages.select(*names, "subject", "data")
    kept = [taken.schema[name] for name in names]
    schema = StructType([*kept, *from_arrow(COLUMNS).fields])
    return taken.mapInArrow(decoder(names, content), schema)


def decoder(names: list[str], content: str) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """The function that executors run for `decoded`."""

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            subjects, data = batch.column("subject"), batch.column("data")
            table = fitting(decode_batch(subjects, data, content=content))
            arrays = [batch.column(name) for name in names]
            fields = [batch.schema.field(name) for name in names]
            for field in COLUMNS:
                if field.name == PAYLOAD:
                    bad = pc.is_valid(table["error"])
                    arrays.append(pc.if_else(bad, data, pa.scalar(None, pa.binary())))
                else:
                    arrays.append(table[field.name].cast(field.type))
            whole = pa.table(arrays, schema=pa.schema([*fields, *COLUMNS]))
            yield from whole.combine_chunks().to_batches()

    return decode


def dead_letters(decoded_messages: DataFrame) -> DataFrame:
    """The rows of `decoded` that are no events: the kept columns, the reason, the detail and the bytes."""
    names = [name for name in decoded_messages.columns if name not in COLUMNS.names]
    chosen = [*names, "error", "error_detail", PAYLOAD]
    rows = decoded_messages.where("error is not null").select(*chosen)
    return rows.withColumnsRenamed({"error": "reason", "error_detail": "detail"})
