"""Subjects without messages are forgotten and their ids given to others: everything that goes by id against dicts."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from pelton.core.consumer.consumer import ACK_NONE
from pelton.core.log import maintenance, queries, subject_table
from pelton.core.log.log import Log
from pelton.core.log.recovery import open_log
from pelton.core.protocol.subjects import matches
from tests.core.log import test_log
from tests.core.streams import Site
from tests.ways import length

if TYPE_CHECKING:
    from pathlib import Path

RUN = 3  # ids of a run here, so that runs are filled, sorted, mixed and cut all the time


@pytest.fixture(autouse=True)
def _small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject_table, "RUN_IDS", RUN)


class Churn(test_log.Model):
    """The model of the log's own tests, with ever new subjects besides the few."""

    made = 0

    def open(self, first_seq: int = 1) -> Log:
        usual, subject_table.RUN_IDS = subject_table.RUN_IDS, RUN
        try:
            log = super().open(first_seq)
        finally:
            subject_table.RUN_IDS = usual
        assert log.subjects_table.run_ids == RUN
        return log

    @rule(count=st.integers(1, 40), size=st.sampled_from([0, 200, 1500]), branch=st.integers(0, 2))
    def append_new(self, count: int, size: int, branch: int) -> None:
        for _ in range(count):
            self.made += 1
            name = f"{'abx'[branch]}.{self.made}{'.b' * (self.made % 3)}"
            self.now += 7
            self.last += 1
            payload = bytes([self.last & 255]) * size
            assert self.log.add(self.now, name, payload) == self.last
            self.live[self.last] = (self.now, name, b"", payload)
        self.first = max(self.first, min(self.live))

    @rule(keep=st.sampled_from([0, 1, 5]))
    def keep_newest(self, keep: int) -> None:
        for seq in sorted(self.live)[: len(self.live) - keep]:
            assert maintenance.delete(self.log, seq)
            self.drop([seq])

    @rule()
    def states_of_all_agree(self) -> None:
        states: dict[str, tuple[int, int, int]] = {}
        for seq, (_, name, *_rest) in sorted(self.live.items()):
            n, first, _last = states.get(name, (0, seq, 0))
            states[name] = (n + 1, first, seq)
        assert {name: state[0] for name, state in states.items()} == queries.subjects(self.log)
        for name, state in states.items():
            assert queries.subject_state(self.log, name) == state
        for k in range(max(self.made - 50, 1), self.made + 1):
            for name in (f"{c}.{k}{'.b' * (k % 3)}" for c in "abx"):
                assert queries.subject_state(self.log, name) == states.get(name, (0, 0, 0))

    @invariant()
    def places_agree(self) -> None:
        table = self.log.subjects_table
        assert table.live == len({m[1] for m in self.live.values()})
        assert table.live + table.spare <= table.count
        assert self.log.subject_ids == table.count


class ChurnInMemory(Churn):
    memory = True


class ChurnCompressed(Churn):
    compress = True


COMMON = settings(
    max_examples=length(25, 60),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestChurn = Churn.TestCase
TestChurn.settings = COMMON
TestChurnInMemory = ChurnInMemory.TestCase
TestChurnInMemory.settings = COMMON
TestChurnCompressed = ChurnCompressed.TestCase
TestChurnCompressed.settings = COMMON


# --- consumers, whose filters are kept by id --------------------------------------------------------

FILTERS = [(), ("s.a.*",), ("s.*.3",), ("s.b.>", "s.a.1"), ("s.a.2",), ("s.>",), ("s.c.*", "s.*.7")]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("new"), st.integers(0, 8)),
        st.tuples(st.just("new"), st.integers(0, 8)),
        st.tuples(st.just("again"), st.integers(0, 8)),
        st.tuples(st.just("pull"), st.integers(0, 13)),
        st.tuples(st.just("limit"), st.integers(1, 9)),
        st.tuples(st.just("delete"), st.integers(0, 9)),
        st.tuples(st.just("purge"), st.integers(0, 6)),
        st.tuples(st.just("refilter"), st.integers(0, 13)),
        st.tuples(st.just("maintain"), st.just(0)),
    ),
    max_size=70,
)


