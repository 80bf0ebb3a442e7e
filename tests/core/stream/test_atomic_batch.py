"""Groups of messages that are stored whole or not at all: whatever the disk does, at any byte."""

from __future__ import annotations

import copy
import itertools
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pelton.core.base.disk import PyDisk
from pelton.core.log import maintenance, queries
from pelton.core.log.log import Log
from pelton.core.log.recovery import open_log
from pelton.core.stream.atomic_batch import store_whole
from pelton.core.stream.draft import Draft, draft
from pelton.core.stream.interest import InterestRetention
from pelton.core.stream.stream import SYNC_ALWAYS, StreamRefused
from pelton.testing.simulated_disk import SimDisk
from tests.core.streams import Site
from tests.ways import length

if TYPE_CHECKING:
    from pathlib import Path

SEGMENT = 4096


class Disk(SimDisk):
    def __init__(self) -> None:
        super().__init__(reorders=False)
        self.written: list[int] = []  # bytes of each write

    def write_at(self, handle: int, data: bytes, offset: int) -> None:
        self.written.append(len(data))
        super().write_at(handle, data, offset)

    def close(self, handle: int) -> None:
        self.handles.pop(handle, None)  # after a crash, the dead one's log still closes its own


def group(*payloads: bytes, subject: str = "s.a") -> list[Draft]:
    return [draft(subject, payload, b"H" * (len(payload) % 3)) for payload in payloads]


def contents(log: Log) -> dict[int, bytes]:
    found = {}
    message = queries.next_of(log, ">", 1)
    while message is not None:
        found[message.seq] = message.payload
        message = queries.next_of(log, ">", message.seq + 1)
    assert len(found) == log.msgs
    return found


def record_starts(data: bytes) -> list[int]:
    starts = [32]
    while starts[-1] < len(data):
        starts.append(starts[-1] + int.from_bytes(data[starts[-1] : starts[-1] + 4], "little"))
    return starts[:-1]


def only_segment(folder: Path) -> Path:
    (path,) = folder.glob("*.seg")
    return path


@pytest.mark.parametrize("removals", [False, True])
def test_a_torn_end_at_every_byte_leaves_all_or_nothing(tmp_path: Path, removals: bool) -> None:
    site = Site(folder=str(tmp_path / "S"), max_msgs=5 if removals else -1)
    for n in range(3):
        site.stream.publish("s.a", b"before %d" % n)
    site.reactor.settle()
    before = contents(site.log)
    assert store_whole(site.stream.path, group(b"1", b"22" * 30, b"333", b"4")) == [4, 5, 6, 7]
    site.reactor.settle()
    after = contents(site.log)
    path = only_segment(tmp_path / "S")
    data = path.read_bytes()
    first, *_, last = [
        at for at in record_starts(data) if data[at + 4] == 1 and data[at + 16] in (4, 7)
    ]
    length = int.from_bytes(data[last : last + 4], "little")
    for cut in range(first, len(data) + 1):
        folder = tmp_path / f"cut{cut}"
        folder.mkdir()
        (folder / path.name).write_bytes(data[:cut])
        log = open_log(str(folder))
        if cut < last + length:
            assert contents(log) == before
            kept = b"".join(each.read_bytes() for each in folder.glob("*.torn-*"))
            assert kept == data[first:cut]
        else:
            assert after.items() <= contents(log).items()
            assert contents(log) == (after if cut == len(data) else before | after)
        assert log.lost == []
        assert log.last_seq in ((3, 4, 5, 6, 7) if cut < last + length else (7,))
        following = log.add(5000, "s.a", b"following")
        assert following == max(log.last_seq, following)
        log.flush()
        found = contents(log)
        del log
        assert contents(open_log(str(folder))) == found


