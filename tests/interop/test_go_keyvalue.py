"""Buckets that our client and nats.go share: each reads, watches and decides by what the other wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pelton import Client, KeyValueConfig, StreamSource, SubjectTransform
from pelton.errors import KeyExistsError, RevisionConflictError
from tests.interop.probe import RefusedError, plain
from tests.ways import SEED

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton import KvEntry
    from tests.interop.probe import GoClient

WRONG_LAST_SEQUENCE = 10071
BINARY = bytes(range(256)) * 40
KEYS = ("a", "a.b.c", "c=/_-9", "UPPER.lower", "k" * 200)


def ours_as_rows(entries: list[KvEntry[bytes]]) -> list[tuple[Any, ...]]:
    return [(each.key, each.operation, each.data, each.revision) for each in entries]


def theirs_as_rows(entries: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (each["key"], each["operation"], plain(each["value"]), each["revision"]) for each in entries
    ]


def test_each_client_does_everything_with_the_bucket_of_the_other(
    exchange: Callable[..., None], unique: str
) -> None:
    async def body(client: Client, go: GoClient) -> None:
        js = client.jetstream()
        ours = KeyValueConfig(
            bucket=f"{unique}-py", history=8, limit_marker_ttl=60, storage="memory"
        )
        theirs = {
            "bucket": f"{unique}-go",
            "history": 8,
            "limit_marker_ttl": 60 * 10**9,
            "storage": "memory",
        }
        await js.create_key_value(ours)
        await go("kv.create_bucket", config=theirs)
        for bucket in (ours.bucket, theirs["bucket"]):
            await write_in_turns(client, go, str(bucket))
        names = [each for each in await js.key_value_names() if each.startswith(unique)]
        assert sorted(names) == [f"{unique}-go", f"{unique}-py"]
        assert set(await go("kv.names")) >= set(names)
        await go("kv.delete_bucket", bucket=ours.bucket)
        await js.delete_key_value(f"{unique}-go")
        assert not [each for each in await go("kv.names") if each.startswith(unique)]

    exchange(body)


async def write_in_turns(client: Client, go: GoClient, bucket: str) -> None:
    """Every write by each of them, and what both read after it."""
    kv = await client.jetstream().key_value(bucket)
    assert await kv.put("k", BINARY) == 1
    found = await go("kv.get", bucket=bucket, key="k")
    entry = await kv.get("k")
    assert entry is not None
    assert (plain(found["value"]), found["revision"]) == (BINARY, 1)
    assert found["created_ns"] == entry.created_ns
    assert await go("kv.update", bucket=bucket, key="k", value=b"2", revision=1) == 2
    with pytest.raises(RevisionConflictError):
        await kv.update("k", b"3", 1)
    assert await kv.update("k", b"3", 2) == 3
    with pytest.raises(RefusedError) as refused:
        await go("kv.update", bucket=bucket, key="k", value=b"4", revision=2)
    assert refused.value.code == WRONG_LAST_SEQUENCE
    with pytest.raises(RefusedError, match="key exists") as refused:
        await go("kv.create", bucket=bucket, key="k", value=b"4")
    with pytest.raises(KeyExistsError):
        await kv.create("k", b"4")
    await go("kv.delete", bucket=bucket, key="k", revision=3)
    assert await kv.get("k") is None
    assert await kv.create("k", b"5") == 5
    with pytest.raises(RefusedError):
        await go("kv.delete", bucket=bucket, key="k", revision=4)
    assert await kv.delete("k") == 6
    assert await go("kv.get", bucket=bucket, key="k") is None
    assert await go("kv.create", bucket=bucket, key="k", value=b"7") == 7
    old = await kv.get("k", 1)
    assert old is not None
    assert old.data == BINARY
    assert plain((await go("kv.get", bucket=bucket, key="k", revision=3))["value"]) == b"3"
    assert await go("kv.get", bucket=bucket, key="other", revision=3) is None
    history = ours_as_rows(await kv.history("k"))
    assert history == theirs_as_rows(await go("kv.history", bucket=bucket, key="k"))
    assert [row[1] for row in history] == ["PUT", "PUT", "PUT", "DEL", "PUT", "DEL", "PUT"]
    await keys_and_ends(kv, go, bucket)


async def keys_and_ends(kv: Any, go: GoClient, bucket: str) -> None:
    for number, key in enumerate(KEYS):
        if number % 2:
            await kv.put(key, b"")
        else:
            await go("kv.put", bucket=bucket, key=key, value=b"")
    expected = sorted(["k", *KEYS])
    assert await kv.keys() == await go("kv.keys", bucket=bucket) == expected
    assert await kv.keys("a", "a.>") == await go("kv.keys", bucket=bucket, keys=["a", "a.>"])
    assert await kv.keys("*.b.*") == await go("kv.keys", bucket=bucket, keys=["*.b.*"]) == ["a.b.c"]
    empty = await kv.get("a")
    assert empty.value == plain((await go("kv.get", bucket=bucket, key="a.b.c"))["value"]) == b""
    await go("kv.purge", bucket=bucket, key="k", revision=7, ttl=30)
    marker = (await kv.history("k"))[-1]
    assert (marker.operation, len(await kv.history("k"))) == ("PURGE", 1)
    assert await kv.purge("a", ttl=30) == marker.revision + 1
    assert theirs_as_rows(await go("kv.history", bucket=bucket, key="a")) == [
        ("a", "PURGE", b"", marker.revision + 1)
    ]
    status, told = await kv.status(), await go("kv.status", bucket=bucket)
    assert (told["history"], told["limit_marker_ttl"], told["ttl"]) == (8, 60, 0)
    assert (told["values"], told["bytes"]) == (status.values, status.bytes)
    await go("kv.purge_deletes", bucket=bucket)
    assert await kv.history("k") == []
    assert await kv.purge_deletes(0) == 0


def test_watches_of_both_tell_the_same(exchange: Callable[..., None], unique: str) -> None:
    async def body(client: Client, go: GoClient) -> None:
        kv = await client.jetstream().create_key_value(
            KeyValueConfig(bucket=unique, history=5, storage="memory")
        )
        for number in range(6):
            await kv.put(f"eu.{number % 3}", b"%d" % number)
            await go("kv.put", bucket=unique, key=f"us.{number % 3}", value=b"%d" % number)
        await go("kv.delete", bucket=unique, key="eu.0")
        await kv.purge("us.0")
        ways: list[tuple[list[str], list[str], dict[str, Any]]] = [
            ([], [], {}),
            (["history"], [], {"history": True}),
            (["ignore_deletes"], [], {"ignore_deletes": True}),
            (["meta_only"], [], {"without_values": True}),
            ([], ["eu.>"], {}),
            ([], ["eu.1", "us.*"], {}),
        ]
        for options, filters, ours in ways:
            async with await kv.watch(*filters, **ours) as watch:
                first = ours_as_rows(await watch.initial())
                await go("kv.watch", id="w", bucket=unique, keys=filters, options=options)
                told = await go("kv.next", id="w", count=len(first) + 1)
                assert told.pop() == "end"
                assert theirs_as_rows(told) == first, (options, filters, SEED)
                await kv.put("eu.1", b"more")
                await go("kv.purge", bucket=unique, key="us.1")
                count = 1 if options == ["ignore_deletes"] or filters == ["eu.>"] else 2
                later = ours_as_rows([await watch.next(60) for _ in range(count)])
                assert theirs_as_rows(await go("kv.next", id="w", count=count)) == later
                await go("kv.stop", id="w")

    exchange(body)


def test_watches_from_a_revision_and_of_updates_only(
    exchange: Callable[..., None], unique: str
) -> None:
    async def body(client: Client, go: GoClient) -> None:
        kv = await client.jetstream().create_key_value(
            KeyValueConfig(bucket=unique, history=5, storage="memory")
        )
        for number in range(5):
            await kv.put("k", b"%d" % number)
        await go("kv.watch", id="from", bucket=unique, options=["history"], revision=3)
        await go("kv.watch", id="new", bucket=unique, options=["updates_only"])
        async with (
            await kv.watch(from_revision=3) as ours,
            await kv.watch(updates_only=True) as updates,
        ):
            first = ours_as_rows(await ours.initial())
            assert [row[3] for row in first] == [3, 4, 5]
            told = await go("kv.next", id="from", count=4)
            assert told.pop() == "end"
            assert theirs_as_rows(told) == first
            await go("kv.put", bucket=unique, key="k", value=b"new")
            seen = ours_as_rows([await updates.next(60)])
            assert seen == ours_as_rows([await ours.next(60)])
            assert theirs_as_rows(await go("kv.next", id="from", count=1)) == seen
            assert theirs_as_rows(await go("kv.next", id="new", count=1)) == seen
        for each in ("from", "new"):
            await go("kv.stop", id=each)

    exchange(body)


def test_lifetimes_and_the_markers_of_the_server(
    exchange: Callable[..., None], unique: str
) -> None:
    """Both see the marker that the server writes when the value of either expires."""

    async def body(client: Client, go: GoClient) -> None:
        config = {"bucket": unique, "limit_marker_ttl": 30 * 10**9, "storage": "memory"}
        await go("kv.create_bucket", config=config)
        kv = await client.jetstream().key_value(unique)
        await go("kv.watch", id="w", bucket=unique)
        async with await kv.watch() as watch:
            assert await watch.initial() == []
            await kv.create("ours", b"1", ttl=1)
            await go("kv.create", bucket=unique, key="theirs", value=b"2", ttl=1)
            entries = [await watch.next(60) for _ in range(4)]
        rows = ours_as_rows(entries)
        assert sorted(row[:3] for row in rows) == [
            ("ours", "PURGE", b""),
            ("ours", "PUT", b"1"),
            ("theirs", "PURGE", b""),
            ("theirs", "PUT", b"2"),
        ]
        assert {each.marker_reason for each in entries if each.deleted} == {"MaxAge"}
        told = await go("kv.next", id="w", count=5)
        assert told.pop(0) == "end"
        assert theirs_as_rows(told) == rows
        assert await go("kv.create", bucket=unique, key="ours", value=b"3") == 5
        assert await kv.create("theirs", b"4") == 6
        await go("kv.stop", id="w")

    exchange(body)


def test_configurations(exchange: Callable[..., None], unique: str) -> None:
    """What one creates is the same to the other: creating it again is no error."""

    async def body(client: Client, go: GoClient) -> None:
        theirs = {
            "bucket": unique,
            "description": "größe",
            "history": 3,
            "ttl": 3600 * 10**9,
            "limit_marker_ttl": 60 * 10**9,
            "max_value_size": 1000,
            "max_bytes": 10**6,
            "storage": "file",
            "compression": True,
            "metadata": {"owner": "both"},
        }
        ours = KeyValueConfig(
            bucket=unique,
            description="größe",
            history=3,
            ttl=3600,
            limit_marker_ttl=60,
            max_value_size=1000,
            max_bytes=10**6,
            compression=True,
            metadata={"owner": "both"},
        )
        js = client.jetstream()
        await go("kv.create_bucket", config=theirs)
        bucket = await js.create_key_value(ours)
        assert (await bucket.status()).config == ours
        told = (await go("kv.status", bucket=unique))["config"]
        told["metadata"] = {"owner": told["metadata"]["owner"]}  # the server has added its own
        # nats.go leaves out what is its zero value: files
        assert {"storage": "file", **told} == {**theirs, "num_replicas": 1}
        await bucket.destroy()
        bucket = await js.create_key_value(ours)
        await go("kv.create_bucket", config=theirs)
        await go("kv.create_bucket", config={**theirs, "history": 4}, options=["or_update"])
        assert (await bucket.status()).history == 4

    exchange(body)


def test_mirrors_and_sources(exchange: Callable[..., None], unique: str) -> None:
    """What is written through a mirror goes to its origin, and arrives in all copies.

    nats.go reads a mirror in the origin's account only if the copies have subjects of the mirror's own.
    """

    async def body(client: Client, go: GoClient) -> None:
        js = client.jetstream()
        origin = await js.create_key_value(KeyValueConfig(bucket=unique, storage="memory"))
        moved = SubjectTransform(src=f"$KV.{unique}.>", dest=f"$KV.{unique}-own.>")
        for name, mirror in (
            (f"{unique}-py", unique),
            (f"{unique}-own", StreamSource(name=unique, subject_transforms=[moved])),
        ):
            await js.create_key_value(KeyValueConfig(bucket=name, mirror=mirror, storage="memory"))
        for name, more in (
            (f"{unique}-go", {"mirror": {"name": unique}}),
            (f"{unique}-all", {"sources": [{"name": unique}]}),
        ):
            await go("kv.create_bucket", config={"bucket": name, "storage": "memory", **more})
        for number, name in enumerate((f"{unique}-py", f"{unique}-own", f"{unique}-go")):
            await (await js.key_value(name)).put(f"py{number}", b"ours")
            await go("kv.put", bucket=name, key=f"go{number}", value=b"theirs")
        keys = ["go0", "go1", "go2", "py0", "py1", "py2"]
        assert await origin.keys() == await go("kv.keys", bucket=unique) == keys
        for name in (f"{unique}-py", f"{unique}-own", f"{unique}-go", f"{unique}-all"):
            async with await (await js.key_value(name)).watch() as watch:
                found: set[str] = set()
                while found < set(keys):
                    entry = await watch.next(60)
                    found.add(entry.key)
        for name in (f"{unique}-own", f"{unique}-all"):
            assert await go("kv.keys", bucket=name) == keys
            assert plain((await go("kv.get", bucket=name, key="py0"))["value"]) == b"ours"
        assert await go("kv.keys", bucket=f"{unique}-go") == []

    exchange(body)
