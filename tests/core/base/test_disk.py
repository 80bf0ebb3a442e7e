"""The machine's disk by its path verbs, the stand-in by the log on it: crashes, full, failing."""

from __future__ import annotations

import contextlib
import errno
import os
import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.core.base.disk import Disk, PyDisk, open_to_read
from pelton.core.base.readonly_disk import ReadOnlyDisk
from pelton.core.log import maintenance, queries
from pelton.core.log.log import LogClosed
from pelton.core.log.recovery import open_log
from pelton.core.stream.atomic_batch import store_whole
from pelton.core.stream.draft import draft
from pelton.core.stream.stream import StreamRefused
from pelton.testing.simulated_disk import SimDisk
from tests.core.streams import Site
from tests.ways import length

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = "store/log"


def test_path_verbs(tmp_path: Path) -> None:
    disk = Disk()
    folder = f"{tmp_path}/x/y"
    assert disk.list_dir(folder) == []
    disk.make_dir(folder)
    disk.make_dir(folder)
    disk.write_file_atomic(f"{folder}/b", b"one")
    disk.write_file_atomic(f"{folder}/b", b"two, longer", durable=False)
    disk.write_file_atomic(f"{folder}/a", b"")
    assert disk.list_dir(folder) == ["a", "b"]
    assert disk.read_file(f"{folder}/b") == b"two, longer"
    assert disk.read_file(f"{folder}/a") == b""
    disk.rename(f"{folder}/b", f"{folder}/c")
    assert not disk.exists(f"{folder}/b")
    assert disk.exists(f"{folder}/c")
    disk.unlink(f"{folder}/c")
    disk.unlink(f"{folder}/c")
    with pytest.raises(FileNotFoundError) as caught:
        disk.read_file(f"{folder}/c")
    assert caught.value.filename == f"{folder}/c"
    disk.sync_dir(folder)
    with pytest.raises(FileNotFoundError):
        disk.sync_dir(f"{tmp_path}/none")


def test_remove_tree_does_not_follow_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    inside = tmp_path / "inside"
    (inside / "deep" / "deeper").mkdir(parents=True)
    (inside / "deep" / "file").write_text("x")
    (inside / "link").symlink_to(outside)
    disk = Disk()
    disk.remove_tree(str(inside))
    disk.remove_tree(str(inside))
    assert not inside.exists()
    assert (outside / "kept").read_text() == "kept"


def test_files_are_private(tmp_path: Path) -> None:
    Disk().write_file_atomic(f"{tmp_path}/f", b"secret")
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o600


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("/dev/zero")
    for name, kind in (("pipe", OSError), ("folder", IsADirectoryError), ("link", OSError)):
        path = f"{tmp_path}/{name}"
        for disk in (Disk(), ReadOnlyDisk()):
            with pytest.raises(kind, match="not a regular file"):
                disk.read_file(path)
        with pytest.raises(kind, match="not a regular file"):
            open_to_read(path)
        held = ReadOnlyDisk()
        assert held.hold(str(tmp_path))
        assert not held.is_file(path)
        with pytest.raises(kind, match="not a regular file"):
            held.read_file(path)
    os.mkfifo(tmp_path / "new.tmp")
    with pytest.raises(OSError, match="not a regular file"):
        Disk().write_file_atomic(f"{tmp_path}/new", b"x")


def test_pydisk_writes_whole_files_through_the_target() -> None:
    target = SimDisk()
    disk = PyDisk(target)
    disk.make_dir_durable("d")
    disk.write_file_atomic("d/f", b"one")
    disk.write_file_atomic("d/f", b"two", durable=False)
    assert disk.read_file("d/f") == b"two"
    target.crash()
    assert disk.read_file("d/f") == b"one"


# --- the log on a disk that forgets --------------------------------------------------------------

