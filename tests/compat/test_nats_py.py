"""The official Python client against our server and, where one is installed, against nats-server.

One body per scenario and the same expectation for both: what passes here is what a user of nats-py
gets. Here: core NATS, publishing, streams, restarts.
"""

import asyncio
from datetime import UTC, datetime

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DiscardPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.errors import APIError, BadRequestError, NoStreamResponseError, NotFoundError

from tests.compat.scenarios import bodies, connected, numbers, scenario, store, take
from tests.peers import ServerProcess

# --- core NATS ------------------------------------------------------------------------------------


@scenario
async def test_wildcards_select_subjects(client: Client, name: str) -> None:
    patterns = ["a.b", "a.*", "*.b", "a.>", ">"]
    subs = {p: await client.subscribe(f"{name}.{p}") for p in patterns}
    subjects = ["a.b", "a.c", "x.b", "a.b.c", "a"]
    for subject in subjects:
        await client.publish(f"{name}.{subject}", subject.encode())
    await client.flush()
    expected = {
        "a.b": [b"a.b"],
        "a.*": [b"a.b", b"a.c"],
        "*.b": [b"a.b", b"x.b"],
        "a.>": [b"a.b", b"a.c", b"a.b.c"],
        ">": [s.encode() for s in subjects],
    }
    for pattern, sub in subs.items():
        assert bodies(await take(sub, len(expected[pattern]))) == expected[pattern]
        assert sub.pending_msgs == 0


@scenario
async def test_a_queue_group_shares_messages(client: Client, name: str) -> None:
    members = [await client.subscribe(f"{name}.*", queue="workers") for _ in range(3)]
    outsider = await client.subscribe(f"{name}.job")
    for i in range(300):
        await client.publish(f"{name}.job", b"%d" % i)
    await client.flush()
    assert len(await take(outsider, 300)) == 300
    shares = [member.pending_msgs for member in members]
    assert sum(shares) == 300
    assert min(shares) > 0
    got = [
        m for member, share in zip(members, shares, strict=True) for m in await take(member, share)
    ]
    assert sorted(int(m.data) for m in got) == list(range(300))


@scenario
async def test_unsubscribe_after_a_number_of_messages(client: Client, name: str) -> None:
    seen: list[bytes] = []

    async def note(msg: Msg) -> None:
        seen.append(msg.data)

    sub = await client.subscribe(name, cb=note)
    everything = await client.subscribe(name)
    await sub.unsubscribe(limit=2)
    for i in range(5):
        await client.publish(name, b"%d" % i)
    assert len(await take(everything, 5)) == 5
    assert seen == [b"0", b"1"]


@scenario
async def test_requests_get_their_replies(client: Client, name: str) -> None:
    async def upper(msg: Msg) -> None:
        await msg.respond(msg.data.upper())

    await client.subscribe(name, cb=upper)
    texts = [f"text {i}" for i in range(50)]
    replies = await asyncio.gather(*(client.request(name, t.encode(), timeout=5) for t in texts))
    assert [r.data.decode() for r in replies] == [t.upper() for t in texts]


@scenario
async def test_a_request_nobody_hears_fails_at_once(client: Client, name: str) -> None:
    with pytest.raises(nats.errors.NoRespondersError):
        await client.request(name, b"", timeout=20)


@scenario
async def test_headers_arrive_as_they_were_sent(client: Client, name: str) -> None:
    sub = await client.subscribe(name)
    await client.publish(name, b"body", headers={"Trace": "t-1", "Empty": "", "Spaced": "a b: c"})
    await client.publish(name, b"", headers={"Only": "headers"})
    first, second = await take(sub, 2)
    assert first.headers == {"Trace": "t-1", "Empty": "", "Spaced": "a b: c"}
    assert (second.headers, second.data) == ({"Only": "headers"}, b"")


@scenario
async def test_a_megabyte_arrives_whole(client: Client, name: str) -> None:
    sub = await client.subscribe(name)
    payload = bytes(range(256)) * 4096
    await client.publish(name, payload)
    assert (await take(sub, 1))[0].data == payload
    assert client.max_payload == len(payload)


@scenario
async def test_drain_hands_over_everything_and_closes(client: Client, name: str) -> None:
    seen: list[bytes] = []

    async def note(msg: Msg) -> None:
        seen.append(msg.data)

    await client.subscribe(name, cb=note)
    for i in range(100):
        await client.publish(name, b"%d" % i)
    await client.drain()
    assert client.is_closed
    assert seen == [b"%d" % i for i in range(100)]


# --- publishing into a stream ---------------------------------------------------------------------


