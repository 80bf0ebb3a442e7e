"""Where the end of the newest segment is lost, its floor says how far the sequences went."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.disk import PyDisk
from penstock.core.floor import say_floor
from penstock.core.log import Log
from penstock.vault import Vault
from tests.core.damage import everything
from tests.simulation.disk import SimDisk

FIRST = "log/00000000000000000001"


def opened(disk: SimDisk, segment_bytes: int = 1 << 20, cipher: object = None) -> Log:
    return Log("log", PyDisk(disk), segment_bytes=segment_bytes, cipher=cipher)


def told(log: Log) -> list[int]:
    return [first + k for first, count, _ in log.lost for k in range(count)]


def fill(log: Log, count: int) -> None:
    for _ in range(count):
        log.add(log.last_seq + 1, "s", b"%d" % (log.last_seq + 1))
    log.flush()
    log.fsync()


def cut(disk: SimDisk, path: str, size: int) -> None:
    """The file ends there, in the cache and on the platter."""
    node = disk.file(path)
    del node.data[size:]
    del node.durable[size:]


@pytest.mark.parametrize("size", [0, 10, 32, 33, 200, 350])
def test_an_end_that_is_cut_is_told_and_not_given_again(size: int) -> None:
    disk = SimDisk()
    log = opened(disk)
    fill(log, 20)
    assert say_floor(log)
    assert not say_floor(log)  # nothing new
    fill(log, 2)
    disk.kill()
    cut(disk, f"{FIRST}.seg", size)
    following = 21
    for _ in range(3):
        log = opened(disk)
        there = set(everything(log))
        assert there == {*range(1, len(there & set(range(1, 21))) + 1), *range(21, following)}
        assert sorted(told(log)) == [seq for seq in range(1, 21) if seq not in there]
        assert log.add(1, "s", b"more") == following  # 21 and 22 were after the floor
        log.flush()
        following += 1
        disk.kill()


def test_a_segment_that_is_gone_is_told() -> None:
    disk = SimDisk()
    log = opened(disk)
    fill(log, 20)
    say_floor(log)
    disk.kill()
    disk.unlink(f"{FIRST}.seg")
    for following in (21, 22):
        log = opened(disk)
        assert told(log) == list(range(1, 21))
        assert log.add(1, "s", b"more") == following
        log.flush()
        disk.kill()


def test_it_says_what_is_on_the_disk() -> None:
    disk = SimDisk()
    log = opened(disk)
    fill(log, 5)
    log.add(6, "s", b"6")
    log.flush()
    assert say_floor(log)
    disk.crash(random.Random(1))
    log = opened(disk)
    assert log.last_seq in (5, 6)
    assert set(told(log)) <= {6}


def test_one_that_was_closed_keeps_what_its_index_says() -> None:
    disk = SimDisk()
    log = opened(disk)
    fill(log, 20)
    log.delete(3)
    log.delete(20)
    log.close()
    log = opened(disk)
    fill(log, 10)
    assert say_floor(log)
    fill(log, 5)
    assert say_floor(log)
    disk.kill()
    cut(disk, f"{FIRST}.seg", 300)
    log = opened(disk)
    there = set(everything(log))
    assert 3 not in there
    assert sorted(told(log)) == [seq for seq in range(1, 36) if seq not in there | {3, 20}]
    assert log.add(1, "s", b"more") == 36


def test_an_encrypted_log_has_one() -> None:
    vault = Vault.of("key", "", "aes", random=random.Random(1).randbytes)
    assert vault is not None
    cipher = vault.new()
    disk = SimDisk()
    log = opened(disk, cipher=cipher)
    fill(log, 20)
    assert say_floor(log)
    fill(log, 1)
    assert say_floor(log)
    disk.kill()
    cut(disk, f"{FIRST}.seg", 500)
    for following in (22, 23):
        log = opened(disk, cipher=cipher)
        there = set(everything(log))
        assert sorted(told(log)) == [seq for seq in range(1, 22) if seq not in there]
        assert log.add(1, "s", b"more") == following
        log.flush()
        disk.kill()


@pytest.mark.parametrize("memory", [True, False])
def test_a_log_with_nothing_on_the_disk_has_none(memory: bool, tmp_path: Path) -> None:
    log = Log(None if memory else str(tmp_path / "log"))
    assert not say_floor(log)
    log.add(1, "s", b"1")
    log.flush()
    assert not say_floor(log)  # in the page cache alone
    log.close()
    assert not say_floor(log)


def test_a_disk_that_refuses_is_asked_again() -> None:
    disk = SimDisk()
    log = opened(disk)
    fill(log, 3)
    for verb in ("write", "rename", "open"):
        disk.fail(verb, 28, "*.idx*")
        assert not say_floor(log)
    assert say_floor(log)
    fill(log, 3)
    disk.fail("write", 28, "*.idx")
    assert not say_floor(log)
    assert say_floor(log)
    disk.kill()
    cut(disk, f"{FIRST}.seg", 100)
    assert opened(disk).last_seq == 6


ACTS = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 30)),
    st.tuples(st.just("delete"), st.integers(0, 40)),
    st.tuples(st.just("skip"), st.integers(1, 3)),
    st.just(("floor", 0)),
    st.just(("kill", 0)),
    st.just(("power", 0)),
    st.just(("close", 0)),
    st.just(("maintain", 0)),
)


@settings(max_examples=300, deadline=None)
@given(acts=st.lists(ACTS, min_size=1, max_size=25), left=st.floats(0, 1), seed=st.integers(0, 99))
def test_whatever_came_before_an_end_is_not_given_again_and_without_damage_nothing_is_lost(
    acts: list[tuple[str, int]], left: float, seed: int
) -> None:
    """Of a log whose every change is synced."""
    chance = random.Random(seed)
    disk = SimDisk()
    log = opened(disk, 4096)
    floor = 0
    for verb, n in acts:
        if verb == "add":
            for _ in range(n):
                log.add(1, f"s.{n}", b"m" * (n * 7))
        elif verb == "delete":
            log.delete(max(log.last_seq - n, 1))
        elif verb == "skip":
            log.skip(log.last_seq + n)
        elif verb == "floor":
            if say_floor(log):
                floor = log.synced_seq
        elif verb == "maintain":
            log.maintain()
        log.flush()
        log.fsync()
        if verb in ("kill", "power", "close"):
            before = everything(log), log.last_seq
            if verb == "close":
                log.close()
            if verb == "power":
                disk.crash(chance)
                floor = 0  # it is not synced
            else:
                disk.kill()
            log = opened(disk, 4096)
            assert (everything(log), log.last_seq) == before
            assert log.lost == []
    whole = everything(log)
    disk.kill()
    path = max(name for name in disk.names if name.endswith(".seg"))
    cut(disk, path, int(left * len(disk.file(path).data)))
    for _ in range(2):
        log = opened(disk, 4096)
        found = everything(log)
        assert {seq: whole[seq] for seq in found if seq in whole} == {
            seq: found[seq] for seq in found if seq in whole
        }
        assert log.last_seq >= floor
        missing = {seq for seq in whole if seq <= floor and seq not in found}
        assert missing <= set(told(log)), (missing, log.lost)
        disk.kill()
