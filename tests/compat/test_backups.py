"""Backups between Pelton and real nats-servers, both ways: nothing is lost on the way.

The newest nats-server is the one that tests/peers finds; NATS_SERVER_OLD names one that still makes
the older kind of archive (2.10).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from typing import TYPE_CHECKING, Any

import nats
import pytest
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StorageType

from tests.peers import available_servers, running_server
from tests.ways import EVERY_WAY, length

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from nats.aio.client import Client

OLD = "NATS_SERVER_OLD"
PAIRS = [
    ("pelton", "nats-server"),
    ("nats-server", "pelton"),
    ("pelton", "old"),
    ("old", "pelton"),
    ("pelton", "pelton"),
]


@contextlib.contextmanager
def server(kind: str, patch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of a server of this kind."""
    with patch.context() as context:
        if kind == "old":
            if not os.environ.get(OLD):
                pytest.skip(f"no older nats-server is named ({OLD})")
            context.setenv("NATS_SERVER", os.environ[OLD])
            kind = "nats-server"
        elif kind not in available_servers():
            pytest.skip("no nats-server on this machine (NATS_SERVER, PATH, /usr/sbin)")
        with running_server(kind) as process:
            yield process.url


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[Client]:
    client = await nats.connect(url)
    try:
        yield client
    finally:
        await client.close()


async def fill(client: Client, count: int, storage: str) -> None:
    """Gaps at both ends and inside, headers, consumers in several states."""
    js = client.jetstream()
    await js.add_stream(
        name="S", subjects=["s.>"], description="to be backed up", storage=StorageType(storage)
    )
    for n in range(1, count + 1):
        headers = {"N": str(n)} if n % 3 == 0 else None
        await js.publish(f"s.{n % 5}", b"payload %d " % n * (n % 40), headers=headers)
    for seq in (1, 2, 7, *range(50, 60), count - 1, count):
        await js.delete_msg("S", seq)
    pull = await js.pull_subscribe("s.>", durable="c", stream="S")
    messages = await pull.fetch(20)
    for message in messages[:5]:
        await message.ack_sync()
    await messages[9].nak()
    await messages[7].ack_sync()  # answered behind the refusal
    again = await pull.fetch(4)
    assert [m.metadata.num_delivered for m in again] == [2, 1, 1, 1]
    later = ConsumerConfig(
        name="later",
        filter_subject="s.2",
        deliver_policy=DeliverPolicy.NEW,
        inactive_threshold=3600,
        ack_policy=AckPolicy.EXPLICIT,
    )
    await js.add_consumer("S", later)


async def ask(client: Client, call: str, body: Any = None, subject: str = "") -> Any:
    payload = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
    answer = await client.request(subject or f"$JS.API.{call}", payload, timeout=20)
    return json.loads(answer.data) if answer.data else None


async def backup(client: Client) -> tuple[Any, bytes]:
    chunks: asyncio.Queue[Any] = asyncio.Queue()
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox, cb=chunks.put)
    answer = await ask(
        client, "STREAM.SNAPSHOT.S", {"deliver_subject": inbox, "chunk_size": 4096, "jsck": True}
    )
    assert "error" not in answer, answer
    data = b""
    while (chunk := await asyncio.wait_for(chunks.get(), 20)).data:
        data += chunk.data
        if chunk.reply:
            await client.publish(chunk.reply)
    assert (chunk.headers or {}).get("Status") == "204"
    await subscription.unsubscribe()
    return answer, data


async def restore(client: Client, answer: Any, data: bytes) -> Any:
    body = {"config": answer["config"], "state": answer["state"]}
    begun = await ask(client, "STREAM.RESTORE.S", body)
    assert "error" not in begun, begun
    for at in range(0, len(data), 65536):
        said = await ask(client, "", data[at : at + 65536], begun["deliver_subject"])
        assert said is None, said
    return await ask(client, "", b"", begun["deliver_subject"])


