"""Snapshots and the way back, beside what clients could see before."""

import tempfile

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from pelton import ApiError, ConsumerConfig, NoRespondersError, StreamConfig, testing
from tests.client.shells import SHELLS, connected


def seen(js):
    """All that a client can see of streams and consumers, without the time of the answer."""
    found = {}
    for name in js.stream_names():
        info = js.stream_info(name)
        messages = []
        for seq in range(1, info.state.last_seq + 1):
            try:
                messages.append(js.get_message(name, seq))
            except ApiError:
                messages.append(None)
        consumers = {}
        for consumer in js.consumer_names(name):
            about = js.consumer_info(name, consumer)
            consumers[consumer] = (
                about.config,
                about.delivered.consumer_seq,
                about.delivered.stream_seq,
                about.ack_floor.consumer_seq,
                about.ack_floor.stream_seq,
                about.num_ack_pending,
                about.num_redelivered,
                about.num_pending,
                about.created,
            )
        state = info.state
        if not state.messages:
            state = replace(
                state, last_ts=0
            )  # the time of a message that is gone: no backup has it
        found[name] = info.config, info.created, state, messages, consumers
    return found


NAMES = st.sampled_from(["A", "B", "C"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), NAMES, st.sampled_from(["file", "memory"])),
        st.tuples(st.just("delete"), NAMES, st.none()),
        st.tuples(st.just("publish"), NAMES, st.integers(1, 5)),
        st.tuples(st.just("remove"), NAMES, st.integers(1, 5)),
        st.tuples(st.just("purge"), NAMES, st.none()),
        st.tuples(st.just("consumer"), NAMES, st.booleans()),
        st.tuples(st.just("fetch"), NAMES, st.integers(1, 4)),
        st.tuples(st.just("ack"), NAMES, st.integers(1, 4)),
        st.tuples(st.just("advance"), NAMES, st.integers(0, 40)),
    ),
    max_size=15,
)


def do(broker, js, steps):
    for step, name, value in steps:
        try:
            if step == "create":
                js.create_stream(StreamConfig(name=name, subjects=[f"{name}.>"], storage=value))
            elif step == "delete":
                js.delete_stream(name)
            elif step == "publish":
                for number in range(value):
                    js.publish(f"{name}.x", b"%d" % number, headers={"N": str(number)}, timeout=20)
            elif step == "remove":
                js.delete_message(name, value)
            elif step == "purge":
                js.purge_stream(name)
            elif step == "consumer":
                config = ConsumerConfig(durable_name=f"c{value}", mem_storage=value, ack_wait=30)
                js.create_consumer(name, config)
            elif step in ("fetch", "ack"):
                consumers = js.consumer_names(name)
                for message in js.consumer(name, consumers[0]).fetch(value, no_wait=True):
                    if step == "ack":
                        message.ack()
                js.client.flush()
            else:
                broker.clock.advance(value)
        except (ApiError, IndexError, NoRespondersError):
            pass


PURGED = [
    ("create", "A", "file"),
    ("publish", "A", 1),
    ("consumer", "A", False),
    ("purge", "A", None),
]


@given(before=STEPS, after=STEPS, again=STEPS)
@example(before=PURGED, after=[], again=[])
@settings(max_examples=30, deadline=None)
def test_the_way_back_leads_to_what_was_seen(before, after, again):
    with testing.broker(clock="manual") as broker, broker.connect_sync() as client:
        js = client.jetstream()
        do(broker, js, before)
        time_ns = broker.clock.now_ns
        state = broker.snapshot()
        was = seen(js)
        do(broker, js, after)
        broker.rollback(state)
        assert seen(js) == was
        assert broker.clock.now_ns == time_ns
        assert broker.delivered == ()
        do(broker, js, again)
        broker.rollback(state)
        assert seen(js) == was


def test_a_snapshot_of_a_folder(tmp_path):
    with testing.broker(store=str(tmp_path)) as broker, broker.connect_sync() as client:
        js = client.jetstream()
        do(broker, js, [("create", "A", "file"), ("create", "B", "memory"), ("publish", "A", 3)])
        do(broker, js, [("publish", "B", 2), ("consumer", "A", False), ("ack", "A", 2)])
        state = broker.snapshot()
        was = seen(js)
        do(broker, js, [("delete", "A", None), ("purge", "B", None), ("create", "C", "file")])
        broker.rollback(state)
        assert seen(js) == was
        folder = state.folder
    assert folder.startswith(tempfile.gettempdir())


@pytest.mark.parametrize("shell", SHELLS)
def test_connections_and_subscriptions_stay(shell):
    with testing.broker() as broker, connected(shell, broker.memory_url) as client:
        heard = client.subscribe("a")
        client.flush()
        broker.rollback(broker.snapshot())
        client.publish("a", b"x")
        assert heard.next().data == b"x"
        assert client.reconnects == 0


def test_the_way_back_ends_faults_and_empties_the_record():
    with testing.broker(clock="manual") as broker, broker.connect_sync(timeout=20) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name="S"))
        state = broker.snapshot()
        broker.drop("S", times=None)
        broker.fill_disk()
        js.client.publish("S", b"lost")
        broker.assert_published("S")
        broker.rollback(state)
        broker.assert_not_published("S")
        assert js.publish("S", b"x").seq == 1


def test_time_goes_back_for_what_expires():
    with testing.broker(clock="manual") as broker, broker.connect_sync() as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name="S", max_age=3600))
        js.publish("S", b"x")
        state = broker.snapshot()
        for _ in range(3):
            broker.clock.advance(7200)
            assert js.stream_info("S").state.messages == 0
            broker.rollback(state)
            assert js.stream_info("S").state.messages == 1


def test_what_is_no_snapshot():
    with testing.broker() as each, pytest.raises(TypeError, match="what snapshot"):
        each.rollback("yesterday")
