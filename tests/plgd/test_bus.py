"""The event bus on real servers: acks, retries, filters, and no stream."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from pelton import StreamConfig, connect
from pelton.errors import PublishFailedError
from pelton.plgd import LeadType, Reason, decode, named_filter
from pelton.plgd.bus import EventBus, NoEventStreamError
from pelton.plgd.codec import Encoded
from pelton.plgd.fleet import FleetConfig, FleetRun
from tests.plgd import vectors

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from tests.peers import ServerProcess

EVENTS = StreamConfig(name="EVENTS", subjects=["plgd.>"], storage="memory")


def run(body: Coroutine[Any, Any, None]) -> None:
    """Run a test's body on a loop, for a minute at most."""
    asyncio.run(asyncio.wait_for(body, 60))


def light() -> Any:
    return decode(vectors.CHANGED_SUBJECT, vectors.CHANGED).message


def test_an_event_is_acked_once_and_received(server: ServerProcess) -> None:
    async def body() -> None:
        async with connect(server.url) as client:
            await client.jetstream().create_stream(EVENTS)
            bus = EventBus(client, lead=LeadType(choice="first"))
            patterns = named_filter("changed", owner="a", href="/light/1")
            async with bus.subscribe(patterns) as received:
                first = await bus.publish(light(), owner="a")
                again = await bus.publish(light(), owner="a")
                assert first is not None
                assert again is not None
                assert (again.seq, again.duplicate) == (first.seq, True)
                await client.publish(vectors.CHANGED_SUBJECT, b"\xff")
                item = await received.next()
                assert item.event is not None
                assert item.event.subject.lead_type == "core.light"
                await received.next()  # the repetition is on the bus, and not in the stream
                bad = await received.next()
                assert bad.error is not None
                assert bad.error.reason is Reason.ENVELOPE

    run(body())


def test_a_full_stream_is_no_missing_one(server: ServerProcess) -> None:
    async def body() -> None:
        async with connect(server.url) as client:
            bus = EventBus(client)
            full = StreamConfig(name="EVENTS", subjects=["plgd.>"], max_msgs=1, discard="new")
            await client.jetstream().create_stream(full)
            made = bus.encoded(light(), "a")
            items = [Encoded(made.subject, made.payload, str(number)) for number in range(3)]
            with pytest.raises(
                PublishFailedError, match=r"2 messages not acknowledged.*maximum messages"
            ):
                await bus.send_all(items)

    run(body())


def test_without_a_stream_the_error_says_what_to_do(server: ServerProcess) -> None:
    async def body() -> None:
        async with connect(server.url) as client:
            bus = EventBus(client)
            with pytest.raises(NoEventStreamError, match="pelton stream add EVENTS"):
                await bus.publish(light(), owner="a")
            with pytest.raises(NoEventStreamError):
                await bus.send_all([bus.encoded(light(), "a")])
            plain = EventBus(client, jetstream=False)
            async with plain.subscribe() as received:
                assert await plain.publish(light(), owner="a") is None
                item = await received.next()
                assert item.event is not None
                assert item.event.message == light()

    run(body())


def test_a_fleet_comes_into_a_stream_once(server: ServerProcess) -> None:
    async def body() -> None:
        async with connect(server.url) as client:
            await client.jetstream().create_stream(EVENTS)
            bus = EventBus(client)
            deliveries = list(FleetRun(FleetConfig(devices=5, duration_s=300)).deliveries())
            for _ in range(2):
                assert await bus.send_all(deliveries) == len(deliveries)
            info = await client.jetstream().stream_info("EVENTS")
            assert info.state.messages == len(deliveries)

    run(body())


def test_members_of_a_queue_group_share_events(server: ServerProcess) -> None:
    async def body() -> None:
        async with connect(server.url) as client:
            bus = EventBus(client, jetstream=False)
            async with bus.subscribe(queue="q") as one, bus.subscribe(queue="q") as two:
                for _ in range(20):
                    await bus.publish(light(), owner="a")
                tasks = [asyncio.ensure_future(e.next()) for e in (one, two)]
                seen = 0
                while seen < 20:
                    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        place = tasks.index(task)
                        tasks[place] = asyncio.ensure_future((one, two)[place].next())
                        seen += 1
                assert not any(task.done() for task in tasks)
                for task in tasks:
                    task.cancel()

    run(body())
