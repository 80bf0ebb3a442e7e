"""Reading files that grow, rotate and are cut: every byte once, in order."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.pipeline.logs import files
from penstock.pipeline.logs.files import (
    BadLogPathError,
    Follower,
    Identity,
    Mark,
    Tail,
    check,
    find_files,
)
from tests.ways import length


def mark_of(identity, line):
    return Mark(identity, line.next_offset, line.data, line.partial)


def texts(lines):
    return [line.data.decode(errors="replace") for _, line in lines]


class Log:
    """A log and all that was shipped of it; restarts go on from the last line shipped, as from a
    stream.
    """

    def __init__(self, folder: Path, **settings) -> None:
        self.path = folder / "app.log"
        self.now = 1000.0
        self.shipped: list[tuple[Identity, files.Line]] = []
        self.follower = Follower(self.path, clock=lambda: self.now, **settings)
        self.started = False

    def write(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)
        os.utime(self.path, (self.now, self.now))

    def rotate(self) -> None:
        for number in range(8, 0, -1):
            old = self.path.with_name(f"app.log.{number}")
            if old.exists():
                old.rename(self.path.with_name(f"app.log.{number + 1}"))
        self.path.rename(self.path.with_name("app.log.1"))

    def cut(self) -> None:
        self.path.write_bytes(b"")

    def restart(self) -> None:
        self.follower.start(mark_of(*self.shipped[-1]) if self.shipped else None)
        self.started = True

    def ship(self, **how) -> list[str]:
        if not self.started:
            self.restart()
        new = list(self.follower.lines(**how))
        self.shipped += new
        return texts(new)


@pytest.fixture
def log(tmp_path):
    log = Log(tmp_path)
    yield log
    log.follower.close()


actions = st.lists(
    st.one_of(
        st.tuples(
            st.just("write"), st.binary(max_size=40).map(lambda raw: raw.replace(b"a", b"\n"))
        ),
        st.tuples(st.sampled_from(["ship", "ship final", "restart"]), st.just(b"")),
    ),
    max_size=25,
)


@settings(max_examples=length(100, 200), deadline=None)
@given(actions)
def test_every_byte_once_over_restarts_and_final_ends(tmp_path_factory, todo):
    log = Log(tmp_path_factory.mktemp("log"))
    written = b""
    for action, data in [*todo, ("ship final", b"")]:
        if action == "write":
            log.write(data)
            written += data
        elif action == "restart":
            log.restart()
        else:
            log.ship(final=action == "ship final")
    log.follower.close()
    position = 0
    for identity, line in log.shipped:
        if line.offset == position + 1:
            assert written[position : position + 1] == b"\n"  # of a piece shipped before it came
            position += 1
        assert line.offset == position
        assert written[position : position + len(line.data)] == line.data
        assert b"\n" not in line.data
        position += len(line.data)
        if not line.partial:
            assert written[position : position + 1] == b"\n"
            position += 1
        assert line.next_offset == position
        assert identity == log.shipped[0][0]
    assert written[position:] in (b"", b"\n")


rotations = st.lists(
    st.sampled_from(["write", "write", "ship", "restart", "rotate", "wait"]), max_size=30
)


@settings(max_examples=length(100, 200), deadline=None)
@given(rotations)
def test_every_line_once_over_rotations_and_restarts(tmp_path_factory, todo):
    log = Log(tmp_path_factory.mktemp("log"))
    log.write(b"first\n")
    log.ship()
    written = ["first"]
    for action in todo:
        log.now += 0.01
        if action == "write":
            written.append(f"line {len(written)}")
            log.write(f"{written[-1]}\n".encode())
        elif action == "ship":
            log.ship()
        elif action == "restart":
            log.restart()
        elif action == "wait":
            log.now += 10
        elif log.path.exists():
            log.rotate()
            log.write(b"")  # as logrotate's create
    log.now += 10
    log.ship()
    log.now += 10
    log.ship()
    log.follower.close()
    assert texts(log.shipped) == written
    keys = {(str(identity), line.offset) for identity, line in log.shipped}
    assert len(keys) == len(log.shipped)


@pytest.mark.parametrize("length", [9, 10, 11, 19, 20, 21, 45])
def test_long_lines_go_in_pieces(log, monkeypatch, length):
    monkeypatch.setattr(files, "LINE_BYTES_MAX", 10)
    log.write(b"x" * length + b"\nshort\n")
    log.ship()
    pieces = [line for _, line in log.shipped]
    assert b"".join(line.data for line in pieces[:-1]) == b"x" * length
    assert all(len(line.data) <= 10 for line in pieces)
    assert pieces[-1].data == b"short"
    assert not pieces[-1].partial


def test_lines_longer_than_a_read(log, monkeypatch):
    monkeypatch.setattr(files, "_CHUNK_BYTES", 16)
    monkeypatch.setattr(files, "LINE_BYTES_MAX", 10)
    log.write(b"a\nbb\n" + b"c" * 37 + b"\nd\n")
    assert "".join(log.ship()) == "abb" + "c" * 37 + "d"


def test_an_incomplete_line_waits_for_its_newline(log):
    log.write(b"one\ntw")
    assert log.ship() == ["one"]
    assert log.ship() == []
    log.write(b"o\n")
    assert log.ship() == ["two"]


def test_a_file_without_a_last_newline_is_shipped_whole_at_the_end_and_not_again(log):
    log.write(b"one\ntwo")
    assert log.ship(final=True) == ["one", "two"]
    log.restart()
    assert log.ship(final=True) == []
    log.write(b"\nthree\n")
    log.restart()
    assert log.ship(final=True) == ["three"]


def test_until_bounds_what_is_shipped(log):
    log.write(b"one\ntwo\n")
    log.restart()
    sizes = log.follower.sizes()
    log.write(b"three\n")
    assert log.ship(final=True, until=sizes) == ["one", "two"]


def test_rotation_while_following(log):
    log.write(b"one\n")
    assert log.ship() == ["one"]
    log.rotate()
    with log.path.with_name("app.log.1").open("ab") as old:
        old.write(b"late\n")
    os.utime(log.path.with_name("app.log.1"), (log.now, log.now))
    log.write(b"new\n")
    assert log.ship() == ["late"]
    log.now += 5
    assert log.ship() == ["new"]
    first, last = log.shipped[0][0], log.shipped[-1][0]
    assert last.generation == first.generation + 1


def test_rotations_while_nobody_was_looking(log):
    log.write(b"one\ntwo\n")
    log.ship()
    log.write(b"three\n")
    log.rotate()
    log.now += 1
    log.write(b"four\n")
    log.rotate()
    log.now += 1
    log.write(b"five\n")
    log.now += 60
    log.restart()
    assert log.ship() == ["three", "four", "five"]
    log.restart()
    assert log.ship() == []


def test_what_was_rotated_before_it_was_ever_seen_is_left(log):
    log.write(b"old\n")
    log.rotate()
    log.write(b"new\n")
    assert log.ship() == ["new"]


def test_a_renamed_file_that_has_no_successor_is_read_on(log):
    log.write(b"one\n")
    log.ship()
    log.path.rename(log.path.with_name("elsewhere"))
    with log.path.with_name("elsewhere").open("ab") as old:
        old.write(b"two\n")
    assert log.ship() == ["two"]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("after", [b"x\n", b"one\n", b"one\nand\nmuch\nmore\nthan\nbefore\n"])
def test_a_cut_file_begins_another_life(log, restart, after):
    log.write(b"one\ntwo\n")
    log.ship()
    log.cut()
    if not restart:
        assert log.ship() == []
    log.write(after)
    if restart:
        log.restart()
    assert log.ship() == after.decode().split()
    identities = [identity for identity, _ in log.shipped]
    assert identities[-1] != identities[0]
    assert len({(str(identity), line.offset) for identity, line in log.shipped}) == len(log.shipped)


def test_an_inode_that_comes_back_is_another_life(log):
    log.write(b"same first line\n")
    log.ship()
    first = log.shipped[0][0]
    log.restart()
    tail = Tail(log.path)
    tail.begin_after(first)
    list(tail.lines())
    assert tail.identity is not None
    assert tail.identity.inode == first.inode
    assert str(tail.identity) != str(first)
    tail.close()


def test_identities_can_be_read_back():
    identity = Identity(2049, 12345, 64, "00ff00ff00ff00ff", 3)
    assert Identity.parse(str(identity)) == identity
    with pytest.raises(ValueError, match="not enough values"):
        Identity.parse("nonsense")


def test_finding_files(tmp_path):
    for name in (
        "a.log",
        "deep/er/b.log",
        "a.log.1",
        "a.log-20260101",
        "c.log.gz",
        "notes.txt",
        "own/s.log",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n")
    (tmp_path / "link.log").symlink_to(tmp_path / "a.log")

    def found(where):
        return [str(path.relative_to(tmp_path)) for path in find_files(where, tmp_path / "own")]

    assert found(str(tmp_path)) == ["a.log", "deep/er/b.log"]
    assert found(f"{tmp_path}/*") == ["a.log", "notes.txt"]
    assert found(f"{tmp_path}/a.log.1") == ["a.log.1"]
    assert found(f"{tmp_path}/nothing*") == []


def test_paths_that_can_give_nothing_are_refused(tmp_path):
    check(None)
    check(str(tmp_path))
    for where in (str(tmp_path / "missing"), f"{tmp_path}/*.log"):
        with pytest.raises(BadLogPathError) as caught:
            check(where)
        assert where in str(caught.value)
