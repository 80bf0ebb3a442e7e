"""Reading files that grow and are cut: every byte once, in order."""

import bz2
import gzip
import lzma
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.pipeline.logs import files
from pelton.pipeline.logs.files import (
    BadLogPathError,
    Identity,
    Mark,
    Tail,
    UnreadableFileError,
    check,
    find_files,
)
from tests.ways import length


def mark_of(identity, line):
    ending = line.data if line.partial else line.data + b"\n"
    return Mark(identity, line.next_offset, ending, line.partial)


class Log:
    """A log and all that was shipped of it; restarts go on from the last line shipped, as from a
    stream.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "app.log"
        self.shipped: list[tuple[Identity, files.Line]] = []
        self.tail: Tail | None = None

    def write(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)

    def restart(self) -> None:
        self.close()
        self.tail = Tail(self.path)

    def close(self) -> None:
        if self.tail is not None:
            self.tail.close()
            self.tail = None

    def ship(self, *, final: bool = False, until: int | None = None) -> list[str]:
        if self.tail is None:
            self.restart()
        tail = self.tail
        if tail.identity is None:
            if tail.first_line(final=final) is None:
                return []
            mark = mark_of(*self.shipped[-1]) if self.shipped else None
            if mark and tail.holds(mark):
                tail.go_on(mark)
            else:
                tail.begin(0, final=final)
        new = list(tail.lines(final=final, until=until))
        self.shipped += [(tail.identity, line) for line in new]
        return [line.data.decode(errors="replace") for line in new]


@pytest.fixture
def log(tmp_path):
    log = Log(tmp_path)
    yield log
    log.close()


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
            # a hole, or the first byte of a compressed file
            data = data if written else data.lstrip(b"\0\x04\x1f\x28\xfdPB")
            log.write(data)
            written += data
        elif action == "restart":
            log.write(b"")
            log.restart()
        else:
            log.write(b"")
            log.ship(final=action == "ship final")
    log.close()
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
    assert log.ship(final=True, until=6) == ["one", "tw"]


@pytest.mark.parametrize("after", [b"", b"x\n", b"one\nand\nmuch\nmore\nthan\nbefore\n"])
def test_a_cut_is_noticed(log, after):
    log.write(b"one\ntwo\n")
    log.ship()
    assert not log.tail.was_cut()
    log.write(b"three\n")
    assert not log.tail.was_cut()
    log.path.write_bytes(after)
    assert log.tail.was_cut()


def test_a_mark_is_held_by_the_file_and_its_copies_only(log, tmp_path):
    log.write(b"one\ntwo\n")
    log.ship()
    mark = mark_of(*log.shipped[-1])
    for content, wanted in [
        (b"one\ntwo\n", True),
        (b"one\ntwo\nthree\n", True),
        (b"one\ntwp\n", False),
        (b"one\n", False),
        (b"onE\ntwo\n", False),
    ]:
        other = tmp_path / "other"
        other.write_bytes(content)
        tail = Tail(other)
        tail.first_line(final=True)
        assert tail.holds(mark) is wanted
        tail.close()


def test_a_hole_before_the_first_line_belongs_to_no_line(log):
    with log.path.open("wb") as file:
        file.seek(3_000_000)
        file.write(b"one\ntwo\n")
    assert log.ship() == ["one", "two"]
    assert log.shipped[0][1].offset == 3_000_000
    log.restart()
    assert log.ship() == []


@pytest.mark.parametrize("size", [0, 1, 5000, 3_000_000])
def test_a_hole_without_a_line_is_nothing_yet(log, size):
    log.write(b"")
    os.truncate(log.path, size)
    assert log.ship(final=True) == []


def test_gzip_is_read_and_others_are_refused(log):
    log.write(gzip.compress(b"one\n" * 400_000 + b"two"))
    assert log.ship() == ["one"] * 400_000
    log.restart()
    assert log.ship(final=True) == ["two"]
    for compressed in (
        bz2.compress(b"one\n"),
        lzma.compress(b"one\n"),
        b"\x28\xb5\x2f\xfd" + b"\0" * 20,
        b"\x04\x22\x4d\x18" + b"\0" * 20,
        b"\x1f\x9d" + b"\0" * 20,
        b"PK\x03\x04" + b"\0" * 20,
    ):
        log.path.write_bytes(compressed)
        log.restart()
        with pytest.raises(UnreadableFileError, match="compressed"):
            log.ship()


def test_a_line_may_begin_as_a_compressed_file(log):
    log.write(b"BZh is no bzip2\n")
    assert log.ship() == ["BZh is no bzip2"]


def test_a_gzip_file_that_is_not_complete_is_refused(log):
    log.write(gzip.compress(b"".join(b"%d\n" % number for number in range(5000)))[:-20])
    with pytest.raises(UnreadableFileError, match="gzip"):
        log.ship()


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
        "a.log.2026-01-02",
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
