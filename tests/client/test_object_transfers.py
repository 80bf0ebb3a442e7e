"""Transfers of objects that are cut off: they go on, or leave nothing behind; and the memory they take."""

from __future__ import annotations

import asyncio
import gc
import random
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from pelton import (
    ApiError,
    Client,
    ConnectionClosedError,
    ObjectStoreConfig,
    PeltonTimeoutError,
    connect,
    sync,
)
from pelton.client.aio import objecttransfers as transfers
from pelton.client.objects.transfers import DOWNLOAD_BYTES, UPLOAD_BYTES
from pelton.client.sync import objecttransfers as blocking_transfers
from tests.client.shells import connected
from tests.ways import EVERY_WAY, SEED

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from tests.peers import ServerProcess

CHUNK = 2**16
PIECES = 64
RESTART_S = 60
PIECE = random.Random(SEED).randbytes(2 * CHUNK)
WHOLE = b"".join(bytes([number]) + PIECE for number in range(PIECES))


def pieces(then: Callable[[int], object] = lambda number: None) -> Iterator[bytes]:
    """The pieces of an object; calls ``then`` behind each."""
    for number in range(PIECES):
        yield bytes([number]) + PIECE
        then(number)


def restarting(server: ServerProcess, *at: int, kill: bool = False) -> Callable[[int], object]:
    def then(number: int) -> None:
        if number in at:
            server.stop(kill=kill)
            server.start()

    return then


def left(url: str, bucket: str) -> tuple[int, int]:
    """The number of messages in the stream, and how many there should be."""
    with sync.connect(url) as client:
        store = client.jetstream().object_store(bucket)
        infos = store.list(show_deleted=True)
        return store.status().stream_info.state.messages, sum(info.chunks + 1 for info in infos)


