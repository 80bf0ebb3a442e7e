"""Holes filled inside Spark: several tables of one query, a kill in the middle, messages that are gone."""

import shutil

import pytest

from pelton.spark.holding import FILL
from pelton.spark.tables import append, upsert
from pelton.spark.tables.places import place
from tests.peers import available_servers, start_server
from tests.spark.tables_help import sequences

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def server():
    """One kind of server: what is tried here is what the query does with its tables."""
    started = start_server(available_servers((2, 9))[0])
    yield started
    started.remove()


class Landing:
    """A query that lands a stream in two tables, and may be killed between them."""

    def __init__(self, spark, stream, folder):
        self.spark, self.stream, self.folder = spark, stream, folder
        self.die_before = None

    def take(self, rows, batch):
        append(rows.select("seq"), batch, self.folder / "all", ifBehind=FILL)
        if batch == self.die_before:
            self.die_before = None
            raise RuntimeError("died between two tables")
        kept = rows.selectExpr("seq % 7 as key", "seq")
        upsert(kept, batch, self.folder / "latest", keys=["key"], if_behind=FILL)

    def run(self, **options):
        reader = self.spark.readStream.format("jetstream").option("servers", self.stream.url)
        reader = reader.option("stream", self.stream.name).option("startingOffsets", "earliest")
        rows = reader.options(maxOffsetsPerTrigger=20, **options).load()
        writer = rows.writeStream.foreachBatch(self.take)
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    def back_up(self, name):
        shutil.copytree(self.folder / name, self.folder / f"older {name}")

    def put_back(self, name):
        shutil.rmtree(self.folder / name)
        shutil.move(self.folder / f"older {name}", self.folder / name)

    def check(self, last):
        assert sequences(place(self.folder / "all")) == list(range(1, last + 1))
        assert sequences(place(self.folder / "latest")) == list(range(last - 6, last + 1))


def test_two_tables_of_a_query_are_filled_at_once_each_from_where_it_is(spark, stream, tmp_path):
    landing = Landing(spark, stream, tmp_path)
    for name in ("all", "latest"):
        stream.fill(20)
        landing.run()
        landing.back_up(name)
    stream.fill(20)
    landing.run()
    landing.check(60)
    for name in ("all", "latest"):
        landing.put_back(name)
    stream.fill(5)
    with pytest.raises(Exception, match=r"/all holds batch 0 of the query.*batches 1 to 3 again"):
        landing.run()
    landing.die_before = 2
    with pytest.raises(Exception, match="died between two tables"):
        landing.run()
    landing.run()
    landing.check(65)
    stream.fill(1)
    landing.run()
    landing.check(66)


def test_what_the_stream_does_not_hold_any_more_is_told_with_its_sequences(spark, stream, tmp_path):
    landing = Landing(spark, stream, tmp_path)
    stream.fill(20)
    landing.run()
    landing.back_up("all")
    stream.fill(30)
    landing.run()
    landing.put_back("all")
    stream.js.purge_stream(stream.name, seq=36)
    stream.fill(1)
    with pytest.raises(Exception, match="batches 1 to 3 again"):
        landing.run()
    with pytest.raises(
        Exception, match=r"begins at sequence 36; 21 and later were not read yet.*failOnDataLoss"
    ):
        landing.run()
    assert sequences(place(tmp_path / "all")) == list(range(1, 21))
    landing.run(failOnDataLoss="false")
    assert sequences(place(tmp_path / "all")) == [*range(1, 21), *range(36, 52)]
    assert sequences(place(tmp_path / "latest")) == list(range(45, 52))
