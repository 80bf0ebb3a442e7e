"""The broker of a test: clients of every kind, faults, and what assertions say."""

import asyncio
import errno
import os
import threading

import nats
import pytest

from pelton import (
    ApiError,
    ConnectError,
    ConnectionLostError,
    ConsumerConfig,
    InvalidSubjectError,
    NoRespondersError,
    PeltonError,
    PeltonTimeoutError,
    StreamConfig,
    StreamNotFoundError,
    sync,
    testing,
)
from pelton.api import errors_generated
from tests.client.shells import SHELLS, connected


@pytest.fixture
def broker():
    with testing.broker(clock="manual") as made:
        yield made


@pytest.fixture(params=SHELLS)
def client(request, broker):
    with connected(request.param, broker.memory_url, name="tester", timeout=20) as made:
        yield made


def orders(client, **config):
    js = client.jetstream()
    js.create_stream(StreamConfig(name="ORDERS", subjects=["orders.>"], **config))
    return js


def reach(client):
    """Flush until there is a connection again."""
    while True:
        try:
            client.flush()
        except ConnectionLostError:
            continue
        return


def said(failing, *args, **kwargs):
    with pytest.raises(AssertionError) as caught:
        failing(*args, **kwargs)
    return str(caught.value)


# -- life ---------------------------------------------------------------------------------------------


def test_nats_py_uses_the_port():
    async def scenario():
        async with testing.broker(port=0, clock="manual") as broker:
            assert broker.url == f"nats://127.0.0.1:{broker.port}"
            far = await nats.connect(broker.url)
            js = far.jetstream()
            await js.add_stream(name="S", subjects=["s"])
            await js.add_consumer("S", durable_name="c", ack_wait=30)
            await js.publish("s", b"x")
            pull = await js.pull_subscribe_bind("c", "S")
            (first,) = await pull.fetch(1)
            broker.clock.advance(31)
            (again,) = await pull.fetch(1)
            await again.ack_sync()
            broker.assert_redelivered("S", "c", 1, times=1)
            broker.assert_acked("S", "c", 1)
            broker.assert_published("s", "x", times=1)
            await far.close()
            return first.metadata.num_delivered, again.metadata.num_delivered

    assert asyncio.run(scenario()) == (1, 2)


def test_a_broker_outlives_the_loop_of_a_test(broker):
    async def scenario(create):
        async with broker.connect() as nc:
            js = nc.jetstream()
            if create:
                await js.create_stream(StreamConfig(name="S"))
            return (await js.publish("S", b"x")).seq

    assert asyncio.run(scenario(True)) == 1
    assert asyncio.run(scenario(False)) == 2


def test_a_stopped_broker_starts_again_with_its_memory(broker):
    with broker.connect_sync() as client:
        orders(client).publish("orders.a", b"x")
    broker.stop()
    broker.stop()
    assert not broker.running
    with pytest.raises(RuntimeError, match="does not run"):
        broker.connect()
    broker.start()
    with pytest.raises(RuntimeError, match="runs already"):
        broker.start()
    with broker.connect_sync() as client:
        assert client.jetstream().get_message("ORDERS", 1).data == b"x"


def test_clients_find_a_broker_that_starts_again(client, broker):
    orders(client).publish("orders.a", b"x")
    broker.stop()
    broker.start()
    reach(client)
    assert client.reconnects == 1
    assert client.jetstream().get_message("ORDERS", 1).data == b"x"


def test_a_folder_is_a_store(tmp_path):
    with testing.broker(store=str(tmp_path)) as broker:
        with broker.connect_sync() as client:
            orders(client).publish("orders.a", b"x")
        for fault in (broker.fill_disk, lambda: broker.fail_disk("sync", errno.EIO)):
            with pytest.raises(testing.NoSimulatedDiskError, match='store="memory"'):
                fault()
    with testing.LocalServer(store=str(tmp_path)) as local, sync.connect(local.url) as client:
        assert client.jetstream().get_message("ORDERS", 1).data == b"x"


