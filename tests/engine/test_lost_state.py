"""What other servers have lost, tried on this store: consumer state at a refused create or beside a
similar name, messages at a compaction, first sequences, keys, and room under max_ack_pending.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pelton.core.base.disk import PyDisk
from pelton.core.log import maintenance
from pelton.testing.simulated_disk import SimDisk
from pelton.vault import Vault
from tests.engine.house import SECOND, House

STORE = Path("store")


def opened(disk: SimDisk, house: House | None = None, **settings: Any) -> House:
    """Return a server over the disk, or the next one after `house`."""
    now_ns = house.server.clock.now() if house is not None else 0
    return House(STORE, now_ns or 1_700_000_000 * SECOND, PyDisk(disk), **settings)


def progress(house: House, name: str = "c", stream: str = "S") -> tuple[Any, Any, int]:
    info = house.ok(f"CONSUMER.INFO.{stream}.{name}")
    return info["delivered"]["stream_seq"], info["ack_floor"]["stream_seq"], info["num_ack_pending"]


def used_consumer(house: House, name: str = "c") -> None:
    """Create a consumer with two acknowledged messages and a third one under way."""
    house.consumer(name, durable_name=name, ack_policy="explicit")
    for event in house.pull(3, name)[:2]:
        assert house.request(event[3], b"+ACK")


REFUSED: list[dict[str, Any]] = [
    {"ack_policy": "none"},
    {"ack_policy": "explicit", "deliver_policy": "new"},
    {"ack_policy": "explicit", "filter_subject": "a", "filter_subjects": ["b"]},
    {"ack_policy": "explicit", "backoff": [1, 2, 3], "max_deliver": 2},
    {"ack_policy": "explicit", "deliver_subject": "s", "max_waiting": 5},
]


@pytest.mark.parametrize("action", ["", "create", "update"])
def test_a_refused_create_leaves_the_consumer_that_exists(action: str) -> None:
    disk = SimDisk()
    house = opened(disk)
    house.stream(subjects=["s"])
    for _ in range(5):
        house.publish("s")
    used_consumer(house)
    before = house.ok("CONSUMER.INFO.S.c")["config"]
    refused = 0
    for fields in REFUSED:
        body = {"stream_name": "S", "config": {"durable_name": "c", **fields}, "action": action}
        refused += "error" in house.api("CONSUMER.CREATE.S.c", body)
    assert refused == len(REFUSED)
    for _ in range(2):
        assert progress(house) == (3, 2, 1)
        assert house.ok("CONSUMER.INFO.S.c")["config"] == before
        disk.crash()
        house = opened(disk, house)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("c", "C"),
        ("c%2Ed", "c%252Ed"),
        ("x" * 254 + "1", "x" * 254 + "2"),
        ("states", "acks"),
        ("c", "c,json"),
        ("é", "%C3%A9"),
    ],
)
def test_a_similar_name_is_another_consumer(one: str, other: str) -> None:
    disk = SimDisk()
    house = opened(disk)
    house.stream(subjects=["s"])
    for _ in range(5):
        house.publish("s")
    used_consumer(house, one)
    house.consumer(other, durable_name=other, ack_policy="explicit")
    assert progress(house, other) == (0, 0, 0)
    house.ok(f"CONSUMER.DELETE.S.{other}")
    for _ in range(2):
        assert progress(house, one) == (3, 2, 1)
        disk.crash()
        house = opened(disk, house)
    assert house.ok("CONSUMER.NAMES.S")["consumers"] == [one]


@pytest.mark.parametrize("cut", range(0, 24, 2))
def test_a_power_cut_within_or_after_a_compaction_loses_nothing(cut: int) -> None:
    """With `sync_interval: always` the new file of a segment is on the disk before the old one goes."""
    disk = SimDisk(random=Random(cut))
    house = opened(disk, segment_bytes=16384)
    house.stream(subjects=["s.*"], max_msgs_per_subject=-1)
    for number in range(60):
        house.publish(f"s.{number % 10}", b"%d;" % number * 200)
    house.ok("STREAM.PURGE.S", {"filter": "s.1"})
    for subject in range(2, 9):
        house.ok("STREAM.PURGE.S", {"filter": f"s.{subject}"})
    log = house.account.streams["S"].core.log
    there = {seq: log.get(seq).payload for seq in range(1, 61) if log.get(seq)}
    disk.cut_after(cut)
    try:
        while maintenance.maintain(log):
            log.fsync()
    except BaseException:  # the power goes, at any call
        assert disk.cut_at is not None
    disk.cut_at = None
    disk.crash()
    house = opened(disk, house)
    log = house.account.streams["S"].core.log
    assert {seq: log.get(seq).payload for seq in range(1, 61) if log.get(seq)} == there
    assert not log.lost


@pytest.mark.parametrize("seed", range(4))
def test_a_limit_per_subject_beside_other_removals_counts_right(seed: int) -> None:
    random, disk = Random(seed), SimDisk(random=Random(seed))
    house = opened(disk, segment_bytes=4096)
    house.stream(subjects=["s.*"], max_msgs_per_subject=2, retention="workqueue")
    house.consumer(ack_policy="explicit", max_ack_pending=-1)
    for _ in range(12):
        for _ in range(random.randrange(1, 12)):
            house.publish(f"s.{random.randrange(4)}", b"x" * 300)
        for event in house.pull(random.randrange(6) + 1):
            house.send(event[3], b"+ACK")
        last = house.ok("STREAM.INFO.S")["state"]["last_seq"]
        house.api("STREAM.MSG.DELETE.S", {"seq": random.randint(1, last), "no_erase": True})
        if random.random() < 0.3:
            house.pass_time(SECOND)
            disk.crash()
            house = opened(disk, house, segment_bytes=4096)
        log = house.account.streams["S"].core.log
        found = [message for seq in range(1, last + 1) if (message := log.get(seq))]
        by_subject = [sum(m.subject == f"s.{n}" for m in found) for n in range(4)]
        state = house.ok("STREAM.INFO.S", {"subjects_filter": ">"})["state"]
        assert state["messages"] == len(found)
        assert max(by_subject) <= 2
        assert state.get("subjects") == (
            {m.subject: by_subject[int(m.subject[2])] for m in found} or None
        )


@pytest.mark.parametrize("below", [0, 15, 31])
@pytest.mark.parametrize("indexed", [True, False])
def test_the_first_sequence_is_there_after_a_recovery(below: int, *, indexed: bool) -> None:
    disk = SimDisk()
    house = opened(disk, segment_bytes=4096)
    house.stream(subjects=["s"])
    for _ in range(30):
        house.publish("s", b"x" * 500)
    house.ok("STREAM.PURGE.S", {"seq": below} if below else {})
    first = below or 31
    disk.crash()
    if not indexed:
        for path, _ in list(disk.root.walk()):
            if path.endswith(".idx"):
                disk.unlink(path)
    for _ in range(2):
        house = opened(disk, house, segment_bytes=4096)
        state = house.ok("STREAM.INFO.S")["state"]
        assert (state["first_seq"], state["last_seq"]) == (first, 30)
        disk.crash()


def test_keys_are_on_the_disk_before_a_stream_is_answered() -> None:
    disk = SimDisk(random=Random(1))
    vault = Vault.of("secret", cipher="aes", random=Random(2).randbytes)
    house = opened(disk, vault=vault)
    house.stream(subjects=["s"])
    house.publish("s", b"kept")
    disk.crash()
    house = opened(disk, house, vault=vault)
    assert house.account.streams["S"].core.log.get(1).payload == b"kept"


@pytest.mark.parametrize("size", [0, 1, 20])
@pytest.mark.parametrize("name", ["key.0", "key.1"])
def test_a_truncated_key_file_is_restored_from_the_other(name: str, size: int) -> None:
    disk = SimDisk()
    vault = Vault.of("secret", cipher="aes", random=Random(2).randbytes)
    house = opened(disk, vault=vault)
    house.stream(subjects=["s"])
    house.publish("s", b"kept")
    house.restart()
    path = f"store/jetstream/$G/streams/S/{name}"
    handle = disk.open(path, False)
    disk.truncate(handle, size)
    disk.sync(handle)
    for _ in range(2):
        disk.crash()
        house = opened(disk, house, vault=vault)
        assert house.account.streams["S"].core.log.get(1).payload == b"kept"


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize("how", ["delete", "erase", "purge", "limit", "age"])
def test_a_removed_message_makes_room_under_max_ack_pending(how: str, storage: str) -> None:
    disk = SimDisk()
    house = opened(disk)
    config = {"name": "S", "subjects": ["s"], "storage": storage}
    house.ok("STREAM.CREATE.S", config)
    house.consumer(ack_policy="explicit", max_ack_pending=2, ack_wait=3600 * SECOND)
    for number in range(6):
        house.publish("s", b"%d" % number)
    assert len(house.pull(2)) == 2
    if how in ("delete", "erase"):
        for seq in (1, 2):
            house.ok("STREAM.MSG.DELETE.S", {"seq": seq, "no_erase": how == "delete"})
    elif how == "purge":
        house.ok("STREAM.PURGE.S", {"seq": 3})
    elif how == "limit":
        house.ok("STREAM.UPDATE.S", {**config, "max_msgs": 4})
    else:
        house.pass_time(2 * SECOND)
        for number in (6, 7):
            house.publish("s", b"%d" % number)
        house.ok("STREAM.UPDATE.S", {**config, "max_age": SECOND, "duplicate_window": SECOND})
        house.pass_time(SECOND // 2)
    delivered = house.pull(6)
    sequences = [int(event[3].split(".")[5]) for event in delivered]
    assert sequences == ([7, 8] if how == "age" else [3, 4])
    assert all(earlier < later for earlier, later in pairwise(sequences))


class WatchedDisk(SimDisk):
    """Records what is written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.grown: set[str] = set()
        self.whole: set[str] = set()

    def write_at(self, handle: int, data: bytes, offset: int) -> None:
        path = self.handles[handle].path
        (self.grown if offset or not path.endswith(".tmp") else self.whole).add(path)
        super().write_at(handle, data, offset)


def test_small_files_are_written_whole_beside_their_name() -> None:
    """A small file that grows under write-back can bring an ext4 with inline data down."""
    disk = WatchedDisk()
    house = opened(disk)
    house.stream(subjects=["s"])
    house.stream("F", sources=[{"name": "S"}], allow_msg_ttl=True)
    used_consumer(house)
    for _ in range(20):
        house.publish("s")
    house.ok("CONSUMER.PAUSE.S.c", {"pause_until": "2100-01-01T00:00:00Z"})
    house.ok("STREAM.UPDATE.S", {"name": "S", "subjects": ["s"], "max_msgs": 3})
    house.pass_time(10 * SECOND)
    house.restart()
    assert {
        path for path in disk.grown if not path.endswith(".seg") and "/acks." not in path
    } == set()
    names = {path.rpartition("/")[2] for path in disk.whole}
    assert {"meta.json.tmp", "c.json.tmp", "sources.json.tmp"} <= names
