"""Event stores of every kind against a model, with rivals, and their outbox under kill -9."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pelton import Nanoseconds, StreamConfig, connect
from pelton.plgd import Era, aggregate_id, decode
from pelton.plgd.projection import apply, new_snapshot
from pelton.plgd.store import (
    Aggregates,
    EventStore,
    Outbox,
    SqliteStore,
    StoreError,
    VersionConflictError,
)
from pelton.plgd.wire import events_pb2 as events
from tests.plgd.stores import KINDS, Place, places
from tests.ways import FULL, REASON, length

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.peers import ServerProcess

DEVICE = "00000000-0000-4000-8000-000000000001"
HREF = "/light/1"
LIGHT = aggregate_id(DEVICE, HREF)
ID = events.ResourceId(device_id=DEVICE, href=HREF)


def changed(value: int) -> Any:
    content = events.Content(data=b"%d" % value, content_type="application/json")
    return events.ResourceChanged(resource_id=ID, content=content, status=events.OK)


def once_more(snapshot: Any | None) -> Sequence[Any]:
    """Count one further than the state says."""
    before = 0 if snapshot is None else int(snapshot.latest_resource_change.content.data)
    return [changed(before + 1)]


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    yield from places(request.param, tmp_path)


def aggregates(store: EventStore, **options: Any) -> Aggregates:
    return Aggregates(store, era=Era.HREF, **options)


def test_a_state_is_what_its_events_say_and_all_wait_for_the_bus(place: Place, seed: int) -> None:
    rng = random.Random(seed)
    with place() as store:
        change = aggregates(store).change
        for now_ns in range(1, 30):
            count = rng.randrange(3)
            change(LIGHT, "a", now_ns, lambda _, n=count: [changed(i) for i in range(n)])
        kept = list(store.events(LIGHT))
        assert [e.event_metadata.version for e in kept] == list(range(len(kept)))
        state = new_snapshot(kept[0])
        for message in kept:
            apply(state, message)
        many = store.events_of([LIGHT, "none"])
        assert (many[LIGHT], many.get("none", [])) == (kept, [])
        found = store.load(LIGHT)
        assert found is not None
        assert (found.snapshot, found.version, found.owner) == (state, len(kept) - 1, "a")
        out = [decode(item.subject, item.payload) for item in store.outgoing()]
        assert [event.message for event in out] == kept
    with place() as store:
        assert store.load(LIGHT) == found
        assert [a.version for a in store.aggregates(owner="a", device_ids=[DEVICE])] == [
            found.version
        ]
        assert list(store.aggregates(owner="b")) == []
        assert list(store.aggregates(after_ns=found.timestamp_ns)) == []
        assert store.delete_device(DEVICE) == 1
        assert store.load(LIGHT) is None
        [again] = aggregates(store).change(LIGHT, "a", 99, once_more)
        assert again.event_metadata.version == 0


def test_rivals_lose_no_change(place: Place) -> None:
    def work() -> None:
        with place() as store:
            for _ in range(25):
                while True:
                    try:
                        aggregates(store).change(LIGHT, "a", 1, once_more)
                        break
                    except VersionConflictError:
                        continue

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with place() as store:
        state = store.load(LIGHT)
        assert state is not None
        assert state.version == 74
        assert state.snapshot.latest_resource_change.content.data == b"75"


def test_a_file_may_be_made_by_several_at_once(tmp_path: Path) -> None:
    for number in range(10):
        ready, opened = threading.Barrier(4), []

        def work(path: Path, ready: threading.Barrier, opened: list[bool]) -> None:
            ready.wait()
            with SqliteStore(path):
                opened.append(True)

        file = tmp_path / str(number)
        threads = [threading.Thread(target=work, args=(file, ready, opened)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(opened) == 4


def test_a_version_that_is_not_expected_changes_nothing(place: Place) -> None:
    with place() as store:
        aggregates(store).change(LIGHT, "a", 1, once_more)
        state = store.load(LIGHT)
        assert state is not None
        with pytest.raises(VersionConflictError, match=f"aggregate {LIGHT}"):
            store.append(state, [], [], after=-1)
        with pytest.raises(ValueError, match="not of aggregate other"):
            aggregates(store).change("other", "a", 1, once_more)
        assert len(store.outgoing()) == 1


def test_an_older_hub_stores_snapshots_with_versions_of_their_own(place: Place) -> None:
    with place() as store:
        older = aggregates(store, snapshot_every=4)
        for now_ns in range(10):
            older.change(LIGHT, "a", now_ns, once_more)
        kept = list(store.events(LIGHT))
        state = store.load(LIGHT)
        assert state is not None
        first = state.version + 1 - len(kept)
        assert [e.event_metadata.version for e in kept] == list(range(first, state.version + 1))
        is_whole = isinstance(store, SqliteStore)
        snapshots = sum(isinstance(e, events.ResourceStateSnapshotTaken) for e in kept)
        assert (first == 0, snapshots) == ((True, 2) if is_whole else (False, 1))
        assert state.snapshot.latest_resource_change.content.data == b"10"


def test_without_history_only_states_are_kept(place: Place) -> None:
    with place(history=False) as store:
        aggregates(store).change(LIGHT, "a", 1, once_more)
        state = store.load(LIGHT)
        assert state is not None
        assert list(store.events(LIGHT)) in ([], [state.snapshot])


def test_what_is_no_store_is_refused_and_not_changed(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"no database" * 100)
    with pytest.raises(StoreError, match="is no event store"):
        SqliteStore(text)
    other = tmp_path / "other"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE orders (id)")
    before = other.read_bytes()
    with pytest.raises(StoreError, match="another program's database"):
        SqliteStore(other)
    assert (text.read_bytes(), other.read_bytes()) == (b"no database" * 100, before)


PROGRAM = """
import asyncio, sys
from pelton import connect
from pelton.plgd.store import Aggregates, Outbox
from pelton.plgd import Era
from tests.plgd.stores import open_place
from tests.plgd.test_store import LIGHT, once_more

