"""Object stores that our client and nats.go share: what one puts, links, changes and deletes, the other reads."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from pelton import (
    Client,
    LinkNotFollowedError,
    ObjectInfo,
    ObjectLink,
    ObjectNotFoundError,
    ObjectStoreConfig,
)
from pelton.errors import ApiError
from tests.interop.probe import RefusedError, plain
from tests.ways import SEED

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.probe import GoClient

BLOB = random.Random(SEED).randbytes(700_001)
NAMES = ("plain", "Größe/ä ö.txt", "日本語 🚰", "a.b.*.>", " ", "x" * 1000)
CHUNKS: tuple[tuple[bytes, int | None], ...] = (
    (b"", None),
    (b"1", None),
    (BLOB[:1000], 1),
    (BLOB[:4096], 1024),  # the last chunk is full
    (BLOB[:4097], 1024),
    (BLOB, None),
    (BLOB, 500_000),
)
ZERO = "0001-01-01T00:00:00Z"


def as_row(info: ObjectInfo) -> dict[str, Any]:
    """The properties in nats.go's form, without the time."""
    options: dict[str, Any] = {}
    if info.link is not None:
        link = {"bucket": info.link.bucket, "name": info.link.name}
        options["link"] = {name: value for name, value in link.items() if value}
    if info.chunk_size:
        options["max_chunk_size"] = info.chunk_size
    row: dict[str, Any] = {
        "name": info.name,
        "description": info.description,
        "headers": dict(info.headers),
        "metadata": dict(info.metadata),
        "options": options,
        "bucket": info.bucket,
        "nuid": info.nuid,
        "size": info.size,
        "chunks": info.chunks,
        "digest": info.digest,
        "deleted": info.deleted,
    }
    always = ("name", "bucket", "nuid", "size", "chunks")
    return {name: value for name, value in row.items() if value or name in always}


def theirs(info: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in info.items() if name != "mtime"}


def test_objects_of_all_sizes_and_names(exchange: Callable[..., None], unique: str) -> None:
    async def body(client: Client, go: GoClient) -> None:
        js = client.jetstream()
        ours = await js.create_object_store(ObjectStoreConfig(bucket=unique, storage="memory"))
        for number, (content, size) in enumerate(CHUNKS):
            name = NAMES[number % len(NAMES)]
            put = await ours.put(name, content, chunk_size=size)
            assert plain(await go("obj.get", bucket=unique, name=name)) == content
            read = await ours.info(name)
            told = await go("obj.info", bucket=unique, name=name)
            assert theirs(told) == as_row(read)
            assert told["mtime"] != ZERO
            made = await go(
                "obj.put", bucket=unique, name=name, value=content, chunk_size=size or 0
            )
            assert await ours.get(name) == content
            assert as_row(await ours.info(name)) == theirs(made)
            assert (made["digest"], made["size"]) == (put.digest, put.size)
            # the chunks of the object that was replaced are gone
            state = (await ours.status()).stream_info.state
            await ours.delete(name)
            left = (await ours.status()).stream_info.state.messages
            assert state.messages - left == made["chunks"], (number, SEED)

    exchange(body)


def test_properties_links_lists_and_deletes(exchange: Callable[..., None], unique: str) -> None:
    async def body(client: Client, go: GoClient) -> None:
        js = client.jetstream()
        for bucket in (f"{unique}-py", f"{unique}-2"):
            await js.create_object_store(ObjectStoreConfig(bucket=bucket, storage="memory"))
        config = {"bucket": f"{unique}-go", "description": "d", "metadata": {"a": "b"}}
        await go(
            "obj.create_store", config={**config, "storage": "memory", "max_age": 3600 * 10**9}
        )
        for bucket in (f"{unique}-py", f"{unique}-go"):
            await share(client, go, bucket, f"{unique}-2")
        told = await (await js.object_store(f"{unique}-go")).status()
        assert (told.description, dict(told.metadata)["a"]) == ("d", "b")
        assert (told.ttl, told.storage) == (3600 * 10**9, "memory")
        names = [each for each in await go("obj.names") if each.startswith(unique)]
        mine = [each for each in await js.object_store_names() if each.startswith(unique)]
        assert sorted(names) == sorted(mine) == [f"{unique}-2", f"{unique}-go", f"{unique}-py"]
        await go("obj.delete_store", bucket=f"{unique}-py")
        await js.delete_object_store(f"{unique}-go")

    exchange(body)


async def share(client: Client, go: GoClient, bucket: str, other: str) -> None:
    ours = await client.jetstream().object_store(bucket)
    headers = {"A": ["1", "2"], "Größe": ["ä"]}
    more: dict[str, Any] = {"headers": headers, "metadata": {"k": "größe"}}
    await ours.put("ours", BLOB[:200_000], description="dä", **more)
    await go("obj.put", bucket=bucket, name="theirs", value=BLOB, text="dä", **more)
    mine, their = await ours.info("ours"), await ours.info("theirs")
    for info in (mine, their):
        assert (info.description, dict(info.headers)) == ("dä", headers)
        assert info.metadata == {"k": "größe"}
        assert as_row(info) == theirs(await go("obj.info", bucket=bucket, name=info.name))
    await links(client, go, bucket, other)
    await ours.update_meta("theirs", rename="renamed", metadata={"k": "2"})
    changed = await go("obj.info", bucket=bucket, name="renamed")
    assert (changed["metadata"], changed["headers"]) == ({"k": "2"}, headers)
    assert plain(await go("obj.get", bucket=bucket, name="renamed")) == BLOB
    await go("obj.update_meta", bucket=bucket, name="ours", target="again", text="new")
    renamed = await ours.info("again")
    assert (renamed.description, renamed.nuid, dict(renamed.headers)) == ("new", mine.nuid, {})
    assert await ours.get("again") == BLOB[:200_000]
    for name in ("ours", "theirs"):
        with pytest.raises(ObjectNotFoundError):
            await ours.info(name)
        with pytest.raises(RefusedError, match="object not found"):
            await go("obj.info", bucket=bucket, name=name)
    await ours.delete("renamed")
    await go("obj.delete", bucket=bucket, name="again")
    await compare_lists(ours, go, bucket)
    with pytest.raises(ObjectNotFoundError):
        await ours.get("again")
    with pytest.raises(RefusedError, match="object not found"):
        await go("obj.get", bucket=bucket, name="renamed")
    deleted = await ours.info("again", show_deleted=True)
    assert (deleted.deleted, deleted.size) == (True, 0)
    told = await go("obj.info", bucket=bucket, name="renamed", options=["show_deleted"])
    assert (told["deleted"], told["size"], told["chunks"]) == (True, 0, 0)