def passes(subject: str, filters: tuple[str, ...]) -> bool:
    return not filters or any(matches(subject, pattern) for pattern in filters)


class Readers:
    """A stream, consumers with each of the filters twice, and what must be true of them."""

    def __init__(self, log: Log) -> None:
        self.site = Site(log=log)
        self.live: dict[int, str] = {}
        self.made = 0
        self.filters = [FILTERS[n % 7] for n in range(14)]
        self.consumers = [
            self.site.consumer(f"C{n}", filters=self.filters[n], ack_policy=ACK_NONE)
            for n in range(14)
        ]
        self.clients = [self.site.server.client().send(f"SUB own.{n} 1\r\n") for n in range(14)]
        self.wants, self.passed = [0] * 14, [0] * 14

    def perform(self, verb: str, n: int) -> None:
        site = self.site
        if verb in ("new", "again"):
            self.made += verb == "new"
            name = f"s.{'abc'[n % 3]}.{self.made if n > 5 or verb == 'new' else n}"
            site.publish(name, bytes(900))
            self.live[site.log.last_seq] = name
        elif verb == "pull":
            self.wants[n] += 1 + n % 3
            site.pull(str(1 + n % 3), f"own.{n}", f"C{n}")
        elif verb == "limit":
            site.stream.configure(max_msgs=n)
            site.stream.configure()
            for seq in sorted(self.live)[: max(len(self.live) - n, 0)]:
                del self.live[seq]
        elif verb == "delete" and self.live:
            seq = sorted(self.live)[n % len(self.live)]
            site.stream.delete_message(seq, False)
            del self.live[seq]
        elif verb == "purge":
            pattern = (FILTERS[n] or (">",))[0]
            site.stream.purge(subject=pattern)
            for seq in [seq for seq, name in self.live.items() if matches(name, pattern)]:
                del self.live[seq]
        elif verb == "refilter":
            self.filters[n] = FILTERS[(n * 5 + self.made) % 7]
            self.consumers[n].configure(filters=self.filters[n], ack_policy=ACK_NONE)
        elif verb == "maintain":
            maintenance.maintain(site.log)

    def check(self) -> None:
        self.site.reactor.turn()
        for n, client in enumerate(self.clients):
            for message in self.site.heard(client):
                seq = message.number(1)
                assert seq > self.passed[n]
                assert passes(message.subject, self.filters[n])
                assert self.live.get(seq, message.subject) == message.subject
                self.passed[n] = seq
                self.wants[n] -= 1
            rest = [
                seq
                for seq, name in self.live.items()
                if seq > self.passed[n] and passes(name, self.filters[n])
            ]
            assert self.consumers[n].state().num_pending == len(rest)
            assert not rest or self.wants[n] <= 0
        for pattern in ("s.>", "s.a.*", "s.*.3"):
            names = [name for name in self.live.values() if matches(name, pattern)]
            assert queries.subjects(self.site.log, pattern) == {
                name: names.count(name) for name in names
            }
            last = max((s for s, name in self.live.items() if matches(name, pattern)), default=0)
            assert queries.last_seq_of(self.site.log, pattern) == last


@pytest.mark.parametrize("kept", ["memory", "file"])
@settings(
    max_examples=length(25, 120),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS)
