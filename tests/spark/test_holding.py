"""Targets that are gone, or hold less than the query's checkpoint says: refused, with both numbers."""

import shutil
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F  # noqa: N812  the name the field knows it by

from pelton.client.base.models import StreamConfig
from pelton.spark.holding import BEGIN, FILL, Held, memory_of, stream_behind, table_behind
from pelton.spark.tables.behind import TableBehind, Watched
from pelton.spark.tables.commits import Tables
from pelton.spark.tables.marks import Found, Mark
from pelton.spark.tables.places import place
from pelton.spark.writing.options import parse_write_options
from pelton.spark.writing.target import Target, warn_unnoticed
from tests.spark import tables_help
from tests.spark.feeds import Feed, by_append, by_format, by_upsert
from tests.spark.jvm import EVERY_WAY
from tests.spark.tables_help import sequences
from tests.ways import length, skip_other_servers

every_way = partial(pytest.param, marks=EVERY_WAY)


def test_a_memory_is_of_one_place_in_one_checkpoint(tmp_path):
    memory = memory_of(tmp_path, "/t")
    assert memory.recall() is None
    assert not memory.known
    memory.note(Held("/t", 5, "q"))
    assert memory_of(tmp_path.as_uri(), "/t").recall() == Held("/t", 5, "q")
    assert memory_of(tmp_path, "/other").recall() is None
    assert memory_of(tmp_path, "/other").known
    for nowhere in (None, "hdfs://name/checkpoint", tmp_path / "none"):
        lost = memory_of(nowhere, "/t")
        lost.note(Held("/t", 7, "q"))
        assert lost.recall() is None
    assert memory.recall() == Held("/t", 5, "q")


def test_a_note_that_is_torn_or_cannot_be_written_costs_the_comparison_alone(tmp_path):
    memory = memory_of(tmp_path, "/t")
    memory.note(Held("/t", 5, "q"))
    [path] = (tmp_path / "pelton").glob("*.json")
    path.write_bytes(path.read_bytes()[:7])
    assert memory.recall() is None
    shutil.rmtree(tmp_path / "pelton")
    (tmp_path / "pelton").write_text("no folder")
    memory.note(Held("/t", 6, "q"))
    assert memory.recall() is None


def test_what_is_behind():
    held = Held("/t", 5, "q")
    assert table_behind(None, False, None) == ""
    assert table_behind(held, True, 5) == table_behind(held, True, 6) == ""
    assert table_behind(Held("/t"), True, None) == ""
    assert "holds batch 2 of query q, but it held batch 5" in table_behind(held, True, 2)
    assert "holds no batch of query q, but it held batch 5" in table_behind(held, True, None)
    assert "where one was that held batch 5" in table_behind(held, False, None)
    stream = Held("stream S", 5, born="then", last=70)
    assert stream_behind(stream, "then", 70) == stream_behind(stream, "then", 71) == ""
    assert "ends at sequence 69, but ended at 70 after batch 5" in stream_behind(stream, "then", 69)
    assert "was created at now, but" in stream_behind(stream, "now", 500)


def test_a_stream_that_is_not_watched_is_warned_of_once(tmp_path, recwarn):
    target, away = Target(stream="AWAY"), {"subject": "x", "checkpointLocation": "hdfs://n/c"}
    with pytest.warns(
        UserWarning, match=r"if stream AWAY is restored or .* checkpointLocation, not hdfs://n/c"
    ):
        warn_unnoticed(parse_write_options(away), target)
    recwarn.clear()
    warn_unnoticed(parse_write_options(away), target)
    for told in ({"checkpointLocation": str(tmp_path)}, {"ifBehind": BEGIN}):
        warn_unnoticed(parse_write_options({"subject": "x", **told}), Target(stream="HERE"))
    assert not recwarn.list


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", [by_format, every_way(by_upsert), every_way(by_append)])
def test_a_table_that_is_older_than_its_checkpoint_or_gone_is_refused(spark, tmp_path, way):
    feed, path = Feed(spark, tmp_path), tmp_path / "t"
    for _ in range(2):
        feed.grow()
        feed.run(way(path))
        if feed.number == 1:
            shutil.copytree(path, tmp_path / "backup")
    feed.grow()
    shutil.move(path, tmp_path / "whole")
    shutil.copytree(tmp_path / "backup", path)
    with pytest.raises(Exception, match=r"holds batch 0 of query .* but it held batch 1"):
        feed.run(way(path))
    shutil.rmtree(path)
    with pytest.raises(
        Exception, match=r"there is no table at .*/t, where one was that held batch 1"
    ):
        feed.run(way(path))
    assert not path.exists()
    shutil.move(tmp_path / "whole", path)
    feed.run(way(path))
    assert sequences(place(path)) == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", [every_way(by_format), every_way(by_upsert), by_append])