@pytest.mark.parametrize("follows", ["nothing", "a message", "a segment"])
@pytest.mark.parametrize("erased", [(1,), (2,), (4,), (2, 3), (1, 4), (3, 4)])
def test_an_erasure_that_is_cut_short_costs_nothing_of_its_group(
    tmp_path: Path, erased: tuple[int, ...], follows: str
) -> None:
    """Overwritten bytes that power has torn are no hole in a group that was on the disk."""
    rolled = follows == "a segment"
    site = Site(log=open_log(str(tmp_path / "S"), segment_bytes=4096 if rolled else 1 << 20))
    store_whole(site.stream.path, group(*[b"%d" % n * 900 for n in range(1, 5)]))
    if follows != "nothing":
        site.stream.publish("s.a", b"after" * 100)
    site.reactor.settle()
    site.log.fsync()
    assert len(list((tmp_path / "S").glob("*.seg"))) == 1 + rolled
    path = min((tmp_path / "S").glob("*.seg"))
    before = path.read_bytes()
    for seq in erased:
        assert site.stream.delete_message(seq, True)
    site.reactor.settle()
    expected = contents(site.log)
    data = bytearray(path.read_bytes())
    for seq in erased:
        at = record_starts(before)[seq - 1]
        data[at : at + 200] = before[at : at + 200]  # the first half is the old one
    folder = tmp_path / "torn"
    folder.mkdir()
    # what a segment ends with is known by its index file, which is there when it is synced
    for each in (tmp_path / "S").glob("*" if rolled and 4 in erased else "*.seg"):
        kept = bytes(data) if each.name == path.name else each.read_bytes()
        (folder / each.name).write_bytes(kept)
    log = open_log(str(folder))
    assert contents(log) == expected
    assert log.lost == []
    del site


def test_a_group_longer_than_a_segment_is_in_one(tmp_path: Path) -> None:
    disk = Disk()
    site = Site(log=open_log("S", PyDisk(disk), segment_bytes=SEGMENT), sync=SYNC_ALWAYS)
    site.stream.publish("s.a", b"x" * 100)
    seqs = store_whole(site.stream.path, group(*[b"%d" % n * 300 for n in range(30)]))
    assert seqs == list(range(2, 32))
    site.stream.publish("s.a", b"after")
    site.reactor.settle()
    assert [name for name in disk.list_dir("S") if name.endswith(".seg")] == [
        f"{first:020}.seg" for first in (1, 2, 32)
    ]
    disk.crash()
    assert len(contents(open_log("S", PyDisk(disk), segment_bytes=SEGMENT))) == 32


def test_compaction_and_removal_of_the_last_one_do_not_open_a_group(tmp_path: Path) -> None:
    folder = tmp_path / "S"
    site = Site(log=open_log(str(folder), segment_bytes=SEGMENT))
    store_whole(site.stream.path, group(*[b"%02d" % n * 50 for n in range(20)]))
    for seq in [*range(2, 18), 20]:
        site.stream.delete_message(seq, seq == 20)
    for _ in range(20):
        site.stream.publish("s.a", b"y" * 2000)
    site.reactor.settle()
    assert maintenance.maintain(site.log)
    site.log.flush()
    rest = contents(site.log)
    assert {1, 18, 19} < set(rest)
    del site
    for path in folder.glob("*.idx"):
        path.unlink()
    for path in sorted(folder.glob("*.seg"))[1:]:
        path.unlink()
    assert set(contents(open_log(str(folder), segment_bytes=SEGMENT))) == {1, 18, 19}


def test_the_last_one_removed_before_a_crash(tmp_path: Path) -> None:
    site = Site(folder=str(tmp_path / "S"))
    store_whole(site.stream.path, group(b"1", b"2", b"3"))
    site.stream.delete_message(3, erase=True)
    site.stream.delete_message(2, erase=False)
    site.reactor.settle()
    del site
    assert contents(open_log(str(tmp_path / "S"))) == {1: b"1"}


