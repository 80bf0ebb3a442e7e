"""Pipelines with Iceberg tables: upserts beside other sinks of a query, put back and filled; tables as sources."""

import shutil

import pytest

pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pelton[iceberg]")
from deltalake import DeltaTable

from pelton.client.base.models import StreamConfig
from pelton.client.sync import connect
from pelton.pipeline import load, run
from pelton.pipeline.running.status import status_of
from tests.peers import available_servers, start_server
from tests.spark.iceberg_help import address_of as address
from tests.spark.iceberg_help import properties_of
from tests.spark.iceberg_help import table_of as opened

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

FILE = """
pipeline: shop
defaults: {servers: URL, trigger: 0s}
sources:
  raw: {format: jetstream, stream: IN, maxOffsetsPerTrigger: 100}
steps:
  parsed:
    from: raw
    select: ["cast(cast(data as string) as bigint) % 7 as k", seq, "1L as n"]
sinks:
  rows:   {from: parsed, format: jetstream_delta, path: rows}
  latest: {from: parsed, upsert: lake.latest, keys: [k], sums: [n], maintainEvery: 3, ifBehind: fill, CATALOG}
  orders: {from: parsed, format: jetstream_iceberg, table: lake.orders, CATALOG}
"""
COPY = """
pipeline: copies
defaults: {trigger: 0s}
sources:
  orders: {format: jetstream_iceberg, table: lake.orders, maxFilesPerTrigger: 2, CATALOG}
sinks:
  copy: {from: orders, format: jetstream_delta, path: copy}
"""


@pytest.fixture
def js():
    server = start_server(available_servers()[0])
    with connect(server.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name="IN", subjects=["in.>"]))
        js.url = server.url
        yield js
    server.remove()


def written(folder, text, url=""):
    given = {f"catalog.{name}": value for name, value in properties_of(folder).items()}
    catalog = ", ".join(f'{name}: "{value}"' for name, value in given.items())
    path = folder / f"{text.split()[1]}.yaml"
    path.write_text(text.replace("CATALOG", f"catalog: test, {catalog}").replace("URL", url))
    return path


def publish(js, numbers):
    for number in numbers:
        js.publish("in.x", str(number).encode())


def latest(folder):
    rows = opened(address(folder, "lake.latest")).scan().to_arrow().to_pylist()
    return {row["k"]: (row["seq"], row["n"]) for row in rows}


def expected(count):
    """Message ``i`` has sequence ``i + 1``."""
    found = {}
    for number in range(count):
        newest, total = found.get(number % 7, (0, 0))
        found[number % 7] = (max(newest, number + 1), total + 1)
    return found


def test_iceberg_tables_in_a_pipeline(tmp_path, js, spark):
    file, copy = written(tmp_path, FILE, js.url), written(tmp_path, COPY)
    publish(js, range(250))
    run(load(file), spark, once=True)
    assert latest(tmp_path) == expected(250)
    again = run(load(file), spark, once=True)
    assert {query.rows for query in again.queries} == {0}
    assert latest(tmp_path) == expected(250)
    [shared] = [query for query in status_of(load(file)).queries if len(query.sinks) > 1]
    status = next(sink for sink in shared.sinks if sink.name == "latest")
    assert (status.rows, status.problem) == (7, "")

    run(load(copy), spark, once=True)
    publish(js, range(250, 400))
    run(load(file), spark, once=True)
    run(load(copy), spark, once=True)
    found = DeltaTable(tmp_path / "copy").to_pyarrow_table(columns=["seq"])
    assert sorted(found["seq"].to_pylist()) == list(range(1, 401))
    assert latest(tmp_path) == expected(400)


def test_a_catalog_that_was_put_back_is_filled(tmp_path, js, spark):
    """The table lacks batches of its query; the sums have each row once all the same."""
    file = written(tmp_path, FILE, js.url)
    publish(js, range(150))
    run(load(file), spark, once=True)
    shutil.copytree(tmp_path / "warehouse", tmp_path / "kept")
    shutil.copy(tmp_path / "catalog.db", tmp_path / "kept.db")
    publish(js, range(150, 400))
    run(load(file), spark, once=True)
    assert latest(tmp_path) == expected(400)
    shutil.rmtree(tmp_path / "warehouse")
    shutil.copytree(tmp_path / "kept", tmp_path / "warehouse")
    (tmp_path / "kept.db").replace(tmp_path / "catalog.db")
    # The other table of the catalog is behind, too; it is another query's.
    text = file.read_text().replace("lake.orders,", "lake.orders, ifBehind: fill,")
    file.write_text(text)
    run(load(file), spark, once=True)
    assert latest(tmp_path) == expected(400)
    rows = DeltaTable(tmp_path / "rows").to_pyarrow_table(columns=["seq"])
    assert sorted(rows["seq"].to_pylist()) == list(range(1, 401))
