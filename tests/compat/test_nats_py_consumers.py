"""Consumers of the official Python client, pull and push, against our server and nats-server."""

import asyncio
from datetime import UTC, datetime

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
)
from nats.js.errors import NotFoundError

from tests.compat.scenarios import bodies, scenario, store, take

# --- pull consumers -------------------------------------------------------------------------------


@scenario
async def test_a_consumer_reports_its_config_and_state(client: Client, name: str) -> None:
    js = await store(client, name, 5)
    sub = await js.pull_subscribe(f"{name}.>", durable="d", stream=name)
    await (await sub.fetch(2, timeout=5))[0].ack_sync()
    info = await sub.consumer_info()
    config = info.config
    assert (info.stream_name, info.name, config.durable_name) == (name, "d", "d")
    assert (config.ack_policy, config.deliver_policy, config.replay_policy) == (
        "explicit",
        "all",
        "instant",
    )
    assert (config.ack_wait, config.max_deliver, config.max_ack_pending) == (30, -1, 1000)
    assert (config.max_waiting, config.filter_subject) == (512, f"{name}.>")
    assert (info.delivered.consumer_seq, info.delivered.stream_seq) == (2, 2)
    assert (info.ack_floor.consumer_seq, info.ack_floor.stream_seq) == (1, 1)
    assert (info.num_ack_pending, info.num_redelivered, info.num_pending) == (1, 0, 3)
    assert [c.name for c in await js.consumers_info(name)] == ["d"]
    assert await js.delete_consumer(name, "d")
    with pytest.raises(NotFoundError) as caught:
        await js.consumer_info(name, "d")
    assert caught.value.err_code == 10014


@scenario
async def test_fetched_messages_carry_their_place(client: Client, name: str) -> None:
    js = await store(client, name, 4)
    sub = await js.pull_subscribe(f"{name}.0", durable="d", stream=name)
    first, second = await sub.fetch(2, timeout=5)
    assert bodies([first, second]) == [b"m1", b"m4"]
    meta = second.metadata
    assert (meta.stream, meta.consumer, meta.num_delivered, meta.num_pending) == (name, "d", 1, 0)
    assert (meta.sequence.stream, meta.sequence.consumer) == (4, 2)
    assert abs((datetime.now(UTC) - meta.timestamp).total_seconds()) < 60


@scenario
async def test_a_fetch_gets_what_there_is_and_waits_for_more(client: Client, name: str) -> None:
    js = await store(client, name, 3)
    sub = await js.pull_subscribe(f"{name}.>", durable="d", stream=name)
    assert bodies(await sub.fetch(10, timeout=5)) == [b"m1", b"m2", b"m3"]
    with pytest.raises(nats.errors.TimeoutError):
        await sub.fetch(1, timeout=0.2)
    waiting = asyncio.create_task(sub.fetch(1, timeout=10))
    await client.flush()
    await js.publish(f"{name}.0", b"late")
    assert bodies(await waiting) == [b"late"]


@scenario
async def test_two_fetchers_share_a_consumer(client: Client, name: str) -> None:
    js = await store(client, name, 40)
    subs = [await js.pull_subscribe(f"{name}.>", durable="d", stream=name) for _ in range(2)]
    got: list[Msg] = []
    for _ in range(10):
        for sub in subs:
            got += await sub.fetch(2, timeout=5)
    assert sorted(m.metadata.sequence.stream for m in got) == list(range(1, 41))
    for msg in got[:-1]:
        await msg.ack()
    await got[-1].ack_sync()
    info = await subs[0].consumer_info()
    assert (info.num_ack_pending, info.ack_floor.stream_seq) == (0, 40)