@pytest.mark.parametrize("kill", [False, pytest.param(True, marks=EVERY_WAY)])
def test_a_put_goes_on_after_a_restart(shell: str, own_server: ServerProcess, kill: bool) -> None:
    with connected(shell, own_server.url) as client:
        store = client.jetstream().create_object_store(ObjectStoreConfig(bucket="B"))
        store.put("o", b"before")
        restarts = restarting(own_server, 10, 40, kill=kill)
        info = store.put("o", pieces(restarts), chunk_size=CHUNK, timeout=RESTART_S)
        assert (info.size, info.chunks) == (len(WHOLE), -(-len(WHOLE) // CHUNK))
        assert store.get("o", timeout=RESTART_S) == WHOLE
        have, should = left(own_server.url, "B")
        assert have == should


def test_a_get_goes_on_after_a_restart(shell: str, own_server: ServerProcess) -> None:
    with connected(shell, own_server.url) as client:
        store = client.jetstream().create_object_store(ObjectStoreConfig(bucket="B"))
        store.put("o", WHOLE, chunk_size=CHUNK)
        found = []
        restart = restarting(own_server, 0, 70, 100, kill=True)
        for number, chunk in enumerate(store.chunks("o", timeout=RESTART_S)):
            found.append(chunk)
            restart(number)
        assert b"".join(found) == WHOLE


def test_a_watcher_goes_on_after_a_restart(shell: str, own_server: ServerProcess) -> None:
    with connected(shell, own_server.url) as client:
        store = client.jetstream().create_object_store(ObjectStoreConfig(bucket="B"))
        store.put("a", b"1")
        with store.watch() as watcher:
            assert watcher.next(60).name == "a"
            assert watcher.caught_up
            own_server.stop()
            own_server.start()
            store.put("b", b"1", timeout=RESTART_S)
            assert watcher.next(60).name == "b"


class Refusal(Exception):
    pass


def failing(number: int) -> None:
    if number == 50:
        raise Refusal


def test_a_put_that_fails_leaves_nothing(shell: str, server: ServerProcess, unique: str) -> None:
    with connected(shell, server.url) as client:
        js = client.jetstream()
        store = js.create_object_store(ObjectStoreConfig(bucket=unique, storage="memory"))
        store.put("o", b"before")

        def stop(done: int, _: int | None) -> None:
            if done > len(WHOLE) // 2:
                raise Refusal

        for call in (
            lambda: store.put("o", pieces(failing), chunk_size=CHUNK),
            lambda: store.put("o", pieces(), chunk_size=CHUNK, progress=stop),
            lambda: store.put("new", pieces(failing), chunk_size=1000),
        ):
            with pytest.raises(Refusal):
                call()
            assert store.get("o") == b"before"
            assert left(server.url, unique) == (2, 2)
        js.update_object_store(
            ObjectStoreConfig(bucket=unique, storage="memory", max_bytes=len(WHOLE) // 2)
        )
        with pytest.raises(ApiError, match="maximum bytes") as refused:
            store.put("o", pieces(), chunk_size=CHUNK)
        assert not getattr(refused.value, "__notes__", [])
        assert left(server.url, unique) == (2, 2)
        store.destroy()


def chunks_stored(url: str) -> int:
    """How many chunks are in the store B, seen by another client."""
    with sync.connect(url) as other:
        return other.jetstream().stream_info("OBJ_B").state.messages


def test_a_put_that_cannot_tidy_up_says_so(shell: str, own_server: ServerProcess) -> None:
    with connected(shell, own_server.url, timeout=2, reconnect_wait=0.01) as client:
        store = client.jetstream().create_object_store(ObjectStoreConfig(bucket="B"))

        def stop(number: int) -> None:
            if number == 10:
                while not chunks_stored(own_server.url):
                    pass
                own_server.stop()

        with pytest.raises((PeltonTimeoutError, ConnectionClosedError)) as failed:
            store.put("o", pieces(stop), chunk_size=CHUNK, timeout=0.2)
        (note,) = failed.value.__notes__
        assert "purge '$O.B.C." in note
        own_server.start()
        subject = note.split("'")[1]
        with sync.connect(own_server.url) as other:
            assert other.jetstream().purge_stream("OBJ_B", filter_subject=subject) > 0
        assert left(own_server.url, "B") == (0, 0)


def test_a_put_of_a_task_that_is_cancelled(server: ServerProcess, unique: str) -> None:
    async def run() -> None:
        async with connect(server.url) as client:
            store = await client.jetstream().create_object_store(
                ObjectStoreConfig(bucket=unique, storage="memory")
            )
            begun = asyncio.Event()

            async def endless() -> AsyncIterator[bytes]:
                for piece in pieces():
                    yield piece
                begun.set()
                await asyncio.Event().wait()

            task = asyncio.create_task(store.put("o", endless(), chunk_size=CHUNK))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await store.status()).stream_info.state.messages == 0
            reader = asyncio.StreamReader()
            reader.feed_data(WHOLE)
            reader.feed_eof()
            await store.put("o", reader)
            assert await store.get("o") == WHOLE

            async def copied() -> AsyncIterator[bytes]:
                async for chunk in store.chunks("o"):
                    yield chunk

            await store.put("copy", copied())
            assert await store.get("copy") == WHOLE
            await several_at_once(client, unique)
            await store.destroy()

    asyncio.run(run())


async def several_at_once(client: Client, bucket: str) -> None:
    store = await client.jetstream().object_store(bucket)
    blobs = [WHOLE[number * CHUNK :] for number in range(6)]
    await asyncio.gather(*(store.put(f"n{n}", blob) for n, blob in enumerate(blobs)))
    assert await asyncio.gather(*(store.get(f"n{n}") for n in range(6))) == blobs


def test_a_blocking_client_takes_no_async_iterator(server: ServerProcess, unique: str) -> None:
    async def never() -> AsyncIterator[bytes]:
        yield b""

    with sync.connect(server.url) as client:
        store = client.jetstream().create_object_store(ObjectStoreConfig(bucket=unique))
        with pytest.raises(TypeError, match="cannot await"):
            store.put("o", never())
        assert left(server.url, unique) == (0, 0)
        store.destroy()


def test_a_transfer_takes_a_few_chunks_of_memory(
    shell: str, server: ServerProcess, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 64 * 2**20
    uploads: list[Any] = []
    downloads: list[Any] = []
    for half in (transfers, blocking_transfers):
        for kind, made in ((half.Upload, uploads), (half.Download, downloads)):
            begin = kind.begin
            monkeypatch.setattr(
                kind,
                "begin",
                lambda self, made=made, begin=begin: (made.append(self), begin(self))[1],
            )
    piece = bytes(2**20)
    with connected(shell, server.url) as client:
        store = client.jetstream().create_object_store(ObjectStoreConfig(bucket=unique))
        store.put("warm", b"up")
        gc.collect()
        tracemalloc.start()
        try:
            store.put("o", (piece for _ in range(size // len(piece))))
            put_peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.reset_peak()
            assert sum(len(chunk) for chunk in store.chunks("o")) == size
            get_peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        store.destroy()
    assert put_peak < size // 4, put_peak
    assert get_peak < size // 4, get_peak
    assert uploads[-1].held_bytes_max <= UPLOAD_BYTES + 2**17
    assert downloads[-1].held_bytes_max <= DOWNLOAD_BYTES
