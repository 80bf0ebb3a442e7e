"""The gap that a removed segment leaves between others is explained by records that stay."""

from __future__ import annotations

from penstock.core.base.disk import PyDisk
from penstock.core.log import maintenance
from penstock.core.log.log import Log
from penstock.core.log.recovery import open_log
from penstock.testing.simulated_disk import SimDisk


def opened(disk: SimDisk) -> Log:
    return open_log("log", PyDisk(disk), segment_bytes=4096)


def test_sequences_that_a_removed_segment_skipped_are_not_missing() -> None:
    """No message of them was removed: only the segment said that they had none."""
    disk = SimDisk()
    log = opened(disk)
    for seq in (1, 2):
        log.add(seq, "s", b"x" * 1900)
    log.add(3, "s", b"x" * 1900)
    log.skip(50)
    log.add(4, "s", b"x" * 1800)
    log.skip(70)
    for seq in (70, 71):
        log.add(seq, "s", b"x" * 2000)
    log.fsync()
    for seq in (3, 50):
        assert maintenance.delete(log, seq)
    log.fsync()
    log.fsync()
    names = [f"log/{first:020}.seg" in disk.names for first in (1, 3, 70)]
    assert names == [True, False, True]
    disk.kill()
    for _ in range(2):
        log = opened(disk)
        assert [seq for seq in range(1, 72) if log.get(seq)] == [1, 2, 70, 71]
        assert not log.lost