@scenario
async def test_what_is_not_acked_comes_again(client: Client, name: str) -> None:
    js = await store(client, name, 2)
    config = ConsumerConfig(ack_wait=0.3)
    sub = await js.pull_subscribe(f"{name}.>", durable="d", stream=name, config=config)
    first, second = await sub.fetch(2, timeout=5)
    await second.ack_sync()
    (again,) = await sub.fetch(1, timeout=5)
    assert (again.data, again.metadata.num_delivered) == (b"m1", 2)
    assert (again.metadata.sequence.stream, again.metadata.sequence.consumer) == (1, 3)
    info = await sub.consumer_info()
    assert (info.num_redelivered, info.num_ack_pending) == (1, 1)
    await first.ack_sync()  # the ack of an earlier delivery counts
    assert (await sub.consumer_info()).ack_floor.stream_seq == 2


@scenario
async def test_a_nak_brings_it_back_now_or_later(client: Client, name: str) -> None:
    js = await store(client, name, 2)
    sub = await js.pull_subscribe(f"{name}.>", durable="d", stream=name)
    first, second = await sub.fetch(2, timeout=5)
    loop = asyncio.get_running_loop()
    begin = loop.time()
    await first.nak(delay=0.4)
    await second.nak()
    (soon,) = await sub.fetch(1, timeout=5)
    assert (soon.data, soon.metadata.num_delivered) == (b"m2", 2)
    (late,) = await sub.fetch(1, timeout=5)
    assert (late.data, late.metadata.num_delivered) == (b"m1", 2)
    assert loop.time() - begin >= 0.39


@scenario
async def test_term_ends_redelivery(client: Client, name: str) -> None:
    js = await store(client, name, 1)
    config = ConsumerConfig(ack_wait=0.2)
    sub = await js.pull_subscribe(f"{name}.>", durable="d", stream=name, config=config)
    (message,) = await sub.fetch(1, timeout=5)
    await message.term()
    with pytest.raises(nats.errors.TimeoutError):
        await sub.fetch(1, timeout=0.6)
    info = await sub.consumer_info()
    assert (info.num_ack_pending, info.ack_floor.stream_seq) == (0, 1)


@scenario
async def test_work_in_progress_holds_redelivery_off(client: Client, name: str) -> None:
    js = await store(client, name, 1)
    config = ConsumerConfig(ack_wait=0.5)
    sub = await js.pull_subscribe(f"{name}.>", durable="d", stream=name, config=config)
    (message,) = await sub.fetch(1, timeout=5)
    for _ in range(3):
        with pytest.raises(nats.errors.TimeoutError):
            await sub.fetch(1, timeout=0.25)
        await message.in_progress()
    await message.ack_sync()
    assert (await sub.consumer_info()).num_redelivered == 0


@scenario
async def test_max_deliver_gives_up(client: Client, name: str) -> None:
    js = await store(client, name, 2)
    config = ConsumerConfig(ack_wait=0.2, max_deliver=2)
    sub = await js.pull_subscribe(f"{name}.0", durable="d", stream=name, config=config)
    counts = [(await sub.fetch(1, timeout=5))[0].metadata.num_delivered for _ in range(2)]
    assert counts == [1, 2]
    with pytest.raises(nats.errors.TimeoutError):
        await sub.fetch(1, timeout=0.6)


@scenario
async def test_ack_all_acks_everything_before(client: Client, name: str) -> None:
    js = await store(client, name, 5)
    config = ConsumerConfig(ack_policy=AckPolicy.ALL)
    sub = await js.pull_subscribe(f"{name}.>", durable="d", stream=name, config=config)
    messages = await sub.fetch(5, timeout=5)
    await messages[3].ack_sync()
    info = await sub.consumer_info()
    assert (info.num_ack_pending, info.ack_floor.stream_seq) == (1, 4)


