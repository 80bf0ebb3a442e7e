"""The clients beside a cluster of three nats-servers, of which the one that leads is killed."""

from __future__ import annotations

import asyncio
import faulthandler
import threading
import time
from typing import TYPE_CHECKING

import pytest

from pelton import ConsumerConfig, KeyValueConfig, ObjectStoreConfig, StreamConfig, connect, sync
from pelton.client.consume import ordered
from pelton.client.publishing import RETRY_S
from pelton.errors import NoRespondersError, PeltonError, StreamNotFoundError
from tests.client.everything import PATIENCE_S, UNUSED_S, Program, calling, sockets
from tests.client.shells import SHELLS, wait_for
from tests.nats_clusters import NatsCluster, running_cluster, wait_until_ready
from tests.peers import OLDEST, available_servers
from tests.ways import EVERY_WAY, FULL, SEED, length

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton import sync

pytestmark = [
    pytest.mark.peer,
    # One of 2.9 may leave the creation of a consumer without an answer after a leader is gone.
    pytest.mark.skipif("nats-server" not in available_servers(OLDEST), reason="no nats-server"),
]
MESSAGES = 20_000
ROUNDS = length(1, 8)
STREAMS = ("ALL", "KV_b", "OBJ_o")


@pytest.fixture(scope="module")
def cluster() -> Iterator[NatsCluster]:
    with running_cluster() as started:
        yield started


@pytest.fixture
def client(cluster: NatsCluster) -> Iterator[sync.Client]:
    """With a stream of three replicas, S, and all servers up."""
    with sync.connect(cluster.urls) as connected:
        wait_until_ready(connected)
        connected.jetstream(timeout=20).create_stream(
            StreamConfig(name="S", subjects=["s.>"], num_replicas=3)
        )
        cluster.revive(connected, "S")
        yield connected
        cluster.revive(connected, "S")
        remove(connected, "S")


def remove(client: sync.Client, stream: str) -> None:
    """Until it is gone: who leads all may have changed just now, and the call was lost."""
    for _ in range(10):
        try:
            client.jetstream(timeout=3).delete_stream(stream)
            return
        except StreamNotFoundError:
            return
        except PeltonError:
            wait_until_ready(client)
    raise AssertionError(f"stream {stream} cannot be deleted")


def fill(client: sync.Client) -> None:
    with client.jetstream().publisher() as publisher:
        for number in range(MESSAGES):
            publisher.publish("s.a", b"%d" % number)


@EVERY_WAY
def test_publishing_goes_on_with_the_next_leader(cluster: NatsCluster, client: sync.Client) -> None:
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


def test_a_subject_without_a_stream_is_told_in_time(client: sync.Client) -> None:
    begun = time.monotonic()
    with pytest.raises(NoRespondersError):
        client.jetstream().publish("nobody", b"x", timeout=2 * RETRY_S)
    assert time.monotonic() - begun >= RETRY_S


@EVERY_WAY
def test_one_message_waits_for_a_leader(cluster: NatsCluster, client: sync.Client) -> None:
    js = client.jetstream(timeout=20)
    cluster.kill_leader(client, "S")
    with_id = 0
    while True:
        try:  # the first one may have been under way to the server that was killed
            assert js.publish("s.a", b"x", msg_id="one").stream == "S"
            break
        except PeltonError:
            with_id += 1
            assert with_id == 1
    assert js.stream_info("S").state.messages == 1


@EVERY_WAY
def test_an_ordered_reader_sees_all_once(cluster: NatsCluster, client: sync.Client) -> None:
    fill(client)
    with client.jetstream().ordered_consumer("S").consume() as messages:
        for seen, message in enumerate(messages, 1):
            assert message.metadata.stream_seq == seen
            if seen == MESSAGES // 2:
                cluster.kill_leader(client, "S")
            if seen == MESSAGES:
                break