STEP = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 30)),
    st.tuples(st.just("head"), st.integers(1, 40)),
    st.tuples(st.just("delete"), st.integers(0, 10_000)),
    st.tuples(st.just("purge"), st.integers(0, 10_000)),
    st.tuples(
        st.sampled_from(["flush", "fsync", "fsync", "maintain", "crash", "crash_torn"]),
        st.integers(0, 1 << 30),
    ),
)


@settings(max_examples=length(30, 150), deadline=None)
@given(steps=st.lists(STEP, min_size=5, max_size=60))
def test_what_was_synced_survives_any_crash(steps: list[tuple[str, int]]) -> None:
    target = SimDisk()
    log = open_log(FOLDER, PyDisk(target), segment_bytes=4096)
    log.fsync()
    given_out: dict[int, set[bytes]] = {}
    live: set[int] = set()
    gone: set[int] = set()  # removed, and the removal synced
    synced: set[int] = set()  # appended and synced
    lost: set[int] = set()  # told at an opening, and so at each one since
    last_synced = 0
    n = 0
    for step, value in steps:
        if step == "add":
            for _ in range(value):
                n += 1
                payload = b"%d-" % n + b"x" * (n * 37 % 200)
                seq = log.add(n, f"s.{n % 5}", payload)
                assert seq > last_synced
                given_out.setdefault(seq, set()).add(payload)
                live.add(seq)
        elif step == "head":
            for seq in sorted(live)[:value]:
                assert maintenance.delete(log, seq)
                live.discard(seq)
        elif step == "delete":
            seq = value % (log.last_seq + 2)
            assert maintenance.delete(log, seq) is (seq in live)
            live.discard(seq)
        elif step == "purge":
            below = value % (log.last_seq + 2)
            maintenance.purge(log, below)
            live = {seq for seq in live if seq >= below}
        elif step == "flush":
            log.flush()
        elif step == "maintain":
            maintenance.maintain(log)
        elif step == "fsync":
            log.fsync()
            synced |= live
            gone = {seq for seq in given_out if seq not in live}
            last_synced = log.last_seq
            synced -= gone
            assert log.synced_seq == last_synced
        else:
            del log
            target.crash(random.Random(value) if step == "crash_torn" else None)
            log = open_log(FOLDER, PyDisk(target), segment_bytes=4096)
            found = set()
            at = queries.next_of(log, ">", 1)
            while at is not None:
                assert at.payload in given_out[at.seq]
                found.add(at.seq)
                at = queries.next_of(log, ">", at.seq + 1)
            assert log.msgs == len(found)
            assert live & synced <= found
            assert not found & gone
            assert log.last_seq >= last_synced
            told = {seq + k for seq, count, _ in log.lost for k in range(max(count, 1))}
            assert all(seq > last_synced for seq in told - lost)
            lost |= told
            live = found
            synced = set(found)
            given_out = {seq: tried for seq, tried in given_out.items() if seq <= log.last_seq}
            gone = {seq for seq in given_out if seq not in found}
            last_synced = log.last_seq


def test_full_disk_loses_nothing_and_acknowledges_nothing() -> None:
    target = SimDisk(room=20_000)
    log = open_log(FOLDER, PyDisk(target), segment_bytes=8192)
    written = 0
    with pytest.raises(OSError, match="No space") as caught:  # noqa: PT012 - the loop is what fills the disk
        for _ in range(1000):
            log.add(1, "a", b"x" * 500)
            log.flush()
            written = log.last_seq
    assert caught.value.errno == errno.ENOSPC
    assert not isinstance(caught.value, LogClosed)
    assert log.written_seq == written
    accepted = log.last_seq
    for _ in range(3):
        with pytest.raises(OSError, match="No space") as caught:
            log.add(1, "a", b"y")
    assert log.last_seq == accepted
    assert log.get(accepted) is not None
    target.room = None
    log.flush()
    assert log.written_seq == accepted
    assert log.add(2, "a", b"z") == accepted + 1
    log.fsync()
    del log
    target.crash()
    log = open_log(FOLDER, PyDisk(target), segment_bytes=8192)
    assert (log.msgs, log.last_seq, log.lost) == (accepted + 1, accepted + 1, [])