@scenario
async def test_max_ack_pending_holds_delivery(client: Client, name: str) -> None:
    js = await store(client, name, 5)
    config = ConsumerConfig(max_ack_pending=2)
    sub = await js.pull_subscribe(f"{name}.>", durable="d", stream=name, config=config)
    held = await sub.fetch(2, timeout=5)
    assert bodies(held) == [b"m1", b"m2"]
    with pytest.raises(nats.errors.TimeoutError):
        await sub.fetch(1, timeout=0.3)
    await held[0].ack()
    assert bodies(await sub.fetch(1, timeout=5)) == [b"m3"]


@scenario
async def test_a_consumer_starts_where_it_is_told(client: Client, name: str) -> None:
    js = await store(client, name, 6)
    policies: dict[str, tuple[ConsumerConfig, list[bytes]]] = {
        "last": (ConsumerConfig(deliver_policy=DeliverPolicy.LAST), [b"m6"]),
        "new": (ConsumerConfig(deliver_policy=DeliverPolicy.NEW), []),
        "sequence": (
            ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=5),
            [b"m5", b"m6"],
        ),
        "last_per_subject": (
            ConsumerConfig(deliver_policy=DeliverPolicy.LAST_PER_SUBJECT),
            [b"m4", b"m5", b"m6"],
        ),
    }
    subs = {
        key: await js.pull_subscribe(f"{name}.>", durable=key, stream=name, config=config)
        for key, (config, _) in policies.items()
    }
    await js.publish(f"{name}.9", b"after")
    for key, (_, expected) in policies.items():
        assert bodies(await subs[key].fetch(10, timeout=5)) == [*expected, b"after"], key


# --- push consumers -------------------------------------------------------------------------------


@scenario
async def test_a_push_consumer_delivers_and_is_acked(client: Client, name: str) -> None:
    js = await store(client, name, 20)
    sub = await js.subscribe(f"{name}.>", durable="p", stream=name, manual_ack=True)
    messages = await take(sub, 20)
    assert bodies(messages) == [b"m%d" % i for i in range(1, 21)]
    await js.publish(f"{name}.0", b"m21")
    messages += await take(sub, 1)
    for message in messages[:-1]:
        await message.ack()
    await messages[-1].ack_sync()
    info = await sub.consumer_info()
    assert (info.num_ack_pending, info.ack_floor.stream_seq, info.push_bound) == (0, 21, True)


@scenario
async def test_a_push_consumer_delivers_again(client: Client, name: str) -> None:
    js = await store(client, name, 1)
    config = ConsumerConfig(ack_wait=0.3)
    sub = await js.subscribe(f"{name}.>", durable="p", stream=name, manual_ack=True, config=config)
    counts = [m.metadata.num_delivered for m in await take(sub, 3)]
    assert counts == [1, 2, 3]


@scenario
async def test_a_deliver_group_shares_a_push_consumer(client: Client, name: str) -> None:
    js = await store(client, name, 0)
    subs = [await js.subscribe(f"{name}.>", queue="group", stream=name) for _ in range(2)]
    for i in range(100):
        await js.publish(f"{name}.{i % 3}", b"%d" % i)
    bystander = await js.subscribe(f"{name}.>", ordered_consumer=True)
    assert len(await take(bystander, 100)) == 100
    await client.flush()
    shares = [sub.pending_msgs for sub in subs]
    assert sum(shares) == 100
    assert min(shares) > 0


@scenario
async def test_an_ordered_consumer_reads_everything_in_order(client: Client, name: str) -> None:
    js = await store(client, name, 300)
    sub = await js.subscribe(f"{name}.>", ordered_consumer=True)
    messages = await take(sub, 300)
    assert [m.metadata.sequence.stream for m in messages] == list(range(1, 301))
    assert bodies(messages)[-1] == b"m300"


@scenario
async def test_headers_only_leaves_the_body_out(client: Client, name: str) -> None:
    js = await store(client, name, 1)
    sub = await js.subscribe(f"{name}.>", stream=name, headers_only=True)
    (message,) = await take(sub, 1)
    assert (message.data, message.headers) == (b"", {"Nats-Msg-Size": "2"})
