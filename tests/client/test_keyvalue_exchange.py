"""Buckets that several clients share: what one writes, the other reads; with nats-py and with files
of what nats.go and nats.js send.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import nats
import pytest
from nats.js import api
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError

from pelton import Client, KeyValueConfig, StreamConfig, connect
from pelton.errors import KeyExistsError, RevisionConflictError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.peers import ServerProcess

WAIT = 60


def both(server: ServerProcess, body: Callable[[Client, Any], Coroutine[Any, Any, None]]) -> None:
    """Carry out ``body`` with our JetStream and that of nats-py."""

    async def whole() -> None:
        async with asyncio.timeout(WAIT), connect(server.url) as ours:
            theirs = await nats.connect(server.url)
            try:
                await body(ours, theirs.jetstream())
            finally:
                await theirs.close()

    asyncio.run(whole())


@pytest.mark.needs("subject_delete_marker_ttl")
def test_nats_py_reads_what_we_write(server: ServerProcess, unique: str) -> None:
    async def body(client: Client, js: Any) -> None:
        config = KeyValueConfig(
            bucket=unique, history=5, ttl="1h", limit_marker_ttl=60, storage="memory"
        )
        ours = await client.jetstream().create_key_value(config)
        theirs = await js.key_value(unique)
        watch = await theirs.watchall()
        assert await watch.updates() is None
        revision = await ours.create("a.b", b"1", ttl=60)
        entry = await theirs.get("a.b")
        assert (entry.key, entry.value, entry.revision) == ("a.b", b"1", revision)
        with pytest.raises(KeyWrongLastSequenceError):
            await theirs.create("a.b", b"2")
        assert await theirs.update("a.b", b"2", last=revision) == revision + 1
        with pytest.raises(RevisionConflictError):
            await ours.update("a.b", b"3", revision)
        await ours.delete("a.b", revision=revision + 1)
        with pytest.raises(KeyNotFoundError):
            await theirs.get("a.b")
        await ours.purge("a.b", ttl=60)
        assert await theirs.create("a.b", b"4") == revision + 4
        await ours.put("c=/_-9", b"5")
        assert sorted(await theirs.keys()) == ["a.b", "c=/_-9"]
        seen = [await watch.updates() for _ in range(6)]
        assert [(each.key, each.operation, each.value or b"") for each in seen] == [
            ("a.b", None, b"1"),
            ("a.b", None, b"2"),
            ("a.b", "DEL", b""),
            ("a.b", "PURGE", b""),
            ("a.b", None, b"4"),
            ("c=/_-9", None, b"5"),
        ]
        await watch.stop()
        status = await theirs.status()
        assert (status.values, status.history, status.ttl) == (3, 5, 3600)
        assert await js.delete_key_value(unique)

    both(server, body)


def test_we_read_what_nats_py_writes(server: ServerProcess, unique: str) -> None:
    async def body(client: Client, js: Any) -> None:
        config = api.KeyValueConfig(
            bucket=unique, history=4, storage=api.StorageType.MEMORY, direct=True
        )
        theirs = await js.create_key_value(config)
        ours = await client.jetstream().key_value(unique)
        async with await ours.watch() as watch:
            assert await watch.initial() == []
            seen = []
            for write in (
                theirs.put("a", b"1"),
                theirs.put("a", b"2"),
                theirs.delete("a"),
                theirs.create("a", b"3"),
                theirs.put("x.y", b"4"),
                theirs.purge("x.y"),
            ):
                await write
                seen.append(await watch.next(WAIT))
        assert [(each.key, each.operation, each.data) for each in seen] == [
            ("a", "PUT", b"1"),
            ("a", "PUT", b"2"),
            ("a", "DEL", b""),
            ("a", "PUT", b"3"),
            ("x.y", "PUT", b"4"),
            ("x.y", "PURGE", b""),
        ]
        entry = await ours.get("a")
        assert entry is not None
        assert (entry.value, entry.revision) == (b"3", 4)
        assert await ours.get("x.y") is None
        assert await ours.keys() == ["a"]
        with pytest.raises(KeyExistsError):
            await ours.create("a", b"")
        assert await ours.create("x.y", b"5") == 7
        assert len(await ours.history("a")) == 4
        assert (await ours.status()).history == 4
        assert await ours.delete("a", revision=4) == 8
        assert await ours.purge_deletes(0) == 4
        assert await theirs.keys() == ["x.y"]
        await ours.destroy()

    both(server, body)


@pytest.mark.needs("subject_delete_marker_ttl")
def test_the_messages_are_those_that_the_official_clients_send(
    server: ServerProcess, unique: str
) -> None:
    """Headers as jetstream/kv.go and kv.ts write them, seen as the stream stores them."""

    async def body(client: Client, _: Any) -> None:
        js = client.jetstream()
        config = KeyValueConfig(bucket=unique, history=9, storage="memory", limit_marker_ttl=1)
        bucket = await js.create_key_value(config)
        await bucket.put("k", b"1")
        await bucket.update("k", b"2", 1)
        await bucket.delete("k")
        await bucket.delete("k", revision=3)
        await bucket.create("k", b"3", ttl="1h30m")
        stored = [await js.get_message(f"KV_{unique}", seq) for seq in range(1, 6)]
        expected = "Nats-Expected-Last-Subject-Sequence"
        assert [(each.subject, each.data, each.headers.lists()) for each in stored] == [
            (f"$KV.{unique}.k", b"1", {}),
            (f"$KV.{unique}.k", b"2", {expected: ["1"]}),
            (f"$KV.{unique}.k", b"", {"KV-Operation": ["DEL"]}),
            (f"$KV.{unique}.k", b"", {"KV-Operation": ["DEL"], expected: ["3"]}),
            (f"$KV.{unique}.k", b"3", {expected: ["4"], "Nats-TTL": ["1h30m0s"]}),
        ]
        purged = await js.get_message(
            f"KV_{unique}", await bucket.purge("k", revision=5, ttl="90s")
        )
        assert purged.headers.lists() == {
            "KV-Operation": ["PURGE"],
            "Nats-Rollup": ["sub"],
            expected: ["5"],
            "Nats-TTL": ["1m30s"],
        }
        await bucket.destroy()

    both(server, body)


def test_we_open_what_nats_js_creates(server: ServerProcess, unique: str) -> None:
    """Its stream has another configuration: no deny_delete, and the server's duplicate window."""

    async def body(client: Client, _: Any) -> None:
        js = client.jetstream()
        await js.create_stream(
            StreamConfig(
                name=f"KV_{unique}",
                subjects=[f"$KV.{unique}.>"],
                max_msgs_per_subject=2,
                max_bytes=-1,
                max_msg_size=-1,
                storage="memory",
                num_replicas=1,
                discard="new",
                allow_direct=True,
                allow_rollup_hdrs=True,
            )
        )
        bucket = await js.key_value(unique)
        assert await bucket.put("a", b"1") == 1
        status = await bucket.status()
        assert (status.history, status.config.max_value_size) == (2, -1)
        await js.update_key_value(status.config)
        assert (await js.stream_info(f"KV_{unique}")).config.deny_delete
        await bucket.destroy()

    both(server, body)