def test_bad_options_are_refused():
    with pytest.raises(ValueError, match="clock must be"):
        testing.broker(clock="fast")
    with pytest.raises(TypeError, match="no option colour"):
        testing.broker(colour="red")
    with pytest.raises(testing.StartFailedError, match="unknown option --bogus"):
        testing.broker(arguments=["--bogus"])
    with testing.broker(port=0) as broker:
        second = testing.broker(port=broker.port)
        with pytest.raises(testing.StartFailedError, match="port is taken"):
            second.start()


def test_the_plain_names_are_there():
    assert {"broker", "Broker", "Snapshot", "server"} <= set(testing.__all__)
    assert isinstance(testing.broker(), testing.Broker)
    with pytest.raises(AttributeError, match="no attribute 'Borker'"):
        getattr(testing, "Borker")  # noqa: B009 - the name is wrong on purpose


def test_threads_use_one_broker(broker):
    with broker.connect_sync() as client:
        orders(client)

    def work():
        with broker.connect_sync() as client:
            for _ in range(50):
                client.jetstream().publish("orders.x")
                broker.clock.advance(0.001)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    broker.assert_published("orders.x", times=200)


# -- assertions ---------------------------------------------------------------------------------------


def test_what_was_published(broker, client):
    client.publish("orders.new", b"42 bolts", headers={"Kind": "metal"})
    client.publish("orders.new", b"7 nuts")
    client.flush()
    broker.assert_published("orders.new")
    broker.assert_published("orders.*", times=2)
    broker.assert_published("orders.>", b"42 bolts", {"Kind": "metal"}, times=1)
    broker.assert_published("orders.new", "7 nuts")
    broker.assert_published("orders.new", lambda data: data.startswith(b"7"), times=1)
    broker.assert_published("orders.old", times=0)
    broker.assert_not_published("orders.old")
    broker.assert_not_published("orders.new", b"8 nuts")
    assert [message.client for message in broker.published] == ["tester", "tester"]
    broker.forget_record()
    broker.assert_not_published("orders.>")


def test_queued_messages_of_the_brokers_clients_are_seen(broker):
    with broker.connect_sync() as client:
        client.publish("a", b"1")
        broker.assert_published("a", b"1")

    async def scenario():
        async with broker.connect() as nc:
            await nc.publish("b", b"2")
            broker.assert_published("b", b"2")

    asyncio.run(scenario())


def test_a_failure_shows_what_differs(broker, client):
    client.publish("orders.new", b"42 bolts", headers={"Kind": "metal"})
    client.flush()
    text = said(broker.assert_published, "orders.new", b"43 bolts", {"Kind": "wood", "Size": "1"})
    assert text.splitlines()[0] == (
        "expected 'orders.new' with data b'43 bolts' with headers {'Kind': 'wood', 'Size': '1'} "
        "at least once, it was published never"
    )
    assert "with this subject, but different:" in text
    assert "data b'42 bolts'; Kind: metal; no header Size" in text


def test_a_failure_shows_the_nearest_subjects(broker, client):
    client.publish("orders.new", b"x")
    client.publish("weather", b"rain")
    client.flush()
    text = said(broker.assert_published, "order.new")
    assert "nearest subjects:\n  orders.new b'x' by tester" in text
    assert "weather" not in text
    text = said(broker.assert_published, "zzz", times=2)
    assert "expected 'zzz' twice, it was published never" in text
    assert "published were:" in text
    assert "weather b'rain'" in text


def test_a_failure_counts(broker, client):
    for _ in range(12):
        client.publish("a", b"z" * 200)
    client.flush()
    text = said(broker.assert_published, "a", times=2)
    assert "expected 'a' twice, it was published 12 times" in text
    assert "... 4 more before" in text
    assert "(200 bytes)" in text
    assert "published 12 times" in said(broker.assert_not_published, "a")


def test_a_failure_says_that_there_was_nothing(broker):
    assert said(broker.assert_published, "a").endswith("nothing was published")


