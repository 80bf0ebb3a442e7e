"""The journal of acks: what it writes is what engine/consumer_states reads, under torn writes and failing syncs."""

import random
from pathlib import Path
from typing import Any

import pytest

from penstock.core.base.disk import Disk, PyDisk
from penstock.core.consumer.ack_journal import AckJournal
from penstock.engine.consumer_states import ConsumerStates
from penstock.testing.simulated_disk import SimDisk
from tests.core.streams import Site

FOLDER = "consumers"
CREATED = 77


class Bench:
    """A stream with one consumer and its journal over a simulated disk."""

    def __init__(self, disk: SimDisk, count: int = 30, **rules: Any) -> None:
        self.disk = disk
        self.site = Site()
        for n in range(count):
            self.site.publish(f"s.{n % 3}")
        self.consumer = self.site.consumer(**rules)
        self.failures: list[OSError] = []
        PyDisk(disk).make_dir_durable(FOLDER)
        self.journal = AckJournal(self.site.reactor, PyDisk(disk), FOLDER, durable=True)
        self.journal.on_failure = self.failures.append
        self.journal.watch(self.consumer, CREATED)

    def pull(self, count: int) -> list[Any]:
        self.site.pull(str(count))
        return [message for message in self.site.heard() if message.reply]

    def confirm(self, message: Any, body: bytes = b"+ACK") -> bool:
        self.site.ack(message, body, "in.c")
        return any(m.subject == "in.c" for m in self.site.heard())


def read(disk: SimDisk) -> Any:
    states = ConsumerStates(PyDisk(disk), FOLDER)
    problems = states.load({("C", CREATED): 1})
    # A file whose head did not make it held nothing that was confirmed; nor did states, which
    # nobody waits for, of which a later write made it and an earlier one did not.
    known = ("not an ack journal", "are damaged")
    assert all(problem.endswith(known) or known[0] in problem for problem in problems), problems
    return states.found.get(("C", CREATED))


def test_a_confirmed_ack_is_one_write_and_one_sync_for_all_of_a_turn() -> None:
    bench = Bench(SimDisk())
    messages = bench.pull(10)
    before = bench.disk.syncs
    for message in messages[:5]:
        bench.site.ack(message, b"", "in.c")
    assert len(bench.site.heard()) == 5
    assert bench.disk.syncs == before + 1
    assert bench.confirm(messages[5])
    assert bench.disk.syncs == before + 2


@pytest.mark.parametrize("seed", range(40))
def test_what_was_confirmed_is_read_back_whatever_is_torn(seed: int) -> None:
    rng = random.Random(seed)
    bench = Bench(SimDisk())
    confirmed, open_ = set(), {}
    for _ in range(rng.randint(1, 40)):
        draw = rng.random()
        if draw < 0.4:
            open_.update({message.number(1): message for message in bench.pull(rng.randint(1, 5))})
        elif draw < 0.9 and open_:
            seq = rng.choice(sorted(open_))
            assert bench.confirm(open_.pop(seq), rng.choice([b"+ACK", b"", b"+TERM"]))
            confirmed.add(seq)
        else:
            bench.journal.save([bench.consumer])
    bench.disk.crash(rng)
    found = read(bench.disk)
    if found is None:
        assert not confirmed
        return
    assert not found.gaps
    assert not confirmed & set(found.pending)
    delivered_upto = found.numbers[1]
    assert max(confirmed, default=0) <= delivered_upto
    # what was handed out up to there and not acknowledged is pending
    assert {seq for seq in open_ if seq <= delivered_upto} == set(found.pending)


def test_a_missing_record_leaves_a_gap_that_is_told() -> None:
    bench = Bench(SimDisk())
    first, second = bench.pull(2)
    assert bench.confirm(first)
    third, fourth = bench.pull(2)
    bench.journal.rebase(b"not a base")  # the next record begins another file
    assert bench.confirm(fourth)
    (oldest,) = [name for name in bench.disk.names if name.endswith("acks.1")]
    bench.disk.unlink(oldest)
    bench.disk.unlink(f"{FOLDER}/states.1")
    found = read(bench.disk)
    assert found.gaps == [(1, 5)]
    state = found.packed([1, 2, 3, 4])
    bench.consumer.restore(state)
    # the floor says that the first one was acknowledged, the record itself the fourth
    assert bench.consumer.state().num_ack_pending == 2
    assert [second.number(1), third.number(1)] == [2, 3]


def test_a_failed_sync_confirms_nothing_until_there_is_a_base() -> None:
    bench = Bench(SimDisk())
    first, second, third = bench.pull(3)
    bench.disk.fail_sync = 5
    assert not bench.confirm(first)
    assert len(bench.failures) == 1
    assert bench.journal.broken
    assert bench.journal.wants_base()
    bench.disk.fail_sync = 0
    assert not bench.confirm(second)
    (state,) = bench.journal.save([bench.consumer])
    states = ConsumerStates(PyDisk(bench.disk), FOLDER)
    states.put("C", CREATED, state)
    bench.journal.rebase(states.base(bench.journal.number))
    assert len(bench.site.heard()) == 2
    assert not bench.journal.broken
    assert bench.confirm(third)
    bench.disk.crash()
    assert read(bench.disk).numbers[5] == 3


def test_a_full_disk_keeps_what_was_confirmed() -> None:
    bench = Bench(SimDisk())
    first, second = bench.pull(2)
    assert bench.confirm(first)
    bench.disk.room = bench.disk.used() + 20
    assert not bench.confirm(second)
    assert bench.failures
    bench.disk.crash(random.Random(1))
    found = read(bench.disk)
    assert 1 not in found.pending
    assert found.numbers[1] >= 1


def test_what_a_failed_write_left_does_not_count_behind_what_was_written_next() -> None:
    disk = SimDisk()
    bench = Bench(disk)
    messages = bench.pull(10)
    assert bench.confirm(messages[0])
    before = disk.used()
    bench.journal.save([bench.consumer])
    record = disk.used() - before
    disk.room = disk.used() + 5 * record // 2
    with pytest.raises(OSError, match="space"):
        bench.journal.save([bench.consumer] * 3)
    disk.room = None
    assert bench.confirm(messages[1])
    disk.kill()
    assert read(disk).numbers[4:6] == [2, 2]


def test_old_files_go_when_two_bases_are_newer(tmp_path: Path) -> None:
    site = Site()
    consumer = site.consumer()
    journal = AckJournal(site.reactor, Disk(), str(tmp_path), durable=False)
    journal.watch(consumer, CREATED)
    states = ConsumerStates(Disk(), str(tmp_path))
    for _ in range(4):
        (state,) = journal.save([consumer])
        states.put("C", CREATED, state)
        journal.rebase(states.base(journal.number))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["acks.4", "states.0", "states.1"]
    journal.close()
    again = ConsumerStates(Disk(), str(tmp_path))
    assert again.load({("C", CREATED): 1}) == []
    assert (again.base_upto, again.number, again.oldest) == (4, 4, 4)
