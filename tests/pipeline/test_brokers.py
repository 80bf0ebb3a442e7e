"""The pipeline of docs/howto/build-a-pipeline.md as its reader runs it, on every server there is: a
table, an upsert, dead letters, a stream and a bucket; killed in mid-batch, the server killed, and
run again. Each row is in each sink once.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from pelton.client.base.models import StreamConfig
from pelton.client.sync import connect
from tests.peers import available_servers, command_of, start_server
from tests.spark.jvm import EVERY_WAY

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(600), EVERY_WAY]

HOW_TO = Path(__file__).parents[2] / "docs" / "howto" / "build-a-pipeline.md"
PER_BATCH = 400
ORDERS = 3000
CUSTOMERS = 50
KINDS = [*available_servers((2, 9)), *(["older"] if command_of("older") else [])]


def order(number):
    """What is published, and why it is no order; "" for a good one."""
    if number % 97 == 5:
        return b"not JSON", ["is_json", "has_ids", "has_amount"]
    made = {"id": f"o{number}", "customer": f"c{number % CUSTOMERS}", "amount": number * 0.75}
    if number % 101 == 7:
        made["id" if number % 2 else "customer"] = None
        return json.dumps(made).encode(), ["has_ids"]
    if number % 103 == 9:
        made["amount"] = -1.0
        return json.dumps(made).encode(), ["has_amount"]
    return json.dumps(made).encode(), []


def publish(js, numbers):
    with js.publisher() as publisher:
        for number in numbers:
            publisher.publish("orders.new", order(number)[0])


@pytest.fixture(params=KINDS)
def server(request):
    started = start_server(request.param)
    with connect(started.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name="ORDERS", subjects=["orders.>"]))
        js.create_stream(StreamConfig(name="BIG", subjects=["big.>"]))
        bucket = StreamConfig(name="KV_orders", subjects=["$KV.orders.>"], max_msgs_per_subject=1)
        js.create_stream(bucket)
    yield started
    started.remove()


@pytest.fixture
def file(tmp_path):
    """The how-to's file, in small batches."""
    text = re.search(r"```yaml\n(pipeline: orders\n.*?)```", HOW_TO.read_text(), re.DOTALL)[1]
    small = f"stream: ORDERS, maxOffsetsPerTrigger: {PER_BATCH}, maxRecordsPerPartition: 100}}"
    assert "stream: ORDERS}" in text
    path = tmp_path / "orders.yaml"
    path.write_text(text.replace("stream: ORDERS}", small))
    return path


class Run:
    """``pelton pipeline run --once`` as a process."""

    def __init__(self, file, server):
        self.begun = time.monotonic()
        command = ["-m", "pelton.cli", "pipeline", "run", str(file), "--once", "--json"]
        self.process = subprocess.Popen(
            [sys.executable, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "NATS_URL": server.url},
        )

    def wait_for(self, what, seconds=200):
        deadline = time.monotonic() + seconds
        while not what():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.004)

    def kill(self):
        self.process.kill()
        self.process.communicate()

    def end(self):
        out, err = self.process.communicate(timeout=300)
        assert self.process.returncode == 0, (out[-2000:], err)
        return [json.loads(line) for line in out.splitlines()]


def version(folder, name):
    """How many commits a table has."""
    return len(list((folder / "tables" / name / "_delta_log").glob("*.json")))


def noted(folder):
    """How many batches Spark has noted."""
    commits = folder / "state" / "orders" / "checkpoints" / "raw" / "commits"
    return len(list(commits.glob("[0-9]*")))


def last_of(server, stream):
    with connect(server.url) as client:
        return client.jetstream().stream_info(stream).state.last_seq


def compare(folder, server, count):
    """Every sink against what was published; message ``i`` has sequence ``i + 1``."""
    numbers = range(count)
    good = [n for n in numbers if not order(n)[1]]

    def rows(name):
        return DeltaTable(folder / "tables" / name).to_pyarrow_table().to_pylist()

    orders = rows("orders")
    assert Counter(row["seq"] for row in orders) == Counter(n + 1 for n in good)
    assert all(row["id"] == f"o{row['seq'] - 1}" for row in orders)
    assert all(row["amount"] == (row["seq"] - 1) * 0.75 for row in orders)
    newest = {f"c{n % CUSTOMERS}": n + 1 for n in good}
    assert {row["customer"]: row["seq"] for row in rows("customers")} == newest
    bad = {row["seq"]: row["rejected_because"] for row in rows("bad_orders")}
    assert len(rows("bad_orders")) == len(bad)
    assert bad == {n + 1: order(n)[1] for n in numbers if order(n)[1]}
    with connect(server.url) as client:
        js = client.jetstream()
        last = js.stream_info("BIG").state.last_seq
        big = [json.loads(js.get_message("BIG", seq).data) for seq in range(1, last + 1)]
        wanted = [n for n in good if n * 0.75 > 1000]
        assert Counter(each["id"] for each in big) == Counter(f"o{n}" for n in wanted)
        # One operation for each key: none was put twice.
        state = js.stream_info("KV_orders").state
        assert (state.messages, state.last_seq) == (len(good), len(good))
        for n in good[::7]:
            held = js.get_message("KV_orders", last_by_subject=f"$KV.orders.o{n}")
            assert json.loads(held.data) == {"customer": f"c{n % CUSTOMERS}", "amount": n * 0.75}


def test_the_how_to_under_kills(server, file, tmp_path):
    with connect(server.url) as client:
        publish(client.jetstream(), range(ORDERS))
    # Between two sinks of a batch: the table has it, Spark has not noted it.
    first = Run(file, server)
    first.wait_for(lambda: version(tmp_path, "orders") > noted(tmp_path) + 1)
    first.kill()
    # A later batch: the bucket, the last sink, has some rows of it.
    second = Run(file, server)
    before, batches = last_of(server, "KV_orders"), noted(tmp_path)
    second.wait_for(lambda: noted(tmp_path) >= batches + 1)
    second.wait_for(lambda: last_of(server, "KV_orders") > before)
    second.kill()
    # The server is killed under it and comes again; the run goes on by itself.
    third = Run(file, server)
    batches = noted(tmp_path)
    third.wait_for(lambda: noted(tmp_path) > batches)
    server.stop(kill=True)
    time.sleep(2)  # long enough that somebody asks it
    server.start()
    events = third.end()
    assert events[-1]["event"] == "summary"
    compare(tmp_path, server, ORDERS)

    with connect(server.url) as client:
        publish(client.jetstream(), range(ORDERS, ORDERS + 500))
    summary = Run(file, server).end()[-1]
    [query] = summary["queries"]
    assert query["rows"] == 500
    assert query["sinks"]["orders"] == sum(not order(n)[1] for n in range(ORDERS, ORDERS + 500))
    compare(tmp_path, server, ORDERS + 500)

    said = subprocess.run(
        [sys.executable, "-m", "pelton.cli", "pipeline", "status", str(file), "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "NATS_URL": server.url},
    )
    [query] = json.loads(said.stdout)["queries"]
    [place] = query["places"]
    assert (place["sequence"], place["lag"]) == (ORDERS + 500, 0)
    with connect(server.url) as client:
        assert "orders-raw" in client.jetstream().consumer_names("ORDERS")