async def view(client: Client) -> dict[str, Any]:
    """All that a client can see, but for what restoring may change."""
    info = await ask(client, "STREAM.INFO.S", {"deleted_details": True})
    seen: dict[str, Any] = {"config": info["config"], "state": info["state"], "messages": {}}
    seen["config"].pop("metadata", None)
    seen["config"].pop("allow_msg_ttl", None)  # older servers do not know of it
    seen["state"].pop("last_ts")  # the last message is removed; its time need not be kept
    for seq in range(1, info["state"]["last_seq"] + 1):
        found = await ask(client, "STREAM.MSG.GET.S", {"seq": seq})
        seen["messages"][seq] = found.get("message")
    for each in (await ask(client, "CONSUMER.LIST.S"))["consumers"]:
        for name in ("ts", "created", "cluster", "num_waiting"):
            each.pop(name, None)
        each["config"].pop("metadata", None)
        floor = each["ack_floor"]
        if not each["delivered"]["consumer_seq"]:
            floor.pop("stream_seq")  # of a consumer that was never used, servers say either
        for part in (each["delivered"], floor):
            part.pop("last_active", None)
        seen[f"consumer {each['name']}"] = each
    return seen


async def handed_out(client: Client, count: int) -> list[tuple[int, int]]:
    """What `c` hands out next: sequence, deliveries."""
    pull = await client.jetstream().pull_subscribe_bind("c", "S")
    messages = await pull.fetch(count, timeout=2)
    return [(m.metadata.sequence.stream, m.metadata.num_delivered) for m in messages]


