"""The bus as the gateway's subscribers hear it: each reader has all, or is told; memory does not grow with readers."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton import connect
from pelton.errors import ConnectionClosedError
from pelton.plgd.bus import EventBus
from pelton.plgd.gateway import (
    GatewayError,
    GatewayServer,
    TokenVerifier,
    calling,
    feeds,
    subscribing,
)
from pelton.plgd.gateway.feeds import Heard, Log, Reader, TooSlowError
from pelton.plgd.store import SqliteStore
from pelton.plgd.wire import gateway_pb2 as pb
from tests.peers import ServerProcess
from tests.plgd.test_gateway import ISSUER, all_of, changed, client
from tests.ways import EVERY_WAY, length

DEVICE = "00000000-0000-4000-8000-000000000001"
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "join", "take", "leave", "cut"]), st.integers(0, 4)),
    max_size=60,
)


@given(STEPS)
def test_a_reader_takes_all_that_came_or_is_too_slow(steps: list[tuple[str, int]]) -> None:
    log, came = Log(), 0
    readers: list[tuple[Reader, int]] = []  # and how far it has read
    for step, number in steps:
        if step == "add":
            log.add(str(came), b"x" * number)
            came += 1
        elif step == "join":
            readers.append((log.join(), came))
        elif readers:
            place = number % len(readers)
            reader, read = readers[place]
            if step == "take":
                heard = reader.take()
                assert (None if heard is None else heard.subject) == (
                    None if read == came else str(read)
                )
                readers[place] = (reader, min(read + 1, came))
            elif step == "leave":
                log.leave(reader)
                del readers[place]
            else:
                slowest = min(read for _, read in readers)
                slow = [one for one in readers if 2 * (came - one[1]) > came - slowest]
                assert log.cut() == len(slow)
                for one in slow:
                    readers.remove(one)
                    with pytest.raises(TooSlowError, match=f"{came - one[1]} events wait"):
                        one[0].take()
        unread = range(min((read for _, read in readers), default=came), came)
        assert log.bytes == sum(cost(log, readers, one) for one in unread)
    log.end(ConnectionClosedError("gone"))
    assert log.bytes == 0
    for reader, _ in readers:
        with pytest.raises(ConnectionClosedError):
            reader.take()
    with pytest.raises(ConnectionClosedError):
        log.join()


def cost(log: Log, readers: list[tuple[Reader, int]], number: int) -> int:
    """What the log counts for an unread message, found by its slowest reader."""
    reader, read = min(readers, key=lambda one: one[1])
    link = reader.place
    for _ in range(number - read):
        assert link.next is not None
        link = link.next
    assert link.heard is not None
    assert link.heard.subject == str(number)
    return link.heard.cost


def test_who_was_cut_holds_nothing_of_what_follows() -> None:
    log = Log()
    slow, quick = log.join(), log.join()
    for number in range(1000):
        log.add(str(number), b"x")
        kept = quick.take()
    assert log.cut() == 1
    with pytest.raises(TooSlowError):
        slow.take()
    gc.collect()
    alive = [one for one in gc.get_objects() if isinstance(one, Heard) and one.data == b"x"]
    assert alive == [kept]


def run(body: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(body, length(120, 500)))


def large(version: int) -> Any:
    made = changed(DEVICE, "/large", version)
    made.content.data = random.Random(version).randbytes(6000)  # no snappy makes them less
    return made


@pytest.mark.timeout(600)
def test_a_slow_subscriber_is_cut_and_a_thousand_others_get_all(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two owners; the slow ones read nothing, and the logs stay within their bounds."""
    others, count = length(40, 1000), 80
    monkeypatch.setattr(feeds, "LOG_BYTES_MAX", 192 << 10)
    monkeypatch.setattr(feeds, "PATIENCE_S", length(0.5, 2.0))
    held: list[int] = []
    add = Log.add

    def noted(log: Log, *args: Any) -> None:
        add(log, *args)
        held.append(log.bytes)

    monkeypatch.setattr(Log, "add", noted)
    read_by = [0] * others

    async def read(number: int, stream: Any) -> list[int]:
        found: list[int] = []
        async for event in stream:
            found.append(event.resource_changed.event_metadata.version)
            read_by[number] = len(found)
            if len(found) == count:
                break
        await stream.aclose()
        return found

    async def body() -> None:
        async with AsyncExitStack() as stack:
            nats = await stack.enter_async_context(connect(server.url))
            store = SqliteStore(tmp_path / "store")
            store.close()
            verifier = TokenVerifier(ISSUER.key_set())
            gateway = GatewayServer(lambda: SqliteStore(tmp_path / "store"), verifier, client=nats)
            await stack.enter_async_context(gateway)
            await gateway.start()
            callers = [await stack.enter_async_context(client(gateway, owner)) for owner in "aabb"]
            streams = [callers[n % 4].subscribe() for n in range(others)]
            # Their windows stay small, so that what they do not read waits in the gateway.
            monkeypatch.setattr(calling, "OPTIONS", [*calling.OPTIONS, ("grpc.http2.bdp_probe", 0)])
            sleepers = [await stack.enter_async_context(client(gateway, owner)) for owner in "ab"]
            slow = [sleeper.subscribe() for sleeper in sleepers]
            for stream in [*streams, *slow]:
                assert (await anext(stream)).WhichOneof("type") == "operation_processed"
            opened = gateway._feeds
            assert opened is not None
            assert sorted(opened.open) == ["a", "b"]
            assert sum(len(feed.log.readers) for feed in opened.open.values()) == others + 2
            reading = [asyncio.ensure_future(read(*each)) for each in enumerate(streams)]
            bus = EventBus(nats, jetstream=False)
            for version in range(count):
                for owner in "ab":
                    await bus.publish(large(version), owner=owner)
                while min(read_by) < version - 8:  # no faster than the gateway can send
                    failed = [one for one in reading if one.done() and one.exception()]
                    assert not failed, failed[0].exception()
                    await asyncio.sleep(0.005)
            assert all(found == list(range(count)) for found in await asyncio.gather(*reading))
            for stream in slow:
                with pytest.raises(GatewayError, match="you are too slow") as caught:
                    await all_of(stream)
                assert caught.value.code == "RESOURCE_EXHAUSTED"
                assert "GetEvents" in caught.value.details
            while opened.open:  # the last reader has gone
                await asyncio.sleep(0.01)

    run(body())
    assert 96 << 10 < max(held) < (192 << 10) + (16 << 10)