async def main(url, path):
    with open_place(path) as store:
        change = Aggregates(store, era=Era.HREF).change
        async with connect(url) as client:
            outbox = Outbox(store, client)
            print("begun", flush=True)
            while True:
                for _ in range(20):
                    change(LIGHT, "a", 1, once_more)
                await outbox.relay()
                print("sent", flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def in_pairs(request: pytest.FixtureRequest) -> None:
    """In `make test` each server has one kind of store, and each kind of store one server."""
    params = request.node.callspec.params
    if not FULL and (params["server"] == "pelton") != (params["place"] == "sqlite"):
        pytest.skip(REASON)


@pytest.mark.usefixtures("in_pairs")
def test_each_event_is_in_the_stream_once_after_any_kill(
    server: ServerProcess, place: Place, seed: int
) -> None:
    rng = random.Random(seed)
    config = StreamConfig(
        name="EVENTS", subjects=["plgd.>"], duplicate_window=Nanoseconds(100_000_000)
    )

    async def ready() -> None:
        async with connect(server.url) as client:
            await client.jetstream().create_stream(config)

    async def rest() -> list[int]:
        async with connect(server.url) as client:
            jetstream = client.jetstream()
            with place() as store:
                await Outbox(store, client).relay()
                assert store.outgoing() == []
            last = (await jetstream.stream_info("EVENTS")).state.last_seq
            found = [await jetstream.get_message("EVENTS", seq) for seq in range(1, last + 1)]
            return [decode(m.subject, m.data).message.event_metadata.version for m in found]

    asyncio.run(ready())
    for _ in range(length(2, 3)):
        command = [sys.executable, "-c", PROGRAM, server.url, place.place]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2], env=dict(os.environ)
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        for _ in range(rng.randrange(4)):
            process.stdout.readline()
        # somewhere in the next round, wherever that is on this machine
        stop = threading.Event()
        stop.wait(rng.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    versions = asyncio.run(asyncio.wait_for(rest(), 120))
    with place() as store:
        state = store.load(LIGHT)
    assert versions == list(range(0 if state is None else state.version + 1))


def test_what_the_stream_has_already_leaves_the_outbox(server: ServerProcess, place: Place) -> None:
    """A process was killed between the acks and its note of them; other messages came behind them."""

    async def body() -> None:
        async with connect(server.url) as client:
            jetstream = client.jetstream()
            await jetstream.create_stream(StreamConfig(name="EVENTS", subjects=["plgd.>"]))
            with place() as store:
                for now_ns in range(3):
                    aggregates(store).change(LIGHT, "a", now_ns, once_more)
                for item in store.outgoing(2):
                    await jetstream.publish(item.subject, item.payload, msg_id=item.message_id)
                await jetstream.publish("plgd.other", b"")
                await jetstream.delete_message("EVENTS", 3)
                assert await Outbox(store, client).relay() == 1
                assert (store.outgoing(), store.last_seq()) == ([], 4)
                assert await Outbox(store, client).relay() == 0

    asyncio.run(asyncio.wait_for(body(), 60))
