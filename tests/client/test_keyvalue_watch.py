"""Watches through restarts, cancellation and the end of their readers."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import pelton.testing
from pelton import KeyValue, KeyValueConfig, StreamConfig, connect, sync
from pelton.errors import (
    BucketNotFoundError,
    BucketReplacedError,
    ConnectionClosedError,
    PeltonTimeoutError,
)
from tests.client.shells import connected

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.peers import ServerProcess

WAIT = 90
"""Ends a wait for something that will never come."""


def keep_trying(call: Callable[[], Any]) -> Any:
    """Call until the connection is back."""
    while True:
        try:
            return call()
        except (ConnectionClosedError, PeltonTimeoutError):
            continue


@pytest.mark.parametrize("kill", [False, True])
def test_a_watch_goes_on_after_restarts(shell: str, own_server: ServerProcess, kill: bool) -> None:
    """It is idle, in the middle of its first values, or behind while the server stops."""
    with connected(shell, own_server.url, reconnect_wait=0.05) as client:
        bucket = client.jetstream().create_key_value(KeyValueConfig(bucket="b", history=3))
        for n in range(6):
            bucket.put(f"k{n % 3}", b"%d" % n)
        begun, idle = bucket.watch(), bucket.watch("other")
        found = [begun.next(WAIT)]
        assert idle.initial() == []
        written = 6
        for _ in range(7):  # more often than a reader may fail in a row
            own_server.stop(kill=kill)
            own_server.start()
            for _ in range(2):
                bucket_put = keep_trying(lambda n=written: bucket.put(f"k{n % 3}", b"%d" % n))  # type: ignore[misc]  # bound now
                assert bucket_put == written + 1
                written += 1
            while found[-1].revision < written:
                found.append(begun.next(WAIT))
        assert [entry.revision for entry in found] == [*range(4, written + 1)]
        assert [entry.is_update for entry in found] == [False] * 3 + [True] * (written - 6)
        bucket.put("other", b"1")
        assert idle.next(WAIT).value == b"1"
        idle.stop()
        begun.stop()
        assert client.jetstream().consumer_names("KV_b") == []


def test_a_bucket_that_a_restart_took_is_told(shell: str, own_server: ServerProcess) -> None:
    config = KeyValueConfig(bucket="b", storage="memory")
    with connected(shell, own_server.url, reconnect_wait=0.05) as client:
        bucket = client.jetstream().create_key_value(config)
        bucket.put("a", b"1")
        gone, replaced = bucket.watch(), bucket.watch()
        assert len(gone.initial() + replaced.initial()) == 2
        own_server.stop()
        own_server.start()
        with pytest.raises(BucketNotFoundError, match="'b'"):
            gone.next(WAIT)
        keep_trying(lambda: client.jetstream().create_key_value(config))
        for _ in range(5):
            bucket.put("a", b"2")
        # In blocking code nobody has looked before the bucket was made again; a task may have.
        kinds: tuple[type[Exception], ...] = (BucketReplacedError, BucketNotFoundError)
        kinds = kinds[:1] if shell == "blocking" else kinds
        for _ in range(2):
            with pytest.raises(kinds, match=r"watch it again|'b'"):
                replaced.next(WAIT)
        with bucket.watch() as again:
            assert [entry.value for entry in again.initial()] == [b"2"]


def run(server: ServerProcess, body: Callable[[Any], Coroutine[Any, Any, None]], name: str) -> None:
    """Carry out ``body`` with a new bucket."""

    async def whole() -> None:
        async with asyncio.timeout(WAIT), connect(server.url) as client:
            js = client.jetstream()
            bucket = await js.create_key_value(KeyValueConfig(bucket=name, storage="memory"))
            await body(bucket)
            await bucket.destroy()

    asyncio.run(whole())


def test_a_cancelled_call_loses_no_entry(server: ServerProcess, unique: str) -> None:
    async def body(bucket: Any) -> None:
        watch = await bucket.watch(updates_only=True)
        assert await watch.initial() == []
        found: list[int] = []
        stored = 0
        for n in range(60):
            call = asyncio.create_task(watch.next())
            for _ in range(n % 12):
                await asyncio.sleep(0)
            if n % 3 == 0:
                stored = await bucket.put(f"k{n}", b"")
            call.cancel()
            try:
                found.append((await call).revision)
            except asyncio.CancelledError:
                continue
        while len(found) < stored:
            found.append((await watch.next(WAIT)).revision)
        assert found == [*range(1, stored + 1)]
        await watch.stop()

    run(server, body, unique)


def test_stopping_a_watch_ends_its_reader(server: ServerProcess, unique: str) -> None:
    async def body(bucket: Any) -> None:
        for turns in (0, 1, 2, 3, 5, 8, 13, 21, 200):
            watch = await bucket.watch()

            async def read(watch: Any = watch) -> list[Any]:
                return [entry async for entry in watch]

            reader = asyncio.create_task(read())
            for _ in range(turns):
                await asyncio.sleep(0)
            await watch.stop()
            assert await reader == []
        watch = await bucket.watch()
        await watch.initial()
        readers = [asyncio.create_task(watch.next()) for _ in range(2)]
        await asyncio.sleep(0)
        await watch.stop()
        for reader in readers:
            with pytest.raises(ConnectionClosedError, match="stopped"):
                await reader

    run(server, body, unique)


def test_a_watch_that_is_dropped_takes_its_subscription_with_it(
    shell: str, server: ServerProcess, unique: str
) -> None:
    with connected(shell, server.url) as client:
        bucket = client.jetstream().create_key_value(
            KeyValueConfig(bucket=unique, storage="memory")
        )
        client.flush()
        before = len(client._connection.interests)
        for _ in range(5):
            watch = bucket.watch()
            watch.initial()
            del watch
        gc.collect()
        bucket.watch().stop()
        assert bucket.keys() == []
        client.flush()
        assert len(client._connection.interests) <= before + 1
        bucket.destroy()


@pytest.mark.needs("allow_atomic")
def test_a_snapshot_never_shows_half_of_a_transaction(server: ServerProcess, unique: str) -> None:
    """A thread moves a sum between two keys, while another reads both at once."""
    config = KeyValueConfig(bucket=unique, storage="memory", allow_atomic=True)
    with sync.connect(server.url) as writing, sync.connect(server.url) as reading:
        written = writing.jetstream().create_key_value(config)
        written.put_many({"a.x": b"100", "b.x": b"0"})
        enough = threading.Event()

        def move() -> None:
            for n in range(1, 101):
                written.put_many({"a.x": b"%d" % (100 - n), "b.x": b"%d" % n})
                if enough.is_set():
                    return

        thread = threading.Thread(target=move)
        thread.start()
        try:
            read = reading.jetstream().key_value(unique)
            revision = 0
            for _ in range(15):
                snapshot = read.snapshot("a.>", "b.>")
                assert sum(int(entry.value) for entry in snapshot.values()) == 100
                assert snapshot.revision >= revision
                revision = snapshot.revision
        finally:
            enough.set()
            thread.join()
        written.destroy()


def test_a_snapshot_asks_once_for_many_changes(
    shell: str, server: ServerProcess, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question for each change never ends while another client writes without a pause."""
    kind: Any = KeyValue if shell == "asyncio" else sync.KeyValue
    newest, asked, bursts = kind._newest, 0, 4
    config = KeyValueConfig(bucket=unique, storage="memory")
    with connected(shell, server.url) as client, sync.connect(server.url) as other:
        bucket = client.jetstream().create_key_value(config)
        writing = other.jetstream().key_value(unique)
        writing.put("k", b"")

        def write_and_ask(self: Any, subjects: Any) -> Any:
            nonlocal asked
            asked += 1
            if asked <= bursts:
                for n in range(50):
                    writing.put(f"k{n % 7}", b"%d" % asked)
            return newest(self, subjects)

        monkeypatch.setattr(kind, "_newest", write_and_ask)
        snapshot = bucket.snapshot(timeout=WAIT)
        assert snapshot.revision == 1 + 50 * bursts
        assert {key: entry.value for key, entry in snapshot.items() if key != "k"} == {
            f"k{n}": b"%d" % bursts for n in range(7)
        }
        assert asked <= 3 * bursts
        asked, bursts = 0, 10**9
        with pytest.raises(PeltonTimeoutError, match="without a pause"):
            bucket.snapshot(timeout=0.2)
        bucket.destroy()