def test_what_was_acked(broker, client):
    js = orders(client)
    js.create_consumer("ORDERS", ConsumerConfig(durable_name="packing", ack_wait=30))
    for _ in range(4):
        js.publish("orders.x")
    first, second, third = js.consumer("ORDERS", "packing").fetch(3)
    first.ack()
    second.nak(delay=10)
    third.term()
    client.flush()
    broker.assert_acked("ORDERS", "packing", 1)
    text = said(broker.assert_acked, "ORDERS", "packing", 2)
    assert text.startswith("expected message 2 of stream ORDERS to be acknowledged by packing")
    assert "delivered once\n    to tester" in text
    assert "answers of clients: -NAK by tester" in text
    assert "+TERM" in said(broker.assert_acked, "ORDERS", "packing", 3)
    assert "no client has answered it" in said(broker.assert_acked, "ORDERS", "packing", 4)
    assert "delivered never" in said(broker.assert_acked, "ORDERS", "packing", 4)
    text = said(broker.assert_redelivered, "ORDERS", "packing", 1)
    assert "it was redelivered never" in text
    assert "no stream ORDER; there are: ORDERS" in said(broker.assert_acked, "ORDER", "c", 1)
    assert "has no consumer c; it has: packing" in said(broker.assert_acked, "ORDERS", "c", 1)
    assert broker.acked[0].body == b"+ACK"
    assert len(broker.delivered) == 3


def test_an_ack_of_all_before_counts(broker, client):
    js = orders(client)
    js.create_consumer("ORDERS", ConsumerConfig(durable_name="c", ack_policy="all"))
    for _ in range(3):
        js.publish("orders.x")
    messages = js.consumer("ORDERS", "c").fetch(3)
    messages[1].ack()
    client.flush()
    broker.assert_acked("ORDERS", "c", 1)
    broker.assert_acked("ORDERS", "c", 2)
    said(broker.assert_acked, "ORDERS", "c", 3)


# -- faults -------------------------------------------------------------------------------------------


def test_a_message_is_lost(broker, client):
    js = orders(client)
    broker.drop("orders.a")
    client.publish("orders.a", b"lost")
    client.publish("orders.a", b"kept")
    client.flush()
    assert js.get_message("ORDERS", 1).data == b"kept"
    broker.assert_published("orders.a", b"lost")  # the client did publish it


def test_a_lost_publish_gets_no_ack(broker, client):
    js = orders(client)
    broker.drop("orders.>", times=None)
    with pytest.raises(PeltonTimeoutError):
        js.publish("orders.a", b"x", timeout=0.1)
    broker.heal()
    assert js.publish("orders.a", b"x").seq == 1


def test_a_message_is_late(broker, client):
    js = orders(client)
    heard = client.subscribe("orders.a")
    client.flush()
    broker.delay("orders.a", 5, times=1)
    client.publish("orders.a", b"late")
    client.publish("orders.a", b"in time")
    client.flush()
    assert heard.next().data == b"in time"
    broker.clock.advance(4.9)
    assert js.stream_info("ORDERS").state.messages == 1
    broker.clock.advance(0.1)
    assert heard.next().data == b"late"
    assert js.get_message("ORDERS", 2).data == b"late"


def test_a_late_message_with_the_clock_of_the_machine():
    with testing.broker() as broker, broker.connect_sync(timeout=20) as client:
        js = orders(client)
        broker.delay("orders.a", "10ms")
        assert js.publish("orders.a", b"x").seq == 1  # the ack comes with the message
        broker.delay("nobody", "10ms")
        with pytest.raises(NoRespondersError):
            client.request("nobody")


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (10059, StreamNotFoundError, "stream not found"),
        (errors_generated.StreamNotFoundError(), StreamNotFoundError, "stream not found"),
        (10049, ApiError, "injected by the test"),
        ("the moon is full", ApiError, "the moon is full"),
        (NoRespondersError, NoRespondersError, "no responders"),
    ],
)
def test_a_call_fails_once(broker, client, error, kind, text):
    js = orders(client)
    broker.fail_next("$JS.API.STREAM.INFO.*", error)
    with pytest.raises(kind, match=text):
        js.stream_info("ORDERS")
    assert js.stream_info("ORDERS").config.name == "ORDERS"


def test_a_publish_fails(broker, client):
    js = orders(client)
    broker.fail_next("orders.*", 10077)
    with pytest.raises(PeltonError, match=r"maximum messages exceeded|10077"):
        js.publish("orders.a", b"x")
    assert js.publish("orders.a", b"x").seq == 1