@pytest.mark.parametrize("bits", [1, 3])
def test_a_damaged_end_of_a_whole_group_is_told(tmp_path: Path, bits: int) -> None:
    site = Site(folder=str(tmp_path / "S"))
    site.stream.publish("s.a", b"0")
    store_whole(site.stream.path, group(b"1", b"2", b"3"))
    site.reactor.settle()
    del site
    path = only_segment(tmp_path / "S")
    data = bytearray(path.read_bytes())
    data[-6] ^= bits
    path.write_bytes(data)
    for _ in range(2):
        log = open_log(str(tmp_path / "S"))
        if bits == 1:  # which it is the checksum tells: the others were there
            assert contents(log) == {1: b"0", 2: b"1", 3: b"2"}
            assert [(first, count) for first, count, _ in log.lost] == [(4, 1)]
        else:
            assert contents(log) == {1: b"0"}
            assert [(first, count) for first, count, _ in log.lost] == [(2, 3)]
        assert log.last_seq == 4
        del log


def test_a_group_that_was_never_whole_does_not_come_back(tmp_path: Path) -> None:
    # power went before its middle was on the disk; later it is no more at the end of the log
    site = Site(folder=str(tmp_path / "S"))
    site.stream.publish("s.a", b"0")
    store_whole(site.stream.path, group(b"1", b"2" * 20, b"3"))
    site.stream.publish("s.a", b"4")
    site.reactor.settle()
    del site
    path = only_segment(tmp_path / "S")
    data = bytearray(path.read_bytes())
    starts = record_starts(bytes(data))
    data[starts[2] : starts[3]] = bytes(starts[3] - starts[2])
    path.write_bytes(data)
    for n in range(3):
        log = open_log(str(tmp_path / "S"), segment_bytes=4096)
        assert {1: b"0", 5: b"4"}.items() <= contents(log).items()
        assert contents(log).keys().isdisjoint({2, 3, 4}), n
        assert log.lost
        for _ in range(50):
            log.add(1, "s.a", b"x" * 100)
        log.flush()
        del log


@pytest.mark.parametrize("below", [3, 4, 5])
def test_a_purge_does_not_bring_back_the_rest_of_a_group_that_was_never_whole(
    tmp_path: Path, below: int
) -> None:
    """A purge that names the hole of such a group also removes the messages behind the hole."""
    site = Site(folder=str(tmp_path / "S"))
    site.stream.publish("s.a", b"0")
    store_whole(site.stream.path, group(b"1", b"2" * 20, b"3"))
    site.stream.publish("s.a", b"4")
    site.reactor.settle()
    del site
    path = only_segment(tmp_path / "S")
    data = bytearray(path.read_bytes())
    starts = record_starts(bytes(data))
    data[starts[1] : starts[2]] = bytes(starts[2] - starts[1])
    path.write_bytes(data)
    log = open_log(str(tmp_path / "S"))
    assert set(contents(log)) == {1, 5}
    maintenance.purge(log, below)
    log.flush()
    for _ in range(2):
        del log
        log = open_log(str(tmp_path / "S"))
        assert set(contents(log)) == {5}


def test_damage_to_one_of_a_group_in_the_middle_costs_that_one(tmp_path: Path) -> None:
    site = Site(folder=str(tmp_path / "S"))
    store_whole(site.stream.path, group(b"1", b"2", b"3"))
    store_whole(site.stream.path, group(b"4", b"5", b"6"))
    site.stream.publish("s.a", b"7")
    site.reactor.settle()
    del site
    path = only_segment(tmp_path / "S")
    data = bytearray(path.read_bytes())
    starts = record_starts(bytes(data))
    for number in (2, 4):  # the third message and the fifth
        data[starts[number] + 40] ^= 1
    path.write_bytes(data)
    log = open_log(str(tmp_path / "S"))
    assert set(contents(log)) == {1, 2, 4, 6, 7}
    assert [(first, count) for first, count, _ in log.lost] == [(3, 1), (5, 1)]