@pytest.mark.parametrize("whole", [False, True])
def test_a_segment_that_could_not_be_begun_is_begun_by_the_next_message(whole: bool) -> None:
    target = SimDisk()
    site = Site(log=open_log(FOLDER, PyDisk(target), segment_bytes=4096))
    log, payloads = site.log, [b"%d" % n + b"x" * 900 for n in range(4)]
    for payload in payloads:
        site.stream.publish("s.a", payload)
    target.fail("open", errno.ENOSPC, "*.seg")
    with pytest.raises(StreamRefused):
        site.stream.publish("s.a", b"y" * 900)
    # a small one: the full segment still has room for it, and must not get it
    if whole:
        store_whole(site.stream.path, [draft("s.a", b"small", b"")])
    else:
        site.stream.publish("s.a", b"small")
    log.fsync()
    found = [log.get(seq) for seq in range(1, 6)]
    assert [m and m.payload for m in found] == [*payloads, b"small"]
    log = open_log(FOLDER, PyDisk(target), segment_bytes=4096)
    assert (log.msgs, log.lost) == (5, [])
    assert log.get(5).payload == b"small"  # type: ignore[union-attr]  # it is there


def test_purge_makes_room_on_a_full_disk() -> None:
    target = SimDisk(room=40_000)
    log = open_log(FOLDER, PyDisk(target), segment_bytes=4096)
    with pytest.raises(OSError, match="No space"):  # noqa: PT012 - the loop is what fills the disk
        for _ in range(1000):
            log.add(1, "a", b"x" * 500)
            log.fsync()
    maintenance.purge(log)
    log.flush()
    last = log.last_seq
    assert log.add(1, "a", b"x") == last + 1
    log.fsync()
    assert log.synced_seq == last + 1


def test_a_purge_keeps_the_head_of_a_file_that_is_still_to_be_written() -> None:
    disk = SimDisk()
    log = open_log(FOLDER, PyDisk(disk), segment_bytes=4096)
    disk.room = disk.used()
    log.add(1, "a", b"x")
    with pytest.raises(OSError, match="No space"):
        log.flush()
    maintenance.purge(log)
    disk.room = None
    last = log.last_seq
    assert log.add(1, "a", b"kept") == last + 1
    log.fsync()
    disk.crash()
    log = open_log(FOLDER, PyDisk(disk), segment_bytes=4096)
    found = log.get(last + 1)
    assert found is not None
    assert found.payload == b"kept"
    assert log.lost == []


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("seed", range(48))
def test_what_made_room_on_a_full_disk_is_removed_and_not_lost(seed: int, compress: bool) -> None:
    # the removals are not written yet when the power goes
    disk = SimDisk()
    log = open_log(FOLDER, PyDisk(disk), segment_bytes=4096)
    log.compress = compress
    while len(log.segments.items) < 5:
        log.add(1, "a", random.Random(log.last_seq).randbytes(300) + bytes(200))
        log.fsync()
    acked = log.last_seq
    while maintenance.maintain(log):
        pass
    for seq in range(2, log.segments.items[2].first + 2):
        maintenance.delete(log, seq)
    log.add(1, "a", random.Random(1).randbytes(500))
    disk.room = disk.used() + 40
    before = disk.used()
    log.flush()
    assert disk.used() < before
    disk.crash(random.Random(seed))
    disk.room = None
    log = open_log(FOLDER, PyDisk(disk), segment_bytes=4096)
    assert [entry for entry in log.lost if entry[0] <= acked] == []
    assert log.get(1) is not None
    assert log.get(acked) is not None
    maintenance.close(log)
    log = open_log(FOLDER, PyDisk(disk), segment_bytes=4096)
    assert [entry for entry in log.lost if entry[0] <= acked] == []


