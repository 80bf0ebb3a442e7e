"""The connector beside a cluster of three nats-servers whose leader is killed in mid-partition."""

from __future__ import annotations

import contextlib
import warnings

import pytest

from pelton import StreamConfig
from pelton.api.times import format_time
from pelton.errors import StreamNotFoundError
from pelton.spark.connection import forget_client
from pelton.spark.reading.offsets import Range
from pelton.spark.reading.plan import ReadPlan
from pelton.spark.reading.ranges import read_range
from pelton.spark.servers import Servers
from pelton.spark.writing.progress import make_bucket
from pelton.spark.writing.writer import write_partition
from pelton.sync import connect
from tests.nats_clusters import running_cluster, wait_until_ready
from tests.peers import available_servers
from tests.spark.writing import DATA, Sink, batches, needs_atomic, payloads, task
from tests.ways import EVERY_WAY

pytestmark = [
    pytest.mark.peer,
    EVERY_WAY,
    pytest.mark.skipif("nats-server" not in available_servers((2, 9)), reason="no nats-server"),
]
ROWS = 30_000


@pytest.fixture(scope="module")
def cluster():
    with running_cluster() as started:
        yield started
        forget_client(servers_of(started))


@pytest.fixture
def client(cluster):
    with connect(cluster.urls) as connected:
        wait_until_ready(connected)
        yield connected


def servers_of(cluster):
    return Servers(urls=tuple(cluster.urls.split(",")), retry_timeout_seconds=60.0)


@pytest.mark.parametrize("transport", ["auto", "consumer", "direct"])
def test_a_partition_is_read_whole(cluster, client, transport):
    name = f"R{transport}"
    js = client.jetstream(timeout=20)
    config = StreamConfig(name=name, subjects=[f"{name}.>"], num_replicas=3, allow_direct=True)
    born = format_time(js.create_stream(config).created)
    cluster.revive(client, name)
    with js.publisher() as publisher:
        for number in range(ROWS):
            publisher.publish(f"{name}.x", b"row %d" % number)
    plan = ReadPlan(
        servers=servers_of(cluster),
        stream=name,
        born=born,
        range=Range(1, ROWS),
        transport=transport,
        columns=("seq", "data"),
        batch_rows=500,
    )
    seen = []
    killed = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for batch in read_range(plan):
            seen += zip(*batch.to_pydict().values(), strict=True)
            if not killed and len(seen) > ROWS // 3:
                killed = True
                cluster.kill_leader(client, name)
    assert killed
    assert seen == [(number + 1, b"row %d" % number) for number in range(ROWS)]
    cluster.revive(client, name)


@pytest.mark.parametrize("mode", ["ids", "batch"])
def test_a_partition_is_written_once(cluster, client, mode):
    sink = Sink(client, cluster.urls, f"W{mode}")
    sink.js = client.jetstream(timeout=20)
    given = {"exactlyOnce": mode, "subject": f"{sink.low}.rows", "retryTimeout": "60s"}
    if mode == "batch":
        needs_atomic(sink)
        subjects = [f"{sink.low}.>", sink.progress]
        sink.make(subjects=subjects, allow_atomic=True, num_replicas=3)
    else:
        sink.make(num_replicas=3)
    cluster.revive(client, sink.name)
    plan = sink.plan(DATA, **given)

    def rows():
        for number, batch in enumerate(batches(payloads(ROWS), DATA)):
            if number == ROWS // 100 // 3:
                cluster.kill_leader(client, sink.name)
            yield batch

    written = write_partition(plan, task(), rows())
    assert (written.rows, written.refused) == (ROWS, 0)
    stored = [payload for _, payload in sink.stored()]
    if mode == "ids":  # what was sent again comes behind what got through
        stored.sort(key=lambda payload: int(payload[4:]))
    assert stored == [b"row %d" % n for n in range(ROWS)]
    cluster.revive(client, sink.name)


def test_the_bucket_of_progress_is_where_the_stream_is(cluster, client):
    js = client.jetstream(timeout=20)
    make_bucket(js, "kept", 1)
    sink = Sink(client, cluster.urls, "BUCKET")
    sink.js = js
    sink.make(num_replicas=3)
    sink.plan(DATA, exactlyOnce="ids", subject="bucket.rows", progressBucket="kept")
    assert js.stream_info("KV_kept").config.num_replicas == 3
    sink.plan(DATA, exactlyOnce="ids", subject="bucket.rows", progressBucket="other")
    with contextlib.suppress(StreamNotFoundError):
        js.delete_stream("KV_other")
    cluster.revive(client, sink.name)
    plan = sink.plan(DATA, exactlyOnce="ids", subject="bucket.rows", progressBucket="other")
    write_partition(plan, task(), batches(payloads(10), DATA))
    assert js.stream_info("KV_other").config.num_replicas == 3