@scenario
async def test_a_stream_reports_its_config_and_state(client: Client, name: str) -> None:
    js = await store(client, name, 4)
    info = await js.stream_info(name, subjects_filter=">")
    config, state = info.config, info.state
    assert (config.name, config.subjects, config.storage) == (name, [f"{name}.>"], StorageType.FILE)
    assert (config.max_msgs, config.max_bytes, config.max_age, config.max_msg_size) == (
        -1,
        -1,
        0,
        -1,
    )
    assert (config.max_msgs_per_subject, config.max_consumers, config.num_replicas) == (-1, -1, 1)
    assert (config.retention, config.discard, config.duplicate_window) == ("limits", "old", 120)
    assert (state.messages, state.first_seq, state.last_seq, state.consumer_count) == (4, 1, 4, 0)
    assert state.bytes == 4 * (22 + len(f"{name}.0") + 2 + 8)
    assert state.subjects == {f"{name}.0": 2, f"{name}.1": 1, f"{name}.2": 1}
    created = info.created
    if isinstance(created, str):
        created = datetime.fromisoformat(created)
    assert created is None or abs((datetime.now(UTC) - created).total_seconds()) < 60


@scenario
async def test_a_message_id_is_stored_once(client: Client, name: str) -> None:
    js = await store(client, name, 0)
    acks = [
        await js.publish(f"{name}.a", b"x", headers={"Nats-Msg-Id": i})
        for i in ("1", "2", "1", "2")
    ]
    assert [(a.stream, a.seq, a.duplicate) for a in acks] == [
        (name, 1, None),
        (name, 2, None),
        (name, 1, True),
        (name, 2, True),
    ]
    assert (await js.stream_info(name)).state.messages == 2


@scenario
async def test_expectations_of_a_publisher_are_checked(client: Client, name: str) -> None:
    js = await store(client, name, 3)
    refused = {
        "Nats-Expected-Stream": ("OTHER", 10060),
        "Nats-Expected-Last-Sequence": ("2", 10071),
        "Nats-Expected-Last-Subject-Sequence": ("2", 10071),
        "Nats-Expected-Last-Msg-Id": ("z", 10070),
    }
    for header, (value, code) in refused.items():
        with pytest.raises(APIError) as caught:
            await js.publish(f"{name}.0", b"x", headers={header: value})
        assert caught.value.err_code == code, header
    met = {"Nats-Expected-Stream": name, "Nats-Expected-Last-Sequence": "3"}
    assert (await js.publish(f"{name}.0", b"x", headers=met)).seq == 4
    met = {"Nats-Expected-Last-Subject-Sequence": "4"}
    assert (await js.publish(f"{name}.0", b"x", headers=met)).seq == 5


@scenario
async def test_many_publishes_in_flight_are_stored_in_order(client: Client, name: str) -> None:
    js = await store(client, name, 0)
    acks = await asyncio.gather(*(js.publish(f"{name}.a", b"%d" % i) for i in range(500)))
    assert [a.seq for a in acks] == list(range(1, 501))
    stored = [await js.get_msg(name, seq) for seq in (1, 250, 500)]
    assert [m.data for m in stored] == [b"0", b"249", b"499"]


@scenario
async def test_no_stream_no_ack(client: Client, name: str) -> None:
    with pytest.raises(NoStreamResponseError):
        await client.jetstream().publish(f"{name}.a", b"x", timeout=5)


@scenario
async def test_old_messages_make_room(client: Client, name: str) -> None:
    js = await store(client, name, 7, max_msgs=3)
    state = (await js.stream_info(name)).state
    assert (state.messages, state.first_seq, state.last_seq) == (3, 5, 7)
    with pytest.raises(NotFoundError) as caught:
        await js.get_msg(name, 4)
    assert caught.value.err_code == 10037


@scenario
async def test_a_full_stream_refuses_when_told_to(client: Client, name: str) -> None:
    js = await store(client, name, 2, max_msgs=2, discard=DiscardPolicy.NEW)
    with pytest.raises(APIError) as caught:
        await js.publish(f"{name}.a", b"x")
    assert (caught.value.err_code, caught.value.description) == (10077, "maximum messages exceeded")
    assert (await js.stream_info(name)).state.messages == 2


@scenario
async def test_a_subject_keeps_its_newest(client: Client, name: str) -> None:
    js = await store(client, name, 9, max_msgs_per_subject=2)
    info = await js.stream_info(name, subjects_filter=f"{name}.*")
    assert info.state.subjects == {f"{name}.{i}": 2 for i in range(3)}
    assert (info.state.first_seq, info.state.messages) == (4, 6)


@scenario
async def test_a_message_too_large_for_the_stream_is_refused(client: Client, name: str) -> None:
    js = await store(client, name, 0, max_msg_size=10)
    assert (await js.publish(f"{name}.a", b"x" * 10)).seq == 1
    with pytest.raises(APIError) as caught:
        await js.publish(f"{name}.a", b"x" * 11)
    assert caught.value.err_code == 10054


# --- streams as objects ---------------------------------------------------------------------------


