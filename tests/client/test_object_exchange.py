"""Objects of other NATS clients: nats-py writes and reads them, nats.go's and nats.js's JSON is read."""

from __future__ import annotations

import asyncio
import io
import random
from typing import TYPE_CHECKING, Any

import nats
import nats.js.api
import nats.js.errors
import pytest

from pelton import ObjectInfo, ObjectLink, ObjectNotFoundError, ObjectStoreConfig, connect
from pelton.client.objects.models import decode_meta, encode_meta, same_digest
from tests.ways import SEED

if TYPE_CHECKING:
    from tests.peers import ServerProcess

BLOB = random.Random(SEED).randbytes(400_000)


async def exchange(url: str, bucket: str) -> None:
    theirs_client = await nats.connect(url)
    try:
        async with connect(url) as client:
            js = client.jetstream()
            ours = await js.create_object_store(ObjectStoreConfig(bucket=bucket))
            theirs = await theirs_client.jetstream().object_store(bucket)
            await we_write(ours, theirs, BLOB)
            await they_write(ours, theirs, BLOB)
            status = await theirs.status()
            assert (status.bucket, status.sealed) == (bucket, False)
            await ours.seal()
            assert (await theirs.status()).sealed
            await js.delete_object_store(bucket)
            made = await theirs_client.jetstream().create_object_store(f"{bucket}-2")
            await made.put("o", b"1")
            assert await (await js.object_store(f"{bucket}-2")).get("o") == b"1"
            assert f"{bucket}-2" in await js.object_store_names()
            await js.delete_object_store(f"{bucket}-2")
    finally:
        await theirs_client.close()


async def we_write(ours: Any, theirs: Any, blob: bytes) -> None:
    info = await ours.put(
        "ours/ä 1", blob, description="d", headers={"A": "1"}, metadata={"k": "v"}
    )
    found = await theirs.get("ours/ä 1")
    assert found.data == blob
    assert (found.info.digest, found.info.nuid) == (info.digest, info.nuid)
    assert (found.info.size, found.info.chunks, found.info.description) == (len(blob), 4, "d")
    assert found.info.headers == {"A": ["1"]}
    assert found.info.options.max_chunk_size == 128 * 1024
    await ours.put("empty", b"")
    assert (await theirs.get("empty")).data == b""
    await ours.put("tiny", b"hello world", chunk_size=1)
    assert (await theirs.get("tiny")).data == b"hello world"
    await ours.add_link("link", info)
    assert (await theirs.get("link")).data == blob
    assert sorted(each.name for each in await theirs.list()) == [
        "empty",
        "link",
        "ours/ä 1",
        "tiny",
    ]
    await ours.delete("tiny")
    with pytest.raises(nats.js.errors.ObjectNotFoundError):
        await theirs.get("tiny")
    await theirs.put("ours/ä 1", b"theirs now")
    assert await ours.get("ours/ä 1") == b"theirs now"
    assert (await ours.status()).stream_info.state.messages == 5
    for each in ("empty", "link", "ours/ä 1"):
        await ours.delete(each)


async def they_write(ours: Any, theirs: Any, blob: bytes) -> None:
    async with await ours.watch(ignore_deletes=True) as watcher:
        assert await watcher.initial() == []
        meta = nats.js.api.ObjectMeta(description="d", headers={"A": ["1"]})
        made = await theirs.put("theirs", io.BytesIO(blob), meta=meta)
        told = await watcher.next(30)
    assert told.name == "theirs"
    info = await ours.info("theirs")
    assert (info.nuid, info.digest, info.size) == (made.nuid, made.digest, len(blob))
    assert (info.description, info.headers) == ("d", {"A": ["1"]})
    assert await ours.get("theirs") == blob
    assert b"".join([chunk async for chunk in ours.chunks("theirs")]) == blob
    await theirs.put("nothing", b"")
    assert await ours.get("nothing") == b""
    await ours.put("theirs", b"ours now")
    assert (await theirs.get("theirs")).data == b"ours now"
    await ours.update_meta("theirs", description="changed")
    assert (await theirs.get_info("theirs")).description == "changed"
    await theirs.delete("theirs")
    with pytest.raises(ObjectNotFoundError):
        await ours.get("theirs")


