"""Iceberg tables that are gone, or hold less than the query's checkpoint says."""

import shutil

import pytest

pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pelton[iceberg]")

from pelton.spark.holding import BEGIN
from tests.spark.feeds import Feed
from tests.spark.iceberg_help import address_of, properties_of, sequences

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def by_iceberg(folder, **options):
    properties = {f"catalog.{name}": text for name, text in properties_of(folder).items()}
    given = {"catalog": "test", "table": "lake.t", **properties, **options}
    return lambda rows: rows.writeStream.format("jetstream_iceberg").options(**given)


def test_a_lake_that_was_put_back_or_removed_is_refused(spark, tmp_path):
    """The catalog and its files from a backup; then without the table; then as they were."""
    lake = tmp_path / "lake"
    lake.mkdir()
    feed, write = Feed(spark, tmp_path), by_iceberg(lake)
    for _ in range(2):
        feed.grow()
        feed.run(write)
        if feed.number == 1:
            shutil.copytree(lake, tmp_path / "backup")
    feed.grow()
    shutil.move(lake, tmp_path / "whole")
    shutil.copytree(tmp_path / "backup", lake)
    with pytest.raises(Exception, match=r"test\.lake\.t holds batch 0 of query .* held batch 1"):
        feed.run(write)
    assert sequences(address_of(lake)) == [0]
    shutil.rmtree(lake)
    lake.mkdir()
    with pytest.raises(
        Exception, match=r"there is no table at test\.lake\.t, where one was that held batch 1"
    ):
        feed.run(write)
    assert not (lake / "warehouse").exists()
    shutil.rmtree(lake)
    shutil.move(tmp_path / "whole", lake)
    feed.run(write)
    assert sequences(address_of(lake)) == [0, 1, 2]


def test_a_table_may_begin_anew_and_is_watched_again(spark, tmp_path):
    feed = Feed(spark, tmp_path)
    feed.grow()
    feed.run(by_iceberg(tmp_path))
    for left in ("catalog.db", "warehouse"):
        path = tmp_path / left
        path.unlink() if path.is_file() else shutil.rmtree(path)
    feed.grow()
    feed.run(by_iceberg(tmp_path, ifBehind=BEGIN))
    assert sequences(address_of(tmp_path)) == [1]
    (tmp_path / "catalog.db").unlink()
    feed.grow()
    with pytest.raises(Exception, match="where one was that held batch 1"):
        feed.run(by_iceberg(tmp_path))
