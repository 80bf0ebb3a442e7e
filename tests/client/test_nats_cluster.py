"""The clients beside a cluster of three nats-servers, of which the one that leads is killed."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from penstock.client import ConsumerConfig, StreamConfig, connect, connect_blocking
from penstock.client.publishing import RETRY_S
from penstock.errors import NoResponders, PenstockError, StreamNotFound
from tests.nats_clusters import NatsCluster, running_cluster, wait_until_ready
from tests.peers import available_servers
from tests.ways import EVERY_WAY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.client import BlockingClient

pytestmark = [
    pytest.mark.peer,
    # One of 2.9 may leave the creation of a consumer without an answer after a leader is gone.
    pytest.mark.skipif("nats-server" not in available_servers((2, 10)), reason="no nats-server"),
]
MESSAGES = 20_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[NatsCluster]:
    with running_cluster() as started:
        yield started


@pytest.fixture
def client(cluster: NatsCluster) -> Iterator[BlockingClient]:
    """With a stream of three replicas, S, and all servers up."""
    with connect_blocking(cluster.urls) as connected:
        wait_until_ready(connected)
        connected.jetstream(timeout=20).create_stream(
            StreamConfig(name="S", subjects=["s.>"], num_replicas=3)
        )
        cluster.revive(connected, "S")
        yield connected
        cluster.revive(connected, "S")
        remove(connected, "S")


def remove(client: BlockingClient, stream: str) -> None:
    """Until it is gone: who leads all may have changed just now, and the call was lost."""
    for _ in range(10):
        try:
            client.jetstream(timeout=3).delete_stream(stream)
            return
        except StreamNotFound:
            return
        except PenstockError:
            wait_until_ready(client)
    raise AssertionError(f"stream {stream} cannot be deleted")


def fill(client: BlockingClient) -> None:
    with client.jetstream().publisher() as publisher:
        for number in range(MESSAGES):
            publisher.publish("s.a", b"%d" % number)


def test_publishing_goes_on_with_the_next_leader(
    cluster: NatsCluster, client: BlockingClient
) -> None:
    js = client.jetstream(timeout=20)
    with js.publisher() as publisher:
        for number in range(MESSAGES):
            if number == MESSAGES // 2:
                cluster.kill_leader(client, "S")
            publisher.publish("s.a", b"%d" % number, msg_id=f"id-{number}")
    cluster.revive(client, "S")
    payloads = [
        row[4] for columns in js.read_columns("S", 1, MESSAGES + 1) for row in columns.rows()
    ]
    assert sorted(map(int, payloads)) == list(range(MESSAGES))
    assert js.stream_info("S").state.messages == MESSAGES


def test_a_subject_without_a_stream_is_told_in_time(client: BlockingClient) -> None:
    begun = time.monotonic()
    with pytest.raises(NoResponders):
        client.jetstream().publish("nobody", b"x", timeout=2 * RETRY_S)
    assert time.monotonic() - begun >= RETRY_S


@EVERY_WAY
def test_one_message_waits_for_a_leader(cluster: NatsCluster, client: BlockingClient) -> None:
    js = client.jetstream(timeout=20)
    cluster.kill_leader(client, "S")
    with_id = 0
    while True:
        try:  # the first one may have been under way to the server that was killed
            assert js.publish("s.a", b"x", msg_id="one").stream == "S"
            break
        except PenstockError:
            with_id += 1
            assert with_id == 1
    assert js.stream_info("S").state.messages == 1


@EVERY_WAY
def test_an_ordered_reader_sees_all_once(cluster: NatsCluster, client: BlockingClient) -> None:
    fill(client)
    for seen, message in enumerate(client.jetstream().ordered("S"), 1):
        assert message.metadata.stream_seq == seen
        if seen == MESSAGES // 2:
            cluster.kill_leader(client, "S")
        if seen == MESSAGES:
            break


@EVERY_WAY
@pytest.mark.parametrize("way", ["fetch", "messages"])
def test_a_consumer_with_acks_gives_all(
    cluster: NatsCluster, client: BlockingClient, way: str
) -> None:
    fill(client)
    js = client.jetstream(timeout=20)
    js.create_consumer("S", ConsumerConfig(durable_name="D", max_ack_pending=MESSAGES))
    pull = js.pull("S", "D")
    seen: set[int] = set()
    killed = False

    def endless() -> Iterator[list[int]]:
        if way == "messages":
            for message in pull.messages():
                message.ack()
                yield [message.metadata.stream_seq]
        while True:
            try:
                batch = pull.fetch(500, timeout=20)
            except PenstockError:
                continue  # the connection was to the server that was killed
            for message in batch:
                message.ack()
            yield [message.metadata.stream_seq for message in batch]

    for seqs in endless():
        seen.update(seqs)
        if not killed and len(seen) >= MESSAGES // 2:
            killed = True
            cluster.kill_leader(client, "S")
        if len(seen) == MESSAGES:
            break
    assert seen == set(range(1, MESSAGES + 1))


@EVERY_WAY
def test_the_same_with_asyncio(cluster: NatsCluster, client: BlockingClient) -> None:
    async def main() -> None:
        async with connect(cluster.urls) as aio:
            js = aio.jetstream(timeout=20)
            async with js.publisher() as publisher:
                for number in range(MESSAGES):
                    if number == MESSAGES // 2:
                        await asyncio.to_thread(cluster.kill_leader, client, "S")
                    await publisher.publish("s.a", b"%d" % number, msg_id=f"id-{number}")
            assert (await js.stream_info("S")).state.messages == MESSAGES
            await asyncio.to_thread(cluster.revive, client, "S")
            seen = 0
            async for message in aio.jetstream().ordered("S"):
                seen += 1
                assert message.metadata.stream_seq == seen
                if seen == MESSAGES // 2:
                    await asyncio.to_thread(cluster.kill_leader, client, "S")
                if seen == MESSAGES:
                    break

    asyncio.run(asyncio.wait_for(main(), 120))
