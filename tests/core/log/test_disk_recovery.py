"""A log on a disk of which any one call fails, once or until it is repaired: nothing acked is lost, and it goes on.

The calls of a scenario are counted; then it runs once for each of them, with that call failing. What the
disk may do besides (a failed sync drops what it was to write and the next one says nothing) is in
pelton/testing/simulated_disk.py.
"""

from __future__ import annotations

import errno
from random import Random
from typing import TYPE_CHECKING

import pytest

from pelton.core.base.disk import PyDisk
from pelton.core.log import disk_recovery, maintenance
from pelton.core.log.log import Log
from pelton.core.log.recovery import open_log
from pelton.testing.simulated_disk import SimDisk
from tests.ways import FULL, SEED

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = "log"
"""Also the errors that are like another one, at every call."""
LIKE_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM)
ERRORS = (errno.EIO, *LIKE_FULL, errno.EROFS, errno.EMFILE)


class NthFails(SimDisk):
    """The call with that number fails (its errno in `code`), or all from there on; -1: none."""

    def __init__(self, random: Random, nth: int = -1, code: int = 0, *, forever: bool) -> None:
        super().__init__(random=random)
        self.nth, self.code, self.forever = nth, code, forever
        self.count = 0
        self.failed: list[str] = []

    def _fails(self, verb: str, path: str) -> int:
        number, self.count = self.count, self.count + 1
        if verb == "read" and self.code != errno.EIO:
            return 0
        if self.code == errno.EMFILE and not verb.startswith("open"):
            return 0
        if number == self.nth or (self.forever and 0 <= self.nth < number):
            self.failed.append(f"{number}: {verb} {path}")
            return self.code
        return super()._fails(verb, path)

    def repair(self) -> None:
        self.nth = -1


