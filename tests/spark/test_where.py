"""The option ``where`` of a batch read, inside Spark: the rows of Spark's ``where()``, and no more is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from pelton.spark.filters import Filter
from pelton.spark.reading.options import parse_options
from pelton.spark.reading.schema import range_of, subjects_of
from pelton.spark.tables.commits import HERE
from pelton.spark.tables.reader import _that_may_have
from tests.spark.iceberg_help import properties_of

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


def reading(spark: Any, stream: Any, **options: str) -> Any:
    reader = spark.read.format("jetstream").options(servers=stream.url, stream=stream.name)
    return reader.options(**options).load()


@pytest.mark.parametrize("transport", ["auto", "get", "consumer"])
def test_rows_of_a_stream(spark: Any, stream: Any, transport: str) -> None:
    name = stream.name.lower()
    for number in range(60):
        stream.js.publish(f"{name}.{'ab'[number % 2]}", b"x" * number)
    for gone in (1, 17, 40):
        stream.js.delete_message(stream.name, gone)
    whole = reading(spark, stream, metadata="true")
    [middle] = whole.where("seq = 30").select("ts").collect()
    for condition in (
        "seq between 10 and 20",
        "seq in (5, 17, 50, 99)",
        f"subject = '{name}.a' and seq >= 30",
        f"subject in ('{name}.b', 'no such')",
        "subject = 'a subject'",
        "size > 40 and seq < 50",
        f"ts >= TIMESTAMP'{middle.ts.astimezone().isoformat()}'",
        "born is not null and seq > 55",
        "seq < 0",
    ):
        asked = reading(spark, stream, transport=transport, where=condition, columns="seq")
        wanted = [row.seq for row in whole.where(condition).select("seq").collect()]
        assert sorted(row.seq for row in asked.collect()) == sorted(wanted), condition
        assert asked.columns == ["seq"]
    with pytest.raises(PySparkException, match="where names the column sec; did you mean seq"):
        reading(spark, stream, where="sec = 5").count()


def test_what_is_asked_of_the_server() -> None:
    def parsed(where: str, **more: str) -> Any:
        return parse_options({"stream": "S", "where": where, **more}, streaming=False)

    assert range_of(parsed("seq >= 5 and seq in (7, 3, 90) and seq < 50")) == (5, 50)
    assert range_of(parsed("seq != 5 and ts is null")) == (1, 2**63 - 1)
    assert subjects_of(parsed("subject in ('a', 'b', 'a')")) == ("a", "b")
    assert subjects_of(parsed("subject = 'a'", subject="a.>")) == ("a.>",)
    assert subjects_of(parsed("subject = 'a b'")) == ()
    assert subjects_of(parsed("subject > 'a'")) == ()


def test_views_show_what_is_there_now(spark: Any, stream: Any, tmp_path: Any) -> None:
    from pelton.spark import views

    stream.fill(3)
    table = str(tmp_path / "t")
    spark.sql("select 1 as n").write.format("jetstream_delta").mode("append").save(table)
    mine = {"format": "jetstream", "servers": stream.url, "stream": stream.name}
    lake = views(spark, {"messages": mine, "numbers": table})
    both = "select (select count(*) from messages) as m, (select count(*) from numbers) as n"
    assert tuple(lake.sql(both).first()) == (3, 1)
    stream.fill(2)
    spark.sql("select 2 as n").write.format("jetstream_delta").mode("append").save(table)
    assert tuple(lake.sql(both).first()) == (5, 2)


@pytest.mark.parametrize("kind", ["jetstream_delta", "jetstream_iceberg"])
def test_rows_of_a_table(spark: Any, tmp_path: Path, kind: str) -> None:
    if kind == "jetstream_iceberg":
        catalog = {f"catalog.{name}": text for name, text in properties_of(tmp_path).items()}
        options = {"table": "lake.t", "catalog": "test", **catalog}
    else:
        options = {"path": str(tmp_path / "t")}
    rows = spark.sql(
        "select id, id % 4 as part, cast(id / 10 as int) as n, concat('name ', id) as name,"
        " date_add(DATE'2026-11-01', cast(id % 3 as int)) as day, if(id % 5 = 0, null, id / 2) as f"
        " from range(60)"
    )
    for begin in range(0, 60, 20):
        some = rows.where(f"id >= {begin} and id < {begin + 20}").coalesce(1).write.format(kind)
        some.options(**options, partitionBy="part, day").mode("append").save()
    whole = spark.read.format(kind).options(**options).load()
    for condition, files in (
        ("part = 3", 9),
        ("part in (0, 1) and day = DATE'2026-11-02'", 6),
        ("id between 5 and 9", 10),
        ("name = 'name 41'", None),
        ("f > 20.5 and part != 2", None),
        ("f is null and day >= DATE'2026-11-03'", None),
        ("id < 0", 0),
    ):
        reader = spark.read.format(kind).options(**options, where=condition, columns="name,id")
        found = reader.load()
        wanted = whole.where(condition).select("name", "id")
        assert sorted(found.collect()) == sorted(wanted.collect()), condition
        if files is not None:
            parsed = source(kind).parse_read({**options, "where": condition}, streaming=False)
            table = HERE.at(parsed.where)
            where = Filter.of(parsed.condition, table.columns())
            assert len(_that_may_have(table, where)) == files, condition
    with pytest.raises(PySparkException, match="where names the column parts; did you mean part"):
        spark.read.format(kind).options(**options, where="parts = 1").load().count()


def source(kind: str) -> Any:
    from pelton.spark.delta import options as delta
    from pelton.spark.iceberg import options as iceberg

    return delta if kind == "jetstream_delta" else iceberg
