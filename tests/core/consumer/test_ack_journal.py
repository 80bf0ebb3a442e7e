"""The journal of acks: engine/files/consumer_states reads what it writes, under torn writes and failing syncs."""

import contextlib
import errno
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pelton.core.base.disk import Disk, PyDisk
from pelton.core.consumer.ack_journal import AckJournal
from pelton.core.consumer.consumer import ACK_ALL, ACK_EXPLICIT
from pelton.engine.files.consumer_states import ConsumerStates
from pelton.testing.simulated_disk import SimDisk
from tests.core.streams import Site

if TYPE_CHECKING:
    from pelton.core.broker.reactor import HandedSync

FOLDER = "consumers"
CREATED = 77


class Bench:
    """A stream with one consumer and its journal over a simulated disk."""

    def __init__(
        self, disk: SimDisk, count: int = 30, *, background: bool = False, **rules: Any
    ) -> None:
        self.disk = disk
        self.site = Site()
        self.syncs: list[HandedSync] = []
        self.site.reactor.on_sync = self.syncs.append
        for n in range(count):
            self.site.publish(f"s.{n % 3}")
        self.consumer = self.site.consumer(**rules)
        self.failures: list[OSError] = []
        PyDisk(disk).make_dir_durable(FOLDER)
        handed = PyDisk(disk, background=background)
        self.journal = AckJournal(self.site.reactor, handed, FOLDER, durable=True)
        self.states = ConsumerStates(handed, FOLDER)
        self.journal.on_failure = self.failures.append
        self.journal.watch(self.consumer, CREATED)

    def pull(self, count: int) -> list[Any]:
        self.site.pull(str(count))
        return [message for message in self.site.heard() if message.reply]

    def confirm(self, message: Any, body: bytes = b"+ACK") -> bool:
        self.site.ack(message, body, "in.c")
        return self.confirmed()

    def confirmed(self) -> bool:
        return any(m.subject == "in.c" for m in self.site.heard())

    def rebase(self, *, now: bool = False) -> None:
        """Let a base with the present state replace the older one, as the engine does."""
        (state,) = self.journal.save([self.consumer])
        self.states.put("C", CREATED, state)
        self.journal.rebase(self.states.base(self.journal.number), now=now)

    def end(self, *names: str, error: int = 0) -> None:
        """End the running syncs of the files with these names, in this order."""
        for name in names:
            (sync,) = [
                each
                for each in self.syncs
                if self.disk.handles[each.handle].path == f"{FOLDER}/{name}".rstrip("/")
            ]
            self.syncs.remove(sync)
            if error:
                self.disk.fail_sync = error
            with contextlib.suppress(OSError):
                self.disk.sync(sync.handle)
            self.disk.fail_sync = 0
            sync.end(error)

    def end_all(self) -> None:
        """End all running syncs, and those that begin meanwhile."""
        while self.syncs:
            sync = self.syncs.pop(0)
            self.disk.sync(sync.handle)
            sync.end(0)


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


@pytest.mark.parametrize("policy", [ACK_ALL, ACK_EXPLICIT])
def test_a_confirmed_ack_of_a_message_that_was_given_up_is_read_back(policy: int) -> None:
    bench = Bench(SimDisk(), ack_policy=policy, max_deliver=1, ack_wait_ns=1)
    (message,) = bench.pull(1)
    bench.site.after(1)
    bench.journal.save([bench.consumer])
    assert [seq for seq, _ in bench.consumer.given_up()] == [1]
    assert bench.confirm(message)
    assert bench.consumer.given_up() == []
    bench.consumer.restore(read(bench.disk).packed())
    assert bench.consumer.given_up() == []


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


def test_a_base_that_is_written_at_once_waits_for_no_running_sync() -> None:
    """The file that the base includes gets no record of a later ack."""
    bench = Bench(SimDisk(), background=True)
    first, second = bench.pull(2)
    assert not bench.confirm(first)
    bench.rebase(now=True)
    assert bench.confirmed()
    assert not bench.confirm(second)
    bench.end("acks.1", "", "acks.2", "")
    assert bench.confirmed()
    assert not bench.syncs
    bench.disk.crash()
    assert not read(bench.disk).pending


@pytest.mark.parametrize("half", [False, True])
def test_a_base_that_is_written_at_once_replaces_one_that_is_being_synced(half: bool) -> None:
    bench = Bench(SimDisk(), background=True)
    first, second, third = bench.pull(3)
    bench.rebase()
    assert not bench.confirm(first)
    if half:
        bench.end("states.1.tmp")  # what is left is the sync of the folder
    bench.rebase(now=True)
    assert bench.confirmed()
    assert not bench.confirm(second)
    if half:
        bench.syncs.pop(0).end(0)
    else:
        bench.end("states.1.tmp")
    bench.end_all()
    assert bench.confirmed()
    assert not bench.failures
    bench.rebase(now=True)
    assert {name for name in bench.disk.names if "states." in name} == {
        f"{FOLDER}/states.0",
        f"{FOLDER}/states.1",
    }
    assert bench.confirm(third) is False
    bench.disk.crash()
    assert set(read(bench.disk).pending) == {3}


def test_a_failed_sync_of_records_is_not_taken_for_one_of_the_base() -> None:
    bench = Bench(SimDisk(), background=True)
    (first,) = bench.pull(1)
    bench.rebase()
    assert not bench.confirm(first)
    bench.end("acks.2", error=errno.EIO)
    bench.end("states.1.tmp")
    bench.end_all()
    assert not bench.confirmed()
    assert len(bench.failures) == 1
    bench.rebase(now=True)
    assert bench.confirmed()
    bench.disk.crash()
    assert not read(bench.disk).pending


def test_a_base_that_began_before_a_sync_failed_confirms_nothing() -> None:
    """It does not include the records that the failed sync has dropped, and the next sync succeeds."""
    bench = Bench(SimDisk(), background=True)
    (first,) = bench.pull(1)
    bench.rebase()
    assert not bench.confirm(first)
    bench.end("acks.2", error=errno.EIO)
    bench.end_all()
    assert not bench.confirmed()
    assert bench.journal.broken
    bench.rebase(now=True)
    assert bench.confirmed()
    bench.disk.crash()
    assert not read(bench.disk).pending
