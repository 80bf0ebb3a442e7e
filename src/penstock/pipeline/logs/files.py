"""Log files: finding them, telling one file from another, and reading lines from them as they grow.

A path is not a file: logs are renamed and begun again, or truncated and filled again. What is read
belongs to an :class:`Identity`, which stays the same while the file only grows::

    <device>-<inode>-<length>-<digest of the first length bytes>-<generation>

The first bytes are those of the first line, so they do not change when the file grows. The
generation counts the files seen under the path, because an inode may be used again, and a truncated
file may begin with the same line again.

:class:`Tail` reads one file, :class:`Follower` the files that follow one another under one path. A
line is shipped when its newline is there. Where no more can come (a renamed file, the end of a
single run), and for pieces of lines that are too long for one message, text is shipped without its
newline and marked *partial*: later text continues after it, and no byte is read twice.

Does not know streams or the network.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEFAULT_PATTERN = "/var/log/**/*.log"
LINE_BYTES_MAX = 512 * 1024
_CHUNK_BYTES = 1024 * 1024
_FINGERPRINT_BYTES_MAX = 1024
_ANCHOR_BYTES_MAX = 256
_ROTATED = re.compile(r"(\.[0-9]{1,3}|[.-][0-9]{8}([.-]?[0-9]{1,6})?|\.old|\.bak)$")
_COMPRESSED = re.compile(r"\.(gz|xz|bz2|zst|lz4|Z|zip)$")


class BadLogPathError(ValueError):
    """The requested files do not exist or cannot be read. The text is one line that names them."""


def find_files(where: str | None, not_below: Path | None = None) -> list[Path]:
    """The log files of a file, a folder (``**/*.log`` below it) or a pattern.

    None stands for what is readable in /var/log. Paths are absolute and in order; each file comes
    once. Rotated and compressed copies (``x.log.1``, ``x.log.gz``) are left out unless named
    exactly, and so is everything below ``not_below``. The list is empty if nothing is found;
    :func:`check` reports that.
    """
    pattern = where or DEFAULT_PATTERN
    if where and not glob.has_magic(where):
        path = Path(where)
        pattern = str(path / "**" / "*.log") if path.is_dir() else where
    found: dict[tuple[int, int], Path] = {}
    for name in sorted(glob.glob(pattern, recursive=True)):
        path = Path(name)
        exact = name == where
        if not exact and (_ROTATED.search(name) or _COMPRESSED.search(name)):
            continue
        if not path.is_file() or not os.access(path, os.R_OK):
            continue
        real = path.resolve()
        if not_below is not None and real.is_relative_to(not_below.resolve()):
            continue
        status = real.stat()
        found.setdefault((status.st_dev, status.st_ino), real)
    return sorted(found.values())


def check(where: str | None) -> None:
    """Raise :class:`BadLogPathError` if the path cannot give any lines, now or later."""
    if where is None:
        return
    if glob.has_magic(where):
        if not glob.glob(where, recursive=True):
            raise BadLogPathError(f"no file matches {where}")
    elif not os.path.exists(where):
        raise BadLogPathError(f"{where} does not exist")
    elif not os.access(where, os.R_OK):
        raise BadLogPathError(f"{where} cannot be read")


@dataclass(frozen=True)
class Identity:
    """A file, in one of its generations; see the head of the module."""

    device: int
    inode: int
    length: int
    digest: str
    generation: int = 0

    def __str__(self) -> str:
        """The form in headers and message ids; all but the generation is hexadecimal."""
        return f"{self.device:x}-{self.inode:x}-{self.length:x}-{self.digest}-{self.generation}"

    @classmethod
    def parse(cls, text: str) -> Identity:
        """Parse the result of ``str``; ValueError for anything else."""
        device, inode, length, digest, generation = text.split("-")
        return cls(int(device, 16), int(inode, 16), int(length, 16), digest, int(generation))


class Line(NamedTuple):
    """One line, or a piece of one: ``data`` begins at ``offset``, the next at ``next_offset``."""

    offset: int
    next_offset: int
    data: bytes
    partial: bool


class Mark(NamedTuple):
    """The position up to which a file was shipped; ``data`` was the last line."""

    identity: Identity
    next_offset: int
    data: bytes
    partial: bool


def _digest(first: bytes) -> str:
    return hashlib.blake2b(first, digest_size=8).hexdigest()


class Tail:
    """One open file and its read position. The descriptor keeps the file when it is renamed."""

    def __init__(self, path: Path) -> None:
        """Open the file at its beginning. Raises OSError."""
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        status = os.fstat(self._descriptor)
        self.file_key = (status.st_dev, status.st_ino)
        self.identity: Identity | None = None
        self.position = 0
        self._generation = 0
        self._after_partial = False
        self._anchor = b""

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)

    def written_at(self) -> float:
        """The modification time of the file."""
        return os.fstat(self._descriptor).st_mtime

    def size(self) -> int:
        """The current length of the file."""
        return os.fstat(self._descriptor).st_size

    def holds(self, mark: Mark) -> bool:
        """Whether the mark belongs to this file, and its last shipped line is still in place."""
        identity = mark.identity
        if self.file_key != (identity.device, identity.inode):
            return False
        if _digest(os.pread(self._descriptor, identity.length, 0)) != identity.digest:
            return False
        last = mark.data if mark.partial else mark.data + b"\n"
        return os.pread(self._descriptor, len(last), mark.next_offset - len(last)) == last

    def begin_after(self, previous: Identity | None) -> None:
        """Read from the beginning, as the generation of the path after ``previous``."""
        self.identity = None
        self.position = 0
        self._generation = 0 if previous is None else previous.generation + 1
        self._after_partial = False
        self._anchor = b""

    def go_on(self, mark: Mark) -> None:
        """Continue after a mark that belongs to the file."""
        self.identity = mark.identity
        self.position = mark.next_offset
        self._after_partial = mark.partial
        self._set_anchor()

    def lines(self, *, final: bool = False, until: int | None = None) -> Iterator[Line]:
        """The lines that were not read yet; with ``final`` also the text after the last newline.

        Reading stops at ``until``, if necessary within a line. A truncated file is read from its
        beginning, as the next generation of its path.
        """
        if self.position and self._was_cut():
            self.begin_after(self.identity)
        while True:
            wanted = _CHUNK_BYTES if until is None else min(_CHUNK_BYTES, until - self.position)
            chunk = os.pread(self._descriptor, wanted, self.position) if wanted > 0 else b""
            before = self.position
            yield from self._split(chunk, final=final and len(chunk) < _CHUNK_BYTES)
            if self.position == before:
                break
        self._set_anchor()

    def _split(self, chunk: bytes, *, final: bool) -> Iterator[Line]:
        start = 0
        while start < len(chunk):
            if self._after_partial and chunk[start] == 0x0A:
                # The newline of a line that was shipped without it; not a line of its own.
                self._after_partial = False
                start += 1
                self.position += 1
                continue
            end = chunk.find(b"\n", start, start + LINE_BYTES_MAX + 1)
            partial = end < 0
            if partial:
                if len(chunk) - start <= LINE_BYTES_MAX and not final:
                    break
                end = min(len(chunk), start + LINE_BYTES_MAX)
            if self.identity is None:
                self.identity = self._name(chunk)
            offset = self.position
            self.position = offset + end - start + (not partial)
            self._after_partial = partial
            yield Line(offset, self.position, chunk[start:end], partial)
            start = end + (not partial)

    def _name(self, beginning: bytes) -> Identity:
        first = beginning[:_FINGERPRINT_BYTES_MAX]
        newline = first.find(b"\n")
        first = first[: newline + 1] if newline >= 0 else first
        return Identity(*self.file_key, len(first), _digest(first), self._generation)

    def _set_anchor(self) -> None:
        length = min(self.position, _ANCHOR_BYTES_MAX)
        self._anchor = os.pread(self._descriptor, length, self.position - length)

    def _was_cut(self) -> bool:
        """Whether the bytes before the position differ from those that were read."""
        length = len(self._anchor)
        return os.pread(self._descriptor, length, self.position - length) != self._anchor


class Follower:
    """The files under one path, one after another, each read to its end before the next is begun.

    They are read in order, because a restart knows only what was shipped last: :meth:`start` finds
    that file, under its name or a rotated one, and the files after it.
    """

    def __init__(
        self, path: Path, *, clock: Callable[[], float], rotation_grace_seconds: float = 2.0
    ) -> None:
        """``clock`` is the time of day; a renamed file is closed when unwritten for the grace."""
        self.path = path
        self._clock = clock
        self._grace_seconds = rotation_grace_seconds
        self._tails: list[Tail] = []
        self._previous: Identity | None = None

    def start(self, mark: Mark | None) -> None:
        """Begin after the mark, or at the first line of the file if there is none."""
        self.close()
        self._previous = mark.identity if mark else None
        current = self._open(self.path)
        tails = [current] if current else []
        if mark is not None and not (current and current.holds(mark)):
            tails = [*self._copies_from(lambda tail: tail.holds(mark), current), *tails]
        self._tails = tails
        if tails and mark is not None and tails[0].holds(mark):
            tails[0].go_on(mark)
        elif tails:
            tails[0].begin_after(self._previous)

    def close(self) -> None:
        """Close every file."""
        for tail in self._tails:
            tail.close()
        self._tails = []

    def sizes(self) -> dict[tuple[int, int], int]:
        """The current length of each open file, for ``until`` of :meth:`lines`."""
        return {tail.file_key: tail.size() for tail in self._tails}

    def lines(
        self, *, final: bool = False, until: dict[tuple[int, int], int] | None = None
    ) -> Iterator[tuple[Identity, Line]]:
        """The lines that are there now.

        ``final`` also gives unfinished ends of all files; ``until`` limits each file to a size.
        """
        self._notice_new_file()
        while self._tails:
            tail = self._tails[0]
            over = len(self._tails) > 1 and (final or self._left_alone(tail))
            bound = until.get(tail.file_key, 0) if until is not None else None
            for line in tail.lines(final=final or over, until=bound):
                assert tail.identity is not None
                self._previous = tail.identity
                yield tail.identity, line
            if not over:
                return
            tail.close()
            del self._tails[0]
            self._tails[0].begin_after(self._previous)

    def _left_alone(self, tail: Tail) -> bool:
        return self._clock() - tail.written_at() >= self._grace_seconds

    def _notice_new_file(self) -> None:
        try:
            status = os.stat(self.path)
        except OSError:
            return
        key = (status.st_dev, status.st_ino)
        if self._tails and self._tails[-1].file_key == key:
            return
        current = self._open(self.path)
        if current is None:
            return
        if not self._tails:
            current.begin_after(self._previous)
        else:
            # The log may have rotated more than once since the last check.
            last = self._tails[-1]
            copies = self._copies_from(lambda tail: tail.file_key == last.file_key, current)
            for same_as_last in copies[:1]:
                same_as_last.close()
            self._tails += copies[1:]
        self._tails.append(current)

    def _copies_from(self, is_first: Callable[[Tail], bool], current: Tail | None) -> list[Tail]:
        """Rotated copies from the first that ``is_first`` accepts, oldest first; [] if none is."""
        copies: list[Tail] = []
        for path in rotated_copies(self.path):
            tail = self._open(path)
            if tail is None:
                continue
            wanted = copies or is_first(tail)
            if wanted and not (current and current.file_key == tail.file_key):
                copies.append(tail)
            else:
                tail.close()
        return copies

    @staticmethod
    def _open(path: Path) -> Tail | None:
        try:
            return Tail(path)
        except OSError:
            return None


def rotated_copies(path: Path) -> list[Path]:
    """Uncompressed rotated copies of a log, oldest first, by number or date."""
    try:
        copies = [
            entry
            for entry in path.parent.iterdir()
            if entry.name.startswith(path.name)
            and _ROTATED.fullmatch(entry.name[len(path.name) :])
            and entry.is_file()
        ]
    except OSError:
        return []

    def age(copy: Path) -> tuple[int, str]:
        suffix = copy.name[len(path.name) + 1 :]
        # Numbers grow as a copy gets older; dates do not.
        return (-int(suffix), "") if suffix.isdigit() and len(suffix) <= 3 else (0, suffix)

    return sorted(copies, key=age)