@pytest.mark.parametrize("verb", ["fail_write", "fail_sync"])
def test_failing_disk_closes_the_log_for_appends(verb: str) -> None:
    target = SimDisk()
    log = open_log(FOLDER, PyDisk(target))
    log.add(1, "a", b"one")
    log.fsync()
    log.add(2, "a", b"two")
    setattr(target, verb, errno.EIO)
    with pytest.raises(LogClosed) as caught:
        log.fsync()
    assert caught.value.errno == errno.EIO
    setattr(target, verb, 0)
    with pytest.raises(LogClosed):
        log.add(3, "a", b"three")
    assert log.synced_seq == 1
    message = log.get(2)
    assert message is not None
    assert message.payload == b"two"


def test_failing_read_is_an_error_and_nothing_is_lost() -> None:
    target = SimDisk()
    log = open_log(FOLDER, PyDisk(target), segment_bytes=4096)
    for i in range(100):
        log.add(i + 1, "a", b"x" * 100)
    log.flush()
    target.fail_read = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        log.get(1)
    target.fail_read = 0
    assert log.get(1) is not None
    assert log.lost == []


@pytest.mark.parametrize("seed", range(64))
def test_older_files_go_when_the_name_of_the_newest_is_on_the_disk(seed: int) -> None:
    disk = SimDisk()
    log = open_log("S", PyDisk(disk), segment_bytes=4096)
    while len(log.segments.items) < 2:
        log.add(1, "s", b"x" * 500)
    log.fsync()
    given = log.last_seq
    log = open_log("S", PyDisk(disk), segment_bytes=4096)  # whose owner does not sync
    while len(log.segments.items) < 4:
        log.add(1, "s", b"x" * 500)
        log.flush()
    maintenance.purge(log)
    log.flush()
    disk.crash(random.Random(seed))
    assert open_log("S", PyDisk(disk), segment_bytes=4096).last_seq >= given


def test_older_files_make_room_when_the_name_of_the_newest_is_on_the_disk() -> None:
    disk = SimDisk()
    log = open_log("S", PyDisk(disk), segment_bytes=4096)
    log.add(1, "s", b"x" * 3500)
    log.fsync()
    log = open_log("S", PyDisk(disk), segment_bytes=4096)  # whose owner does not sync
    maintenance.delete(log, 1)
    disk.room = disk.used() + 600
    with contextlib.suppress(OSError):
        for _ in range(3):
            log.add(1, "s", b"y" * 1500)
            log.flush()
    assert "S/00000000000000000001.seg" not in disk.names
    disk.crash()
    assert open_log("S", PyDisk(disk), segment_bytes=4096).last_seq >= 1


def test_groups_of_files_are_written_independently(tmp_path: Path) -> None:
    disk = Disk()
    good = [str(tmp_path / f"{number}") for number in range(40)]
    bad = str(tmp_path / "no folder" / "x")
    parents = ["", str(tmp_path), str(tmp_path / "missing")]
    groups = [(good[at : at + 2], b"%d" % at, parents[at % 4 // 2]) for at in range(0, 40, 2)]
    groups.insert(3, ([bad], b"", parents[1]))
    lonely = str(tmp_path / "lonely")
    groups.append(([lonely], b"", parents[2]))
    errors = disk.write_groups(groups)
    assert [at for at, each in enumerate(errors) if each is not None] == [3, 21]
    assert isinstance(errors[3], FileNotFoundError)
    assert isinstance(errors[21], FileNotFoundError)  # its folder's name cannot be synced
    assert not disk.exists(lonely)
    for at in range(0, 40, 2):
        assert disk.read_file(good[at]) == disk.read_file(good[at + 1]) == b"%d" % at
    assert not list(tmp_path.glob("*.tmp"))
    assert disk.write_groups([]) == []
