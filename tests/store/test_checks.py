"""What check and verify tell of a store: everything that is wrong, where it is, and nothing else."""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pelton.core.base.disk import Disk
from pelton.core.log import maintenance
from pelton.core.log.recovery import open_log
from pelton.core.log.store_lock import FolderInUse, FolderLock, owner_of
from pelton.engine.files.files import AccountFiles
from pelton.store.checks import look, look_at
from pelton.store.dump import MessageFilter, damages, messages
from pelton.store.layout import StoreError, find
from pelton.store.reports import LOST, NOTE, UNREADABLE, WORN
from tests.ways import length

from .stores import (
    flip,
    make_consumer,
    make_stream,
    messages_of,
    place_of,
    segments_of,
    stores,
    tree,
)

NUMBERS = itertools.count()


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("compress", [False, True])
def test_a_sound_store_is_told_as_it_is(tmp_path: Path, whole: bool, compress: bool) -> None:
    folder = make_stream(tmp_path, compress=compress)
    make_stream(tmp_path / "domain_hub", "EVENTS", 5, account="A/B")
    before = tree(tmp_path)
    disk, store = stores(tmp_path)
    report = look_at(disk, store, store.streams, whole=whole)
    assert tree(tmp_path) == before
    assert report.sound
    assert report.used_by is None
    orders, events = report.streams
    assert [problem for each in report.streams for problem in each.problems] == []
    assert (orders.stream, orders.account, orders.first_seq, orders.last_seq) == (
        "ORDERS",
        "$G",
        1,
        200,
    )
    assert (events.domain, events.account, events.messages) == ("hub", "A/B", 5 - 1)
    assert orders.messages == len(messages_of(folder)) == 180
    assert orders.segments == len(segments_of(folder))
    assert (orders.compressed > 0) is compress
    assert orders.first_time.startswith("2023-11-14T22:13:20")
    (consumer,) = orders.consumers
    assert (consumer.name, consumer.ack_floor_seq, consumer.unacknowledged) == ("packing", 100, 1)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert orders.disk_bytes == size


def test_names_choose_streams(tmp_path: Path) -> None:
    make_stream(tmp_path, "A", 3)
    make_stream(tmp_path, "A", 3, account="other")
    make_stream(tmp_path, "B", 3)
    _, store = stores(tmp_path)
    assert [each.label for each in store.chosen(())] == ["$G/A", "$G/B", "other/A"]
    assert [each.label for each in store.chosen(("A",))] == ["$G/A", "other/A"]
    assert store.one("other/A").account == "other"
    for wrong in ("C", "A", "x/A"):
        with pytest.raises(StoreError):
            store.one(wrong)
    disk, _ = stores(tmp_path)
    for no_store in (tmp_path / "none", tmp_path / "jetstream"):
        with pytest.raises(StoreError):
            find(disk, str(no_store))


def test_one_flipped_bit_is_told_with_its_place_and_message(tmp_path: Path) -> None:
    folder = make_stream(tmp_path)
    path = segments_of(folder)[1]
    flip(path, 100)
    disk, place = place_of(tmp_path)
    assert look(disk, place).problems == []  # the index file holds: a start would not notice either
    report = look(disk, place, whole=True)
    (problem,) = report.problems
    assert problem.kind == LOST
    assert problem.file == str(path)
    assert problem.offset <= 100 < problem.offset + problem.length
    assert problem.count == 1
    assert "checksum repair" in problem.repair
    assert (report.state, report.lost, report.messages) == ("damaged", 1, 179)
    (found,) = damages(disk, place)
    assert (found.file, found.offset, len(found.data)) == (
        str(path),
        problem.offset,
        problem.length,
    )
    assert [part[0] for part in found.lost] == [problem.first_seq]
    read = [row[0] for row in messages(disk, place, MessageFilter())]
    assert problem.first_seq not in read
    assert len(read) == 179


@settings(max_examples=length(20, 40), deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32))
def test_what_is_lost_is_told_and_nothing_else(tmp_path: Path, seed: int) -> None:
    pick = random.Random(seed)
    folder = make_stream(tmp_path / f"s{next(NUMBERS)}", compress=pick.random() < 0.3)
    everything = messages_of(folder)
    for _ in range(pick.randint(0, 3)):
        path = pick.choice(segments_of(folder))
        data = bytearray(path.read_bytes())
        at = pick.randrange(len(data))
        end = min(len(data), at + pick.choice([1, 1, 10, 300]))
        data[at:end] = pick.randbytes(end - at)
        path.write_bytes(data[: at + 1] if pick.random() < 0.1 else data)
    before = tree(folder)
    disk, place = place_of(folder.parents[3])
    report = look(disk, place, whole=True)
    assert tree(folder) == before
    left = {row[0] for row in messages(disk, place, MessageFilter())}
    whole = messages_of(folder)
    told = {
        seq
        for problem in report.of_kind(LOST)
        for seq in range(problem.first_seq, problem.first_seq + problem.count)
    }
    assert set(everything) - set(whole) <= told
    assert not told & set(whole)
    assert set(whole) <= left
    assert report.messages == len(whole)
    assert (report.state == "sound") == (not told)
    for seq in whole:
        assert everything[seq] == whole[seq]