@scenario
async def test_streams_are_created_updated_listed_and_deleted(client: Client, name: str) -> None:
    js = await store(client, name, 3)
    await js.add_stream(StreamConfig(name=name, subjects=[f"{name}.>"]))  # the same again: no error
    with pytest.raises(BadRequestError) as caught:
        await js.add_stream(StreamConfig(name=name, subjects=[f"{name}.>"], max_msgs=9))
    assert caught.value.err_code == 10058
    with pytest.raises(BadRequestError) as caught:
        await js.add_stream(StreamConfig(name=f"{name}-other", subjects=[f"{name}.1"]))
    assert caught.value.err_code == 10065
    updated = await js.update_stream(StreamConfig(name=name, subjects=[f"{name}.>"], max_msgs=1))
    assert (updated.config.max_msgs, updated.state.messages, updated.state.first_seq) == (1, 1, 3)
    assert await js.find_stream_name_by_subject(f"{name}.x") == name
    assert name in {info.config.name for info in await js.streams_info()}
    assert await js.delete_stream(name)
    with pytest.raises(NotFoundError) as missing:
        await js.stream_info(name)
    assert missing.value.err_code == 10059
    with pytest.raises(NotFoundError):
        await js.delete_stream(name)


@scenario
async def test_messages_are_read_and_deleted_by_sequence(client: Client, name: str) -> None:
    js = await store(client, name, 5)
    await js.publish(f"{name}.h", b"with", headers={"Key": "value"})
    third = await js.get_msg(name, 3)
    assert (third.subject, third.seq, third.data) == (f"{name}.2", 3, b"m3")
    assert (await js.get_last_msg(name, f"{name}.0")).seq == 4
    headed = await js.get_msg(name, 6)
    assert (headed.headers, headed.data) == ({"Key": "value"}, b"with")
    assert await js.delete_msg(name, 3)
    with pytest.raises(NotFoundError):
        await js.get_msg(name, 3)
    with pytest.raises(APIError) as caught:
        await js.delete_msg(name, 3)
    assert caught.value.err_code == 10043
    state = (await js.stream_info(name)).state
    assert (state.messages, state.num_deleted) == (5, 1)


@scenario
async def test_a_purge_takes_all_or_a_part(client: Client, name: str) -> None:
    js = await store(client, name, 12)
    await js.purge_stream(name, subject=f"{name}.0")
    assert (await js.stream_info(name)).state.messages == 8
    await js.purge_stream(name, subject=f"{name}.1", keep=1)
    assert (await js.stream_info(name)).state.messages == 5
    await js.purge_stream(name, seq=6)
    state = (await js.stream_info(name)).state
    assert (state.messages, state.first_seq, state.last_seq) == (4, 6, 12)
    await js.purge_stream(name)
    state = (await js.stream_info(name)).state
    assert (state.messages, state.bytes, state.first_seq, state.last_seq) == (0, 0, 13, 12)
    assert (await js.publish(f"{name}.0", b"x")).seq == 13


@scenario
async def test_the_account_counts_what_it_holds(client: Client, name: str) -> None:
    js = client.jetstream()
    before = await js.account_info()
    await store(client, name, 2, storage=StorageType.MEMORY)
    await js.add_consumer(name, ConsumerConfig(durable_name="d", ack_policy=AckPolicy.EXPLICIT))
    after = await js.account_info()
    assert (after.streams - before.streams, after.consumers - before.consumers) == (1, 1)
    assert after.memory > before.memory
    assert after.api.total > before.api.total
    assert (after.limits.max_memory, after.limits.max_storage) == (-1, -1)
    assert (after.limits.max_streams, after.limits.max_consumers) == (-1, -1)


# --- a server that ends and comes back ------------------------------------------------------------


@pytest.mark.parametrize("kill", [False, True], ids=["term", "kill"])
def test_what_was_acked_is_there_after_a_restart(server: ServerProcess, kill: bool) -> None:
    name = f"T{next(numbers)}"

    async def before() -> None:
        async with connected(server) as client:
            js = await store(client, name, 9)
            await js.delete_msg(name, 4)
            sub = await js.pull_subscribe(f"{name}.>", durable="d", stream=name)
            for message in (await sub.fetch(3, timeout=5))[:2]:
                await message.ack_sync()

    async def after() -> None:
        async with connected(server) as client:
            js = client.jetstream()
            state = (await js.stream_info(name)).state
            assert (state.messages, state.first_seq, state.last_seq) == (8, 1, 9)
            assert (await js.get_msg(name, 9)).data == b"m9"
            info = await js.consumer_info(name, "d")
            # Messages are promised; an ack may be forgotten by a kill, which delivers once more.
            floors = {0, 1, 2} if kill else {2}
            assert info.delivered.stream_seq <= 3
            assert info.ack_floor.stream_seq in floors
            assert (await js.publish(f"{name}.0", b"m10")).seq == 10

    asyncio.run(before())
    server.stop(kill=kill)
    server.start()
    asyncio.run(after())