def test_a_table_that_was_put_back_is_filled(spark, tmp_path, way):
    """The query ends once, with the reason; started again it has all rows, also after a kill."""
    feed, path = Feed(spark, tmp_path), tmp_path / "t"
    for _ in range(4):
        feed.grow()
        feed.run(way(path))
        if feed.number == 2:
            shutil.copytree(path, tmp_path / "backup")
    shutil.rmtree(path)
    shutil.copytree(tmp_path / "backup", path)
    feed.grow()
    fill = way(path, **{"if_behind" if way is by_upsert else "ifBehind": FILL})
    with pytest.raises(Exception, match=r"holds batch 1 of the query.*makes batches 2 to 4 again"):
        feed.run(fill)
    assert sequences(place(path)) == [0, 1]
    feed.run(fill)
    assert sequences(place(path)) == [0, 1, 2, 3, 4]
    feed.grow()
    feed.run(way(path))
    assert sequences(place(path)) == [0, 1, 2, 3, 4, 5]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("way", [every_way(by_format), by_upsert])
def test_a_table_is_watched_by_its_marks_where_the_checkpoint_is_elsewhere(spark, tmp_path, way):
    """In a file system that only the JVM knows; every second batch has no rows."""
    feed, path = Feed(spark, tmp_path), tmp_path / "t"
    (tmp_path / "checkpoint").mkdir()
    away = way.__name__.replace("_", "-")  # the JVM keeps a file system by its name
    spark.conf.set(f"fs.viewfs.mounttable.{away}.link./place", feed.folder.as_uri())
    feed.checkpoint = f"viewfs://{away}/place/checkpoint"

    def odd(rows):
        return way(path)(rows.where(F.col("seq") % 2 == 1))

    for _ in range(4):
        feed.grow()
        feed.run(odd)
        if feed.number == 2:
            shutil.copytree(path, tmp_path / "backup")
    assert not (tmp_path / "checkpoint" / "pelton").exists()
    feed.grow()
    shutil.move(path, tmp_path / "whole")
    shutil.copytree(tmp_path / "backup", path)
    with pytest.raises(Exception, match=r"holds batch 1 of the query, which writes batch 4 now"):
        feed.run(odd)
    assert sequences(place(path)) == [1]
    shutil.rmtree(path)
    with pytest.raises(Exception, match=r"holds no batch of the query, which writes batch 4 now"):
        feed.run(odd)
    assert not (path / "_delta_log").exists()
    shutil.move(tmp_path / "whole", path)
    feed.run(odd)
    assert sequences(place(path)) == [1, 3]


class Lake:
    """A table of each kind, to which batches are committed that leave a mark each."""

    def __init__(self, folder, kind):
        self.folder, self.kind, self.copies = folder / "lake", kind, {}
        self.folder.mkdir()

    def take(self, batch, rows):
        """Commit a batch as the writers do."""
        if self.kind == "delta":
            helping, where = tables_help, place(self.folder / "t")
        else:
            from tests.spark import iceberg_help as helping

            where = helping.address_of(self.folder)
        watched = Watched(memory_of("s3a://bucket/checkpoint", "t"))
        seqs, mark = range(batch * 10, batch * 10 + rows), Mark("q", batch)
        watched.compare(Tables().last_of(where, Mark("q", 0)), batch)
        Tables().commit(where, helping.write_of(where, seqs, mark, each=True))

    def back_up(self, batch):
        self.copies[batch] = self.folder.with_name(f"copy {batch}")
        shutil.copytree(self.folder, self.copies[batch])

    def put_back(self, batch):
        shutil.rmtree(self.folder)
        shutil.copytree(self.copies[batch], self.folder)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@settings(max_examples=length(4, 8), deadline=None)
