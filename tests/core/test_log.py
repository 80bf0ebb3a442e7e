"""The record log against a dict: any run of operations, reopened and killed in between, with index files damaged."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.core.log import Log, LogClosed

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

    @initialize(first_seq=st.sampled_from([1, 1, 1, 5000]))
    def start(self, first_seq: int) -> None:
        self.folder = tempfile.mkdtemp(prefix="penstock-log-")
        self.live: dict[int, tuple[int, str, bytes, bytes]] = {}
        self.last = first_seq - 1
        self.first = first_seq
        self.now = 1000
        self.log = self.open(first_seq)

    def open(self, first_seq: int = 1) -> Log:
        folder = None if self.memory else f"{self.folder}/log"
        return Log(folder, segment_bytes=4096, first_seq=first_seq)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.log.close()
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
            assert self.log.delete(seq) is was
            if was:
                self.drop([seq])

    @rule(count=st.integers(1, 60))
    def delete_head(self, count: int) -> None:
        for seq in sorted(self.live)[:count]:
            assert self.log.delete(seq)
            self.drop([seq])

    @rule(data=st.data())
    def erase(self, data: st.DataObject) -> None:
        if self.live:
            seq = data.draw(st.sampled_from(sorted(self.live)))
            assert self.log.delete(seq, erase=True)
            self.drop([seq])

    @rule(data=st.data())
    def purge_below(self, data: st.DataObject) -> None:
        below = data.draw(st.integers(0, self.last + 3))
        gone = [seq for seq in self.live if seq < below]
        assert self.log.purge(below) == len(gone)
        self.drop(gone)

    @rule()
    def purge_all(self) -> None:
        assert self.log.purge() == len(self.live)
        self.drop(list(self.live))

    @rule(pattern=st.sampled_from(PATTERNS), keep=st.sampled_from([0, 0, 1, 5]), data=st.data())
    def purge_pattern(self, pattern: str, keep: int, data: st.DataObject) -> None:
        below = data.draw(st.one_of(st.none(), st.integers(0, self.last + 2)))
        seqs = sorted(seq for seq, m in self.live.items() if matches(m[1], pattern))
        gone = [seq for seq in seqs[: max(len(seqs) - keep, 0)] if below is None or seq < below]
        assert self.log.purge_subjects(pattern, below, keep) == len(gone)
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
        self.log.maintain()

    @precondition(lambda self: not self.memory)
    @rule(how=st.sampled_from(["close", "kill", "kill"]), damage=st.integers(0, 3), pick=st.randoms(use_true_random=False))
    def reopen(self, how: str, damage: int, pick: random.Random) -> None:
        if how == "close":
            self.log.close()
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
        if not hasattr(self, "log"):
            return
        log = self.log
        assert log.last_seq == self.last
        assert log.msgs == len(self.live)
        assert log.bytes == sum(accounted(m[1], m[2], m[3], self.memory) for m in self.live.values())
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
        while (message := self.log.next_of(">", seq)) is not None:
            found[message.seq] = message[1:]
            seq = message.seq + 1
        assert found == self.live
        holes = [seq for first, count in self.log.deleted() for seq in (first, first + count - 1)]
        assert holes == sorted(holes)
        assert sum(count for _, count in self.log.deleted()) == self.log.deleted_count()
        assert not any(first + k in self.live for first, count in self.log.deleted() for k in range(min(count, 500)))

    @rule(pattern=st.sampled_from(PATTERNS), data=st.data())
    def subjects_agree(self, pattern: str, data: st.DataObject) -> None:
        seqs = sorted(seq for seq, m in self.live.items() if matches(m[1], pattern))
        counts: dict[str, int] = {}
        for seq in seqs:
            counts[self.live[seq][1]] = counts.get(self.live[seq][1], 0) + 1
        assert self.log.subjects(pattern) == counts
        start = data.draw(st.integers(0, self.last + 1))
        found = self.log.next_of(pattern, start)
        assert (found and found.seq) == next((seq for seq in seqs if seq >= start), None)
        found = self.log.last_of(pattern, start)
        assert (found and found.seq) == next((seq for seq in reversed(seqs) if seq <= start), None)
        found = self.log.last_of(pattern)
        assert (found and found.seq) == (seqs[-1] if seqs else None)

    @rule(data=st.data())
    def times_agree(self, data: st.DataObject) -> None:
        ts = data.draw(st.integers(990, self.now + 10))
        expected = min((seq for seq, m in self.live.items() if m[0] >= ts), default=self.last + 1)
        assert self.log.at_time(ts) == expected


class MemoryModel(Model):
    memory = True


COMMON = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestFileLog = Model.TestCase
TestFileLog.settings = COMMON
TestMemoryLog = MemoryModel.TestCase
TestMemoryLog.settings = COMMON
