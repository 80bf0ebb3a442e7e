"""Creates on a server with `sync_interval`: answered without a sync, synced later.

A power cut may take such a create back as a whole; it never leaves a stream or a consumer offline.
"""

import contextlib
import errno
import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pelton.core.base.disk import PyDisk
from pelton.engine.files.checksummed_files import incomplete, sealed
from pelton.store.checks import look
from pelton.store.reports import NOTE
from pelton.testing.simulated_disk import PowerCut, SimDisk
from pelton.vault import Vault
from tests.engine.house import SECOND, House
from tests.store.stores import place_of

STORE = Path("store")
INTERVAL_NS = 120 * SECOND
STREAMS = f"{STORE}/jetstream/$G/streams"


class CountingDisk(SimDisk):
    """Counts the syncs of files and of folders."""

    made: Counter[str]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.made = Counter()

    def _fails(self, verb: str, path: str) -> int:
        if verb in ("sync", "sync_dir"):
            self.made[verb] += 1
        return super()._fails(verb, path)


def house(disk: SimDisk, interval_ns: int = INTERVAL_NS, vault: Vault | None = None) -> House:
    return House(STORE, disk=PyDisk(disk), sync_interval_ns=interval_ns, vault=vault)


def ephemeral(server: House, count: int) -> None:
    """Create consumers, all with one write of the client."""
    body = json.dumps({"stream_name": "S", "config": {"ack_policy": "explicit"}})
    server.client.send(f"PUB $JS.API.CONSUMER.CREATE.S _I.0 {len(body)}\r\n{body}\r\n" * count)
    answers = [json.loads(event[5]) for event in server.client.events() if event[1] == "_I.0"]
    assert len(answers) == count
    assert not any("error" in answer for answer in answers)


@pytest.mark.parametrize(
    ("interval_ns", "stream", "one", "burst"), [(INTERVAL_NS, 0, 0, 0), (0, 4, 3, 160)]
)
def test_a_create_makes_no_sync_where_acks_do_not_wait_for_one(
    interval_ns: int, stream: int, one: int, burst: int
) -> None:
    disk = CountingDisk()
    server = house(disk, interval_ns)
    disk.made.clear()
    server.stream(subjects=["s.>"])
    assert disk.made.total() == stream
    disk.made.clear()
    server.consumer("first")
    assert disk.made.total() == one
    disk.made.clear()
    ephemeral(server, 64)
    assert disk.made.total() <= burst


def test_a_memory_consumer_makes_no_sync_in_any_mode() -> None:
    disk = CountingDisk()
    server = house(disk, 0)
    server.stream(subjects=["s.>"])
    disk.made.clear()
    server.consumer("c", mem_storage=True)
    server.ok("CONSUMER.CREATE.S", {"stream_name": "S", "config": {"mem_storage": True}})
    assert disk.made.total() == 0


@pytest.mark.parametrize("seed", range(60))
def test_a_power_cut_takes_a_create_back_as_a_whole(seed: int) -> None:
    disk = SimDisk(random=Random(seed))
    server = house(disk)
    random = Random(seed)
    for n in range(3):
        server.stream(
            f"S{n}", subjects=[f"s{n}.>"], retention=random.choice(["limits", "interest"])
        )
        for m in range(3):
            server.consumer(f"c{m}", f"S{n}", durable_name=f"c{m}", description="d" * 600)
            server.publish(f"s{n}.a")
    synced = seed % 3 == 0
    if synced:
        server.pass_time(INTERVAL_NS + SECOND, step_ns=SECOND)
    disk.crash(random)
    after = house(disk, random.choice([0, INTERVAL_NS]))
    assert not after.account.offline
    for n in range(3):
        entry = after.account.streams.get(f"S{n}")
        if synced:
            assert entry is not None
        if entry is None:
            after.stream(f"S{n}", subjects=[f"s{n}.>"])  # the name is free
            after.consumer("c0", f"S{n}")
            continue
        assert not entry.offline
        assert not synced or len(entry.consumers) == 3
        for m in range(3):
            after.consumer(f"c{m}", f"S{n}", durable_name=f"c{m}", description="d" * 600)
    before = {name: set(entry.consumers) for name, entry in after.account.streams.items()}
    if after.settings["sync_interval_ns"] == 0:
        disk.crash(random)  # a server whose acks mean synced holds what it has found or created
        after = house(disk, 0)
        found = {name: set(entry.consumers) for name, entry in after.account.streams.items()}
        assert found == before
    assert after.restart().account.files.had_unsynced is False


