"""Logs that share the descriptors of one disk: any run of operations with fewer descriptors than files.

Each file behaves as if it were always open, at most as many as permitted are open, and no handle that a
sync thread has is closed.
"""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pelton.core.base.disk import Disk, PyDisk
from pelton.core.log import maintenance
from pelton.core.log.disk_recovery import mend
from pelton.core.log.log import Log
from pelton.core.log.recovery import open_log
from pelton.testing.simulated_disk import SimDisk
from tests.ways import SEED, length

LOGS = 12
LIMIT = 4


class Shared:
    """Some logs on one disk with few descriptors, and their messages."""

    def __init__(self, root: Path, draw: random.Random) -> None:
        self.root = root
        self.draw = draw
        self.disk = Disk()
        self.disk.open_files.limit = LIMIT
        self.logs: list[Log] = []
        self.held = 0  # most handles that were with sync threads at once
        self.messages: list[dict[int, bytes]] = [{} for _ in range(LOGS)]
        # (handles, inodes at the begin, upto) of the running syncs
        self.syncs: dict[int, tuple[list[int], list[int], int]] = {}
        for number in range(LOGS):
            self.logs.append(self.opened(number))

    def opened(self, number: int) -> Log:
        return open_log(str(self.root / str(number)), self.disk, segment_bytes=4096)

    def append(self, number: int) -> None:
        payload = self.draw.randbytes(self.draw.randrange(1500))
        seq = self.logs[number].add(1, "a", payload)
        self.messages[number][seq] = payload

    def write(self, number: int) -> None:
        self.logs[number].flush()

    def read(self, number: int) -> None:
        log = self.logs[number]
        if log.last_seq:
            seq = self.draw.randint(1, log.last_seq)
            found = log.get(seq)
            assert (found and found.payload) == self.messages[number].get(seq)

    def begin_sync(self, number: int) -> None:
        log = self.logs[number]
        log.flush()
        if number not in self.syncs:
            handles, upto = log.sync_start()
            if handles:
                self.syncs[number] = handles, [os.fstat(each).st_ino for each in handles], upto

    def end_sync(self, number: int) -> None:
        if number in self.syncs:
            handles, inodes, upto = self.syncs.pop(number)
            assert [os.fstat(each).st_ino for each in handles] == inodes
            self.logs[number].sync_done(upto)

    def purge(self, number: int) -> None:
        below = self.draw.randint(1, self.logs[number].last_seq + 1)
        maintenance.purge(self.logs[number], below)
        kept = {seq: each for seq, each in self.messages[number].items() if seq >= below}
        self.messages[number] = kept

    def maintain(self, number: int) -> None:
        maintenance.maintain(self.logs[number])

    def reopen(self, number: int) -> None:
        if number not in self.syncs or self.draw.random() < 0.5:
            maintenance.close(self.logs[number])
            self.end_sync(number)
            self.logs[number] = self.opened(number)

    def start_over(self, number: int) -> None:
        maintenance.destroy(self.logs[number])
        self.end_sync(number)
        self.messages[number] = {}
        self.logs[number] = self.opened(number)

    def check(self) -> None:
        # Files that are being synced stay open, and so does the newest. The next opening closes those
        # that were too many.
        self.held = max(self.held, sum(len(handles) for handles, _, _ in self.syncs.values()))
        assert self.disk.open_files.count <= max(LIMIT, self.held + 1)


def test_more_files_than_descriptors() -> None:
    draw = random.Random(SEED)
    steps = (
        *([Shared.append] * 8),
        *([Shared.write] * 4),
        *([Shared.read] * 6),
        *([Shared.begin_sync] * 3),
        *([Shared.end_sync] * 4),
        Shared.purge,
        Shared.maintain,
        Shared.reopen,
        Shared.start_over,
    )
    for _ in range(length(4, 60)):
        before = len(os.listdir("/proc/self/fd"))
        with tempfile.TemporaryDirectory() as root:
            shared = Shared(Path(root), draw)
            for _ in range(1200):
                draw.choice(steps)(shared, draw.randrange(LOGS))
                shared.check()
            for number in range(LOGS):
                shared.end_sync(number)
                shared.reopen(number)
                for seq, payload in shared.messages[number].items():
                    found = shared.logs[number].get(seq)
                    assert found is not None
                    assert found.payload == payload
                maintenance.close(shared.logs[number])
            assert shared.disk.open_files.count == 0
        assert len(os.listdir("/proc/self/fd")) == before


def test_a_process_without_descriptors_closes_a_file_and_goes_on(tmp_path: Path) -> None:
    code = f"""
import os, resource, sys
from pelton.core.base.disk import Disk
from pelton.core.log import maintenance
from pelton.core.log.recovery import open_log
disk = Disk()
resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30))
logs = [open_log(f"{tmp_path}/{{number}}", disk) for number in range(60)]
for at in range(3):
    for log in logs:
        log.add(1, "a", b"%d" % at)
        log.fsync()
taken = []
try:  # connections take all descriptors that are left
    while True:
        taken.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
for log in logs:
    log.add(1, "a", b"3")
    log.fsync()
    assert [log.get(seq).payload for seq in range(1, 5)] == [b"0", b"1", b"2", b"3"]
    maintenance.close(log)
assert disk.open_files.count == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_an_error_of_a_close_that_made_room_is_an_error_of_the_log(tmp_path: Path) -> None:
    class Deferring(SimDisk):
        """A disk that reports a failed write when the file is closed, as network file systems do."""

        refuses = False

        def close(self, handle: int) -> None:
            super().close(handle)
            if self.refuses:
                raise OSError(errno.EIO, "the write failed")

    deferring = Deferring()
    disk = PyDisk(deferring)
    disk.open_files.limit = 1
    first = open_log("store/a", disk)
    first.add(1, "a", b"1")
    first.flush()
    deferring.refuses = True
    second = open_log("store/b", disk)
    deferring.refuses = False
    with pytest.raises(OSError, match="Input/output"):
        first.fsync()
    assert first.synced_seq == 0
    while not mend(first):
        pass
    assert first.synced_seq == 1
    for log in (first, second):
        maintenance.close(log)
