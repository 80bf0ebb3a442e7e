"""Log files: finding them, telling one file from another, and reading lines from them as they grow.

A path is not a file: logs are renamed and begun again, or truncated and filled again. What is read
belongs to an :class:`Identity`, which stays the same while the file only grows::

    <device>-<inode>-<length>-<digest of the first length bytes>-<generation>

The first bytes are those of the first line, so they do not change when the file grows. The
generation counts the files seen with this device and inode, because an inode may be used again, and
a truncated file may begin with the same line again. NULs before the first line are a hole that a
truncation left under its writer; they belong to no line.

:class:`Tail` reads one file, plain or compressed by gzip. A line is shipped when its newline is
there. Where no more can come (a renamed file, the end of a single run), and for pieces of lines that
are too long for one message, text is shipped without its newline and marked *partial*: later text
continues after it, and no byte is read twice.

Does not know streams or the network, nor which names a rotation gives
(:mod:`pelton.pipeline.logs.rotation`).
"""

from __future__ import annotations

import glob
import gzip
import hashlib
import os
import re
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from pelton.pipeline.logs.rotation import is_left_out

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_PATTERN = "/var/log/**/*.log"
LINE_BYTES_MAX = 512 * 1024
_CHUNK_BYTES = 1024 * 1024
_FINGERPRINT_BYTES_MAX = 1024
_ANCHOR_BYTES_MAX = 256
_COPY_CHECK_BYTES = 64 * 1024
# First bytes of compressed files. Those of bzip2 are printable: a shorter match would refuse a line.
_COMPRESSED = {
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "bzip2": re.compile(rb"BZh[1-9]1AY&SY"),
    "lz4": re.compile(rb"\x04\x22\x4d\x18"),
    "compress": re.compile(rb"\x1f\x9d"),
    "zip": re.compile(rb"PK\x03\x04"),
}
_GZIP = b"\x1f\x8b"

# Device and inode.
FileKey: TypeAlias = "tuple[int, int]"


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
        if name != where and is_left_out(path.name):
            continue
        if not path.is_file() or not os.access(path, os.R_OK):
            continue
        real = path.resolve()
        if not_below is not None and real.is_relative_to(not_below.resolve()):
            continue
        try:
            status = real.stat()
        except OSError:
            continue  # renamed or removed since it was listed
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
    """The position up to which a file was shipped; ``ending`` are the bytes before it."""

    identity: Identity
    next_offset: int
    ending: bytes
    partial: bool


class UnreadableFileError(Exception):
    """The file has no lines that can be read; the text is the reason."""


def _digest(first: bytes) -> str:
    return hashlib.blake2b(first, digest_size=8).hexdigest()