@pytest.mark.parametrize("which", [2, 3, 4])
@pytest.mark.parametrize("closed", [False, True])
def test_a_hole_in_a_group_of_an_earlier_segment(tmp_path: Path, which: int, closed: bool) -> None:
    """The next segment reached the disk, the group before it did only in part."""
    folder = tmp_path / "S"
    site = Site(log=open_log(str(folder), segment_bytes=SEGMENT))
    site.stream.publish("s.a", b"1")
    assert store_whole(site.stream.path, group(b"2" * 500, b"3" * 500, b"4" * 500)) == [2, 3, 4]
    site.stream.publish("s.a", b"5" * 3000)
    site.reactor.settle()
    if closed:  # what its index file tells was on the disk once
        maintenance.close(site.log)
    del site
    path = folder / f"{1:020}.seg"
    data = bytearray(path.read_bytes())
    starts = [*record_starts(bytes(data)), len(data)]
    if which == 4:
        path.write_bytes(data[: starts[3] + 100])
    else:
        data[starts[which - 1] : starts[which]] = bytes(starts[which] - starts[which - 1])
        path.write_bytes(data)
    if not closed:
        (folder / f"{1:020}.idx").unlink(missing_ok=True)
    for _ in range(2):
        log = open_log(str(folder), segment_bytes=SEGMENT)
        gone = {which} if closed else {2, 3, 4}
        assert set(contents(log)) == {1, 2, 3, 4, 5} - gone
        assert {s for first, n, _ in log.lost for s in range(first, first + n)} == gone
        del log


@pytest.mark.parametrize(("low", "high"), list(itertools.combinations(range(7), 2)))
def test_a_group_with_skips_is_dropped_for_any_hole(tmp_path: Path, low: int, high: int) -> None:
    """Of what nobody takes there is a skip between the messages of a group, and no message."""
    site = Site(folder=str(tmp_path / "S"), retention=InterestRetention, selective=True)
    site.consumer(filters=("s.a",))
    site.stream.publish("s.a", b"before")
    drafts = [draft(f"s.{letter}", b"%d" % n, b"") for n, letter in enumerate("aababa")]
    store_whole(site.stream.path, drafts)
    site.stream.publish("s.a", b"after")
    site.reactor.settle()
    assert set(contents(site.log)) == {1, 2, 3, 5, 7, 8}
    del site
    path = only_segment(tmp_path / "S")
    data = bytearray(path.read_bytes())
    starts = record_starts(bytes(data))
    start, end = starts[1 + low], starts[1 + high]
    data[start:end] = bytes(end - start)
    path.write_bytes(data)
    log = open_log(str(tmp_path / "S"))
    assert set(contents(log)) == {1, 8}


def test_a_full_disk_takes_the_whole_group_or_none() -> None:
    disk = Disk()
    site = Site(log=open_log("S", PyDisk(disk)), sync=SYNC_ALWAYS)
    site.stream.publish("s.a", b"0")
    site.reactor.settle()
    disk.room = disk.used() + 100
    assert store_whole(site.stream.path, group(b"x" * 90, b"y" * 90)) == [2, 3]
    site.reactor.settle()
    assert site.stream.visible == 1
    with pytest.raises(StreamRefused):
        store_whole(site.stream.path, group(b"1", b"2"))
    assert set(contents(open_log("S", PyDisk(copy.deepcopy(disk))))) == {1}
    disk.room = None
    assert site.stream.mend()
    site.reactor.settle()
    assert site.stream.visible == 3
    disk.crash()
    assert set(contents(open_log("S", PyDisk(disk)))) == {1, 2, 3}


def test_a_group_of_many_bytes_is_one_write() -> None:
    disk = Disk()
    site = Site(log=open_log("S", PyDisk(disk)), sync=SYNC_ALWAYS)
    site.reactor.settle()
    disk.written.clear()
    store_whole(site.stream.path, group(*[b"z" * 300_000] * 10))
    site.reactor.settle()
    assert len([n for n in disk.written if n > 3_000_000]) == 1
    assert max(disk.written) == sum(disk.written)