async def links(client: Client, go: GoClient, bucket: str, other: str) -> None:
    """Links to an object of this bucket, of another one, and to a bucket; made by either, read by both."""
    ours = await client.jetstream().object_store(bucket)
    far = await client.jetstream().object_store(other)
    await far.put("far", b"away")
    await ours.add_link("py-link", await ours.info("theirs"))
    await go("obj.link", bucket=bucket, name="go-link", target="ours")
    await ours.add_link("py-far", await far.info("far"))
    await ours.add_bucket_link("py-bucket", other)
    await go("obj.link_bucket", bucket=bucket, name="go-bucket", target=other)
    assert plain(await go("obj.get", bucket=bucket, name="py-link")) == BLOB
    assert await ours.get("go-link") == BLOB[:200_000]
    assert plain(await go("obj.get", bucket=bucket, name="py-far")) == b"away"
    for name in ("py-bucket", "go-bucket"):
        assert (await ours.info(name)).link == ObjectLink(other)
        with pytest.raises(LinkNotFollowedError):
            await ours.get(name)
        with pytest.raises(RefusedError, match="bucket"):
            await go("obj.get", bucket=bucket, name=name)
    await compare_lists(ours, go, bucket)
    for name in ("py-link", "go-bucket"):
        await go("obj.delete", bucket=bucket, name=name)
    for name in ("go-link", "py-far", "py-bucket"):
        await ours.delete(name)


async def compare_lists(ours: Any, go: GoClient, bucket: str) -> None:
    """Lists and watches of both have the same objects in the same order."""
    for options, more in (([], {}), (["show_deleted"], {"show_deleted": True})):
        listed = [as_row(each) for each in await ours.list(**more)]
        assert [theirs(each) for each in await go("obj.list", bucket=bucket, options=options)] == (
            listed
        )
    await go("obj.watch", id="w", bucket=bucket)
    told = await go("obj.next", id="w", count=len(listed) + 1)
    assert [theirs(each) for each in told[:-1]] == listed
    assert told[-1] == "end"
    await go("obj.stop", id="w")


def test_watches_see_what_the_other_does(exchange: Callable[..., None], unique: str) -> None:
    async def body(client: Client, go: GoClient) -> None:
        js = client.jetstream()
        ours = await js.create_object_store(ObjectStoreConfig(bucket=unique, storage="memory"))
        await go("obj.watch", id="w", bucket=unique)
        await go("obj.watch", id="new", bucket=unique, options=["updates_only", "ignore_deletes"])
        async with await ours.watch() as watcher:
            assert await watcher.initial(60) == []
            assert await go("obj.next", id="w", count=1) == ["end"]
            await ours.put("ä", BLOB[:10])
            await go("obj.put", bucket=unique, name="b", value=b"2")
            await ours.delete("ä")
            await go("obj.delete", bucket=unique, name="b")
            await go("obj.put", bucket=unique, name="b", value=b"3")
            told = [await watcher.next(60) for _ in range(5)]
            seen = [as_row(each) for each in told if each is not None]
        assert [(each["name"], each.get("deleted", False)) for each in seen] == [
            ("ä", False),
            ("b", False),
            ("ä", True),
            ("b", True),
            ("b", False),
        ]
        assert [theirs(each) for each in await go("obj.next", id="w", count=5)] == seen
        told = await go("obj.next", id="new", count=3)
        assert [each["name"] for each in told] == ["ä", "b", "b"]
        for each in ("w", "new"):
            await go("obj.stop", id=each)

    exchange(body)


@pytest.mark.parametrize("sealer", ["ours", "theirs"])
def test_a_sealed_store_is_sealed_for_both(
    exchange: Callable[..., None], unique: str, sealer: str
) -> None:
    async def body(client: Client, go: GoClient) -> None:
        js = client.jetstream()
        ours = await js.create_object_store(ObjectStoreConfig(bucket=unique))
        await ours.put("o", BLOB)
        if sealer == "ours":
            await ours.seal()
        else:
            await go("obj.seal", bucket=unique)
        assert (await ours.status()).sealed
        status = await go("obj.status", bucket=unique)
        assert status["sealed"]
        assert status["size"] == (await ours.status()).size
        with pytest.raises(ApiError):
            await ours.put("p", b"1")
        with pytest.raises(RefusedError):
            await go("obj.put", bucket=unique, name="p", value=b"1")
        assert plain(await go("obj.get", bucket=unique, name="o")) == await ours.get("o") == BLOB
        await js.delete_object_store(unique)

    exchange(body)
