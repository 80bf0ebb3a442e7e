"""FastStream's NATS broker does on both servers what its documentation shows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from faststream import AckPolicy
from faststream.nats import JStream, KvWatch, NatsBroker, NatsMessage, ObjWatch, PullSub, Schedule

pytestmark = pytest.mark.peer

PATIENCE_S = 60


def within(run: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(run(), PATIENCE_S))


async def taken(queue: asyncio.Queue[Any], count: int) -> list[Any]:
    return [await queue.get() for _ in range(count)]


def test_handlers_answers_groups_and_patterns(server, unique):
    async def run():
        broker = NatsBroker(server.url)
        seen: asyncio.Queue[str] = asyncio.Queue()

        @broker.subscriber(f"{unique}.in")
        @broker.publisher(f"{unique}.out")
        async def forward(body: dict[str, int]) -> dict[str, int]:
            return {"bolts": body["bolts"] + 1}

        @broker.subscriber(f"{unique}.out")
        async def arrive(body: dict[str, int]) -> None:
            await seen.put(f"out {body['bolts']}")

        for worker in "ab":

            @broker.subscriber(f"{unique}.group.*", queue="workers")
            async def share(body: str, worker: str = worker) -> None:
                await seen.put(f"shared {body}")

        @broker.subscriber(f"{unique}.ask")
        async def answer(body: str) -> str:
            return body.upper()

        async with broker:
            await broker.start()
            await broker.publish({"bolts": 41}, f"{unique}.in")
            assert await seen.get() == "out 42"
            for number in range(4):
                await broker.publish(f"{number}", f"{unique}.group.{number}")
            assert sorted(await taken(seen, 4)) == [f"shared {number}" for number in range(4)]
            reply = await broker.request("hello", f"{unique}.ask", timeout=PATIENCE_S)
            assert await reply.decode() == "HELLO"
            assert seen.empty()

    within(run)


@pytest.mark.parametrize("pull", [False, True], ids=["push", "pull"])
def test_streams_with_acks_and_redelivery(server, unique, pull):
    async def run():
        broker = NatsBroker(server.url)
        seen: asyncio.Queue[tuple[str, int]] = asyncio.Queue()

        @broker.subscriber(
            f"{unique}.jobs",
            stream=JStream(name=unique, subjects=[f"{unique}.jobs"]),
            durable="worker",
            pull_sub=PullSub(batch_size=10) if pull else False,
            ack_policy=AckPolicy.MANUAL,
        )
        async def handle(body: str, message: NatsMessage) -> None:
            tries = message.raw_message.metadata.num_delivered
            await seen.put((body, tries))
            if body == "again" and tries == 1:
                await message.nack()
            else:
                await message.ack()

        async with broker:
            await broker.start()
            await broker.publish("first", f"{unique}.jobs", stream=unique)
            await broker.publish("again", f"{unique}.jobs", stream=unique)
            assert await taken(seen, 3) == [("first", 1), ("again", 1), ("again", 2)]

    within(run)


def test_batches(server, unique):
    async def run():
        broker = NatsBroker(server.url)
        seen: asyncio.Queue[list[str]] = asyncio.Queue()

        @broker.subscriber(
            f"{unique}.jobs", stream=unique, pull_sub=PullSub(batch_size=10, batch=True)
        )
        async def handle(bodies: list[str]) -> None:
            await seen.put(bodies)

        async with broker:
            await broker.start()
            for number in range(5):
                await broker.publish(f"{number}", f"{unique}.jobs", stream=unique)
            found: list[str] = []
            while len(found) < 5:
                found += await seen.get()
            assert found == [f"{number}" for number in range(5)]

    within(run)


def test_watching_a_bucket_and_an_object_store(server, unique):
    async def run():
        broker = NatsBroker(server.url)
        seen: asyncio.Queue[str] = asyncio.Queue()

        @broker.subscriber("colour", kv_watch=KvWatch(unique))
        async def changed(body: str) -> None:
            await seen.put(f"colour {body}")

        @broker.subscriber(f"{unique}files", obj_watch=ObjWatch())
        async def stored(name: str) -> None:
            await seen.put(f"file {name}")

        async with broker:
            await broker.start()
            bucket = await broker.key_value(bucket=unique)
            await bucket.put("colour", b"blue")
            assert await seen.get() == "colour blue"
            store = await broker.object_storage(f"{unique}files")
            await store.put("plan.txt", b"42 bolts")
            assert await seen.get() == "file plan.txt"

    within(run)


def test_a_scheduled_message(server, unique):
    from datetime import UTC, datetime, timedelta

    async def run():
        broker = NatsBroker(server.url)
        seen: asyncio.Queue[str] = asyncio.Queue()

        @broker.subscriber(
            f"{unique}.due",
            stream=JStream(
                name=unique,
                subjects=[f"{unique}.due", f"{unique}.plan"],
                allow_msg_schedules=True,
            ),
        )
        async def handle(body: str) -> None:
            await seen.put(body)

        async with broker:
            await broker.start()
            due = datetime.now(UTC) + timedelta(seconds=1.5)
            await broker.publish(
                "later",
                f"{unique}.plan",
                stream=unique,
                schedule=Schedule(time=due, target=f"{unique}.due"),
            )
            assert await seen.get() == "later"
            assert datetime.now(UTC) >= due

    within(run)
