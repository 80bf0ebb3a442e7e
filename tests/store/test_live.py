"""Backups and looks at the store of a real server under load, with compaction: nothing that was
acknowledged before is missing, and nothing sound looks damaged.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pelton import ConsumerConfig, StreamConfig
from pelton.core.base.disk import Disk
from pelton.core.log.store_lock import FolderInUse, FolderLock
from pelton.store.backup import back_up
from pelton.store.checks import look_at
from pelton.store.manifests import BackupFolder
from pelton.store.restore import restore
from pelton.sync import connect
from tests.copies.local import LocalServer
from tests.ways import length

from .stores import messages_of, stores

KEYS = 40
BIG = b"it is on; " * 2000


class Load:
    """Publishes to two streams until told to stop, and notes what was acknowledged."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.plain = 0
        self.latest: dict[str, int] = {}
        self.deleted: list[int] = []
        self.stop = threading.Event()
        self.problem: BaseException | None = None
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        try:
            with connect(self.url) as client:
                jetstream = client.jetstream()
                number = 0
                while not self.stop.is_set():
                    number += 1
                    self.plain = jetstream.publish("plain.a", b"%d" % number).seq
                    for _ in range(4):
                        key = f"latest.{(number * 7) % KEYS}"
                        self.latest[key] = jetstream.publish(key, BIG).seq
                        number += 1
                    if number % 50 == 0:
                        self.deleted.append(self.plain - 2)
                        jetstream.delete_message("PLAIN", self.plain - 2)
        except BaseException as problem:  # it is raised in the test
            self.problem = problem

    def end(self) -> None:
        self.stop.set()
        self.thread.join(30)
        if self.problem is not None:
            raise self.problem


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalServer]:
    with LocalServer(store=str(tmp_path / "store"), options=["--sync_interval", "2m"]) as local:
        with connect(local.url) as client:
            jetstream = client.jetstream()
            jetstream.create_stream(StreamConfig(name="PLAIN", subjects=["plain.>"]))
            limited = StreamConfig(
                name="LATEST", subjects=["latest.>"], max_msgs_per_subject=2, compression="s2"
            )
            jetstream.create_stream(limited)
            config = ConsumerConfig(durable_name="c", ack_policy="explicit")
            jetstream.create_consumer("PLAIN", config)
        yield local


def test_a_backup_beside_a_server_has_all_that_was_acknowledged(
    server: LocalServer, tmp_path: Path
) -> None:
    store, target = tmp_path / "store", tmp_path / "backups"
    load = Load(server.url)
    folder = BackupFolder(Disk(), str(target))
    target.mkdir()
    folder.make()
    try:
        for round_number in range(length(4, 8)):
            deadline = time.monotonic() + 20
            enough = load.plain + 100
            while load.plain < enough and load.thread.is_alive() and time.monotonic() < deadline:
                time.sleep(0.01)
            plain, latest = load.plain, dict(load.latest)
            disk, found = stores(store)
            seen = look_at(disk, found, found.streams, whole=round_number % 2 == 0)
            assert seen.sound, [each.problems for each in seen.streams]
            assert seen.used_by == server.pid
            manifest = back_up(disk, found, found.streams, folder, time.time_ns())
            placed = tmp_path / f"restored{round_number}"
            placed.mkdir()
            restore(Disk(), folder, manifest.streams, str(placed))
            accounts = placed / "jetstream" / "$G" / "streams"
            messages = messages_of(accounts / "PLAIN")
            assert max(messages) >= plain
            assert set(range(1, plain + 1)) - set(messages) <= set(load.deleted)
            kept = messages_of(accounts / "LATEST")
            newest: dict[str, int] = {}
            for seq, message in kept.items():
                newest[message.subject] = seq
            assert all(newest[subject] >= seq for subject, seq in latest.items())
            disk, found = stores(placed)
            assert look_at(disk, found, found.streams, whole=True).sound
    finally:
        load.end()
    assert manifest.new_bytes < manifest.total_bytes or manifest.total_bytes < 20_000_000


def test_a_server_goes_on_with_what_was_restored(server: LocalServer, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with connect(server.url) as client:
        jetstream = client.jetstream()
        for number in range(50):
            jetstream.publish("plain.a", b"%d" % number)
        disk, found = stores(store)
        folder = BackupFolder(Disk(), str(tmp_path / "backups"))
        (tmp_path / "backups").mkdir()
        folder.make()
        manifest = back_up(disk, found, found.streams, folder, time.time_ns())
        with pytest.raises(FolderInUse):
            FolderLock(str(store))
    placed = tmp_path / "placed"
    placed.mkdir()
    restore(Disk(), folder, manifest.streams, str(placed))
    with LocalServer(store=str(placed)) as other, connect(other.url) as client:
        jetstream = client.jetstream()
        info = jetstream.stream_info("PLAIN")
        assert (info.state.messages, info.state.last_seq) == (50, 50)
        assert jetstream.publish("plain.a", b"more").seq == 51
        assert jetstream.consumer_info("PLAIN", "c").num_pending == 51