def test_bad_faults_are_refused(broker):
    with pytest.raises(ValueError, match="no API error 4711"):
        broker.fail_next("a", 4711)
    for wrong in (True, 1.5, ValueError("x")):
        with pytest.raises(TypeError, match="an error is an ApiError"):
            broker.fail_next("a", wrong)
    with pytest.raises(ValueError, match="times"):
        broker.drop("a", times=0)
    for pattern in ("", "a b", "a..b", ">.a"):
        for fault in (
            broker.drop,
            lambda it: broker.delay(it, 1),
            lambda it: broker.fail_next(it, "x"),
        ):
            with pytest.raises(InvalidSubjectError, match="faults"):
                fault(pattern)
    with pytest.raises(ValueError, match=r"no call 'sink'.*sync"):
        broker.fail_disk("sink", errno.EIO)


def test_a_subject_mapping_stays_below_a_fault(tmp_path):
    config = tmp_path / "server.conf"
    config.write_text("mappings { old: new }")
    with (
        testing.broker(arguments=["-c", str(config)]) as broker,
        broker.connect_sync() as client,
    ):
        heard = client.subscribe("new")
        broker.drop("new")
        client.publish("old", b"1")
        client.publish("old", b"2")
        assert heard.next().data == b"2"


@pytest.mark.parametrize("shell", SHELLS)
def test_a_partition_and_its_end(shell):
    with (
        testing.broker(port=0) as broker,
        connected(shell, broker.memory_url, timeout=20) as near,
        connected(shell, broker.url, timeout=20) as far,
    ):
        orders(near)
        broker.partition()
        for url in (broker.url, broker.memory_url):
            with pytest.raises(ConnectError):
                sync.connect(url, reconnect=False)
        broker.heal()
        for client in (near, far):
            reach(client)
            assert client.request("$JS.API.STREAM.NAMES").data.count(b"ORDERS") == 1
            assert client.reconnects == 1


def test_a_named_client_is_disconnected(broker):
    with (
        broker.connect_sync(name="one", reconnect=False) as one,
        broker.connect_sync(name="two", reconnect=False) as two,
    ):
        one.flush()
        two.flush()
        assert broker.disconnect("one") == 1
        two.flush()
        with pytest.raises(PeltonError):
            one.flush()
        assert broker.disconnect() == 1
        assert broker.disconnect("nobody") == 0


def test_a_request_under_way_fails_with_the_connection(broker):
    async def scenario():
        async with broker.connect() as nc:
            await nc.subscribe("slow")
            asked = asyncio.ensure_future(nc.request("slow", timeout=30))
            await nc.flush()
            broker.disconnect()
            with pytest.raises(ConnectionLostError):
                await asked

    asyncio.run(scenario())


def test_a_full_disk(broker, client):
    js = orders(client)
    assert js.publish("orders.a", b"x").seq == 1
    broker.fill_disk()
    with pytest.raises((ApiError, PeltonTimeoutError, PeltonError)):
        js.publish("orders.a", b"y" * 100_000, timeout=0.2)
    with pytest.raises(ApiError):
        js.create_stream(StreamConfig(name="OTHER"))
    assert js.get_message("ORDERS", 1).data == b"x"
    broker.heal()
    broker.clock.advance(30)
    js.publish("orders.a", b"z")
    js.create_stream(StreamConfig(name="OTHER"))


def test_a_failing_fsync(broker, client):
    js = orders(client)
    assert js.publish("orders.a", b"x").seq == 1
    broker.fail_disk("sync", errno.EIO, "*.seg")
    with pytest.raises((ApiError, PeltonTimeoutError)):
        js.publish("orders.a", b"y", timeout=0.2)
    broker.clock.advance(30)  # the server writes the segment anew
    last = js.publish("orders.a", b"z").seq
    assert js.get_message("ORDERS", last).data == b"z"


def test_faults_end_with_heal(broker, client):
    js = orders(client)
    broker.drop("a", times=None)
    broker.delay("orders.a", 60)
    client.publish("orders.a", b"held")
    client.flush()
    broker.heal()
    assert js.get_message("ORDERS", 1).data == b"held"
    heard = client.subscribe("a")
    client.publish("a", b"x")
    assert heard.next().data == b"x"


def test_no_file_of_the_machine_is_used(broker):
    with broker.connect_sync() as client:
        orders(client).publish("orders.a", b"x")
    assert not os.path.exists("/pelton-memory")
