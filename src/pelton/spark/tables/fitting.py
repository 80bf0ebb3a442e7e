"""The condition for rows that a table can hold, as an expression of Spark.

For :func:`pelton.spark.tables.upserts.upsert`, where Spark takes the newest row of each key: a row
that does not fit must not hide an older one that does. The same as :mod:`pelton.spark.unfit`, which
checks batches in Arrow.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType


def fits(rows: DataFrame) -> Column | None:
    """Whether a row fits; None when the columns cannot hold a value that does not."""
    from pyspark.sql import functions as F  # noqa: N812  the customary name

    found = [
        condition
        for field in rows.schema
        if (condition := _fits(F.col("`" + field.name.replace("`", "``") + "`"), field.dataType))
        is not None
    ]
    return reduce(_both, found) if found else None


def _both(one: Column, other: Column) -> Column:
    return one & other


def _fits(value: Column, kind: DataType) -> Column | None:
    from pyspark.sql import functions as F  # noqa: N812  the customary name
    from pyspark.sql import types as T  # noqa: N812  the customary name

    condition: Column | None = None
    if isinstance(kind, T.StringType | T.VarcharType | T.CharType):
        condition = F.is_valid_utf8(value)
    elif isinstance(kind, T.DateType | T.TimestampType | T.TimestampNTZType):
        condition = F.year(value).between(1, 9999)
    elif isinstance(kind, T.ArrayType):
        condition = _all(value, kind.elementType)
    elif isinstance(kind, T.MapType):
        parts = [_all(F.map_keys(value), kind.keyType), _all(F.map_values(value), kind.valueType)]
        found = [part for part in parts if part is not None]
        condition = reduce(_both, found) if found else None
    elif isinstance(kind, T.StructType):
        fields = [_fits(value.getField(field.name), field.dataType) for field in kind]
        found = [field for field in fields if field is not None]
        condition = reduce(_both, found) if found else None
    return None if condition is None else F.coalesce(condition, F.lit(True))


def _all(values: Column, kind: DataType) -> Column | None:
    from pyspark.sql import functions as F  # noqa: N812  the customary name

    if _fits(F.lit(None), kind) is None:
        return None

    def check(value: Column) -> Column:
        condition = _fits(value, kind)
        assert condition is not None
        return condition

    return F.coalesce(F.forall(values, check), F.lit(True))
