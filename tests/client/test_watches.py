"""Watches of buckets and of object stores begin, and are used, in the same way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from pelton import KeyValueConfig, ObjectStoreConfig, connect, sync

if TYPE_CHECKING:
    from tests.peers import ServerProcess

KINDS = ["keys", "objects"]


def key_of(item: Any) -> str:
    name: str = item.key if hasattr(item, "key") else item.name
    return name


async def opened(js: Any, kind: str, bucket: str) -> Any:
    """A bucket or a store in asyncio."""
    if kind == "keys":
        return await js.create_key_value(KeyValueConfig(bucket=bucket, storage="memory"))
    return await js.create_object_store(ObjectStoreConfig(bucket=bucket, storage="memory"))


@pytest.mark.parametrize("kind", KINDS)
def test_in_asyncio_a_watch_begins_when_it_is_awaited(
    server: ServerProcess, unique: str, kind: str
) -> None:
    async def program() -> None:
        async with connect(server.url) as client:
            bucket = await opened(client.jetstream(), kind, unique)
            async with await bucket.watch(updates_only=True) as watch:
                await bucket.put("block", b"1")
                assert key_of(await watch.next(60)) == "block"
                await bucket.put("both", b"1")
                assert key_of(await anext(watch)) == "both"
            watch = await bucket.watch(updates_only=True)
            await bucket.put("await", b"1")
            assert key_of(await watch.next(60)) == "await"
            await watch.stop()
            watch = await bucket.watch()
            names = {key_of(await watch.next(60)) for _ in range(3)}
            assert names == {"block", "both", "await"}
            await watch.stop()
            assert [each async for each in watch] == []
            await bucket.destroy()

    asyncio.run(program())


@pytest.mark.parametrize("kind", KINDS)
def test_in_blocking_code_a_watch_begins_at_once(
    server: ServerProcess, unique: str, kind: str
) -> None:
    with sync.connect(server.url) as client:
        js = client.jetstream()
        bucket: Any
        if kind == "keys":
            bucket = js.create_key_value(KeyValueConfig(bucket=unique, storage="memory"))
        else:
            bucket = js.create_object_store(ObjectStoreConfig(bucket=unique, storage="memory"))
        watch = bucket.watch(updates_only=True)
        bucket.put("a", b"1")
        with watch:
            assert key_of(next(watch)) == "a"
        assert list(watch) == []
        bucket.destroy()


def test_a_status_is_one_line_for_people(server: ServerProcess, unique: str) -> None:
    with sync.connect(server.url) as client:
        js = client.jetstream()
        config = KeyValueConfig(bucket=unique, ttl="1h", history=5, storage="memory")
        kv = js.create_key_value(config)
        kv.put("a", b"1")
        status = kv.status()
        assert str(status) == (
            f"{unique}: 1 value, {status.bytes} bytes, ttl 1h0m0s, memory, history 5"
        )
        assert repr(status) == f"<KeyValueStatus {status}>"
        kv.destroy()
        store = js.create_object_store(
            ObjectStoreConfig(bucket=unique, max_bytes=10_000, compression=True)
        )
        assert str(store.seal()) == f"{unique}: 0 bytes of 10000, file, compressed, sealed"
        assert repr(store.status()).startswith(f"<ObjectStoreStatus {unique}: ")
        store.destroy()