@EVERY_WAY
@pytest.mark.parametrize("way", ["fetch", "messages"])
def test_a_consumer_with_acks_gives_all(
    cluster: NatsCluster, client: sync.Client, way: str
) -> None:
    fill(client)
    js = client.jetstream(timeout=20)
    js.create_consumer("S", ConsumerConfig(durable_name="D", max_ack_pending=MESSAGES))
    pull = js.consumer("S", "D")
    seen: set[int] = set()
    killed = False

    def endless() -> Iterator[list[int]]:
        if way == "messages":
            with pull.consume() as messages:
                for message in messages:
                    message.ack()
                    yield [message.metadata.stream_seq]
        while True:
            try:
                batch = pull.fetch(500, timeout=20)
            except PeltonError:
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
def test_the_same_with_asyncio(cluster: NatsCluster, client: sync.Client) -> None:
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
            async with aio.jetstream().ordered_consumer("S").consume() as messages:
                async for message in messages:
                    seen += 1
                    assert message.metadata.stream_seq == seen
                    if seen == MESSAGES // 2:
                        await asyncio.to_thread(cluster.kill_leader, client, "S")
                    if seen == MESSAGES:
                        break

    asyncio.run(asyncio.wait_for(main(), 120))


# -- everything at once ---------------------------------------------------------------------------


@pytest.fixture
def admin(cluster: NatsCluster) -> Iterator[sync.Client]:
    with sync.connect(cluster.urls, timeout=10, reconnect_wait=0.05) as client:
        wait_until_ready(client)
        js = client.jetstream(timeout=10)
        calling(
            lambda: js.create_stream(StreamConfig(name="ALL", subjects=["all.>"], num_replicas=3))
        )
        calling(lambda: js.create_key_value(KeyValueConfig(bucket="b", replicas=3)))
        calling(lambda: js.create_object_store(ObjectStoreConfig(bucket="o", replicas=3)))
        for name in ("consume", "fetch"):
            config = ConsumerConfig(durable_name=name, ack_wait=3, max_ack_pending=5000)
            calling(lambda config=config: js.create_consumer("ALL", config))
        yield client
        for stream in STREAMS:
            cluster.revive(client, stream)
            calling(lambda stream=stream: js.delete_stream(stream))


def disturb(cluster: NatsCluster, admin: sync.Client, program: Program, stream: str) -> None:
    """Let leaders step down, then kill the one of a stream and start it again; each time all goes on."""
    js = admin.jetstream(timeout=5)

    def goes_on() -> None:
        held = set(program.acked), len(program.written), program.objects
        reached = len(held[0]) + 100

        def further() -> bool:
            return len(program.acked) >= reached and held[0] <= program.consumed & program.fetched

        deadline = time.monotonic() + PATIENCE_S
        while not further():
            assert not program.errors, program.errors
            if time.monotonic() > deadline:
                faulthandler.dump_traceback()
                raise AssertionError(f"not all is seen: {program.state()}")
            time.sleep(0.01)

    goes_on()
    calling(lambda: js.step_down_stream("ALL"))
    calling(lambda: js.step_down_consumer("ALL", "consume"))
    goes_on()
    cluster.kill_leader(admin, stream)
    goes_on()
    cluster.revive(admin, stream)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("shell", SHELLS if FULL else [SHELLS[SEED % 2]])
def test_all_is_seen_while_leaders_change(
    cluster: NatsCluster, admin: sync.Client, shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordered, "INACTIVE_THRESHOLD_S", UNUSED_S)  # of watches
    before = threading.active_count(), sockets()
    program = Program(shell, cluster.urls)
    for each in program.threads:
        each.start()
    for number in range(ROUNDS):
        disturb(cluster, admin, program, STREAMS[number % 3])
    program.over.set()
    program.join()
    state = admin.jetstream(timeout=10).stream_info("ALL").state
    assert program.ordered == list(range(1, state.last_seq + 1))
    assert state.messages == len(program.acked)  # each once, by its id
    assert program.acked == program.consumed == program.fetched
    assert program.revisions == sorted(set(program.revisions))
    assert program.objects
    assert {"next", "reset"} & program.told

    def left() -> list[str]:
        js = admin.jetstream(timeout=10)
        return [name for stream in STREAMS for name in js.consumer_names(stream)]

    # A consumer whose creation was answered by nobody ends when it has been unused for some time.
    wait_for(lambda: left() == ["consume", "fetch"], left)
    wait_for(lambda: threading.active_count() <= before[0] and sockets() <= before[1])