@given(counts=st.lists(st.integers(0, 2), min_size=3, max_size=5), back=st.integers(0, 4))
def test_by_marks_alone_a_batch_follows_the_one_before_or_is_refused(
    tmp_path_factory, kind, counts, back
):
    if kind == "iceberg":
        pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pelton[iceberg]")
    lake = Lake(tmp_path_factory.mktemp("lake"), kind)
    for batch, rows in enumerate(counts):
        lake.take(batch, rows)
        lake.back_up(batch)
    back, following = back % len(counts), len(counts)
    lake.put_back(back)
    if back == following - 1:
        lake.take(back, counts[back])  # the driver died before it noted the batch
        lake.take(following, 1)
        return
    with pytest.raises(TableBehind, match=f"holds batch {back} of the query, which writes batch"):
        lake.take(following, 1)
    lake.put_back(following - 1)
    lake.take(following, 1)


def test_marks_of_before_say_nothing_of_batches_without_rows():
    """A table that was written when only batches with rows left a mark, and one that is gone."""
    watched = Watched(memory_of(None, "t"))
    watched.compare(Found(3), 9)
    watched.compare(None, 0)
    watched.compare(Found(8, each=True), 9)
    Watched(memory_of(None, "t"), BEGIN).compare(None, 9)
    with pytest.raises(TableBehind, match="holds no batch of the query, which writes batch 9"):
        watched.compare(None, 9)
    with pytest.raises(TableBehind, match="ifBehind=fill needs the checkpoint in a folder of the"):
        Watched(memory_of(None, "t"), FILL).compare(Found(7, each=True), 9)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_table_may_begin_anew_and_is_watched_again(spark, tmp_path):
    feed, path = Feed(spark, tmp_path), tmp_path / "t"
    feed.grow()
    feed.run(by_format(path))
    shutil.rmtree(path)
    feed.grow()
    feed.run(by_format(path, ifBehind=BEGIN))
    assert sequences(place(path)) == [1]
    shutil.rmtree(path)
    feed.grow()
    with pytest.raises(Exception, match="where one was that held batch 1"):
        feed.run(by_format(path))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_batches_without_rows_are_no_hole_and_a_checkpoint_without_notes_is_known(spark, tmp_path):
    feed, path = Feed(spark, tmp_path), tmp_path / "t"

    def odd(rows):
        return by_format(path)(rows.where(F.col("seq") % 2 == 1))

    for _ in range(3):
        feed.grow()
        feed.run(odd)
    assert sequences(place(path)) == [1]
    # as left by a version that made no notes
    shutil.rmtree(tmp_path / "checkpoint" / "pelton")
    shutil.move(path, tmp_path / "away")
    feed.grow()
    with pytest.raises(Exception, match=r"no table at .* but the query has done batches before"):
        feed.run(odd)
    assert not path.exists()
    shutil.move(tmp_path / "away", path)
    feed.run(odd)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["jetstream", "jetstream_kv", "jetstream_object"])
def test_streams_and_buckets_that_were_made_anew_or_put_back_are_refused(
    spark, tmp_path, server, client, kind, request
):
    if kind != "jetstream":
        skip_other_servers(request)
    js, feed = client.jetstream(), Feed(spark, tmp_path)
    stream, subject, more = {
        "jetstream": ("BACK", "back.>", {"subject": "back.x"}),
        "jetstream_kv": ("KV_back", "$KV.back.>", {"bucket": "back"}),
        "jetstream_object": ("OBJ_back", "$O.back.>", {"bucket": "back"}),
    }[kind]
    config = StreamConfig(name=stream, subjects=[subject], allow_rollup_hdrs=True)

    def write(rows, **given):
        texts = [
            F.col("seq").cast("string").alias(each) for each in ("key", "name", "value", "data")
        ]
        wanted = {"jetstream": 3, "jetstream_kv": 0, "jetstream_object": 1}[kind]
        value = texts[2] if kind == "jetstream_kv" else texts[3]
        columns = [value] if kind == "jetstream" else [texts[wanted], value]
        writer = rows.select(*columns).writeStream.format(kind).options(**more, **given)
        return writer.option("servers", server.url)

    js.create_stream(config)
    try:
        feed.grow()
        feed.run(write)
        js.publish(subject.replace(">", "x"), b"another's")
        end = js.stream_info(stream).state.last_seq
        js.delete_stream(stream)
        js.create_stream(config)
        feed.grow()
        with pytest.raises(Exception, match="it was created again"):
            feed.run(write)
        assert js.stream_info(stream).state.messages == 0
        feed.run(lambda rows: write(rows, ifBehind=BEGIN))
        now = js.stream_info(stream)
        assert 0 < now.state.last_seq < end
    finally:
        js.delete_stream(stream)
