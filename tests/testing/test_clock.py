"""Time that a test moves: redeliveries, expiries and schedules, beside models."""

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton import (
    ConsumerConfig,
    ConsumerNotFoundError,
    MessageNotFoundError,
    StreamConfig,
    testing,
)
from tests.client.shells import SHELLS, Waited, connected

WAIT = 30


@pytest.fixture
def broker():
    with testing.broker(clock="manual") as made:
        yield made


@pytest.fixture(params=SHELLS)
def client(request, broker):
    with connected(request.param, broker.memory_url) as made:
        yield made


def orders(client, **config):
    js = client.jetstream()
    js.create_stream(StreamConfig(name="ORDERS", subjects=["orders.>"], **config))
    return js


def test_time_stands_still(broker):
    before = broker.clock.now_ns
    with broker.connect_sync() as client:
        js = orders(client)
        js.publish("orders.a")
        js.publish("orders.b")
        first, second = js.get_message("ORDERS", 1), js.get_message("ORDERS", 2)
    assert first.timestamp_ns == second.timestamp_ns
    assert broker.clock.now_ns == before
    assert abs(broker.clock.now - datetime.now(UTC)) < timedelta(hours=1)


def test_blocking_acks_are_sent_before_the_broker_is_asked(broker):
    """Also those in quick succession, which wait for others on their way to a server elsewhere."""
    with broker.connect_sync() as client:
        js = orders(client)
        js.create_consumer("ORDERS", ConsumerConfig(durable_name="packing", ack_wait=WAIT))
        for number in range(20):
            js.publish(f"orders.{number}")
        for message in js.consumer("ORDERS", "packing").fetch(20):
            message.ack()
            assert client._connection.bytes_waiting == 0
        broker.assert_acked("ORDERS", "packing", 20)


def test_a_message_comes_again_after_its_ack_wait(broker, client):
    js = orders(client)
    js.create_consumer("ORDERS", ConsumerConfig(durable_name="packing", ack_wait=WAIT))
    js.publish("orders.new", b"42 bolts")
    pull = js.consumer("ORDERS", "packing")
    (first,) = pull.fetch(1)
    assert first.metadata.delivered == 1
    broker.clock.advance(WAIT - 0.001)
    assert pull.fetch(1, no_wait=True) == []
    broker.clock.advance("1ms")
    (again,) = pull.fetch(1, no_wait=True)
    assert again.metadata.delivered == 2
    again.ack()
    broker.assert_acked("ORDERS", "packing", 1)
    broker.assert_redelivered("ORDERS", "packing", 1, times=1)
    broker.clock.advance(timedelta(hours=1))
    assert pull.fetch(1, no_wait=True) == []


def test_a_wait_for_messages_ends_by_either_clock(broker, client):
    """The client's timeout is of the machine; nothing is left that would take a later message."""
    js = orders(client)
    js.create_consumer("ORDERS", ConsumerConfig(durable_name="packing", ack_wait=WAIT))
    packing = js.consumer("ORDERS", "packing")
    assert packing.next(timeout=0.05) is None
    assert packing.fetch(10, timeout=0.05) == []
    assert js.consumer("ORDERS", "packing").fetch(2, timeout=0.05) == []
    assert packing.info().num_waiting == 0
    js.publish("orders.new", b"42 bolts")
    assert [each.metadata.delivered for each in packing.fetch(1, timeout=30)] == [1]
    broker.clock.advance(WAIT)
    assert packing.next(timeout=30).metadata.delivered == 2
    with broker.connect_sync() as other, ThreadPoolExecutor() as pool:
        waiting = pool.submit(other.jetstream().consumer("ORDERS", "packing").next, 1800)
        while not packing.info().num_waiting:
            pass
        broker.clock.advance(WAIT)
        message = waiting.result(60)
        assert message.metadata.delivered == 3
        message.ack_sync()
        waiting = pool.submit(other.jetstream().consumer("ORDERS", "packing").fetch, 1, timeout=20)
        while not packing.info().num_waiting:
            pass
        broker.clock.advance(20)
        assert waiting.result(60) == []


