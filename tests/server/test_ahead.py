"""Syncing ahead: which files, and that trouble with them is left to recovery."""

from pathlib import Path

from penstock.server.ahead import FILES_MAX, log_files, sync_ahead


def store(folder: Path, streams: int) -> set[str]:
    """A store's files; what is to be synced of them."""
    wanted = set()
    for number in range(streams):
        log = folder / "jetstream" / "$G" / "streams" / f"S{number}" / "log"
        log.mkdir(parents=True)
        for name in ("00000000000000000001.seg", "00000000000000000001.idx"):
            (log / name).write_bytes(b"x")
        wanted |= {str(log), str(log / "00000000000000000001.seg")}
    (folder / "jetstream" / "$G" / "deleted").mkdir(exist_ok=True)
    (folder / "lock").write_bytes(b"1")
    return wanted


def test_segments_and_their_folders_are_found(tmp_path: Path) -> None:
    wanted = store(tmp_path, 3)
    (tmp_path / "jetstream" / "$G" / "streams" / "empty").mkdir()
    found = list(log_files(str(tmp_path)))
    assert len(found) == len(wanted)
    assert set(found) == wanted
    assert list(log_files(str(tmp_path / "nowhere"))) == []


def test_every_thread_ends_whatever_it_meets(tmp_path: Path) -> None:
    store(tmp_path, 50)
    (tmp_path / "jetstream" / "$G" / "streams" / "S1" / "log" / "gone.seg").symlink_to("nowhere")
    threads = sync_ahead(str(tmp_path))
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert FILES_MAX > 100