def test_nats_py_and_we_read_each_others_objects(server: ServerProcess, unique: str) -> None:
    asyncio.run(exchange(server.url, unique))


GO_OBJECT = (
    b'{"name":"o","description":"d","headers":{"A":["1","2"]},"metadata":{"k":"v"},'
    b'"options":{"max_chunk_size":131072},"bucket":"B","nuid":"nYW0mJ2GzFGwcgLbtxIvqD","size":5,'
    b'"mtime":"0001-01-01T00:00:00Z","chunks":1,'
    b'"digest":"SHA-256=LPJNul-wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ="}'
)
GO_LINK = (
    b'{"name":"l","options":{"link":{"bucket":"B","name":"o"}},"bucket":"B","nuid":"N","size":0,'
    b'"mtime":"0001-01-01T00:00:00Z","chunks":0}'
)
GO_BUCKET_LINK = (
    b'{"name":"l","options":{"link":{"bucket":"C"}},"bucket":"B","nuid":"N","size":0,'
    b'"mtime":"0001-01-01T00:00:00Z","chunks":0}'
)
GO_DELETED = (
    b'{"name":"o","options":{"max_chunk_size":131072},"bucket":"B","nuid":"N","size":0,'
    b'"mtime":"0001-01-01T00:00:00Z","chunks":0,"deleted":true}'
)
OBJECT = ObjectInfo(
    name="o",
    description="d",
    headers={"A": ["1", "2"]},
    metadata={"k": "v"},
    chunk_size=131072,
    bucket="B",
    nuid="nYW0mJ2GzFGwcgLbtxIvqD",
    size=5,
    chunks=1,
    digest="SHA-256=LPJNul-wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=",
    mtime_ns=7,
)


@pytest.mark.parametrize(
    ("golden", "info"),
    [
        (GO_OBJECT, OBJECT),
        (
            GO_LINK,
            ObjectInfo(name="l", bucket="B", nuid="N", link=ObjectLink("B", "o"), mtime_ns=7),
        ),
        (
            GO_BUCKET_LINK,
            ObjectInfo(name="l", bucket="B", nuid="N", link=ObjectLink("C"), mtime_ns=7),
        ),
        (
            GO_DELETED,
            ObjectInfo(name="o", bucket="B", nuid="N", chunk_size=131072, deleted=True, mtime_ns=7),
        ),
    ],
)
def test_the_json_is_that_of_nats_go(golden: bytes, info: ObjectInfo) -> None:
    assert encode_meta(info) == golden
    assert decode_meta(golden, "B", 7) == info


def test_the_json_of_nats_js_is_read() -> None:
    written = (
        b'{"bucket":"B","nuid":"N","size":11,"chunks":11,"name":"hello","description":"first entry",'
        b'"options":{"max_chunk_size":1},"mtime":"2026-11-01T10:00:00.000Z",'
        b'"digest":"SHA-256=uU0nuZNNPgilLlLX2n2r-sSE7-N6U4DukIj3rOLvzek=","deleted":false}'
    )
    info = decode_meta(written, "B", 7)
    assert (info.name, info.size, info.chunk_size, info.deleted) == ("hello", 11, 1, False)
    assert (info.headers, info.metadata, info.link) == ({}, {}, None)


def test_digests_with_and_without_padding() -> None:
    digest = bytes(range(32))
    text = "SHA-256=AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
    assert same_digest(text, digest)
    assert same_digest(text.rstrip("="), digest)
    assert same_digest(text.replace("SHA", "sha"), digest)
    for wrong in ("", "SHA-256", "SHA-512=AAEC", text.replace("AAEC", "AAED"), text[8:]):
        assert not same_digest(wrong, digest)