class Tail:
    """One open file and its read position. The descriptor keeps the file when it is renamed.

    Reading raises OSError, and :class:`UnreadableFileError` for compressed files.
    """

    def __init__(self, path: Path) -> None:
        """Open the file at its beginning. Raises OSError."""
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        status = os.fstat(self._descriptor)
        self.file_key = (status.st_dev, status.st_ino)
        self.identity: Identity | None = None
        self.position = 0
        self._gzip: gzip.GzipFile | None = None
        self._first_offset: int | None = None
        self._after_partial = False
        self._anchor = b""

    def close(self) -> None:
        """Close the descriptor."""
        if self._gzip is not None:
            self._gzip.close()
        os.close(self._descriptor)

    def status(self) -> os.stat_result:
        """The status of the open file."""
        return os.fstat(self._descriptor)

    @property
    def compressed(self) -> bool:
        """Whether the file is compressed by gzip. Known after :meth:`first_line`."""
        return self._gzip is not None

    def first_line(self, *, final: bool) -> bytes | None:
        """The first bytes of the file, by which it is known; None while there is no whole line.

        ``final`` takes an unfinished line for a whole one.
        """
        if self._first_offset is None:
            self._first_offset = self._find_first()
        if self._first_offset is None:
            return None
        first = self._read(_FINGERPRINT_BYTES_MAX, self._first_offset)
        newline = first.find(b"\n")
        if newline >= 0:
            return first[: newline + 1]
        return first if first and (final or len(first) == _FINGERPRINT_BYTES_MAX) else None

    def begins_as(self, identity: Identity) -> bool:
        """Whether the first bytes are those of the identity. Call :meth:`first_line` before."""
        offset = self._first_offset or 0
        return _digest(self._read(identity.length, offset)) == identity.digest

    def holds(self, mark: Mark) -> bool:
        """Whether the first bytes and those before the mark are in place, in whatever file."""
        if not self.begins_as(mark.identity):
            return False
        length = len(mark.ending)
        return self._read(length, mark.next_offset - length) == mark.ending

    def is_begun_by(self, other: Tail) -> bool:
        """Whether the last bytes of the other file are here at the same offsets.

        Of compressed files the first bytes are compared, as many as both have.
        """
        if self.compressed or other.compressed:
            ours, theirs = self._read(_COPY_CHECK_BYTES, 0), other._read(_COPY_CHECK_BYTES, 0)
            length = min(len(ours), len(theirs))
            return ours[:length] == theirs[:length]
        size = other.status().st_size
        start = max(0, size - _COPY_CHECK_BYTES)
        wanted = other._read(size - start, start)
        return bool(wanted) and self._read(len(wanted), start) == wanted

    def last_line(self) -> tuple[int, bytes]:
        """The offset after the last newline, and up to 64 KiB before it."""
        size = self.status().st_size
        start = max(0, size - _COPY_CHECK_BYTES)
        text = self._read(size - start, start)
        end = text.rfind(b"\n") + 1
        return start + end, text[:end]

    def begin(self, generation: int, *, final: bool = False) -> None:
        """Read from the first line, as this generation of the device and inode."""
        first = self.first_line(final=final)
        assert first is not None
        self.identity = Identity(*self.file_key, len(first), _digest(first), generation)
        self.position = self._first_offset or 0
        self._after_partial = False
        self._anchor = b""

    def go_on(self, mark: Mark) -> None:
        """Continue after a mark that the file :meth:`holds`."""
        self.identity = mark.identity
        self.position = mark.next_offset
        self._after_partial = mark.partial
        self._set_anchor()

    def was_cut(self) -> bool:
        """Whether the file was truncated: the bytes before the position are not those read."""
        if self._gzip is not None:
            return False
        length = len(self._anchor)
        return os.pread(self._descriptor, length, self.position - length) != self._anchor

    def forget(self) -> None:
        """Begin again as a file that is not known; for one that was cut."""
        self.identity = None
        self.position = 0
        self._first_offset = None
        self._anchor = b""

    def _find_first(self) -> int | None:
        magic = os.pread(self._descriptor, 16, 0)
        for name, start in _COMPRESSED.items():
            if start.match(magic):
                raise UnreadableFileError(f"it is compressed ({name})")
        if magic.startswith(_GZIP):
            source = os.fdopen(self._descriptor, "rb", closefd=False)
            self._gzip = gzip.GzipFile(fileobj=source)
        offset = 0
        if self._gzip is None:
            try:
                offset = os.lseek(self._descriptor, 0, os.SEEK_DATA)
            except OSError:
                return None  # empty, or a hole only
        while chunk := self._read(_CHUNK_BYTES, offset):
            text = chunk.lstrip(b"\0")
            if text:
                return offset + len(chunk) - len(text)
            offset += len(chunk)
        return None

    def _read(self, size: int, offset: int) -> bytes:
        if offset < 0:
            return b""
        if self._gzip is None:
            return os.pread(self._descriptor, size, offset)
        try:
            self._gzip.seek(offset)
            return self._gzip.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise UnreadableFileError(f"gzip: {error}") from error

    def lines(self, *, final: bool = False, until: int | None = None) -> Iterator[Line]:
        """The lines that were not read yet; with ``final`` also the text after the last newline.

        Reading stops at ``until``, if necessary within a line. The file has an identity.
        """
        while True:
            wanted = _CHUNK_BYTES if until is None else min(_CHUNK_BYTES, until - self.position)
            chunk = self._read(wanted, self.position) if wanted > 0 else b""
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
            offset = self.position
            self.position = offset + end - start + (not partial)
            self._after_partial = partial
            yield Line(offset, self.position, chunk[start:end], partial)
            start = end + (not partial)

    def _set_anchor(self) -> None:
        length = min(self.position, _ANCHOR_BYTES_MAX)
        self._anchor = b"" if self._gzip else self._read(length, self.position - length)
