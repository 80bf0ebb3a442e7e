"""The gap that a removed segment leaves between others is explained by records that stay. A removal is
in no file before its guard has saved.
"""

from __future__ import annotations

import pytest

from pelton.core.base.disk import PyDisk
from pelton.core.log import maintenance
from pelton.core.log.log import Log
from pelton.core.log.recovery import open_log
from pelton.testing.simulated_disk import PowerCut, SimDisk


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


class EndsInSave:
    """A guard whose process ends before it has saved."""

    def holds(self, top: int) -> bool:
        return True

    def save(self) -> None:
        raise PowerCut


def test_an_index_file_has_no_removal_before_the_guard_has_saved() -> None:
    """The write before the save seals nothing, but its sync writes index files of full segments."""
    disk = SimDisk()
    log = opened(disk)
    log.fsync()
    log.guard_with(EndsInSave())
    for seq in range(1, 4):  # the third one begins another segment
        log.add(seq, "s", b"x" * 1900)
    assert maintenance.delete(log, 1)
    with pytest.raises(PowerCut):
        log.fsync()
    disk.kill()
    assert [seq for seq in range(1, 4) if opened(disk).get(seq)] == [1, 2, 3]
