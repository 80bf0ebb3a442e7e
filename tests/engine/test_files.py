"""The folders of an account: removals that a start finishes."""

from __future__ import annotations

from pelton.core.base.disk import PyDisk
from pelton.engine.files.files import AccountFiles
from pelton.testing.simulated_disk import SimDisk


def test_a_stream_whose_removal_is_finished_at_a_start_stays_removed() -> None:
    """The folder with the stream's name is synced before any file of it is removed."""
    disk = SimDisk()
    files = AccountFiles(PyDisk(disk), "store", "$G")
    assert files.open() == []
    stream = files.stream("S")
    disk.make_dir(stream.folder)
    disk.sync_dir(stream.folder.rpartition("/")[0])
    files.move_away(stream, "x")
    disk.kill()  # the process ends before the sync
    files = AccountFiles(PyDisk(disk), "store", "$G")
    assert files.open() == []
    assert files.finish_removals()
    disk.crash()
    assert AccountFiles(PyDisk(disk), "store", "$G").open() == []