class Owner:
    """Does with a log what a stream does, and knows what it may not lose."""

    def __init__(self, disk: SimDisk, *, durable: bool, compress: bool) -> None:
        self.disk = disk
        self.durable = durable
        self.compress = compress
        self.given: dict[int, bytes] = {}  # accepted
        self.acked: set[int] = set()
        self.removed: set[int] = set()
        self.doubtful: set[int] = set()
        self.number = 0
        self.log = self.open()

    def open(self) -> Log:
        log = open_log(FOLDER, PyDisk(self.disk), segment_bytes=4096)
        log.compress = self.compress
        return log

    def publish(self, count: int = 1, size: int = 300) -> None:
        for _ in range(count):
            self.number += 1
            # halves of it compress
            payload = b"%06d." % self.number + b"x" * (size // 2)
            payload += Random(self.number).randbytes(size // 2)
            try:
                seq = self.log.add(self.number, f"s.{self.number % 3}", payload)
            except OSError:
                continue
            assert seq not in self.given, "a sequence was given twice"
            self.given[seq] = payload

    def turn(self, *, sync: bool = False) -> None:
        try:
            if self.durable or sync:
                self.log.fsync()
            else:
                self.log.flush()
        except OSError:
            pass
        self.note_acked()

    def note_acked(self) -> None:
        upto = self.log.synced_seq if self.durable else self.log.written_seq
        assert upto <= self.log.last_seq
        self.acked.update(seq for seq in self.given if seq <= upto)

    def delete(self, seq: int, *, erase: bool = False) -> None:
        if seq not in self.given:
            return
        try:
            maintenance.delete(self.log, seq, erase)
        except OSError:
            self.doubtful.add(seq)  # removed or not
        else:
            self.removed.add(seq)

    def purge(self, below: int) -> None:
        gone = {seq for seq in self.given if seq < below}
        try:
            maintenance.purge(self.log, below)
        except OSError:
            self.doubtful |= gone
        else:
            self.removed |= gone

    def maintain(self) -> None:
        for _ in range(4):
            try:
                if not maintenance.maintain(self.log):
                    break
            except OSError:
                break

    def check(self, log: Log, *, sure_of: set[int], broken: bool = False) -> None:
        """What is there is right, and all of these are there, unless the disk refuses to say."""
        for seq, payload in self.given.items():
            try:
                message = log.get(seq)
            except OSError:
                assert broken
                continue
            if message is not None:
                assert message.payload == payload, f"message {seq} was altered"
                assert seq not in self.removed, f"message {seq} came back"
            elif seq in sure_of and seq not in self.removed | self.doubtful:
                raise AssertionError(f"message {seq} is lost; {log.lost}")

    def mend(self) -> None:
        """As the engine does, until appends are taken again."""
        for _ in range(50):
            try:
                if disk_recovery.mend(self.log):
                    return
            except OSError:
                continue
        raise AssertionError(f"it does not go on: condition {self.log.condition}")


def scenario(owner: Owner) -> Iterator[None]:
    """Everything a log does to its disk, in some turns."""
    owner.publish(3)
    owner.turn()
    yield
    owner.publish(20)  # rolls
    owner.turn()
    owner.publish(2)
    owner.turn(sync=True)
    yield
    for seq in (1, 3, 5, 6, 7, 8, 9, 12, 13):
        owner.delete(seq)
    owner.turn()
    owner.delete(15, erase=True)
    yield
    owner.maintain()
    owner.publish(25, 200)
    owner.turn()
    yield
    owner.purge(owner.log.first_seq + 12)
    owner.turn()
    owner.publish(4)
    owner.turn(sync=True)
    yield
    for seq in list(owner.given)[22:-8]:
        if seq % 5:
            owner.delete(seq)
    owner.turn(sync=True)
    owner.maintain()
    owner.delete(max(owner.given, default=1), erase=True)
    owner.publish(9)
    owner.turn()
    owner.turn(sync=True)
    yield


def count_calls(*, durable: bool, compress: bool) -> tuple[int, int]:
    """The first call after the log was opened, and the end."""
    disk = NthFails(Random(1), forever=False)
    owner = Owner(disk, durable=durable, compress=compress)
    first = disk.count
    for _ in scenario(owner):
        pass
    assert not owner.log.lost
    return first, disk.count


KINDS = [(True, False), (False, False), (True, True)]


def cases(code: int, kind: tuple[bool, bool]) -> range:
    first, end = count_calls(durable=kind[0], compress=kind[1])
    step = 1 if FULL else 3 if code in (errno.EIO, errno.ENOSPC) else 13
    return range(first + (SEED + code) % step, end, step)


def run(owner: Owner, disk: NthFails) -> None:
    """The scenario, then the disk is repaired."""
    for _ in scenario(owner):
        owner.check(owner.log, sure_of=owner.acked, broken=True)  # reads go on
    disk.repair()
    owner.mend()
    assert owner.log.lost == []
    # from here on all is well
    before = owner.log.last_seq
    owner.number += 1000
    owner.publish(20)
    owner.turn(sync=True)
    assert owner.log.last_seq == before + 20
    assert owner.log.synced_seq == owner.log.written_seq == owner.log.last_seq
    owner.durable = True
    owner.note_acked()
    owner.check(owner.log, sure_of=owner.acked)
    disk.crash(Random(disk.count))
    again = owner.open()
    assert again.last_seq == owner.log.last_seq
    owner.check(again, sure_of=owner.acked)
    assert again.lost == []


@pytest.mark.parametrize("kind", KINDS, ids=["durable", "page cache", "compressed"])
@pytest.mark.parametrize("code", ERRORS, ids=errno.errorcode.get)
@pytest.mark.parametrize("forever", [False, True], ids=["once", "until repaired"])
def test_any_call_may_fail(kind: tuple[bool, bool], code: int, forever: bool) -> None:
    for nth in cases(code, kind):
        disk = NthFails(Random(nth), nth, code, forever=forever)
        try:
            run(Owner(disk, durable=kind[0], compress=kind[1]), disk)
        except BaseException:
            print(f"seed {SEED}, call {nth} failed: {disk.failed[:3]}")
            raise


@pytest.mark.parametrize("kind", KINDS[:2], ids=["durable", "page cache"])
@pytest.mark.parametrize("how", ["kill", "power"])
def test_the_process_ends_before_it_goes_on(kind: tuple[bool, bool], how: str) -> None:
    for nth in cases(errno.EIO, kind):
        disk = NthFails(Random(nth), nth, errno.EIO, forever=False)
        owner = Owner(disk, durable=kind[0], compress=kind[1])
        try:
            for _ in scenario(owner):
                pass
            disk.repair()
            disk.kill()
            if how == "power":
                disk.crash(Random(nth))
            if how == "power" and not owner.durable:
                owner.acked.clear()
            ends(owner, disk)
        except BaseException:
            print(f"seed {SEED}, call {nth} failed: {disk.failed[:3]}")
            raise


def ends(owner: Owner, disk: NthFails) -> None:
    """The next process: what was acked is there, what it says is there stays, also when power goes."""
    owner.log = owner.open()
    assert owner.log.last_seq >= max(owner.acked, default=0)
    # what waited for the disk may have made it or not, and so may removals
    owner.doubtful |= owner.removed
    owner.removed = set()
    owner.check(owner.log, sure_of=owner.acked)
    there = {seq for seq in owner.given if owner.log.get(seq)}
    shown = owner.log.last_seq
    disk.crash(Random(disk.count))
    again = owner.open()
    assert again.last_seq >= shown
    owner.check(again, sure_of=there - owner.doubtful)
    assert not {seq for seq in there if again.get(seq) is None}


@pytest.mark.parametrize("refused", [True, False], ids=["EIO", "old bytes"])
def test_what_can_not_be_read_back_is_told_and_the_old_file_kept(*, refused: bool) -> None:
    """The tail in memory holds only the newest bytes; what is before them has to come from the file."""
    disk = SimDisk()
    log = open_log(FOLDER, PyDisk(disk))
    given = {}
    for number in range(400):
        payload = Random(number).randbytes(9000)
        given[log.add(number + 1, "s", payload)] = payload
        if number == 99:
            log.fsync()
        elif number == 199:
            log.flush()
            maintenance.delete(log, 150)
    log.flush()
    disk.fail("sync", errno.EIO, "*.seg")
    with pytest.raises(OSError, match="Input/output"):
        log.fsync()
    path = f"{FOLDER}/{log.segments.items[-1].first:020d}.seg"
    file = disk.file(path)
    if refused:
        # bytes of message 110 can't be read, now and ever
        where = file.data.index(given[110][:64])
        read = disk.read_at

        def broken(handle: int, n: int, offset: int) -> bytes:
            if disk.handles[handle].node is file and offset <= where < offset + n:
                raise OSError(errno.EIO, "a bad sector")
            return read(handle, n, offset)

        disk.read_at = broken  # type: ignore[method-assign] # a disk of its own kind
        for _ in range(4):
            with pytest.raises(OSError, match="read back"):
                disk_recovery.mend(log)
    else:
        # the page cache let go of the pages that it took for clean
        file.data[: len(file.durable)] = file.durable
        for at in range(len(file.durable), len(file.durable) + 20000):
            file.data[at] = 0
    assert disk_recovery.mend(log)
    lost = {seq for first, count, _ in log.lost for seq in range(first, first + count)}
    assert lost == ({109, 110, 111} & lost if refused else {101, 102, 103} & lost)
    assert lost
    for seq, payload in given.items():
        message = log.get(seq)
        assert (message is None) == (seq in lost or seq == 150), seq
        assert message is None or message.payload == payload
    assert disk.exists(path.removesuffix(".seg") + ".failed-1")
    assert log.add(999, "s", b"next") == 401
    log.fsync()
    disk.crash()
    again = open_log(FOLDER, PyDisk(disk))
    assert {seq for seq in given if again.get(seq) is None} == lost | {150}
    assert {seq for first, count, _ in again.lost for seq in range(first, first + count)} == lost


def test_an_empty_segment_is_not_begun_over_itself() -> None:
    """Removals of older messages alone make the newest file large: it still holds the next ones."""
    disk = SimDisk()
    log = open_log(FOLDER, PyDisk(disk), segment_bytes=1 << 20)
    for number in range(40000):
        log.add(number + 1, "s", b"x" * 30)
    log.flush()
    maintenance.purge(log, 39999)
    log.flush()
    maintenance.purge(log)
    log.flush()
    for number in range(40000):
        log.add(number + 1, "s", b"x" * 30)
    log.flush()
    first = log.first_seq
    for seq in range(log.segments.items[-1].first, log.last_seq + 1):
        maintenance.delete(log, seq)
    log.flush()
    maintenance.maintain(log)
    for _ in range(2):
        for seq in range(first, first + 30000, 2):
            maintenance.delete(log, seq)
            log.flush()  # a record of its own for each
        maintenance.maintain(log)
        first += 1
    given = log.add(1, "s", b"after")
    log.fsync()
    again = open_log(FOLDER, PyDisk(disk), segment_bytes=1 << 20)
    message = again.get(given)
    assert message is not None
    assert message.payload == b"after"


def test_a_sync_that_ends_well_after_another_of_the_same_file_failed_says_nothing() -> None:
    """The other one was told of the failure, and has left nothing to be written."""
    disk = SimDisk()
    log = open_log(FOLDER, PyDisk(disk, background=True))
    log.add(1, "s", b"one")
    log.flush()
    log.fsync()
    log.add(2, "s", b"two")
    log.flush()
    handles, upto = log.sync_start()
    assert handles
    disk.fail("sync", errno.EIO, "*.seg")
    with pytest.raises(OSError, match="error"):
        maintenance.delete(log, 1, erase=True)
    for handle in handles:
        disk.sync(handle)
    log.sync_done(upto)
    assert log.synced_seq == 1
    while not disk_recovery.mend(log):
        pass
    assert log.synced_seq == 2
    disk.crash()
    log = open_log(FOLDER, PyDisk(disk))
    found = log.get(2)
    assert found is not None
    assert found.payload == b"two"
