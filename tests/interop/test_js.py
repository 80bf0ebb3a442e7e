"""Buckets, object stores and services that our client and nats.js share, on either server.

What nats.js does otherwise than other clients is in docs/reference/other-clients.md.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from pelton import (
    Client,
    KeyValueConfig,
    LinkNotFollowedError,
    ObjectNotFoundError,
    ObjectStoreConfig,
    ServiceError,
)
from pelton.errors import ApiError, KeyExistsError, RevisionConflictError
from tests.interop.probe import RefusedError, plain
from tests.interop.test_go_keyvalue import ours_as_rows, theirs_as_rows
from tests.interop.test_go_objects import as_row
from tests.interop.test_go_services import METADATA, of_all, our_service
from tests.ways import SEED

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.interop.probe import JsClient

WRONG_LAST_SEQUENCE = 10071
BINARY = bytes(range(256)) * 40
BLOB = random.Random(SEED).randbytes(300_001)


def initial(rows: list[dict[str, Any]]) -> list[bool]:
    return [not each["is_update"] for each in rows]


# -- key-value


def test_each_writes_what_the_other_reads(exchange_js: Callable[..., None], unique: str) -> None:
    async def body(client: Client, js: JsClient) -> None:
        stream = client.jetstream()
        await stream.create_key_value(
            KeyValueConfig(bucket=f"{unique}-py", history=8, storage="memory")
        )
        theirs = {"bucket": f"{unique}-js", "history": 8, "storage": "memory"}
        await js("kv.create_bucket", config=theirs)
        names = [f"{unique}-js", f"{unique}-py"]
        for bucket in names:
            await write_in_turns(client, js, bucket)
        found = [each for each in await stream.key_value_names() if each.startswith(unique)]
        told = [each for each in await js("kv.names") if each.startswith(unique)]
        assert sorted(found) == sorted(told) == names
        await js("kv.delete_bucket", bucket=f"{unique}-py")
        await stream.delete_key_value(f"{unique}-js")

    exchange_js(body)


async def write_in_turns(client: Client, js: JsClient, bucket: str) -> None:
    kv = await client.jetstream().key_value(bucket)
    assert await kv.put("k", BINARY) == 1
    found = await js("kv.get", bucket=bucket, key="k")
    assert (plain(found["value"]), found["revision"]) == (BINARY, 1)
    assert await js("kv.update", bucket=bucket, key="k", value=b"2", revision=1) == 2
    with pytest.raises(RevisionConflictError):
        await kv.update("k", b"3", 1)
    assert await kv.update("k", b"3", 2) == 3
    with pytest.raises(RefusedError) as refused:
        await js("kv.update", bucket=bucket, key="k", value=b"4", revision=2)
    assert refused.value.code == WRONG_LAST_SEQUENCE
    with pytest.raises(RefusedError):
        await js("kv.create", bucket=bucket, key="k", value=b"4")
    with pytest.raises(KeyExistsError):
        await kv.create("k", b"4")
    await js("kv.delete", bucket=bucket, key="k", revision=3)
    assert await kv.get("k") is None
    assert await kv.create("k", b"5") == 5
    assert await kv.delete("k") == 6
    assert await js("kv.get", bucket=bucket, key="k") is None
    assert await js("kv.create", bucket=bucket, key="k", value=b"7") == 7
    old = await kv.get("k", 1)
    assert old is not None
    assert old.data == BINARY
    assert plain((await js("kv.get", bucket=bucket, key="k", revision=3))["value"]) == b"3"
    history = ours_as_rows(await kv.history("k"))
    assert history == theirs_as_rows(await js("kv.history", bucket=bucket, key="k"))
    assert [row[1] for row in history] == ["PUT", "PUT", "PUT", "DEL", "PUT", "DEL", "PUT"]
    await kv.put("a.b.c", b"")
    await js("kv.put", bucket=bucket, key="c=/_-9", value=b"")
    assert await kv.keys() == await js("kv.keys", bucket=bucket) == ["a.b.c", "c=/_-9", "k"]
    assert await js("kv.keys", bucket=bucket, keys=["*.b.*"]) == await kv.keys("*.b.*")
    await js("kv.purge", bucket=bucket, key="k", revision=7)
    assert [each.operation for each in await kv.history("k")] == ["PURGE"]
    await kv.purge("a.b.c")
    told = theirs_as_rows(await js("kv.history", bucket=bucket, key="a.b.c"))
    assert [row[:3] for row in told] == [("a.b.c", "PURGE", b"")]
    status, other = await kv.status(), await js("kv.status", bucket=bucket)
    assert (other["history"], other["values"], other["bytes"]) == (8, status.values, status.bytes)


def test_watches_tell_the_same(exchange_js: Callable[..., None], unique: str) -> None:
    """The initial values, which nats.js marks, and what follows them."""

    async def body(client: Client, js: JsClient) -> None:
        kv = await client.jetstream().create_key_value(
            KeyValueConfig(bucket=unique, history=5, storage="memory")
        )
        for number in range(6):
            await kv.put(f"eu.{number % 3}", b"%d" % number)
            await js("kv.put", bucket=unique, key=f"us.{number % 3}", value=b"%d" % number)
        await js("kv.delete", bucket=unique, key="eu.0")
        await kv.purge("us.0")
        ways: list[tuple[list[str], list[str], dict[str, Any]]] = [
            ([], [], {}),
            (["history"], [], {"history": True}),
            (["meta_only"], [], {"without_values": True}),
            ([], ["eu.>"], {}),
            ([], ["eu.1", "us.*"], {}),
        ]
        for options, filters, ours in ways:
            async with await kv.watch(*filters, **ours) as watch:
                first = ours_as_rows(await watch.initial())
                await js("kv.watch", id="w", bucket=unique, keys=filters, options=options)
                told = await js("kv.next", id="w", count=len(first))
                assert theirs_as_rows(told) == first, (options, filters, SEED)
                assert initial(told)[:-1] == [True] * (len(first) - 1)  # the last one ends them
                await kv.put("eu.1", b"more")
                await js("kv.purge", bucket=unique, key="us.1")
                count = 1 if filters == ["eu.>"] else 2
                later = ours_as_rows([await watch.next(60) for _ in range(count)])
                told = await js("kv.next", id="w", count=count)
                assert theirs_as_rows(told) == later
                assert initial(told) == [False] * count
                await js("kv.stop", id="w")
        await js("kv.watch", id="new", bucket=unique, options=["updates_only"])
        async with await kv.watch(updates_only=True) as updates:
            await js("kv.put", bucket=unique, key="k", value=b"new")
            seen = ours_as_rows([await updates.next(60)])
            assert theirs_as_rows(await js("kv.next", id="new", count=1)) == seen
        await js("kv.stop", id="new")

    exchange_js(body)


def test_lifetimes_and_markers(exchange_js: Callable[..., None], unique: str) -> None:
    async def body(client: Client, js: JsClient) -> None:
        config = {"bucket": unique, "limit_marker_ttl": 30 * 10**9, "storage": "memory"}
        await js("kv.create_bucket", config=config)
        kv = await client.jetstream().key_value(unique)
        assert (await kv.status()).config.limit_marker_ttl == 30 * 10**9
        async with await kv.watch() as watch:
            assert await watch.initial() == []
            await kv.create("ours", b"1", ttl=1)
            await js("kv.create", bucket=unique, key="theirs", value=b"2", ttl=1)
            entries = [await watch.next(60) for _ in range(4)]
        rows = ours_as_rows(entries)
        assert sorted(row[:2] for row in rows) == [
            ("ours", "PURGE"),
            ("ours", "PUT"),
            ("theirs", "PURGE"),
            ("theirs", "PUT"),
        ]
        assert {each.marker_reason for each in entries if each.deleted} == {"MaxAge"}
        assert await js("kv.get", bucket=unique, key="ours") is None
        assert await js("kv.create", bucket=unique, key="ours", value=b"3") == 5
        assert await kv.create("theirs", b"4") == 6

    exchange_js(body)


def test_configurations_are_read_by_both(exchange_js: Callable[..., None], unique: str) -> None:
    async def body(client: Client, js: JsClient) -> None:
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
        await client.jetstream().create_key_value(ours)
        told = await js("kv.status", bucket=unique)
        assert told["metadata"]["owner"] == "both"
        del told["metadata"]
        assert told == {
            "bucket": unique,
            "values": 0,
            "bytes": 0,
            "history": 3,
            "ttl": 3600,
            "limit_marker_ttl": 60,
            "description": "größe",
            "compressed": True,
            "max_value_size": 1000,
            "max_bytes": 10**6,
            "storage": "file",
        }

    exchange_js(body)


# -- object stores


def test_objects_of_all_sizes(exchange_js: Callable[..., None], unique: str) -> None:
    async def body(client: Client, js: JsClient) -> None:
        store = await client.jetstream().create_object_store(
            ObjectStoreConfig(bucket=unique, storage="memory")
        )
        chunks: list[tuple[bytes, int | None]] = [
            (b"", None),
            (b"1", None),
            (BLOB[:300], 1),
            (BLOB[:4096], 1024),  # the last chunk is full
            (BLOB[:4097], 1024),
            (BLOB, None),
        ]
        for number, (content, size) in enumerate(chunks):
            name = ("plain", "a.b.*.>", " ", "x" * 1000)[number % 4]
            put = await store.put(name, content, chunk_size=size)
            assert plain(await js("obj.get", bucket=unique, name=name)) == content
            assert await js("obj.info", bucket=unique, name=name) == as_row(await store.info(name))
            made = await js(
                "obj.put", bucket=unique, name=name, value=content, chunk_size=size or 0
            )
            assert await store.get(name) == content
            assert as_row(await store.info(name)) == made
            assert (made["digest"], made["size"]) == (put.digest, put.size)

    exchange_js(body)


def test_properties_links_and_deletes(exchange_js: Callable[..., None], unique: str) -> None:
    async def body(client: Client, js: JsClient) -> None:
        stream = client.jetstream()
        for bucket in (f"{unique}-py", f"{unique}-2"):
            await stream.create_object_store(ObjectStoreConfig(bucket=bucket, storage="memory"))
        await js("obj.create_store", config={"bucket": f"{unique}-js", "storage": "memory"})
        for bucket in (f"{unique}-py", f"{unique}-js"):
            await share(client, js, bucket, f"{unique}-2")
        names = [each for each in await js("obj.names") if each.startswith(unique)]
        assert sorted(names) == [f"{unique}-2", f"{unique}-js", f"{unique}-py"]
        await js("obj.delete_store", bucket=f"{unique}-py")
        await stream.delete_object_store(f"{unique}-js")

    exchange_js(body)


async def share(client: Client, js: JsClient, bucket: str, other: str) -> None:
    store = await client.jetstream().object_store(bucket)
    far = await client.jetstream().object_store(other)
    more: dict[str, Any] = {"headers": {"A": ["1", "2"]}, "metadata": {"k": "größe"}}
    await store.put("ours", BLOB[:200_000], description="dä", **more)
    await js("obj.put", bucket=bucket, name="theirs", value=BLOB, text="dä", **more)
    for name in ("ours", "theirs"):
        info = await store.info(name)
        assert (info.description, dict(info.headers)) == ("dä", {"A": ["1", "2"]})
        assert info.metadata == {"k": "größe"}
        assert as_row(info) == await js("obj.info", bucket=bucket, name=name)
    await far.put("far", b"away")
    await store.add_link("py-link", await store.info("theirs"))
    await js("obj.link", bucket=bucket, name="js-link", target="ours")
    await store.add_link("py-far", await far.info("far"))
    await js("obj.link_bucket", bucket=bucket, name="js-bucket", target=other)
    assert plain(await js("obj.get", bucket=bucket, name="py-link")) == BLOB
    assert await store.get("js-link") == BLOB[:200_000]
    assert plain(await js("obj.get", bucket=bucket, name="py-far")) == b"away"
    with pytest.raises(LinkNotFollowedError):
        await store.get("js-bucket")
    await compare_lists(store, js, bucket)
    await store.update_meta("theirs", rename="renamed", metadata={"k": "2"})
    assert plain(await js("obj.get", bucket=bucket, name="renamed")) == BLOB
    await js("obj.update_meta", bucket=bucket, name="ours", target="again", text="new")
    assert (await store.info("again")).description == "new"
    assert await store.get("again") == BLOB[:200_000]
    await store.delete("renamed")
    await js("obj.delete", bucket=bucket, name="again")
    with pytest.raises(ObjectNotFoundError):
        await store.get("again")
    with pytest.raises(RefusedError, match="object not found"):
        await js("obj.get", bucket=bucket, name="renamed")
    deleted = await store.info("again", show_deleted=True)
    assert (deleted.deleted, deleted.size) == (True, 0)
    await compare_lists(store, js, bucket)


async def compare_lists(store: Any, js: JsClient, bucket: str) -> None:
    def by_name(each: dict[str, Any]) -> str:
        return str(each["name"])

    listed = [as_row(each) for each in await store.list()]
    told = await js("obj.list", bucket=bucket)
    assert sorted(told, key=by_name) == sorted(listed, key=by_name)


def test_a_sealed_store(exchange_js: Callable[..., None], unique: str) -> None:
    async def body(client: Client, js: JsClient) -> None:
        store = await client.jetstream().create_object_store(ObjectStoreConfig(bucket=unique))
        await store.put("o", BLOB)
        await js("obj.seal", bucket=unique)
        assert (await store.status()).sealed
        with pytest.raises(ApiError):
            await store.put("p", b"1")
        with pytest.raises(RefusedError):
            await js("obj.put", bucket=unique, name="p", value=b"1")
        assert plain(await js("obj.get", bucket=unique, name="o")) == await store.get("o") == BLOB
        await store.destroy()

    exchange_js(body)


# -- services


def test_services_find_and_call_each_other(exchange_js: Callable[..., None], unique: str) -> None:
    async def body(client: Client, js: JsClient) -> None:
        ours = await our_service(client, f"{unique}-py", f"{unique}-py")
        more = {"text": "dä", "metadata": METADATA, "key": "workers"}
        theirs = await js("svc.add", id="s", name=f"{unique}-js", subject=f"{unique}-js", **more)
        caller = client.service_client()
        (info,) = await of_all(caller.info, f"{unique}-js", 1)
        assert (info.id, info.description, info.metadata) == (theirs["id"], "dä", METADATA)
        assert {each.subject: each.queue_group for each in info.endpoints} == {
            f"{unique}-js.echo.*": "workers",
            f"{unique}-js.fail": "of-its-own",
            f"{unique}-js.deep.json": "deeper",
        }
        (told,) = await js("svc.ask", text="INFO", name=f"{unique}-py")
        assert (told["id"], told["description"], told["metadata"]) == (ours.id, "dä", METADATA)
        assert {f"{unique}-py.echo.*", f"{unique}-py.deep.json"} < {
            each["subject"] for each in told["endpoints"]
        }
        (ping,) = await js("svc.ask", text="PING", name=f"{unique}-py", key=ours.id)
        assert (ping["id"], ping["version"]) == (ours.id, "1.2.3")
        await call_each_other(client, js, unique, ours.id, theirs["id"])
        (mine,) = await js("svc.ask", text="STATS", name=f"{unique}-py")
        (other,) = await of_all(caller.stats, f"{unique}-js", 1)
        counts = {each["name"]: each["num_requests"] for each in mine["endpoints"]}
        assert counts == {"echo": 1, "fail": 1, "json": 1, "all": 0}
        assert {each.name: each.num_requests for each in other.endpoints} == {
            "echo": 1,
            "fail": 1,
            "json": 1,
        }
        await ours.stop()
        await js("svc.stop", id="s")
        while await caller.ping(f"{unique}-js"):
            pass

    exchange_js(body)


async def call_each_other(
    client: Client, js: JsClient, unique: str, our_id: str, their_id: str
) -> None:
    caller = client.service_client()
    body = bytes(range(256)) * 100
    headers = {"A": ["1", "2"]}
    answer = await caller.request(f"{unique}-js.echo.x", body, headers=headers)
    assert (answer.data, answer.header("From"), answer.headers.get_all("A")) == (
        body,
        their_id,
        ["1", "2"],
    )
    told = await js("svc.request", subject=f"{unique}-py.echo.x", value=body, headers=headers)
    assert (plain(told["data"]), told["headers"]["From"]) == (body, [our_id])
    assert told["headers"]["A"] == ["1", "2"]
    with pytest.raises(ServiceError, match="not now: ä") as refused:
        await caller.request(f"{unique}-js.fail", "ä".encode())
    assert (refused.value.code, refused.value.data) == ("409", b"details")
    told = await js("svc.request", subject=f"{unique}-py.fail", value="ä".encode())
    assert told["headers"]["Nats-Service-Error-Code"] == ["409"]
    assert plain(told["data"]) == b"details"
    answer = await caller.request(f"{unique}-js.deep.json", b"z")
    told = await js("svc.request", subject=f"{unique}-py.deep.json", value=b"z")
    assert answer.data == plain(told["data"]) == b'{"got":"z"}'
