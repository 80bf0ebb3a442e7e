"""Syncs beside other work: everything is on the disk when they were waited for, and a failure is told."""

import os

import pytest

from pelton.spark.tables import syncing
from pelton.spark.tables.places import TableError
from pelton.spark.tables.syncing import Syncs


@pytest.fixture
def synced(monkeypatch):
    """The names of what was synced; a name that says so fails."""
    names = []

    def sync(path):
        if path.name.startswith("broken"):
            raise OSError(5, os.strerror(5))
        names.append(path.name)

    monkeypatch.setattr(syncing, "to_disk", sync)
    return names


def test_all_files_are_synced_before_their_folders_and_each_folder_once(tmp_path, synced):
    syncs = Syncs()
    for number in range(20):
        syncs.file(tmp_path / f"file-{number:02}")
        syncs.folders([tmp_path / "day", tmp_path / "table"])
    syncs.wait()
    assert sorted(synced[:20]) == [f"file-{number:02}" for number in range(20)]
    assert sorted(synced[20:]) == ["day", "table"]


def test_a_file_or_folder_that_cannot_be_synced_is_an_error_once(tmp_path, synced):
    syncs = Syncs()
    for put in (syncs.file, lambda path: syncs.folders([path])):
        put(tmp_path / "broken")
        syncs.file(tmp_path / "good")
        with pytest.raises(
            TableError, match=r"cannot sync the written files: .*Input/output error"
        ):
            syncs.wait()
        assert synced.pop() == "good"
        syncs.wait()


def test_real_files_and_folders_can_be_synced(tmp_path):
    (tmp_path / "one").write_bytes(b"1")
    syncs = Syncs()
    syncs.file(tmp_path / "one")
    syncs.folders([tmp_path])
    syncs.wait()
