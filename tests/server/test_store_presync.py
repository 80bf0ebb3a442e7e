"""Syncing ahead: which files, and that trouble with them is left to recovery."""

import os
import threading
import time
from pathlib import Path

import pytest

from pelton.server.store_presync import FILES_MAX, StorePresync, log_files


def store(folder: Path, streams: int) -> set[str]:
    """A store's files; what is to be synced of them."""
    wanted = set()
    for number in range(streams):
        log = folder / "jetstream" / "$G" / "streams" / f"S{number}" / "log"
        log.mkdir(parents=True)
        for name in ("00000000000000000001.seg", "00000000000000000001.idx"):
            (log / name).write_bytes(b"x")
        consumers = log.parent / "consumers"
        consumers.mkdir()
        wanted |= {str(log), str(log / "00000000000000000001.seg"), str(consumers)}
    (folder / "jetstream" / "$G" / "deleted").mkdir(exist_ok=True)
    (folder / "lock").write_bytes(b"1")
    return wanted


def test_segments_and_folders_are_found(tmp_path: Path) -> None:
    wanted = store(tmp_path, 3)
    (tmp_path / "jetstream" / "$G" / "streams" / "empty").mkdir()
    found = list(log_files(str(tmp_path)))
    assert len(found) == len(wanted)
    assert {path for _, path, _ in found} == wanted
    assert not any(whole for _, _, whole in found)
    assert list(log_files(str(tmp_path / "nowhere"))) == []


def test_every_thread_ends_whatever_it_meets(tmp_path: Path) -> None:
    store(tmp_path, 50)
    (tmp_path / "jetstream" / "$G" / "streams" / "S1" / "log" / "gone.seg").symlink_to("nowhere")
    for number, irregular in enumerate((os.mkfifo, os.mkdir)):
        log = tmp_path / "jetstream" / "$G" / "streams" / f"S{number + 2}" / "log"
        (log / "00000000000000000001.seg").unlink()
        irregular(log / "00000000000000000001.seg")
    ahead = StorePresync(str(tmp_path))
    for thread in ahead.threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in ahead.threads)
    assert FILES_MAX > 100


def test_a_log_is_done_when_its_files_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store(tmp_path, 2)
    slow = str(tmp_path / "jetstream" / "$G" / "streams" / "S0" / "log")
    quick = slow.replace("S0", "S1")
    going_on = threading.Event()
    real = os.fdatasync

    def sync(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").startswith(slow):
            assert going_on.wait(20)
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", sync)
    ahead = StorePresync(str(tmp_path))
    try:
        deadline = time.monotonic() + 20
        while not ahead.done(quick):
            assert time.monotonic() < deadline
        assert not ahead.done(slow)
    finally:
        going_on.set()
    for thread in ahead.threads:
        thread.join(20)
    assert ahead.done(slow)


def test_a_segment_without_index_is_read(tmp_path: Path) -> None:
    store(tmp_path, 1)
    log = tmp_path / "jetstream" / "$G" / "streams" / "S0" / "log"
    (log / "00000000000000000001.idx").unlink()
    assert [whole for _, _, whole in log_files(str(tmp_path))] == [True, False, False]