def test_a_push_consumer_gets_every_redelivery_at_its_time(broker):
    async def scenario():
        async with broker.connect() as nc:
            js = nc.jetstream()
            await js.create_stream(StreamConfig(name="S"))
            heard = await nc.subscribe("heard")
            config = ConsumerConfig(
                durable_name="c", deliver_subject="heard", ack_wait=10, max_deliver=4
            )
            await js.create_consumer("S", config)
            await js.publish("S", b"x")
            start_ns = broker.clock.now_ns
            broker.clock.advance(100)
            times = [(await heard.next()).metadata.delivered for _ in range(4)]
            await nc.flush()
            return times, start_ns

    times, start_ns = asyncio.run(scenario())
    assert times == [1, 2, 3, 4]
    sent = [(each.time_ns - start_ns) // 1_000_000_000 for each in broker.delivered]
    assert sent == [0, 10, 20, 30]


def test_a_pull_request_ends_in_time_of_the_broker(broker):
    async def scenario():
        async with broker.connect() as nc:
            js = nc.jetstream()
            await js.create_stream(StreamConfig(name="S"))
            await js.create_consumer("S", ConsumerConfig(durable_name="c"))
            inbox = await nc.subscribe("answers")
            await nc.publish(
                "$JS.API.CONSUMER.MSG.NEXT.S.c", b'{"expires":5000000000}', reply="answers"
            )
            await nc.flush()
            broker.clock.advance(4.9)
            await nc.flush()
            early = inbox.pending
            broker.clock.advance(0.2)
            return early, (await inbox.next()).status

    assert asyncio.run(scenario()) == (0, 408)


def test_an_inactive_consumer_is_removed(broker, client):
    js = orders(client)
    config = ConsumerConfig(name="temporary", inactive_threshold=60)
    js.create_consumer("ORDERS", config)
    broker.clock.advance(59)
    js.consumer_info("ORDERS", "temporary")
    broker.clock.advance(2)
    with pytest.raises(ConsumerNotFoundError):
        js.consumer_info("ORDERS", "temporary")


def test_message_ids_are_forgotten_after_the_window(broker, client):
    js = orders(client, duplicate_window=120)
    assert not js.publish("orders.a", msg_id="1").duplicate
    broker.clock.advance(119)
    assert js.publish("orders.a", msg_id="1").duplicate
    broker.clock.advance(2)
    assert not js.publish("orders.a", msg_id="1").duplicate


def test_a_schedule_fires_each_time(broker, client):
    js = orders(client, allow_msg_schedules=True)
    headers = {"Nats-Schedule": "@every 10s", "Nats-Schedule-Target": "orders.tick"}
    js.publish("orders.schedule", b"tick", headers=headers)
    start_ns = js.get_message("ORDERS", 1).timestamp_ns
    broker.clock.advance(35)
    found = []
    for seq in range(2, js.stream_info("ORDERS").state.last_seq + 1):
        message = js.get_message("ORDERS", seq)
        if message.subject == "orders.tick":
            found.append((message.timestamp_ns - start_ns) / 1e9)
    assert len(found) == 3
    assert all(abs(span - want) < 1 for span, want in zip(found, (10, 20, 30), strict=True))


@pytest.mark.parametrize("shell", SHELLS)
def test_a_delay_counts_by_the_clock_of_the_broker(broker, shell):
    """Of a client that the broker made; to the second, as the protocol has it."""
    broker.clock.advance(timedelta(days=30))

    def fires(js):
        js.create_stream(StreamConfig(name="S", subjects=["s.>"], allow_msg_schedules=True))
        js.schedule("s.plan", b"x", target="s.due", delay="1h")
        broker.clock.advance(3590)
        assert js.stream_info("S").state.num_subjects == 1
        broker.clock.advance(10)
        assert js.get_message("S", last_by_subject="s.due").data == b"x"

    if shell == "blocking":
        with broker.connect_sync() as client:
            fires(client.jetstream())
        return
    with asyncio.Runner() as runner:

        async def opened():
            return await broker.connect()

        with Waited(runner.run(opened()), runner.get_loop()) as client:
            fires(client.jetstream())


def test_years_pass_at_once(broker, client):
    js = orders(client, max_age=86_400)
    js.publish("orders.a")
    broker.clock.advance(timedelta(days=3650))
    assert js.stream_info("ORDERS").state.messages == 0
    js.publish("orders.a")  # and the client was not disconnected as silent
    assert client.reconnects == 0


def test_the_clock_of_the_machine_does_not_move():
    with testing.broker() as broker:
        assert not broker.clock.manual
        with pytest.raises(testing.ClockNotManualError, match='clock="manual"'):
            broker.clock.advance(1)


def test_time_does_not_go_back(broker):
    with pytest.raises(ValueError, match="-1"):
        broker.clock.advance(-1)


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 3)),
        st.tuples(st.just("fetch"), st.integers(1, 4)),
        st.tuples(st.just("ack"), st.integers(0, 9)),
        st.tuples(st.just("nak"), st.integers(0, 9)),
        st.tuples(st.just("advance"), st.integers(0, 25)),
    ),
    max_size=40,
)