@EVERY_WAY
@pytest.mark.timeout(600)
def test_a_subscriber_may_wait_for_long(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection asks now and then whether the gateway is there, and the gateway takes no offence."""
    often = [("grpc.keepalive_time_ms", 10_000), ("grpc.keepalive_timeout_ms", 5_000)]
    monkeypatch.setattr(calling, "OPTIONS", often)

    async def body() -> None:
        verifier = TokenVerifier(ISSUER.key_set())
        async with (
            connect(server.url) as nats,
            GatewayServer(
                lambda: SqliteStore(tmp_path / "store"), verifier, client=nats
            ) as gateway,
        ):
            await gateway.start()
            async with client(gateway) as caller:
                stream = caller.subscribe()
                await anext(stream)
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(stream), 60)

    run(body())


def test_a_call_has_a_bounded_number_of_subscriptions(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscribing, "SUBSCRIPTIONS_MAX", 2)

    async def body() -> None:
        verifier = TokenVerifier(ISSUER.key_set())
        async with (
            connect(server.url) as nats,
            GatewayServer(
                lambda: SqliteStore(tmp_path / "store"), verifier, client=nats
            ) as gateway,
        ):
            await gateway.start()
            async with client(gateway) as caller:
                call = caller.stubs["SubscribeToEvents"](metadata=caller.metadata())
                for number in range(500):  # more than may wait for the client
                    request = pb.SubscribeToEvents(create_subscription={})
                    request.correlation_id = str(number)
                    await call.write(request)
                await call.done_writing()
                answers = await all_of(call)
                assert [each.correlation_id for each in answers] == [str(n) for n in range(500)]
                codes = [each.operation_processed.error_status.code for each in answers]
                status = pb.Event.OperationProcessed.ErrorStatus
                assert codes == [status.OK] * 2 + [status.ERROR] * 498

    run(body())