def delivered(js: Any, stream: str, revision: int) -> None:
    """Wait until the only consumer of the stream has delivered this revision."""
    deadline = time.monotonic() + WAIT
    (info,) = js.consumers(stream)
    while info.delivered.stream_seq < revision:
        assert time.monotonic() < deadline, f"revision {revision} is not delivered"
        info = js.consumer_info(stream, info.name)


@pytest.mark.parametrize("begin", ["block", "initial", "updates"])
def test_a_change_is_delivered_before_the_watch_is_read(
    shell: str, server: ServerProcess, unique: str, begin: str
) -> None:
    """So the next change of the key, which replaces it in the bucket, hides none."""
    config = KeyValueConfig(bucket=unique, storage="memory")
    with connected(shell, server.url) as client, sync.connect(server.url) as other:
        bucket = client.jetstream().create_key_value(config)
        watch = bucket.watch(updates_only=begin == "updates")
        with watch if begin == "block" else contextlib.nullcontext():
            if begin != "block":
                assert watch.initial() == []
            js = other.jetstream()
            writing = js.key_value(unique)
            for n in range(1, 6):
                assert writing.put("k", b"%d" % n) == n
                delivered(js, f"KV_{unique}", n)
            writing.purge("k")
            found = [watch.next(WAIT) for _ in range(6)]
        assert [entry.revision for entry in found] == [*range(1, 7)]
        assert found[-1].operation == "PURGE"
        watch.stop()
        bucket.destroy()