def test_consumers_get_what_passes_their_filters(
    kept: str, steps: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = None if kept == "memory" else str(tmp_path_factory.mktemp("log") / "log")
    readers = Readers(open_log(folder, segment_bytes=4096))
    for verb, n in steps:
        readers.perform(verb, n)
        readers.check()


def test_consumers_of_few_among_many_subjects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters of consumers in a log of many subjects are kept as lists of ids."""
    monkeypatch.setattr(subject_table, "RUN_IDS", 64)
    seeded = random.Random(3)
    log = open_log(None, segment_bytes=4096)
    readers = Readers(log)
    for n in range(8400):
        log.add(n + 1, f"s.d.{n}", b"")
        readers.live[n + 1] = f"s.d.{n}"
    for n, consumer in enumerate(readers.consumers):
        consumer.configure(filters=("s.none",), ack_policy=ACK_NONE)
        consumer.configure(filters=readers.filters[n], ack_policy=ACK_NONE)
    readers.perform("limit", 3)
    readers.check()
    verbs = ["new"] * 6 + ["again", "pull", "pull", "delete", "refilter", "maintain"]
    for _ in range(3000):
        verb = seeded.choice(verbs)
        readers.perform(verb, seeded.randrange(9))
        if len(readers.live) > 12:
            readers.perform("limit", 6)
        readers.check()
    assert readers.made > 1000
    maintenance.maintain(log)
    assert log.subjects_table.count - log.subjects_table.spare < 200


# --- what it is for -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", ["memory", "file"])
def test_places_follow_the_messages_and_not_the_subjects_seen(kept: str, tmp_path: Path) -> None:
    log = open_log(None if kept == "memory" else str(tmp_path / "log"), segment_bytes=8192)
    most = 0
    for k in range(1, 30_001):
        log.add(k, f"devices.{k * 7919 % 1_000_003}.temperature", b"21.5")
        if k > 100:
            maintenance.delete(log, k - 100)
        if k % 50 == 0:
            log.flush()
            queries.subjects(log, "devices.*.temperature")
        most = max(most, log.subjects_table.count)
    # the last hundred, and what two segments name
    assert most < 500
    maintenance.purge(log)
    if kept == "file":
        maintenance.close(log)
        log = open_log(str(tmp_path / "log"), segment_bytes=8192)
    assert queries.subjects(log) == {}


def test_a_crowd_that_has_gone_leaves_no_places_behind() -> None:
    log = open_log(None, segment_bytes=4096)
    for k in range(1, 5001):
        log.add(k, f"a.{k}", bytes(20))
    assert log.subjects_table.count == 5000
    maintenance.purge(log, 4991)
    maintenance.maintain(log)
    assert log.subjects_table.count - log.subjects_table.spare < 100
    for k in range(5001, 5101):
        log.add(k, f"b.{k}", bytes(20))
        maintenance.delete(log, k - 50)
    maintenance.maintain(log)
    assert log.subjects_table.count < 300
    assert queries.subjects(log, "b.*") == {f"b.{k}": 1 for k in range(5051, 5101)}


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_patterns_are_found_while_ids_change_hands(share: float) -> None:
    """Sorted runs of names with places in them that are free, or somebody else's."""
    seeded = random.Random(int(share * 10))
    log = open_log(None, segment_bytes=4096)
    live: dict[int, str] = {}
    for k in range(1, 4001):
        name = ".".join(seeded.choices("ab-!/~", k=3)) + f".{k % 37 if k % 5 else k}"
        live[log.add(k, name, bytes(100))] = name
        if len(live) > 150 and seeded.random() < share:
            for seq in sorted(live)[: seeded.choice((1, 2, 60))]:
                maintenance.delete(log, seq)
                del live[seq]
        if k % 10 == 0:
            pattern = ".".join(seeded.choices(["a", "b", "*", "-", "/"], k=seeded.choice((2, 3))))
            pattern += seeded.choice((".>", ".*", ".7"))
            expected: dict[str, int] = {}
            for name in live.values():
                if matches(name, pattern):
                    expected[name] = expected.get(name, 0) + 1
            assert queries.subjects(log, pattern) == expected


def test_an_index_that_is_made_anew_again_and_again(tmp_path: Path) -> None:
    """The index of the active segment is bad at each opening; its subjects stay what they are."""
    expected: dict[str, int] = {}
    for k in range(6):
        log = open_log(str(tmp_path / "log"), segment_bytes=4096)
        assert queries.subjects(log) == expected
        for name in ("a", "b", f"c.{k}"):
            log.add(k + 1, name, bytes(20))
            expected[name] = expected.get(name, 0) + 1
        first = queries.next_of(log, "a", 1)
        assert first is not None
        maintenance.delete(log, first.seq)
        expected["a"] -= 1
        expected = {name: n for name, n in expected.items() if n}
        assert queries.subjects(log) == expected
        maintenance.close(log)
        del log
        for path in (tmp_path / "log").glob("*.idx"):
            data = bytearray(path.read_bytes())
            data[112 + 4] ^= 1  # of the first entry
            path.write_bytes(data)
