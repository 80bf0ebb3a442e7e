"""Event stores and outboxes whose disk, file, server or stream fails: told with what to do, whole, and going on."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pelton import StreamConfig, connect
from pelton.errors import PeltonError
from pelton.plgd import decode
from pelton.plgd.bus import NoEventStreamError
from pelton.plgd.fleet import FleetConfig, FleetRun
from pelton.plgd.reasons import UndecodableEventError
from pelton.plgd.store import Outbox, SqliteStore, StoreError
from pelton.plgd.store import sqlite as of_sqlite
from pelton.plgd.store.mongo import MongoStore
from tests.plgd.mongods import OurMongod, running_mongod
from tests.plgd.test_disks import NAMESPACE, is_permitted
from tests.plgd.test_store import LIGHT, aggregates, once_more
from tests.ways import length

if TYPE_CHECKING:
    from tests.peers import ServerProcess

PAGE = 4096
FULL = """
import json, subprocess, sys
from pathlib import Path
from pelton.plgd.store import SqliteStore, StoreError
from tests.plgd.test_store import LIGHT, aggregates, once_more

folder = Path(sys.argv[1])
def mount(options):
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], check=True)

mount("size=200k")
done, refused = 0, []
with SqliteStore(folder / "store") as store:
    change = aggregates(store).change
    while len(refused) < 3:
        try:
            change(LIGHT, "a", 1, once_more)
            done += 1
        except StoreError as error:
            refused.append(str(error))
    mount("remount,size=4m")
    change(LIGHT, "a", 1, once_more)
with SqliteStore(folder / "store") as store:
    versions = [each.event_metadata.version for each in store.events(LIGHT)]
    print(json.dumps([done, refused, versions, len(store.outgoing())]))