def test_a_bucket_that_was_restored_is_told(shell: str) -> None:
    """It ends before what the watch has had; new values would come under sequences that were there."""
    with pelton.testing.broker() as broker, connected(shell, broker.url) as client:
        bucket = client.jetstream().create_key_value(KeyValueConfig(bucket="b"))
        bucket.put("a", b"1")
        state = broker.snapshot()
        bucket.put("a", b"2")
        bucket.put("b", b"2")
        watch = bucket.watch()
        assert len(watch.initial()) == 2
        broker.rollback(state)
        bucket.put("a", b"3")
        with pytest.raises(BucketReplacedError):
            watch.next(timeout=WAIT)
        with bucket.watch() as again:
            assert [entry.value for entry in again.initial()] == [b"3"]


def test_no_call_waits_for_ever_for_a_silent_server(
    shell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind: Any = KeyValue if shell == "asyncio" else sync.KeyValue
    with pelton.testing.broker() as broker, connected(shell, broker.url) as client:
        js = client.jetstream(timeout=0.2)
        bucket = client.jetstream().create_key_value("b", history=5)
        bucket.put("k", b"1")
        bucket, watch = js.key_value("b"), js.key_value("b").watch()
        assert len(watch.initial()) == 1
        broker.drop("$JS.API.>", times=None)
        for call in (
            *(bucket.watch, lambda: bucket.get("k"), bucket.keys, bucket.history),
            *(bucket.snapshot, bucket.purge_deletes, bucket.status),
        ):
            begun = time.monotonic()
            with pytest.raises(PeltonTimeoutError):
                call()
            assert time.monotonic() - begun < 30
        assert watch.next(0.1) is None
    with pelton.testing.broker() as broker, connected(shell, broker.url) as client:
        bucket = client.jetstream().create_key_value("b")
        watch = bucket.watch()

        def silent(_: Any) -> Any:
            raise PeltonTimeoutError("no answer")

        with monkeypatch.context() as patched:
            patched.setattr(kind, "_is_same", silent)
            (name,) = client.jetstream().consumer_names("KV_b")
            client.jetstream().delete_consumer("KV_b", name)
            assert watch.next(1) is None
        bucket.put("k", b"1")
        assert watch.next(WAIT).value == b"1"
        watch.stop()


def test_an_ordered_reader_goes_on_behind_the_end_of_a_stream_that_was_restored(
    shell: str,
) -> None:
    with pelton.testing.broker() as broker, connected(shell, broker.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name="S", subjects=["s"]))
        js.publish("s", b"1")
        state = broker.snapshot()
        js.publish("s", b"2")
        reader = js.ordered_consumer("S")
        assert [message.data for message in reader.fetch(2)] == [b"1", b"2"]
        broker.rollback(state)
        assert reader.fetch(1, timeout=1) == []  # it has a new consumer now
        js.publish("s", b"3")
        (message,) = reader.fetch(1, timeout=WAIT)
        assert (message.data, message.metadata.stream_seq) == (b"3", 2)
        reader.close()