def test_an_update_before_the_sync_of_the_create_leaves_the_old_or_the_new_configuration() -> None:
    for seed in range(40):
        disk = SimDisk(random=Random(seed))
        server = house(disk)
        server.stream(subjects=["s.>"], description="old")
        server.pass_time(INTERVAL_NS + SECOND, step_ns=SECOND)
        disk.cut_after(seed % 20)
        with contextlib.suppress(PowerCut):
            server.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "description": "new"})
        disk.crash(Random(seed))
        config = house(disk).ok("STREAM.INFO.S")["config"]
        assert config["description"] in ("old", "new")


def test_a_sync_of_a_create_that_fails_is_made_good_by_another_write() -> None:
    disk = SimDisk()
    server = house(disk)
    server.stream(subjects=["s.>"])
    server.consumer("c", durable_name="c")
    disk.fail("sync", errno.EIO, "*.json*", times=3)
    server.pass_time(INTERVAL_NS + 10 * SECOND, step_ns=SECOND)
    disk.crash()
    after = house(disk)
    assert set(after.account.streams["S"].consumers) == {"c"}


def test_a_kill_before_the_sync_loses_nothing_and_a_durable_server_syncs_what_it_finds() -> None:
    disk = SimDisk()
    server = house(disk)
    server.stream(subjects=["s.>"])
    server.consumer("c")
    disk.kill()
    after = house(disk, 0)
    after.publish("s.a")
    disk.crash()
    last = house(disk, 0)
    assert set(last.account.streams["S"].consumers) == {"c"}
    assert last.ok("STREAM.INFO.S")["state"]["messages"] == 1


def test_damage_without_an_unsynced_create_stays_offline() -> None:
    disk = SimDisk()
    server = house(disk, 0)
    server.stream(subjects=["s.>"])
    disk.kill()
    for name in ("meta.json", "meta.json.copy"):
        disk.file(f"{STREAMS}/S/{name}").data[:] = b""
    after = house(disk, 0)
    assert "S" in after.account.offline


def test_an_encrypted_create_is_synced_at_once() -> None:
    disk = SimDisk()
    vault = Vault.of("key", cipher="aes", random=Random(1).randbytes)
    server = house(disk, vault=vault)
    server.stream(subjects=["s.>"])
    server.consumer("c")
    disk.crash()
    after = house(disk, vault=vault)
    assert set(after.account.streams["S"].consumers) == {"c"}


def test_an_interrupted_create_stays_one_when_the_store_is_encrypted_since() -> None:
    disk = SimDisk()
    server = house(disk)
    server.stream(subjects=["s.>"])
    server.consumer("c")
    disk.kill()
    for name in ("c.json", "c.json.copy"):
        del disk.file(f"{STREAMS}/S/consumers/{name}").data[30:]
    vault = Vault.of("key", cipher="aes", random=Random(1).randbytes)
    disk.fail("rename", errno.EIO, "*/c.json*", after=2, times=None)  # encrypted, not set aside
    assert not house(disk, vault=vault).account.streams["S"].offline
    disk.kill()
    assert not house(disk, vault=vault).account.streams["S"].offline


def test_what_an_interrupted_create_left_is_kept() -> None:
    disk = SimDisk()
    server = house(disk)
    server.stream(subjects=["s.>"])
    server.publish("s.a")
    disk.kill()
    for name in ("meta.json", "meta.json.copy"):
        del disk.file(f"{STREAMS}/S/{name}").data[20:]
    after = house(disk)
    (kept,) = disk.list_dir(f"{STORE}/jetstream/$G/interrupted")
    assert kept.endswith(".S")
    assert any("the create of this stream" in line and kept in line for line in after.reports)
    after.stream(subjects=["s.>"])
    assert after.ok("STREAM.INFO.S")["state"]["messages"] == 0


def test_a_check_of_the_store_calls_an_interrupted_create_so(tmp_path: Path) -> None:
    server = House(tmp_path, sync_interval_ns=INTERVAL_NS)
    server.stream(subjects=["s.>"])
    server.publish("s.a")
    folder = tmp_path / "jetstream" / "$G" / "streams" / "S"
    for name in ("meta.json", "meta.json.copy"):
        (folder / name).write_bytes(b"")
    (problem,) = look(*place_of(tmp_path, "S")).problems
    assert problem.kind == NOTE
    assert "interrupted create" in problem.reason
    assert not server.crash().account.offline


def test_each_part_of_a_file_is_incomplete_or_readable() -> None:
    whole = sealed(b'{"format":1}')
    assert not incomplete(whole)
    for end in range(len(whole)):
        assert incomplete(whole[:end])
        assert incomplete(whole[:end] + bytes(len(whole) - end))
    for at in range(len(whole)):  # a flipped bit is damage of a file that was whole
        flipped = bytearray(whole)
        flipped[at] ^= 1
        if at < len(whole) - 17:
            assert not incomplete(bytes(flipped))