@pytest.mark.peer
@pytest.mark.parametrize(
    ("source", "target", "storage"),
    [
        *((source, target, "file") for source, target in PAIRS[:4]),
        ("pelton", "pelton", "memory"),
        pytest.param("pelton", "pelton", "file", marks=EVERY_WAY),
        # older servers make no archive of a stream in memory
        *(pytest.param(source, target, "memory", marks=EVERY_WAY) for source, target in PAIRS[:2]),
    ],
)
def test_nothing_is_lost_on_the_way(
    source: str, target: str, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go(one: str, other: str) -> None:
        async with connected(one) as giver, connected(other) as taker:
            await fill(giver, length(120, 300), storage)
            answer, data = await backup(giver)
            info = await restore(taker, answer, data)
            assert "error" not in info, info
            assert info["state"]["messages"] == answer["state"]["messages"]
            theirs = await view(giver)
            assert await view(taker) == theirs
            assert await handed_out(taker, 30) == await handed_out(giver, 30)
            ack = await taker.jetstream().publish("s.1", b"next")
            assert ack.seq == answer["state"]["last_seq"] + 1

    with server(source, monkeypatch) as one, server(target, monkeypatch) as other:
        asyncio.run(go(one, other))


@pytest.mark.peer
@pytest.mark.parametrize(("source", "target"), PAIRS[:2])
def test_consumers_in_memory_come_along(
    source: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go(one: str, other: str) -> None:
        async with connected(one) as giver, connected(other) as taker:
            js = giver.jetstream()
            await js.add_stream(name="S", subjects=["s.>"])
            for _ in range(20):
                await js.publish("s.1", os.urandom(1000))
            config = ConsumerConfig(
                durable_name="c", ack_policy=AckPolicy.EXPLICIT, mem_storage=True
            )
            await js.add_consumer("S", config)
            pull = await js.pull_subscribe_bind("c", "S")
            for message in (await pull.fetch(9))[:5]:
                await message.ack_sync()
            answer, data = await backup(giver)
            assert answer["state"]["consumer_count"] == 1
            assert "error" not in await restore(taker, answer, data)
            seen = await view(taker)
            assert seen["consumer c"]["config"]["mem_storage"] is True
            assert seen == await view(giver)
            assert await handed_out(taker, 11) == await handed_out(giver, 11)

    with server(source, monkeypatch) as one, server(target, monkeypatch) as other:
        asyncio.run(go(one, other))


@pytest.mark.peer
@pytest.mark.parametrize("target", ["nats-server", "old", "pelton"])
def test_a_purged_stream_keeps_its_sequences(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go(one: str, other: str) -> None:
        async with connected(one) as giver, connected(other) as taker:
            js = giver.jetstream()
            await js.add_stream(name="S", subjects=["s"])
            for _ in range(7):
                await js.publish("s", b"x")
            await js.purge_stream("S")
            chunks: asyncio.Queue[Any] = asyncio.Queue()
            await giver.subscribe("chunks", cb=chunks.put)
            answer = await ask(giver, "STREAM.SNAPSHOT.S", {"deliver_subject": "chunks"})
            data = b""
            while (chunk := await asyncio.wait_for(chunks.get(), 20)).data:
                data += chunk.data
            state = (await restore(taker, answer, data))["state"]
            assert (state["messages"], state["first_seq"], state["last_seq"]) == (0, 8, 7)
            assert (await taker.jetstream().publish("s", b"next")).seq == 8

    with server("pelton", monkeypatch) as one, server(target, monkeypatch) as other:
        asyncio.run(go(one, other))


@pytest.mark.peer
@pytest.mark.parametrize("kind", ["pelton", "nats-server"])
@pytest.mark.parametrize("count", [0, 1, 30, 350, 2000])
def test_a_client_that_subscribes_after_the_answer(
    kind: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the `nats` command does it: until then only the wildcard for its answers matches."""

    async def go(url: str) -> None:
        async with connected(url) as client:
            js = client.jetstream()
            await js.add_stream(name="S", subjects=["s"])
            await asyncio.gather(*(js.publish("s", os.urandom(2000)) for _ in range(count)))
            early: list[Any] = []

            async def drop(message: Any) -> None:
                early.append(message)

            await client.subscribe("_INBOX.taker.*", cb=drop)
            answer = await ask(client, "STREAM.SNAPSHOT.S", {"deliver_subject": DELIVER})
            await client.flush()
            assert not early
            chunks: asyncio.Queue[Any] = asyncio.Queue()
            await client.subscribe(DELIVER, cb=chunks.put)
            data = b""
            while (chunk := await asyncio.wait_for(chunks.get(), 20)).data:
                data += chunk.data
                if chunk.reply:
                    await client.publish(chunk.reply)
            assert (chunk.headers or {}).get("Status", "204") == "204"
            await js.delete_stream("S")
            state = (await restore(client, answer, data))["state"]
            assert (state["messages"], state["last_seq"]) == (count, count)

    with server(kind, monkeypatch) as url:
        asyncio.run(go(url))


DELIVER = "_INBOX.taker.backup"
VALID = {"name": "T", "subjects": ["t"]}
REQUESTS: list[tuple[str, Any]] = [
    ("STREAM.SNAPSHOT.S", b""),
    ("STREAM.SNAPSHOT.S", b"{}"),
    ("STREAM.SNAPSHOT.S", b"{"),
    ("STREAM.SNAPSHOT.S", {"no_consumers": True}),
    ("STREAM.SNAPSHOT.S", {"deliver_subject": ""}),
    ("STREAM.SNAPSHOT.S", {"deliver_subject": "a.*"}),
    ("STREAM.SNAPSHOT.S", {"deliver_subject": "a.>"}),
    ("STREAM.SNAPSHOT.S", {"deliver_subject": "a b"}),
    ("STREAM.SNAPSHOT.S", {"deliver_subject": "a..b"}),
    ("STREAM.SNAPSHOT.S", {"deliver_subject": "a", "chunk_size": "x"}),
    ("STREAM.SNAPSHOT.S", {"deliver_subject": "a", "surprise": 1}),
    ("STREAM.SNAPSHOT.NONE", {"deliver_subject": "a"}),
    ("STREAM.SNAPSHOT.NONE", b""),
    ("STREAM.RESTORE.S", b""),
    ("STREAM.RESTORE.S", b"{}"),
    ("STREAM.RESTORE.S", b"{"),
    ("STREAM.RESTORE.S", {"config": {"name": "S", "subjects": ["s"]}}),
    ("STREAM.RESTORE.T", {"config": {"name": "S", "subjects": ["s"]}}),
    ("STREAM.RESTORE.T", {"config": {**VALID, "subjects": ["a b"]}}),
    ("STREAM.RESTORE.T", {"config": {**VALID, "max_age": -1}}),
    ("STREAM.RESTORE.T", {"config": {**VALID, "num_replicas": 3}}),
    ("STREAM.RESTORE.T", {"config": {**VALID, "retention": "x"}}),
    ("STREAM.RESTORE.T", {"config": {**VALID, "discard_new_per_subject": True}}),
    ("STREAM.RESTORE.T", {"config": {**VALID, "surprise": 1}}),
    ("STREAM.RESTORE.T", {"config": VALID, "state": {"messages": "x"}}),
    ("STREAM.RESTORE.a/b", {"config": {**VALID, "name": "a/b"}}),
    ("STREAM.RESTORE.T", {"config": VALID}),
    ("STREAM.RESTORE.T", {"config": {"subjects": ["t"]}}),
    ("STREAM.RESTORE.T", {"config": {**VALID, "subjects": ["s.x"]}}),
]


@pytest.mark.peer
def test_the_same_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def asked(url: str) -> list[Any]:
        answers = []
        async with connected(url) as client:
            await client.jetstream().add_stream(name="S", subjects=["s.>"])
            for call, body in REQUESTS:
                answer = await ask(client, call, body)
                if answer.get("deliver_subject"):
                    lead, _, _ = answer["deliver_subject"].rpartition(".")
                    answer["deliver_subject"] = lead
                answers.append((call, body, answer))
        return answers

    with server("pelton", monkeypatch) as one, server("nats-server", monkeypatch) as other:
        ours, theirs = asyncio.run(asked(one)), asyncio.run(asked(other))
    for one_answer, other_answer in zip(ours, theirs, strict=True):
        assert one_answer == other_answer


@pytest.mark.peer
def test_the_same_advisories(monkeypatch: pytest.MonkeyPatch) -> None:
    async def told(url: str) -> list[Any]:
        events: list[Any] = []

        async def note(message: Any) -> None:
            event = json.loads(message.data)
            for name in ("id", "timestamp", "start", "end", "bytes", "client", "state"):
                event[name] = type(event.get(name)).__name__
            events.append((message.subject, event))

        async with connected(url) as client:
            await client.jetstream().add_stream(name="S", subjects=["s.>"])
            await client.jetstream().publish("s.1", b"x" * 10_000)
            for kind in ("SNAPSHOT_CREATE", "SNAPSHOT_COMPLETE", "RESTORE_CREATE"):
                await client.subscribe(f"$JS.EVENT.ADVISORY.STREAM.{kind}.>", cb=note)
            await client.subscribe("$JS.EVENT.ADVISORY.STREAM.RESTORE_COMPLETE.>", cb=note)
            chunks: asyncio.Queue[Any] = asyncio.Queue()
            await client.subscribe("chunks", cb=chunks.put)
            answer = await ask(client, "STREAM.SNAPSHOT.S", {"deliver_subject": "chunks"})
            data = b""
            while (chunk := await asyncio.wait_for(chunks.get(), 20)).data:
                data += chunk.data
            await client.jetstream().delete_stream("S")
            await restore(client, answer, data)
            deadline = time.monotonic() + 30
            while len(events) < 4:
                assert time.monotonic() < deadline, events
                await asyncio.sleep(0.05)
        return sorted(events, key=lambda event: str(event[0]))

    with server("pelton", monkeypatch) as one, server("nats-server", monkeypatch) as other:
        assert asyncio.run(told(one)) == asyncio.run(told(other))