def test_configuration_that_is_gone_or_damaged(tmp_path: Path) -> None:
    folder = make_stream(tmp_path)
    meta, copy = folder / "meta.json", folder / "meta.json.copy"
    kept = meta.read_bytes()
    disk, place = place_of(tmp_path)
    flip(meta, 20)
    (problem,) = look(disk, place).problems
    assert (problem.kind, problem.file) == (WORN, str(meta))
    for change in ("damaged", "gone"):
        for each in (meta, copy):
            if change == "gone":
                each.unlink()
            else:
                each.write_bytes(b"{" + kept[:5])
        report = look(disk, place)
        assert report.state == UNREADABLE
        assert [problem.file for problem in report.of_kind(LOST)] == [str(meta)]
        assert report.messages == 180
        assert len(list(messages(disk, place, MessageFilter()))) == 180
    meta.write_bytes(kept)
    copy.write_bytes(kept)
    assert look(disk, place).problems == []


def test_the_copy_of_a_stream_folder(tmp_path: Path) -> None:
    folder = make_stream(tmp_path)
    copied = folder.with_name("COPY")
    shutil.copytree(folder, copied)
    disk, store = stores(tmp_path)
    copy, original = look_at(disk, store, store.streams).streams
    assert (original.stream, original.state) == ("ORDERS", "sound")
    assert (copy.stream, copy.state) == ("COPY", UNREADABLE)
    [problem] = copy.problems
    assert problem.file == str(copied / "meta.json")
    assert problem.reason == "this is the file of stream ORDERS; its folder must be named ORDERS"
    assert "move it out of the store" in problem.repair


def test_index_files_that_are_missing_damaged_or_of_another_segment(tmp_path: Path) -> None:
    folder = make_stream(tmp_path)
    indexes = sorted((folder / "log").glob("*.idx"))
    indexes[0].unlink()
    flip(indexes[1], 20)
    flip(indexes[2], 130)  # in an entry: the next start would not see it
    disk, place = place_of(tmp_path)
    quick, whole = look(disk, place), look(disk, place, whole=True)
    assert quick.state == whole.state == "sound"
    assert [problem.file for problem in quick.of_kind(WORN)] == [str(p) for p in indexes[:2]]
    assert [problem.file for problem in whole.of_kind(WORN)] == [str(p) for p in indexes[:3]]


def test_consumers_that_are_damaged_or_can_not_be(tmp_path: Path) -> None:
    folder = make_stream(tmp_path)
    disk, place = place_of(tmp_path)
    states = folder / "consumers" / "states.0"
    kept = states.read_bytes()
    flip(states, 30)
    (problem,) = look(disk, place).problems
    assert (problem.kind, problem.file) == (WORN, str(states))
    states.write_bytes(kept)
    for name in ("packing.json", "packing.json.copy"):
        (folder / "consumers" / name).write_bytes(b"{")
    report = look(disk, place)
    assert [problem.kind for problem in report.problems] == [LOST]
    assert report.consumers == []
    stream = AccountFiles(Disk(), str(tmp_path), "$G").stream("ORDERS")
    make_consumer(stream, "packing", 1000)
    (problem,) = look(disk, place).problems
    assert problem.kind == WORN
    assert "delivered up to 501, the stream ends at 200" in problem.reason


def test_ends_and_what_was_kept_of_them(tmp_path: Path) -> None:
    folder = make_stream(tmp_path)
    last = segments_of(folder)[-1]
    for index in (folder / "log").glob("*.idx"):
        if index.stem == last.stem:
            index.unlink()
    size = last.stat().st_size
    last.write_bytes(last.read_bytes() + b"half a record")
    disk, place = place_of(tmp_path)
    (problem,) = look(disk, place).problems
    assert (problem.kind, problem.offset, problem.length) == (NOTE, size, 13)
    maintenance.close(open_log(str(folder / "log")))
    (problem,) = look(disk, place).problems
    assert problem.kind == NOTE
    assert problem.file.endswith(".torn-1")


def test_leftovers_of_deletions_and_restores_are_noted(tmp_path: Path) -> None:
    make_stream(tmp_path)
    for kind in ("deleted", "restoring"):
        (tmp_path / "jetstream" / "$G" / kind / "x").mkdir(parents=True)
    disk, store = stores(tmp_path)
    report = look_at(disk, store, store.streams)
    assert [problem.kind for problem in report.problems] == [NOTE, NOTE]
    assert report.sound


def test_who_has_the_store(tmp_path: Path) -> None:
    make_stream(tmp_path)
    assert owner_of(str(tmp_path)) is None
    lock = FolderLock(str(tmp_path), "hub")
    with pytest.raises(FolderInUse) as refused:
        FolderLock(str(tmp_path))
    assert refused.value.domain == "hub"
    disk, store = stores(tmp_path)
    report = look_at(disk, store, store.streams)
    assert report.used_by == owner_of(str(tmp_path)) == refused.value.pid
    lock.close()
    assert owner_of(str(tmp_path)) is None


def test_messages_are_chosen_by_sequence_time_and_subject(tmp_path: Path) -> None:
    folder = make_stream(tmp_path)
    everything = messages_of(folder)
    disk, place = place_of(tmp_path)

    def read(choice: MessageFilter) -> list[int]:
        return [row[0] for row in messages(disk, place, choice)]

    assert read(MessageFilter(50, 60)) == [seq for seq in everything if 50 <= seq <= 60]
    times = everything[20].ts_ns, everything[31].ts_ns
    assert read(MessageFilter(since_ns=times[0], until_ns=times[1])) == [
        seq for seq in everything if 20 <= seq < 31
    ]
    assert read(MessageFilter(subjects=("ORDERS.1", "ORDERS.2"))) == [
        seq for seq, each in everything.items() if each.subject in ("ORDERS.1", "ORDERS.2")
    ]
    (row,) = messages(disk, place, MessageFilter(8, 8))
    kept = everything[8]
    assert row == (8, kept.ts_ns, kept.subject, kept.headers, kept.payload)