class Crashes(RuleBasedStateMachine):
    """A stream with a limit on a disk that may lose and tear what is not synced.

    `units` are what was accepted, in order: single messages and groups. After a kill the stream
    holds what the first so many of them leave; after a loss of power at least those that were
    synced; never a part of one.
    """

    limit = 12

    def __init__(self) -> None:
        super().__init__()
        self.disk = Disk()
        self.numbers = itertools.count()
        self.units: list[dict[int, bytes]] = []
        self.written = self.synced = self.sure = 0
        self.base: dict[int, bytes] = {}
        self.lost: set[int] = set()
        self.open()

    def open(self) -> None:
        log = open_log("S", PyDisk(self.disk), segment_bytes=SEGMENT)
        self.site = Site(log=log, sync=SYNC_ALWAYS, max_msgs=self.limit)
        lost = {s for first, count, _ in log.lost for s in range(first, first + count)}
        # what is missing was never synced, or was told before
        assert all(seq > self.sure or seq in self.lost for seq in lost)
        self.sure = log.last_seq
        self.lost = lost

    @initialize(limit=st.sampled_from([-1, 3, 12]))
    def limits(self, limit: int) -> None:
        self.limit = limit
        self.site.stream.configure(max_msgs=limit)

    def payload(self, size: int) -> bytes:
        return (b"%d " % next(self.numbers)).ljust(size, b".")

    @rule(size=st.integers(1, 600))
    def publish(self, size: int) -> None:
        payload = self.payload(size)
        self.units.append({self.site.stream.publish("s.b", payload): payload})

    @rule(sizes=st.lists(st.integers(1, 600), min_size=1, max_size=20))
    def batch(self, sizes: list[int]) -> None:
        payloads = [self.payload(size) for size in sizes]
        seqs = store_whole(self.site.stream.path, group(*payloads))
        assert seqs == list(range(seqs[0], seqs[0] + len(sizes)))
        self.units.append(dict(zip(seqs, payloads, strict=True)))

    @rule()
    def turn(self) -> None:
        self.site.reactor.settle()
        self.written = self.synced = len(self.units)
        self.sure = self.site.log.last_seq

    @rule()
    def write(self) -> None:
        self.site.log.flush()
        self.written = len(self.units)

    @rule()
    def kill(self) -> None:
        """The process ends; what was written is in the page cache."""
        self.reopen(self.written, power=False)

    @rule(seed=st.integers(0, 2**32))
    def power_cut(self, seed: int) -> None:
        pick = random.Random(seed)
        self.disk.crash(pick if seed % 4 else None)
        self.reopen(self.synced, power=True)

    def state(self, count: int) -> dict[int, bytes]:
        found = dict(self.base)
        for unit in self.units[:count]:
            found |= unit
        return dict(list(found.items())[-self.limit :]) if self.limit > 0 else found

    def reopen(self, least: int, *, power: bool) -> None:
        last = self.site.log.last_seq
        self.open()
        self.site.stream.configure(max_msgs=self.limit)
        found = contents(self.site.log)
        if not power:
            states = [self.state(count) for count in range(least, len(self.units) + 1)]
            assert found in states, (found, states)
        self.check(found, least)
        assert self.site.log.last_seq <= last or self.site.log.last_seq - last < 2
        self.base = found
        self.units = []
        self.site.reactor.settle()
        self.written = self.synced = 0

    def check(self, found: dict[int, bytes], least: int) -> None:
        """Of what several segments hold unsynced, later units may be there and earlier ones not."""
        given = dict(self.base)
        for unit in self.units:
            given |= unit
        assert found.items() <= given.items()
        assert self.limit < 0 or len(found) <= self.limit
        pushed_out = set(list(given)[: -self.limit]) if self.limit > 0 else set()
        assert self.base.keys() - pushed_out <= found.keys()
        for number, unit in enumerate(self.units):
            whole = unit.keys() - pushed_out <= found.keys()
            assert whole or (number >= least and not unit.keys() & found.keys()), (unit, found)

    @invariant()
    def what_is_there_is_right(self) -> None:
        assert contents(self.site.log) == self.state(len(self.units))


TestCrashes = Crashes.TestCase
TestCrashes.settings = settings(max_examples=length(25, 120), stateful_step_count=25, deadline=None)
