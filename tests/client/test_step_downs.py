"""Calls while the leaders of three nats-servers step down: nothing is lost, and nothing is stored twice.

A server that is just stepping down may leave a request without an answer. Whatever may be sent twice the client sends
again by itself; the program repeats only what is left, which it may: a pull request, and an atomic batch.
"""

from __future__ import annotations

import itertools
import random
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from pelton import ConsumerConfig, KeyValueConfig, ObjectStoreConfig, StreamConfig
from pelton.errors import ApiError, PeltonTimeoutError
from pelton.sync import connect
from tests.client.everything import calling
from tests.client.features import knows
from tests.client.shells import connected, wait_for
from tests.nats_clusters import NatsCluster, running_cluster, wait_until_ready
from tests.peers import OLDEST, available_servers
from tests.ways import SEED, length

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pelton.sync import Client

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif("nats-server" not in available_servers(OLDEST), reason="no nats-server"),
]
STEPS = length(4, 120)
"""Leaders that step down, at least."""
TIMEOUT_S = 20
PAUSE_S = 0.3
ATTEMPTS_MAX = 20
DUPLICATE = 10201
"""Error code: a message of an atomic batch has an id that the stream has already."""
STREAMS = ("S", "KV_b", "OBJ_o")
ATOMIC = knows("nats-server", "allow_atomic")


@pytest.fixture(scope="module")
def cluster() -> Iterator[NatsCluster]:
    with running_cluster() as started:
        yield started


@pytest.fixture
def admin(cluster: NatsCluster) -> Iterator[Client]:
    three: dict[str, Any] = {"num_replicas": 3, "storage": "memory"}
    with connect(cluster.urls) as client:
        wait_until_ready(client)
        js = client.jetstream(timeout=20)
        js.create_stream(StreamConfig(name="S", subjects=["s.>"], allow_atomic=ATOMIC, **three))
        js.create_consumer("S", ConsumerConfig(durable_name="c"))
        js.create_key_value(KeyValueConfig(bucket="b", replicas=3, storage="memory"))
        js.create_object_store(ObjectStoreConfig(bucket="o", replicas=3, storage="memory"))
        yield client
        for stream in STREAMS:
            calling(lambda stream=stream: js.delete_stream(stream))


@contextmanager
def unrest(admin: Client) -> Iterator[list[str]]:
    """Leaders step down until the block ends; yields those of which did."""
    js = admin.jetstream(timeout=5)
    over = threading.Event()
    stepped: list[str] = []

    def disturb() -> None:
        while True:
            for stream in STREAMS:
                calling(lambda stream=stream: js.step_down_stream(stream))
                stepped.append(stream)
                if over.wait(PAUSE_S):
                    return
            calling(lambda: js.step_down_consumer("S", "c"))

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        yield stepped
    finally:
        over.set()
        thread.join()


def again(call: Callable[[], Any]) -> Any:
    """The result of a call that may be made twice."""
    for _ in range(ATTEMPTS_MAX):
        try:
            return call()
        except PeltonTimeoutError:
            continue
    raise AssertionError("no answer in time")


def store_together(js: Any, bodies: list[bytes]) -> None:
    """An atomic batch, with ids. Its leader has gone: that is an error of the API, and nothing is stored."""
    for _ in range(ATTEMPTS_MAX):
        batch = js.atomic_batch(timeout=2)
        try:
            for body in bodies:
                batch.add("s.batch", body, msg_id=body.decode())
            assert batch.commit().count == len(bodies)
        except (ApiError, PeltonTimeoutError) as error:
            if isinstance(error, ApiError) and error.err_code == DUPLICATE:
                return  # it is stored, and its answer was lost
            continue
        return
    raise AssertionError("no batch in time")


def test_all_is_there_once(cluster: NatsCluster, admin: Client, shell: str) -> None:
    dice = random.Random(SEED)
    fetched: list[bytes] = []
    published: list[bytes] = []
    with unrest(admin) as stepped, connected(shell, cluster.urls, timeout=TIMEOUT_S) as client:
        js = client.jetstream()
        consumer, bucket, store = js.consumer("S", "c"), js.key_value("b"), js.object_store("o")

        def take(most: int) -> None:
            for message in again(lambda: consumer.fetch(most, timeout=1)):
                message.ack_sync()
                fetched.append(message.data)

        revision = bucket.create("key", b"")
        for number in itertools.count():
            if len(stepped) >= STEPS:
                break
            bodies = [b"%d.%d" % (number, each) for each in range(3)]
            for body in bodies[: 1 if ATOMIC else 3]:
                js.publish("s.one", body, msg_id=body.decode())
            if ATOMIC:
                store_together(js, bodies[1:])
            published += bodies
            revision = bucket.update("key", bodies[0], revision)
            data = dice.randbytes(300_000)
            store.put("o", data)
            # a follower that answers may still have the object before
            wait_for(lambda data=data: store.get("o") == data)
            take(3)
        while len(set(fetched)) < len(published):
            take(100)
        assert set(fetched) == set(published)
        wait_for(lambda: bucket.get("key").value == published[-3])
    assert set(stepped) == set(STREAMS)
    assert admin.jetstream().stream_info("S").state.messages == len(published)
