"""The record log against a dict: any run of operations, reopened, killed, index files damaged."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pelton.core.base.disk import Disk, PyDisk
from pelton.core.base.quota import Quota
from pelton.core.log import maintenance, queries
from pelton.core.log.log import Log, LogClosed
from pelton.core.log.recovery import open_log
from pelton.testing.simulated_disk import SimDisk
from tests.ways import length

if TYPE_CHECKING:
    import random

SUBJECTS = ["a", "a.b", "a.c", "a.b.c", "b.b", "b.c.d", "ü.x"]
PATTERNS = [*SUBJECTS, ">", "a.>", "*", "*.b", "a.*", "*.*.*", "none", "none.>"]


def matches(subject: str, pattern: str) -> bool:
    tokens = subject.split(".")
    wanted = pattern.split(".")
    for i, token in enumerate(wanted):
        if token == ">":
            return len(tokens) > i
        if i >= len(tokens) or token not in ("*", tokens[i]):
            return False
    return len(tokens) == len(wanted)


def accounted(subject: str, headers: bytes, payload: bytes, memory: bool) -> int:
    n = len(subject.encode()) + len(headers) + len(payload)
    return n + 16 if memory else n + 30 + (4 if headers else 0)


class Model(RuleBasedStateMachine):
    """Holds the live messages in a dict; every question is asked of both."""

    memory = False
    compress = False

    @initialize(first_seq=st.sampled_from([1, 1, 1, 5000]))
    def start(self, first_seq: int) -> None:
        self.folder = tempfile.mkdtemp(prefix="pelton-log-")
        self.live: dict[int, tuple[int, str, bytes, bytes]] = {}
        self.last = first_seq - 1
        self.first = first_seq
        self.now = 1000
        self.log = self.open(first_seq)

    def open(self, first_seq: int = 1) -> Log:
        folder = None if self.memory else f"{self.folder}/log"
        log = open_log(folder, segment_bytes=4096, first_seq=first_seq)
        log.subjects_table.debt_free = 20
        self.used = Quota(whole=Quota())
        log.join(self.used)
        log.compress = self.compress
        return log

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            maintenance.close(self.log)
            shutil.rmtree(self.folder)

    def drop(self, seqs: list[int]) -> None:
        for seq in seqs:
            del self.live[seq]
        self.first = max(self.first, min(self.live, default=self.last + 1))

    @rule(
        subject=st.sampled_from(SUBJECTS),
        size=st.one_of(st.integers(0, 300), st.sampled_from([0, 4000, 9000])),
        headers=st.sampled_from([b"", b"", b"NATS/1.0\r\nA: b\r\n\r\n"]),
        count=st.sampled_from([1, 1, 1, 5, 40]),
    )
    def append(self, subject: str, size: int, headers: bytes, count: int) -> None:
        for _ in range(count):
            self.now += 7
            self.last += 1
            payload = bytes([self.last & 255]) * size
            assert self.log.add(self.now, subject, payload, headers) == self.last
            self.live[self.last] = (self.now, subject, headers, payload)
        self.first = min(self.first, min(self.live)) if self.live else self.first

    @rule(pick=st.randoms(use_true_random=False), count=st.sampled_from([1, 3, 30]))
    def delete_some(self, pick: random.Random, count: int) -> None:
        for _ in range(count):
            seq = pick.randint(max(self.first - 3, 0), self.last + 2)
            was = seq in self.live
            assert maintenance.delete(self.log, seq) is was
            if was:
                self.drop([seq])

    @rule(count=st.integers(1, 60))
    def delete_head(self, count: int) -> None:
        for seq in sorted(self.live)[:count]:
            assert maintenance.delete(self.log, seq)
            self.drop([seq])

    @rule(data=st.data())
    def erase(self, data: st.DataObject) -> None:
        if self.live:
            seq = data.draw(st.sampled_from(sorted(self.live)))
            assert maintenance.delete(self.log, seq, erase=True)
            self.drop([seq])

    @rule(data=st.data())
    def purge_below(self, data: st.DataObject) -> None:
        below = data.draw(st.integers(0, self.last + 3))
        gone = [seq for seq in self.live if seq < below]
        assert maintenance.purge(self.log, below) == len(gone)
        self.drop(gone)

    @rule()
    def purge_all(self) -> None:
        assert maintenance.purge(self.log) == len(self.live)
        self.drop(list(self.live))

    @rule(pattern=st.sampled_from(PATTERNS), keep=st.sampled_from([0, 0, 1, 5]), data=st.data())
    def purge_pattern(self, pattern: str, keep: int, data: st.DataObject) -> None:
        below = data.draw(st.one_of(st.none(), st.integers(0, self.last + 2)))
        seqs = sorted(seq for seq, m in self.live.items() if matches(m[1], pattern))
        gone = [seq for seq in seqs[: max(len(seqs) - keep, 0)] if below is None or seq < below]
        assert queries.purge_subjects(self.log, pattern, below, keep) == len(gone)
        self.drop(gone)

    @rule(gap=st.sampled_from([1, 2, 3, 70, 4096, 4097, 100_000]))
    def skip(self, gap: int) -> None:
        self.log.skip(self.last + 1 + gap)
        self.last += gap
        if not self.live:
            self.first = self.last + 1

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.written_seq == self.last

    @rule()
    def fsync(self) -> None:
        self.log.fsync()
        assert self.log.synced_seq == self.last

    @rule()
    def maintain(self) -> None:
        maintenance.maintain(self.log)

    @precondition(lambda self: not self.memory)
    @rule(
        how=st.sampled_from(["close", "kill", "kill"]),
        damage=st.integers(0, 3),
        pick=st.randoms(use_true_random=False),
    )
    def reopen(self, how: str, damage: int, pick: random.Random) -> None:
        if how == "close":
            maintenance.close(self.log)
            with pytest.raises(LogClosed):
                self.log.add(1, "a", b"")
        else:
            self.log.flush()
        del self.log
        indexes = sorted(Path(self.folder, "log").glob("*.idx"))
        if indexes and damage == 1:
            pick.choice(indexes).unlink()
        if indexes and damage == 2:
            path = pick.choice(indexes)
            data = bytearray(path.read_bytes())
            data[pick.randrange(len(data))] ^= 1 << pick.randrange(8)
            path.write_bytes(data)
        if damage == 3:
            for path in indexes:
                path.unlink()
        self.log = self.open()
        assert self.log.lost == []

    # --- what must hold after every step ---------------------------------------------------------

    @invariant()
    def counts_agree(self) -> None:
        assert self.used.used == self.log.bytes
        assert self.used.whole is not None
        assert self.used.whole.used == self.log.bytes
        if not hasattr(self, "log"):
            return
        log = self.log
        log.segments.loaded_limit = 1200
        assert log.last_seq == self.last
        assert log.msgs == len(self.live)
        assert log.bytes == sum(
            accounted(m[1], m[2], m[3], self.memory) for m in self.live.values()
        )
        if self.live:
            assert log.first_seq == min(self.live)
            assert log.first_ts_ns == self.live[min(self.live)][0]
        else:
            assert log.first_seq == self.last + 1
        assert log.deleted_count() == log.last_seq + 1 - log.first_seq - log.msgs

    @rule()
    def messages_agree(self) -> None:
        found = {}
        seq = 1
        while (message := queries.next_of(self.log, ">", seq)) is not None:
            found[message.seq] = message[1:]
            seq = message.seq + 1
        assert found == self.live
        holes = [
            seq for first, count in queries.deleted(self.log) for seq in (first, first + count - 1)
        ]
        assert holes == sorted(holes)
        assert sum(count for _, count in queries.deleted(self.log)) == self.log.deleted_count()
        assert not any(
            first + k in self.live
            for first, count in queries.deleted(self.log)
            for k in range(min(count, 500))
        )

    @rule(pattern=st.sampled_from(PATTERNS), data=st.data())
    def subjects_agree(self, pattern: str, data: st.DataObject) -> None:
        seqs = sorted(seq for seq, m in self.live.items() if matches(m[1], pattern))
        counts: dict[str, int] = {}
        for seq in seqs:
            counts[self.live[seq][1]] = counts.get(self.live[seq][1], 0) + 1
        assert queries.subjects(self.log, pattern) == counts
        start = data.draw(st.integers(0, self.last + 1))
        found = queries.next_of(self.log, pattern, start)
        assert (found and found.seq) == next((seq for seq in seqs if seq >= start), None)
        found = queries.last_of(self.log, pattern, start)
        assert (found and found.seq) == next((seq for seq in reversed(seqs) if seq <= start), None)
        assert queries.count_from(self.log, start, pattern) == sum(seq >= start for seq in seqs)
        assert queries.next_seq(self.log, pattern, start) == next(
            (s for s in seqs if s >= start), 0
        )
        assert queries.last_seq_of(self.log, pattern) == (seqs[-1] if seqs else 0)
        assert queries.subjects_page(self.log, pattern, start, 2) == (
            len(counts),
            dict(sorted(counts.items())[start : start + 2]),
        )
        found = queries.last_of(self.log, pattern)
        assert (found and found.seq) == (seqs[-1] if seqs else None)

    @rule(patterns=st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3), data=st.data())
    def last_of_each_agrees(self, patterns: list[str], data: st.DataObject) -> None:
        upto = data.draw(st.one_of(st.integers(0, self.last + 2), st.just(self.last)))
        most = data.draw(st.sampled_from([0, 1, 3, 1024]))
        newest: dict[str, int] = {}
        for seq, (_, subject, *_rest) in sorted(self.live.items()):
            if any(matches(subject, pattern) for pattern in patterns) and seq <= upto:
                newest[subject] = seq
        expected = None if len(newest) > most else sorted(newest.values())
        assert queries.last_of_each(self.log, patterns, upto, most) == expected

    @rule()
    def subject_states_agree(self) -> None:
        for subject in SUBJECTS:
            seqs = [seq for seq, m in self.live.items() if m[1] == subject]
            expected = (len(seqs), min(seqs), max(seqs)) if seqs else (0, 0, 0)
            assert queries.subject_state(self.log, subject) == expected
        for seq in list(self.live)[:50]:
            assert self.log.size_of(seq) == accounted(*self.live[seq][1:], self.memory)

    @rule(data=st.data())
    def times_agree(self, data: st.DataObject) -> None:
        ts = data.draw(st.integers(990, self.now + 10))
        expected = min((seq for seq, m in self.live.items() if m[0] >= ts), default=self.last + 1)
        assert self.log.at_time(ts) == expected


class MemoryModel(Model):
    memory = True


class CompressedModel(Model):
    compress = True


COMMON = settings(
    max_examples=length(25, 60),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestFileLog = Model.TestCase
TestCompressedLog = CompressedModel.TestCase
TestCompressedLog.settings = COMMON
TestFileLog.settings = COMMON
TestMemoryLog = MemoryModel.TestCase
TestMemoryLog.settings = COMMON


def test_newest_bytes_are_read_from_memory_and_older_ones_from_the_file(tmp_path: Path) -> None:
    log = open_log(str(tmp_path / "log"))
    expected = {}
    for i in range(60):
        payload = bytes([i]) * (1000 + 7000 * (i % 13))
        expected[log.add(i + 1, f"s.{i}", payload)] = payload
        if i % 7 == 6:
            log.flush()
        for seq in (1, i // 2 + 1, i + 1):
            message = log.get(seq)
            assert message is not None
            assert message.payload == expected[seq]
    assert log.written_seq < log.last_seq
    assert [queries.next_of(log, ">", seq).payload for seq in expected] == list(expected.values())  # type: ignore[union-attr]  # all are there
    maintenance.close(log)
    log = open_log(str(tmp_path / "log"))
    assert [queries.next_of(log, ">", seq).payload for seq in expected] == list(expected.values())  # type: ignore[union-attr]  # all are there


def test_long_turns_are_written_early(tmp_path: Path) -> None:
    log = open_log(str(tmp_path / "log"))
    for i in range(80):
        log.add(i + 1, "a", bytes(10_000))
    assert 0 < log.written_seq < 80
    assert log.synced_seq == 0


def test_largest_records(tmp_path: Path) -> None:
    for folder in (None, str(tmp_path / "log")):
        log = open_log(folder)
        payload = bytes(range(256)) * 131_072
        assert log.add(1, "a", payload) == 1
        assert log.add(2, "a", payload, b"h" * 100) == 2
        with pytest.raises(ValueError, match="64 MiB"):
            log.add(3, "a", bytes(65 << 20))
        with pytest.raises(ValueError, match="65535"):
            log.add(3, "a" * 70_000, b"")
        assert log.add(3, "a" * 65_535, b"x") == 3
        log.flush()
        message = log.get(2)
        assert message is not None
        assert message.payload == payload
        assert message.headers == b"h" * 100
        maintenance.close(log)


def test_sync_in_a_worker(tmp_path: Path) -> None:
    log = open_log(str(tmp_path / "log"), segment_bytes=4096)
    log.add(1, "a", b"x")
    log.flush()
    handles, upto = log.sync_start()
    assert len(handles) == 1
    assert upto == 1
    # Meanwhile segments come and go: none of it counts as synced, no handle of it is closed.
    for i in range(200):
        log.add(i + 2, "a", b"y" * 100)
    log.flush()
    maintenance.purge(log, 150)
    log.flush()
    assert log.sync_start() == ([], 0)
    for handle in handles:
        os.fdatasync(handle)
    log.sync_done(upto)
    assert (log.synced_seq, log.written_seq, log.last_seq) == (1, 201, 201)
    handles, upto = log.sync_start()
    assert len(handles) > 1
    assert upto == 201
    for handle in handles:
        os.fdatasync(handle)
    log.sync_done(upto)
    assert log.synced_seq == 201
    assert log.sync_start() == ([], 201)
    first = min(int(p.stem) for p in (tmp_path / "log").glob("*.seg"))
    assert first > 100
    log.add(300, "a", b"z")
    log.flush()
    handles, upto = log.sync_start()
    with pytest.raises(LogClosed):
        log.sync_done(upto, errno.EIO)
    assert log.synced_seq == 201
    with pytest.raises(LogClosed):
        log.add(301, "a", b"z")


def test_close_while_a_worker_syncs(tmp_path: Path) -> None:
    log = open_log(str(tmp_path / "log"))
    log.add(1, "a", b"x")
    log.flush()
    handles, upto = log.sync_start()
    maintenance.close(log)
    for handle in handles:
        os.fdatasync(handle)
    log.sync_done(upto)
    with pytest.raises(OSError, match="descriptor"):
        os.fdatasync(handles[0])
    assert log.get(1) is not None


def test_handles_are_given_back(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    disk = Disk()
    disk.open_files.limit = 12
    for _ in range(3):
        log = open_log(str(tmp_path / "log"), disk, segment_bytes=4096)
        for i in range(300):
            log.add(i + 1, "a", b"x" * 200)
        log.flush()
        for seq in range(1, log.last_seq, 7):
            log.get(seq)
        assert len(os.listdir("/proc/self/fd")) <= before + 12
        del log
        assert len(os.listdir("/proc/self/fd")) == before


def test_destroy(tmp_path: Path) -> None:
    log = open_log(str(tmp_path / "log"))
    log.add(1, "a", b"x")
    maintenance.destroy(log)
    assert not (tmp_path / "log").exists()
    assert log.get(1) is None
    with pytest.raises(LogClosed):
        log.add(2, "a", b"x")


def test_bad_arguments(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="first_seq"):
        open_log(None, first_seq=0)
    with pytest.raises(ValueError, match="segment_bytes"):
        open_log(None, segment_bytes=10)
    log = open_log(None)
    log.add(1, "a", b"x")
    with pytest.raises(ValueError, match="is taken"):
        log.skip(1)
    with pytest.raises(ValueError, match="keep"):
        queries.purge_subjects(log, ">", keep=-1)
    assert log.get(0) is None
    assert log.get(-5) is None
    assert log.get(2) is None
    assert not maintenance.delete(log, 0)
    assert not maintenance.delete(log, -1)


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "lives"])
def test_an_index_does_not_speak_of_removals_that_are_not_on_the_disk(*, killed: bool) -> None:
    disk = SimDisk()
    log = open_log("log", PyDisk(disk, background=True), segment_bytes=4096)
    while sum(name.endswith(".seg") for name in disk.names) < 2:
        log.add(log.last_seq + 1, "s.a", b"x" * 100)
    log.flush()
    handles, upto = log.sync_start()
    maintenance.delete(log, 3)
    for handle in handles:
        disk.sync(handle)
    log.sync_done(upto)  # the full segment is on the disk: its index is due
    if killed:
        del log
        disk.kill()
        assert open_log("log", PyDisk(disk), segment_bytes=4096).get(3)
        return
    assert not any(name.endswith(".idx") for name in disk.names)
    log.fsync()
    maintenance.maintain(log)
    assert any(name.endswith(".idx") for name in disk.names)
    del log
    disk.crash()
    assert not open_log("log", PyDisk(disk), segment_bytes=4096).get(3)


def test_what_compaction_leaves_out_has_a_removal_on_the_disk() -> None:
    """With max_msgs_per_subject 1 a message makes the one before it leave: one of the two stays."""
    disk = SimDisk()
    log = open_log("log", PyDisk(disk, background=True), segment_bytes=4096)
    while sum(name.endswith(".seg") for name in disk.names) < 2:
        log.add(log.last_seq + 1, "s.a", b"x" * 100)
    log.fsync()
    before = log.last_seq
    for seq in range(1, 25):
        log.add(100 + seq, "s.a", b"new")
        maintenance.delete(log, seq)
    log.flush()
    assert maintenance.maintain(log)
    del log
    disk.crash()
    log = open_log("log", PyDisk(disk), segment_bytes=4096)
    for seq in range(1, 25):
        assert log.get(seq) or log.get(before + seq)
