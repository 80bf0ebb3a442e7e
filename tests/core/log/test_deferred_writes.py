"""An opening that has to write to a segment and then to begin another one."""

from __future__ import annotations

import errno

from pelton.core.base.disk import PyDisk
from pelton.core.log import maintenance
from pelton.core.log.recovery import open_log
from pelton.testing.inodes import Write
from pelton.testing.simulated_disk import SimDisk
from tests.core.damage import everything

FAR = 1 << 21
"""More sequences than a segment leaves out."""
FIRST = "log/00000000000000000001"


def crooked() -> SimDisk:
    """Messages 1 and 3: that 2 was removed only the index file says. The end of their segment is gone, and
    so is the one behind.
    """
    disk = SimDisk()
    log = open_log("log", PyDisk(disk), segment_bytes=4096)
    for seq in range(1, 4):
        log.add(seq, "s", b"%d" % seq)
    log.flush()
    maintenance.delete(log, 2)
    log.flush()
    log.skip(FAR + 1)
    log.add(FAR + 1, "s", b"far")
    maintenance.close(log)
    disk.unlink(f"log/{FAR + 1:020d}.seg")
    node = disk.file(f"{FIRST}.seg")
    for data in (node.data, node.durable):
        del data[-10:]
    disk.kill()
    return disk


def test_a_segment_that_the_opening_has_written_to_is_like_any() -> None:
    disk = crooked()
    before = disk.file(f"{FIRST}.seg")
    log = open_log("log", PyDisk(disk), segment_bytes=4096)
    assert disk.file(f"{FIRST}.seg") is before
    assert log.last_seq == FAR + 1
    assert set(everything(log)) == {1, 3}
    assert log.add(9, "s", b"next") == FAR + 2
    log.flush()
    log.fsync()
    disk.crash()
    log = open_log("log", PyDisk(disk), segment_bytes=4096)
    assert set(everything(log)) == {1, 3, FAR + 2}


def test_one_whose_fsync_failed_is_made_anew_also_when_the_opening_has_written_to_it() -> None:
    disk = crooked()
    node = disk.file(f"{FIRST}.seg")
    node.durable = bytearray()
    node.dirty = [Write(disk.serial, 0, bytes(node.data))]
    disk.fail("sync", errno.EIO, f"{FIRST}.seg")
    log = open_log("log", PyDisk(disk), segment_bytes=4096)
    assert disk.file(f"{FIRST}.seg") is not node
    assert set(everything(log)) == {1, 3}
    assert log.add(9, "s", b"next") == FAR + 2
    log.flush()
    log.fsync()
    disk.crash()
    log = open_log("log", PyDisk(disk), segment_bytes=4096)
    assert set(everything(log)) == {1, 3, FAR + 2}


def test_the_name_of_a_folder_that_an_opening_finds_empty_is_made_durable() -> None:
    """Who made it was stopped before it had synced its name."""
    disk = SimDisk()
    disk.make_dir("streams/S")
    for path in (".", "streams"):
        disk.sync_dir(path)
    disk.make_dir("streams/S/log")
    disk.kill()
    log = open_log("streams/S/log", PyDisk(disk))
    log.add(1, "s", b"1")
    log.flush()
    log.fsync()
    disk.crash()
    log = open_log("streams/S/log", PyDisk(disk))
    assert set(everything(log)) == {1}
