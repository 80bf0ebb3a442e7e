"""Rows with other columns than a table: nested fields, narrower numbers and other names, inside Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import Row

from pelton.spark.tables import upsert
from tests.spark.iceberg_help import address_of, properties_of, table_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

FIRST = "id int, s struct<a:int>, l array<struct<x:int>>, m map<string,struct<k:int>>"
MORE = (
    "ID smallint, S struct<b:string,A:smallint>, l array<struct<y:string,X:int>>,"
    " m map<string,struct<k:int,v:double>>, n string"
)
WHOLE = (
    "struct<id:int,s:struct<a:int,b:string>,l:array<struct<x:int,y:string>>,"
    "m:map<string,struct<k:int,v:double>>,n:string>"
)
OLD = (1, Row(a=1), [Row(x=1), None], {"k": Row(k=1)})
NEW = (2, Row(b="b", A=2), [Row(y="y", X=2)], {"k": Row(k=2, v=0.5), "n": None}, "n")
EXPECTED = [
    (1, (1, None), [(1, None), None], {"k": (1, None)}, None),
    (2, (2, "b"), [(2, "y")], {"k": (2, 0.5), "n": None}, "n"),
]


class Delta:
    format = "jetstream_delta"

    def __init__(self, folder: Path) -> None:
        self.options = {"path": str(folder / "t")}

    def elsewhere(self) -> list[dict[str, Any]]:
        """What another reader finds."""
        found: list[dict[str, Any]] = (
            DeltaTable(self.options["path"]).to_pyarrow_table().to_pylist()
        )
        return found


class Iceberg:
    format = "jetstream_iceberg"

    def __init__(self, folder: Path) -> None:
        self._address = address_of(folder)
        catalog = {f"catalog.{name}": text for name, text in properties_of(folder).items()}
        self.options = {"table": "lake.t", "catalog": "test", **catalog}

    def elsewhere(self) -> list[dict[str, Any]]:
        """What another reader finds."""
        found: list[dict[str, Any]] = table_of(self._address).scan().to_arrow().to_pylist()
        return found


@pytest.fixture(params=[Delta, Iceberg])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return request.param(tmp_path)


def saving(table: Any, frame: Any, **options: str) -> None:
    frame.write.format(table.format).mode("append").options(**table.options, **options).save()


def loading(spark: Any, table: Any) -> Any:
    return spark.read.format(table.format).options(**table.options).load()


def plain(value: Any) -> Any:
    """Rows as tuples."""
    if isinstance(value, Row):
        return tuple(plain(each) for each in value)
    if isinstance(value, list):
        return [plain(each) for each in value]
    return {key: plain(each) for key, each in value.items()} if isinstance(value, dict) else value


def test_nested_fields_are_added(spark: Any, table: Any) -> None:
    saving(table, spark.createDataFrame([OLD], FIRST))
    new = spark.createDataFrame([NEW], MORE)
    with pytest.raises(
        PySparkException, match=r"column S\.b string is not in the table.*mergeSchema"
    ):
        saving(table, new)
    saving(table, new, mergeSchema="true")
    found = loading(spark, table)
    assert found.schema.simpleString() == WHOLE
    assert [plain(row) for row in found.orderBy("id").collect()] == EXPECTED
    saving(table, spark.createDataFrame([OLD], FIRST))  # rows that lack the fields still fit
    assert loading(spark, table).where("id = 1 and s.b is null").count() == 2
    whole = sorted(table.elsewhere(), key=lambda row: row["id"])
    assert [row["s"] for row in whole] == [{"a": 1, "b": None}] * 2 + [{"a": 2, "b": "b"}]
    assert whole[2]["l"] == [{"x": 2, "y": "y"}]


def test_a_stream_goes_on_with_new_fields(spark: Any, table: Any, tmp_path: Path) -> None:
    source = tmp_path / "source"
    for schema, rows in ((FIRST, [OLD]), (MORE, [NEW])):
        spark.createDataFrame(rows, schema).write.mode("append").json(str(source))
        query = (
            spark.readStream.schema(schema)
            .json(str(source))
            .writeStream.format(table.format)
            .options(**table.options, mergeSchema="true")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    assert [plain(row) for row in loading(spark, table).orderBy("id").collect()] == EXPECTED


def test_wider_numbers(spark: Any, table: Any) -> None:
    saving(table, spark.sql("select 1 as n, cast(1.5 as float) as f, cast(1 as decimal(5,2)) as d"))
    wider = spark.sql("select 5000000000 as n, 0.1d as f, cast(99999 as decimal(9,2)) as d")
    if table.format == "jetstream_delta":
        with pytest.raises(PySparkException, match="column n is bigint, in the table int"):
            saving(table, wider, mergeSchema="true")
        return
    with pytest.raises(PySparkException, match="column n is bigint, in the table int"):
        saving(table, wider)
    saving(table, wider, mergeSchema="true")
    found = loading(spark, table)
    assert found.schema.simpleString() == "struct<n:bigint,f:double,d:decimal(9,2)>"
    assert sorted((row.n, row.f) for row in found.collect()) == [(1, 1.5), (5_000_000_000, 0.1)]


def test_an_upsert_adds_nested_fields(spark: Any, tmp_path: Path) -> None:
    where = str(tmp_path / "t")

    def merged(batch: int, schema: str, *rows: Any) -> None:
        frame = spark.createDataFrame(list(rows), schema)
        upsert(frame, batch, where, keys=["k"], merge_schema=True, query_id="q")

    merged(0, "k int, seq int, s struct<a:int>", (1, 1, Row(a=1)), (2, 1, Row(a=1)))
    merged(1, "k smallint, seq int, s struct<A:int,b:int>", (1, 2, Row(A=2, b=2)))
    merged(2, "k int, seq int, s struct<a:int>", (3, 3, Row(a=3)))
    found = spark.read.format("jetstream_delta").load(where).orderBy("k")
    assert [plain(row) for row in found.collect()] == [
        (1, 2, (2, 2)),
        (2, 1, (1, None)),
        (3, 3, (3, None)),
    ]
