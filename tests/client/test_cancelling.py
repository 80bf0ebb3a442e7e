"""A task that is cancelled at each of its awaits: what it began is done or undone, and nothing stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any

import pytest

from pelton import ConsumerConfig, ObjectStoreConfig, StreamConfig, connect

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
    from pathlib import Path

    from tests.peers import ServerProcess

WAYS = ("at once", "when its wait is over")
PUTS = 10
"""Whether the last message of a put overtakes what is asked after the cancel is a matter of luck."""
AWAITS_MAX = 50
DATA = bytes(300_000)
PIECE = 50_000


class Cancelling:
    """Awaits a coroutine, and cancels its task while it waits for the n-th time."""

    def __init__(self, inner: Coroutine[Any, Any, Any], number: int, way: str) -> None:
        self._inner = inner
        self._number = number
        self._way = way
        self.cancelled = False

    def __await__(self) -> Generator[Any, Any, Any]:
        task = asyncio.current_task()
        assert task is not None
        steps = self._inner.__await__()
        raised: BaseException | None = None
        count = 0
        while True:
            try:
                waiting = steps.send(None) if raised is None else steps.throw(raised)
            except StopIteration as stop:
                return stop.value
            raised = None
            if count == self._number:
                self.cancelled = True
                if waiting is None or self._way == "at once":
                    task.get_loop().call_soon(task.cancel)
                else:
                    waiting.add_done_callback(lambda _: task.cancel())
            count += 1
            try:
                yield waiting
            except BaseException as error:
                raised = error


async def cancelled_everywhere(
    way: str, begin: Callable[[], Coroutine[Any, Any, Any]]
) -> AsyncIterator[bool]:
    """Run the call once for each of its awaits; yields whether it was cancelled."""
    for number in range(AWAITS_MAX):
        cancelling = Cancelling(begin(), number, way)

        async def work(cancelling: Awaitable[Any] = cancelling) -> None:
            await cancelling

        task = asyncio.create_task(work())
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()
        yield task.cancelled()
        if not cancelling.cancelled:
            return
    raise AssertionError(f"more than {AWAITS_MAX} awaits")


@pytest.mark.parametrize("way", WAYS)
def test_a_put_leaves_the_chunks_of_one_object(
    server: ServerProcess, unique: str, way: str
) -> None:
    async def run() -> None:
        async with connect(server.url) as client:
            js = client.jetstream()
            store = await js.create_object_store(ObjectStoreConfig(bucket=unique, storage="memory"))
            await store.put("o", b"before")
            count = 0
            for _ in range(PUTS):
                async for _ in cancelled_everywhere(
                    way, lambda: store.put("o", DATA, chunk_size=PIECE)
                ):
                    count += 1
                    info = await store.info("o")
                    assert await store.get("o") in (b"before", DATA)
                    assert (await store.status()).stream_info.state.messages == info.chunks + 1
            assert count > 2 * PUTS
            await store.destroy()

    asyncio.run(run())


@pytest.mark.parametrize("way", WAYS)
def test_a_delete_leaves_the_whole_object_or_no_chunk(
    server: ServerProcess, unique: str, way: str
) -> None:
    async def run() -> None:
        async with connect(server.url) as client:
            js = client.jetstream()
            store = await js.create_object_store(ObjectStoreConfig(bucket=unique, storage="memory"))
            deleted = 0
            for _ in range(PUTS):
                await store.put("o", DATA, chunk_size=PIECE)
                async for _ in cancelled_everywhere(way, lambda: store.delete("o")):
                    left = (await store.status()).stream_info.state.messages
                    if [each.name for each in await store.list()] == ["o"]:
                        assert await store.get("o") == DATA
                        continue
                    assert left == 1
                    deleted += 1
                    await store.put("o", DATA, chunk_size=PIECE)
            assert deleted > PUTS
            await store.destroy()

    asyncio.run(run())


@pytest.mark.parametrize("way", WAYS)
def test_a_renamed_object_has_one_name(server: ServerProcess, unique: str, way: str) -> None:
    async def run() -> None:
        async with connect(server.url) as client:
            js = client.jetstream()
            store = await js.create_object_store(ObjectStoreConfig(bucket=unique, storage="memory"))
            await store.put("a", b"data")
            name, renamed = "a", 0
            for _ in range(PUTS):
                other = "b" if name == "a" else "a"
                async for _ in cancelled_everywhere(
                    way, lambda name=name, other=other: store.update_meta(name, rename=other)
                ):
                    [found] = await store.list()
                    assert await store.get(found.name) == b"data"
                    if found.name != name:
                        renamed += 1
                        await store.update_meta(other, rename=name)
            assert renamed > PUTS
            await store.destroy()

    asyncio.run(run())


@pytest.mark.parametrize("way", WAYS)
def test_a_get_leaves_the_file_as_it_was_or_complete(
    server: ServerProcess, unique: str, tmp_path: Path, way: str
) -> None:
    target = tmp_path / "o"

    async def run() -> None:
        async with connect(server.url) as client:
            js = client.jetstream()
            store = await js.create_object_store(ObjectStoreConfig(bucket=unique, storage="memory"))
            await store.put("o", DATA, chunk_size=PIECE)
            await store.get_file("o", target)
            files = len(os.listdir("/proc/self/fd"))
            async for _ in cancelled_everywhere(way, lambda: store.get_file("o", target)):
                assert os.listdir(tmp_path) == ["o"]
                assert target.read_bytes() == DATA
            assert len(os.listdir("/proc/self/fd")) == files
            await store.destroy()

    asyncio.run(run())


def test_a_put_from_a_pipe_that_says_nothing_is_cancelled(
    server: ServerProcess, unique: str
) -> None:
    """The thread that reads the pipe cannot be stopped, so the task does not wait for it."""

    async def run() -> None:
        async with connect(server.url) as client:
            js = client.jetstream()
            store = await js.create_object_store(ObjectStoreConfig(bucket=unique, storage="memory"))
            source, sink = os.pipe()
            with open(source, "rb") as reading:
                task = asyncio.create_task(store.put("o", reading))
                await client.flush()
                task.cancel()
                await asyncio.wait([task])
                assert task.cancelled()
                os.close(sink)
                await store.destroy()

    asyncio.run(run())


@pytest.mark.parametrize("kept", [False, True], ids=["dropped", "kept"])
def test_no_message_goes_to_a_cancelled_iteration(
    server: ServerProcess, unique: str, kept: bool
) -> None:
    """Without ``async with``: its requests end with it, and the next reader gets the next message at once."""

    async def scenario() -> None:
        async with connect(server.url, timeout=30) as client:
            js = client.jetstream()
            await js.create_stream(StreamConfig(name=unique, subjects=[unique]))
            config = ConsumerConfig(durable_name="c", ack_wait="10m")
            await js.create_consumer(unique, config)
            handles = []
            for number in range(8):
                handle = await js.consumer(unique, "c")
                asked = handle.client._connection.messages_sent
                if kept:
                    handles.append(handle)

                async def read(handle: Any) -> None:
                    async for message in handle.consume():
                        await message.ack()

                task = asyncio.create_task(read(handle))
                del handle
                while client._connection.messages_sent == asked:
                    await asyncio.sleep(0)
                await client.flush()
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
                await js.publish(unique, b"%d" % number)
                async with await js.consumer(unique, "c") as other:
                    (message,) = await other.fetch(1, timeout=30)
                    assert message.data == b"%d" % number
                    await message.ack_sync()
            for handle in handles:
                await js.publish(unique, b"later")
                (message,) = await handle.fetch(1, timeout=30)
                await message.ack_sync()

    asyncio.run(scenario())