@given(actions=ACTIONS)
@settings(max_examples=25, deadline=None)
def test_redelivery_beside_a_model(actions):
    """The model: a due time for each delivered message that is not acknowledged."""
    with testing.broker(clock="manual") as broker, broker.connect_sync() as client:
        js = orders(client)
        js.create_consumer("ORDERS", ConsumerConfig(durable_name="c", ack_wait=20))
        pull = js.consumer("ORDERS", "c")
        now = last = handed = 0
        due: dict[int, int] = {}  # sequence -> when it is delivered again
        counts: dict[int, int] = {}
        held = {}  # sequence -> the newest delivery
        for action, number in actions:
            if action == "publish":
                for _ in range(number):
                    last += 1
                    assert js.publish("orders.x").seq == last
            elif action == "fetch":
                again = {seq for seq, at in due.items() if at <= now}
                got = pull.fetch(number, no_wait=True)
                seqs = [message.metadata.stream_seq for message in got]
                assert len(seqs) == min(number, len(again) + last - handed)
                old = [seq for seq in seqs if seq in counts]
                assert set(old) <= again
                assert len(old) == min(number, len(again))
                new = seqs[len(old) :]
                assert new == list(range(handed + 1, handed + 1 + len(new)))
                handed += len(new)
                for message, seq in zip(got, seqs, strict=True):
                    counts[seq] = counts.get(seq, 0) + 1
                    assert message.metadata.delivered == counts[seq]
                    due[seq] = now + 20
                    held[seq] = message
            elif action == "advance":
                broker.clock.advance(number)
                now += number
            elif held:
                seq = sorted(held)[number % len(held)]
                if action == "ack":
                    held.pop(seq).ack()
                    due.pop(seq)
                    broker.assert_acked("ORDERS", "c", seq)
                else:
                    held.pop(seq).nak()
                    due[seq] = now
                client.flush()
        info = js.consumer_info("ORDERS", "c")
        assert info.num_ack_pending == len(due)
        assert info.num_pending == last - handed
        for seq, count in counts.items():
            if count > 1:
                broker.assert_redelivered("ORDERS", "c", seq, times=count - 1)


@given(
    ages=st.lists(st.tuples(st.integers(0, 12), st.sampled_from([None, 3, 7, 30])), max_size=12),
    max_age=st.sampled_from([0, 5, 20]),
    last=st.integers(0, 40),
)
@settings(max_examples=25, deadline=None)
def test_expiry_beside_a_model(ages, max_age, last):
    """The model: a time of expiry for each message."""
    with testing.broker(clock="manual") as broker, broker.connect_sync() as client:
        js = orders(client, allow_msg_ttl=True, **({"max_age": max_age} if max_age else {}))
        now, ends = 0, []
        for wait, ttl in ages:
            js.publish("orders.x", ttl=ttl)
            life = min(filter(None, (ttl, max_age)), default=0)
            ends.append(now + life if life else None)
            broker.clock.advance(wait)
            now += wait
        broker.clock.advance(last)
        now += last
        alive = {seq for seq, end in enumerate(ends, 1) if end is None or end > now}
        assert js.stream_info("ORDERS").state.messages == len(alive)
        for seq in range(1, len(ends) + 1):
            if seq in alive:
                js.get_message("ORDERS", seq)
            else:
                with pytest.raises(MessageNotFoundError):
                    js.get_message("ORDERS", seq)


def produced(js):
    """How many messages schedules have produced, by their subjects."""
    found = Counter()
    for seq in range(1, js.stream_info("ORDERS").state.last_seq + 1):
        try:
            subject = js.get_message("ORDERS", seq).subject
        except MessageNotFoundError:
            continue
        if not subject.startswith("orders.plan."):
            found[subject] += 1
    return found


@given(
    at=st.lists(st.integers(1, 60), max_size=6),
    every=st.lists(st.integers(1, 20), max_size=3),
    waits=st.lists(st.integers(0, 30), max_size=4),
)
@settings(max_examples=25, deadline=None)
def test_schedules_beside_a_model(at, every, waits):
    """The model: the seconds at which each schedule produces a message."""
    with testing.broker(clock="manual") as broker, broker.connect_sync() as client:
        js = orders(client, allow_msg_schedules=True)
        start_ns = broker.clock.now_ns // 1_000_000_000 * 1_000_000_000 + 1_000_000_000
        broker.clock.advance((start_ns - broker.clock.now_ns) / 1e9)
        for number, second in enumerate(at):
            when = datetime.fromtimestamp(start_ns // 1_000_000_000 + second, UTC)
            schedule = f"@at {when.strftime('%Y-%m-%dT%H:%M:%SZ')}"
            headers = {"Nats-Schedule": schedule, "Nats-Schedule-Target": f"orders.at.{number}"}
            js.publish(f"orders.plan.at.{number}", b"", headers=headers)
        for number, period in enumerate(every):
            headers = {
                "Nats-Schedule": f"@every {period}s",
                "Nats-Schedule-Target": f"orders.every.{number}",
            }
            js.publish(f"orders.plan.every.{number}", b"", headers=headers)
        now = 0
        for wait in waits:
            broker.clock.advance(wait)
            now += wait
            found = produced(js)
            due = {f"orders.at.{number}": 1 for number, second in enumerate(at) if second <= now}
            due |= {
                f"orders.every.{number}": now // period
                for number, period in enumerate(every)
                if now // period
            }
            assert found == due
