"""Backups hold what was there, share what they have in common, and are whole or not there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pelton.core.base.disk import Disk, PyDisk
from pelton.core.base.readonly_disk import ReadOnlyDisk
from pelton.core.log import maintenance
from pelton.core.log.recovery import open_log
from pelton.core.log.store_lock import FolderLock
from pelton.store.backup import back_up
from pelton.store.checks import look_at
from pelton.store.layout import StoreError
from pelton.store.manifests import BackupFolder, BadManifestError, Manifest
from pelton.store.restore import chosen, plan_prune, prune, restore, verify

from .stores import (
    CREATED,
    Failing,
    flip,
    make_encrypted_stream,
    make_stream,
    messages_of,
    segments_of,
    stores,
    tree,
)

NOW = 1_763_700_000_000_000_000
HOUR = 3_600_000_000_000
LATER = NOW + 100_000 * HOUR  # behind the times of all files


def save(store: Path, target: Path, now_ns: int = LATER, disk: Disk | None = None) -> Manifest:
    folder = BackupFolder(disk or Disk(), str(target))
    Disk().make_dir(str(target))
    folder.make()
    reading, found = stores(store)
    return back_up(reading, found, found.streams, folder, now_ns)


def bring_back(
    target: Path, store: Path, names: tuple[str, ...] = (), at: str = "", disk: Disk | None = None
) -> list[str]:
    folder = BackupFolder(Disk(), str(target))
    folder.open()
    manifest = folder.read(at or folder.ids()[-1])
    store.mkdir(exist_ok=True)
    return restore(disk or Disk(), folder, chosen(manifest, names), str(store))


def sizes(target: Path) -> int:
    return sum(path.stat().st_size for path in (target / "objects").rglob("*") if path.is_file())


def test_a_restored_store_is_the_one_that_was_backed_up(tmp_path: Path) -> None:
    folder = make_stream(tmp_path / "a")
    make_stream(tmp_path / "a", "PACKED", 150, compress=True)
    make_stream(tmp_path / "a" / "domain_reactor", "EVENTS", 30, account="A/B")
    before = tree(tmp_path / "a")
    made = save(tmp_path / "a", tmp_path / "backups")
    assert tree(tmp_path / "a") == before
    assert [each.label for each in made.streams] == ["$G/ORDERS", "$G/PACKED", "reactor/A/B/EVENTS"]
    assert made.streams[0].messages == 180
    assert made.streams[0].config["config"]["name"] == "ORDERS"  # type: ignore[index]  # plain data
    bring_back(tmp_path / "backups", tmp_path / "b")
    disk, store = stores(tmp_path / "b")
    report = look_at(disk, store, store.streams, whole=True)
    assert report.sound
    assert [problem for each in report.streams for problem in each.problems] == []
    assert messages_of(tmp_path / "b" / folder.relative_to(tmp_path / "a")) == messages_of(folder)
    assert [each.consumers for each in report.streams] == [
        each.consumers
        for each in look_at(*stores(tmp_path / "a"), stores(tmp_path / "a")[1].streams).streams
    ]
    after = tree(tmp_path / "b")
    assert {name: after[name] for name in before if ".idx" not in name} == {
        name: data for name, data in before.items() if ".idx" not in name
    }


def test_later_backups_add_only_what_is_new(tmp_path: Path) -> None:
    folder = make_stream(tmp_path / "a", count=400)
    target = tmp_path / "backups"
    first = save(tmp_path / "a", target)
    assert first.new_bytes == first.total_bytes == sizes(target)
    again = save(tmp_path / "a", target)
    assert again.new_bytes == 0
    assert again.id != first.id
    log = open_log(str(folder / "log"), segment_bytes=4096)
    log.add(CREATED, "ORDERS.new", b"one more")
    maintenance.close(log)
    before = sizes(target)
    third = save(tmp_path / "a", target, LATER + HOUR)
    assert 0 < third.new_bytes == sizes(target) - before < first.total_bytes / 4
    assert [each.streams[0].last_seq for each in (first, again, third)] == [400, 400, 401]
    for name, last in ((first.id, 400), (third.id, 401)):
        bring_back(target, tmp_path / name, at=name)
        assert max(messages_of(tmp_path / name / folder.relative_to(tmp_path / "a"))) == last


def test_unchanged_files_are_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_stream(tmp_path / "a")
    target = tmp_path / "backups"
    save(tmp_path / "a", target, 0)  # all files are younger: none counts as settled
    asked: list[str] = []

    class Counting(ReadOnlyDisk):
        def read_file(self, path: str) -> bytes:
            asked.append(path)
            return super().read_file(path)

    for expected in (True, False):
        asked.clear()
        _, found = stores(tmp_path / "a")
        back_up(Counting(), found, found.streams, BackupFolder(Disk(), str(target)), LATER)
        assert any(path in asked for path in map(str, segments_of(folder)[:-1])) is expected


@pytest.mark.parametrize("changes", range(0, 130, 7))
def test_a_backup_that_is_cut_short_leaves_nothing_half_valid(tmp_path: Path, changes: int) -> None:
    folder = make_stream(tmp_path / "a", count=60)
    target = tmp_path / "backups"
    first = save(tmp_path / "a", target)
    log = open_log(str(folder / "log"), segment_bytes=4096)
    for i in range(60):
        log.add(CREATED, "ORDERS.new", b"more %d" % i)
    maintenance.close(log)
    done = True
    try:
        save(tmp_path / "a", target, LATER + HOUR, PyDisk(Failing(changes)))
    except OSError:
        done = False
    result = verify(BackupFolder(Disk(), str(target)))
    assert result.sound
    assert len(result.backups) in (1 + done, 2)
    assert result.backups[0].id == first.id
    save(tmp_path / "a", target, LATER + 2 * HOUR)
    bring_back(target, tmp_path / "b")
    assert messages_of(tmp_path / "b" / folder.relative_to(tmp_path / "a")) == messages_of(folder)


@pytest.mark.parametrize("changes", range(0, 200, 9))
def test_a_restore_that_is_cut_short_can_be_run_again(tmp_path: Path, changes: int) -> None:
    folder = make_stream(tmp_path / "a", count=60)
    make_stream(tmp_path / "a", "OTHER", 20)
    target = tmp_path / "backups"
    save(tmp_path / "a", target)
    names: tuple[str, ...] = ()
    try:
        bring_back(target, tmp_path / "b", disk=PyDisk(Failing(changes)))
    except OSError:
        placed = {path.name for path in tmp_path.glob("b/jetstream/*/streams/*")}
        assert placed <= {"OTHER", "ORDERS"}
        names = tuple({"OTHER", "ORDERS"} - placed)
        if names:
            bring_back(target, tmp_path / "b", names)
    disk, store = stores(tmp_path / "b")
    assert [each.name for each in store.streams] == ["ORDERS", "OTHER"]
    assert look_at(disk, store, store.streams, whole=True).sound
    assert messages_of(tmp_path / "b" / folder.relative_to(tmp_path / "a")) == messages_of(folder)


def test_a_stream_that_is_there_is_not_touched(tmp_path: Path) -> None:
    make_stream(tmp_path / "a")
    make_stream(tmp_path / "a", "OTHER", 20)
    save(tmp_path / "a", tmp_path / "backups")
    make_stream(tmp_path / "b", "ORDERS", 10)
    before = tree(tmp_path / "b")
    with pytest.raises(StoreError, match="already"):
        bring_back(tmp_path / "backups", tmp_path / "b")
    assert tree(tmp_path / "b") == before
    bring_back(tmp_path / "backups", tmp_path / "b", ("OTHER",))
    after = tree(tmp_path / "b")
    assert {name: after[name] for name in before} == before
    assert len(after) > len(before)
    with pytest.raises(StoreError, match="no stream NONE"):
        bring_back(tmp_path / "backups", tmp_path / "c", ("NONE",))


def test_damage_in_a_backup_is_found_and_never_restored(tmp_path: Path) -> None:
    make_stream(tmp_path / "a")
    target = tmp_path / "backups"
    made = save(tmp_path / "a", target)
    folder = BackupFolder(Disk(), str(target))
    objects = sorted(path for _, path in folder.objects())
    for path in map(Path, objects):
        kept = path.read_bytes()
        flip(path, len(kept) // 2)
        result = verify(folder)
        assert not result.sound
        assert str(path) in result.backups[0].problems[0]
        with pytest.raises(StoreError, match="damaged"):
            bring_back(target, tmp_path / "b")
        assert tree(tmp_path / "b") == {}
        path.unlink()
        assert "missing" in verify(folder).backups[0].problems[0]
        path.write_bytes(kept)
    flip(Path(folder.manifest_path(made.id)), 100)
    assert "hash" in verify(folder).backups[0].problems[0]
    with pytest.raises(BadManifestError):
        bring_back(target, tmp_path / "b")
    # the next backup does not build on it
    assert save(tmp_path / "a", target, LATER + HOUR).new_bytes == 0
    bring_back(target, tmp_path / "b")


@pytest.mark.parametrize("harm", ["flip", "empty", "gone"])
def test_a_damaged_object_is_written_anew(tmp_path: Path, harm: str) -> None:
    """When the file is read again: no backup but says that it is there."""
    folder = make_stream(tmp_path / "a")
    target = tmp_path / "backups"
    save(tmp_path / "a", target)
    backups = BackupFolder(Disk(), str(target))
    for path in [Path(path) for _, path in backups.objects()]:
        if harm == "flip":
            flip(path, len(path.read_bytes()) // 2)
        elif harm == "empty":
            path.write_bytes(b"")
        else:
            path.unlink()
    assert not verify(backups).sound
    disk, found = stores(tmp_path / "a")
    made = back_up(disk, found, found.streams, backups, LATER + HOUR, reread=True)
    assert made.new_bytes == made.total_bytes
    assert verify(backups).sound
    bring_back(target, tmp_path / "b", at=backups.ids()[0])
    assert messages_of(tmp_path / "b" / folder.relative_to(tmp_path / "a")) == messages_of(folder)


def test_a_damaged_store_is_backed_up_and_restored_as_it_is(tmp_path: Path) -> None:
    folder = make_stream(tmp_path / "a")
    flip(segments_of(folder)[0], 100)
    save(tmp_path / "a", tmp_path / "backups")
    (text,) = bring_back(tmp_path / "backups", tmp_path / "b")
    assert "1 messages were already lost" in text
    restored = messages_of(tmp_path / "b" / folder.relative_to(tmp_path / "a"))
    assert restored == messages_of(folder)
    assert len(restored) == 179


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("harm", ["gone", "half", "empty", "cut"])
def test_a_damaged_end_is_told_after_a_restore_too(
    tmp_path: Path, harm: str, compress: bool
) -> None:
    """The index files say that there was more, and which messages were removed: no sequence is given
    a second time, and nothing that was removed is there again.
    """
    folder = make_stream(tmp_path / "a", compress=compress)
    newest = segments_of(folder)[-1]
    data = newest.read_bytes()
    if harm == "gone":
        newest.unlink()
    else:
        newest.write_bytes({"half": data[: len(data) // 2], "empty": b"", "cut": data[:-1]}[harm])
    disk, found = stores(tmp_path / "a")
    before = look_at(disk, found, found.streams).streams[0]
    save(tmp_path / "a", tmp_path / "backups")
    told = bring_back(tmp_path / "backups", tmp_path / "b")
    disk, found = stores(tmp_path / "b")
    after = look_at(disk, found, found.streams).streams[0]
    facts = [(each.messages, each.first_seq, each.last_seq, each.lost) for each in (before, after)]
    assert facts[0] == facts[1]
    assert before.last_seq == 200
    assert bool(told) == (before.lost > 0)


@pytest.mark.parametrize("again", [False, True], ids=["", "made again"])
@pytest.mark.parametrize("call", [1, 2, 5])
def test_a_stream_that_is_deleted_under_a_backup_is_left_out(
    tmp_path: Path, call: int, again: bool
) -> None:
    """And one that is made again under its name is another one: nothing of both gets into one."""
    folder = make_stream(tmp_path / "a", "A")
    make_stream(tmp_path / "a", "B")
    calls = 0

    def progress(_: int) -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            shutil.move(folder, tmp_path / "gone")
            if again:
                make_stream(tmp_path / "a", "A", 50)

    backups = BackupFolder(Disk(), str(tmp_path / "b"))
    Disk().make_dir(str(tmp_path / "b"))
    backups.make()
    lock = FolderLock(str(tmp_path / "a"))  # a server has the store
    try:
        disk, found = stores(tmp_path / "a")
        made = back_up(disk, found, found.streams, backups, LATER, progress=progress)
    finally:
        lock.close()
    counts = {each.stream: (each.messages, each.last_seq) for each in made.streams}
    assert counts == ({"A": (45, 50)} if again else {}) | {"B": (180, 200)}
    assert bring_back(tmp_path / "b", tmp_path / "c") == []
    restored = messages_of(tmp_path / "c/jetstream/$G/streams/B")
    assert len(restored) == 180


def test_a_manifest_leads_nowhere_outside(tmp_path: Path) -> None:
    make_stream(tmp_path / "a")
    target = tmp_path / "backups"
    made = save(tmp_path / "a", target)
    folder = BackupFolder(Disk(), str(target))
    for wrong in ("jetstream/../streams/x", "jetstream/a/streams/../../x", "/etc/x/streams/y"):
        made.streams[0].folder = wrong
        folder.write(made)
        with pytest.raises(BadManifestError, match="has invalid names"):
            folder.read(made.id)


def test_pruning_removes_what_nobody_needs(tmp_path: Path) -> None:
    folder = make_stream(tmp_path / "a", count=300)
    target = tmp_path / "backups"
    ids = []
    for i in range(4):
        ids.append(save(tmp_path / "a", target, LATER + i * HOUR).id)
        log = open_log(str(folder / "log"), segment_bytes=4096)
        log.add(CREATED, "ORDERS.new", b"one more")
        maintenance.close(log)
    backups = BackupFolder(Disk(), str(target))
    plan = plan_prune(backups, ids[:2])
    before = sizes(target)
    assert plan.objects
    prune(backups, plan)
    assert backups.ids() == ids[2:]
    assert sizes(target) < before
    result = verify(backups)
    assert result.sound
    assert result.unreferenced == 0
    flip(Path(backups.manifest_path(ids[3])), 50)
    with pytest.raises(BadManifestError):
        plan_prune(backups, ids[2:3])


def test_other_folders_are_refused(tmp_path: Path) -> None:
    make_stream(tmp_path / "a")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "letter").write_text("mine")
    with pytest.raises(StoreError, match="not empty"):
        save(tmp_path / "a", tmp_path / "full")
    with pytest.raises(StoreError, match="not a backup folder"):
        BackupFolder(Disk(), str(tmp_path / "a")).open()


def test_a_manifest_is_json_with_its_hash(tmp_path: Path) -> None:
    make_stream(tmp_path / "a")
    made = save(tmp_path / "a", tmp_path / "backups")
    text = (tmp_path / "backups" / "backups" / f"{made.id}.json").read_text()
    line, check, _ = text.split("\n")
    told = json.loads(line)
    assert check.startswith("sha256 ")
    assert told["id"] == made.id
    assert {each["role"] for each in told["streams"][0]["files"]} == {
        "segment",
        "config",
        "consumer",
        "state",
    }
    assert told["streams"][0]["consumers"][0]["state"]["ack_floor_stream_seq"] == 100
    shutil.rmtree(tmp_path / "a")
    bring_back(tmp_path / "backups", tmp_path / "a")


def test_an_encrypted_stream_is_backed_up_and_restored_without_its_key(tmp_path: Path) -> None:
    folder = make_encrypted_stream(tmp_path / "a")
    disk, store = stores(tmp_path / "a")
    report = look_at(disk, store, store.streams, whole=True)
    assert [each.state for each in report.streams] == ["encrypted"]
    assert report.streams[0].of_kind("lost") == []
    before = tree(tmp_path / "a")
    save(tmp_path / "a", tmp_path / "backups")
    assert bring_back(tmp_path / "backups", tmp_path / "b") == []
    after = tree(tmp_path / "b")
    assert {name: after.get(name) for name in before if not name.endswith(".idx")} == {
        name: data for name, data in before.items() if not name.endswith(".idx")
    }
    flip(segments_of(folder)[0], 200)
    report = look_at(disk, store, store.streams, whole=True)
    assert [each.state for each in report.streams] == ["damaged"]
