"""Columns by schema: what may be asked for, and what is said of the rest."""

import pytest
from pyspark.sql import types as T  # noqa: N812  the name the field knows it by

from pelton.spark.parsing import OptionError
from pelton.spark.reading.options import Options
from pelton.spark.reading.plan import COLUMNS
from pelton.spark.reading.schema import projected, schema_text

TYPES = {
    "string": T.StringType(),
    "bigint": T.LongType(),
    "timestamp": T.TimestampType(),
    "binary": T.BinaryType(),
    "map<string, array<string>>": T.MapType(T.StringType(), T.ArrayType(T.StringType())),
}


def schema(*names):
    return T.StructType([T.StructField(name, TYPES[COLUMNS[name]]) for name in names])


def test_all_columns_can_be_asked_for():
    names = tuple(COLUMNS)
    assert projected(Options(("S",)), schema(*names)).columns == names
    assert projected(Options(("S",)), schema("data", "seq")).column_names() == ("data", "seq")
    assert projected(Options(("S",)), None).columns is None
    assert schema_text(Options(("S",), columns=("ts", "seq"))) == "ts timestamp, seq bigint"


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (T.StructType().add("payload", "binary"), "a column 'payload'. The columns are: stream"),
        (T.StructType().add("Seq", "long"), "a column 'Seq'"),
        (T.StructType().add("seq", "integer"), "has seq as int, but it is bigint"),
        (T.StructType().add("data", "string"), "has data as string, but it is binary"),
        (T.StructType().add("ts", "timestamp_ntz"), "has ts as timestamp_ntz"),
        (
            T.StructType().add("headers", T.MapType(T.StringType(), T.StringType())),
            "it is map<string, array<string>>",
        ),
        (
            T.StructType().add(
                "headers", T.MapType(T.StringType(), T.ArrayType(T.StringType()), False)
            ),
            "nulls allowed",
        ),
        (T.StructType().add("seq", "long", nullable=False), "seq as not null"),
        (T.StructType(), "must have columns"),
        (T.StructType().add("seq", "long").add("seq", "long"), "each of them once"),
    ],
)
def test_wrong_schemas(wrong, text):
    with pytest.raises(OptionError, match=text):
        projected(Options(("S",)), wrong)


def test_columns_and_a_schema_must_agree():
    asked = Options(("S",), columns=("seq", "data"))
    assert projected(asked, schema("seq", "data")) == asked
    with pytest.raises(OptionError, match="columns is seq, data, but the schema has data, seq"):
        projected(asked, schema("data", "seq"))