"""


def test_a_full_disk_is_told_and_the_store_goes_on(tmp_path: Path) -> None:
    if not is_permitted(tmp_path):
        pytest.skip("no mount namespace of one's own here")
    ran = subprocess.run(
        [*NAMESPACE, sys.executable, "-c", FULL, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert ran.returncode == 0, ran.stderr
    done, refused, versions, waiting = json.loads(ran.stdout)
    assert done > 0
    assert all("database or disk is full: make room" in text for text in refused)
    assert versions == list(range(done + 1))
    assert waiting == done + 1


def test_a_locked_store_is_told_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_sqlite, "BUSY_S", 0.05)
    with SqliteStore(tmp_path / "store") as store:
        aggregates(store).change(LIGHT, "a", 1, once_more)
        with sqlite3.connect(store.path, isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="locked: another process holds it"):
                aggregates(store).change(LIGHT, "a", 2, once_more)
            assert len(list(store.events(LIGHT))) == 1
            other.execute("COMMIT")
            other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.close()
        aggregates(store).change(LIGHT, "a", 2, once_more)
        assert len(list(store.events(LIGHT))) == 2


def test_damaged_pages_and_rows_are_told(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    run = FleetRun(FleetConfig(devices=3, duration_s=200, seed=1))
    assert sum(1 for _ in run.deliveries()) > 0
    with SqliteStore(tmp_path / "store") as store:
        store.fill(run.aggregates())
        whole = list(store.aggregates())
    data = (tmp_path / "store").read_bytes()
    told: list[str] = []
    for number in range(20):
        damaged = bytearray(data)
        for _ in range(8):
            place = rng.randrange(1, len(data) // PAGE) * PAGE
            damaged[place : place + 100] = rng.randbytes(100)
        path = tmp_path / f"{number}"
        path.write_bytes(damaged)
        try:
            with SqliteStore(path) as store:
                for state in store.aggregates():
                    list(store.events(state.aggregate_id))
                list(store.outgoing())
        except (StoreError, UndecodableEventError) as error:
            told.append(str(error))
    assert any("is malformed: the file is damaged; restore" in text for text in told)
    assert all(str(tmp_path) in text or "(aggregate " in text for text in told)
    name = whole[0].aggregate_id
    for change, text in [
        ("event_type = 'resourcemoved'", "no hub has an event 'resourcemoved'"),
        ("data = x'ff'", "snappy"),
    ]:
        (tmp_path / "row").write_bytes(data)
        with sqlite3.connect(tmp_path / "row") as db:
            db.execute(f"UPDATE aggregates SET {change} WHERE aggregate_id = ?", (name,))
        db.close()
        with (
            SqliteStore(tmp_path / "row") as store,
            pytest.raises(UndecodableEventError, match=f"{text}.*aggregate {name}"),
        ):
            store.load(name)


def test_a_store_that_cannot_be_opened_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_sqlite, "BUSY_S", 0.05)
    with pytest.raises(StoreError, match=r"cannot open the event store .*unable to open"):
        SqliteStore(tmp_path / "none" / "store")
    SqliteStore(tmp_path / "store").close()
    other = sqlite3.connect(tmp_path / "store", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match=r"cannot open .*locked: another process holds it"):
        SqliteStore(tmp_path / "store")
    other.close()
    SqliteStore(tmp_path / "store").close()


def stored(versions: list[int]) -> list[int]:
    """The versions from the first on, each once."""
    return list(range(len(versions)))


async def versions_of(client: Any, first: int = 1) -> list[int]:
    """The versions that the stream has, in its order."""
    js = client.jetstream()
    last = (await js.stream_info("EVENTS")).state.last_seq
    found = [await js.get_message("EVENTS", seq) for seq in range(first, last + 1)]
    return [decode(m.subject, m.data).message.event_metadata.version for m in found]


def test_an_outbox_goes_on_when_mongodb_is_back(server: ServerProcess, seed: int) -> None:
    """MongoDB goes away after any number of its answers, in any step of a relay or a change."""
    rng = random.Random(seed)

    async def body(ours: OurMongod) -> None:
        async with connect(server.url) as client:
            await client.jetstream().create_stream(StreamConfig(name="EVENTS", subjects=["plgd.>"]))
            with MongoStore.connect(ours.url, retryReads=False, retryWrites=False) as store:
                outbox, failed = Outbox(store, client), list[str]()
                change = aggregates(store).change
                for _ in range(length(8, 25)):
                    ours.database.replies_until_it_fails = rng.randrange(20)
                    try:
                        for _ in range(3):
                            change(LIGHT, "a", 1, once_more)
                        await outbox.relay()
                    except StoreError as error:
                        failed.append(str(error))
                    ours.database.replies_until_it_fails = None
                assert failed
                assert all(text.startswith("MongoDB: ") for text in failed)
                await outbox.relay()
                assert store.outgoing() == []
                state = store.load(LIGHT)
            versions = await versions_of(client)
            assert versions == stored(versions)
            assert state is not None
            assert len(versions) == state.version + 1

    with running_mongod("ours") as ours:
        assert isinstance(ours, OurMongod)
        asyncio.run(asyncio.wait_for(body(ours), 120))


def test_an_outbox_goes_on_when_its_stream_or_server_is_back(
    server: ServerProcess, tmp_path: Path
) -> None:
    config = StreamConfig(name="EVENTS", subjects=["plgd.>"])

    async def body() -> None:
        with SqliteStore(tmp_path / "store") as store:
            change = aggregates(store).change
            async with connect(server.url) as client:
                js, outbox = client.jetstream(), Outbox(store, client)
                await js.create_stream(config)
                change(LIGHT, "a", 1, once_more)
                assert await outbox.relay() == 1
                await js.delete_stream("EVENTS")
                change(LIGHT, "a", 1, once_more)
                with pytest.raises(NoEventStreamError, match="pelton stream add EVENTS"):
                    await outbox.relay()
                assert len(store.outgoing()) == 1
                await js.create_stream(config)
                assert await outbox.relay() == 1
                assert await versions_of(client) == [1]
                await js.purge_stream("EVENTS")
                change(LIGHT, "a", 1, once_more)
                assert await outbox.relay() == 1
                assert await versions_of(client, first=2) == [2]
                # The server is killed somewhere in a relay, and comes back.
                for _ in range(2000):
                    change(LIGHT, "a", 1, once_more)
                relay = asyncio.ensure_future(outbox.relay())
                while not relay.done() and len(store.outgoing(2001)) == 2000:
                    await asyncio.sleep(0)
                server.stop(kill=True)
                server.start()
                while True:
                    try:
                        await relay
                        break
                    except PeltonError:
                        relay = asyncio.ensure_future(outbox.relay())
                assert store.outgoing() == []
                assert await versions_of(client, first=3) == list(range(3, 2003))

    asyncio.run(asyncio.wait_for(body(), 120))
