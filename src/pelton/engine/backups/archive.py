"""Tar archives in pieces: a backup is a sequence of tar entries.

    entry    = head of 512 bytes, content, zeros up to a multiple of 512
    archive  = entry*, 1024 zeros

No function holds a whole file in memory. Extended (PAX) entries carry a path or a size that does
not fit into a head. The module does not know what the files mean and does not touch the disk: the
reader returns names and bytes, and the caller decides whether to trust them.
"""

import tarfile
from collections.abc import Iterator

from msgspec import Struct

BLOCK = tarfile.BLOCKSIZE
END = bytes(2 * BLOCK)
_EXTENSION_MAX_BYTES = 1 << 20
_NAME_MAX_BYTES = 4096
_EXTENSION_TYPES = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)


class ArchiveError(Exception):
    """The input is no archive, or has entries that a backup does not have; str() has the reason."""


class Entry(Struct, frozen=True):
    """The start of a file."""

    name: str
    size: int


class Piece(Struct, frozen=True):
    """Bytes of the file of the last `Entry`; `last`: the file ends with these bytes."""

    data: memoryview
    last: bool


def head(name: str, size: int, mtime_ns: int) -> bytes:
    """Return the head of a file's entry."""
    info = tarfile.TarInfo(name)
    info.size = size
    info.mode = 0o600
    info.mtime = mtime_ns // 1_000_000_000
    info.uname = info.gname = "nats"
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def padding(size: int) -> bytes:
    """Return the padding behind a file's content."""
    return bytes(-size % BLOCK)


class Reader:
    """Reads an archive in pieces of any size."""

    def __init__(self) -> None:
        """Start at the beginning of an archive."""
        self._held = b""  # received bytes that are too few for the next step
        self._left = 0  # bytes of the current file that are still to come
        self._padding = 0
        # the content of an extended entry while it arrives
        self._extension: bytearray | None = None
        self._said: dict[str, str] = {}  # the values of the extended entry for the next file
        self.ended = False  # the end mark was read; bytes behind it are ignored

    def feed(self, data: bytes) -> Iterator[Entry | Piece]:
        """Return the files and their bytes in order. Each piece is valid until the next one is
        read.

        ArchiveError: the input is no archive, or has an entry that is not a file.
        """
        view = memoryview(self._held + data if self._held else data)
        self._held = b""
        while view and not self.ended:
            if self._left:
                part, view = view[: self._left], view[self._left :]
                self._left -= len(part)
                if self._extension is None:
                    yield Piece(part, last=not self._left)
                    continue
                self._extension += part
                if not self._left:
                    self._extended(bytes(self._extension))
                    self._extension = None
                continue
            if self._padding:
                skipped = min(self._padding, len(view))
                self._padding -= skipped
                view = view[skipped:]
                continue
            if len(view) < BLOCK:
                self._held = bytes(view)
                return
            block, view = bytes(view[:BLOCK]), view[BLOCK:]
            if block == bytes(BLOCK):
                self.ended = True
                return
            entry = self._begin(block)
            if entry is not None:
                yield entry
                if not entry.size:
                    yield Piece(memoryview(b""), last=True)

    def _begin(self, block: bytes) -> Entry | None:
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise ArchiveError(f"archive/tar: invalid tar header: {error}") from None
        if info.size < 0:
            raise ArchiveError("archive/tar: invalid tar header: a size is negative")
        self._left, self._padding = info.size, -info.size % BLOCK
        if info.type in _EXTENSION_TYPES:
            if info.size > _EXTENSION_MAX_BYTES:
                raise ArchiveError("archive/tar: an extended header is too long")
            self._extension = bytearray()
            if not info.size:
                self._extension = None
            return None
        name, size = self._said.get("path", info.name), info.size
        if "size" in self._said:
            size = _number(self._said["size"])
            self._left, self._padding = size, -size % BLOCK
        self._said = {}
        if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise ArchiveError("unexpected content")
        return Entry(name, size)

    def _extended(self, data: bytes) -> None:
        """Parse records `<length> <key>=<value>` with a line end; the length is that of the whole
        record.
        """
        while data:
            text, blank, _ = data.partition(b" ")
            length = _number(text.decode("ascii", "replace")) if blank and len(text) < 10 else 0
            record = data[:length]
            if not record.endswith(b"\n") or b"=" not in record or len(record) != length:
                raise ArchiveError(
                    "archive/tar: invalid tar header: a record of an extended header is not valid"
                )
            key, _, value = record[len(text) + 1 : -1].partition(b"=")
            if key in (b"path", b"size"):  # the other keys are not used
                if len(value) > _NAME_MAX_BYTES:
                    raise ArchiveError("archive/tar: invalid tar header: a name is too long")
                self._said[key.decode()] = value.decode("utf-8", "surrogateescape")
            data = data[length:]


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise ArchiveError("archive/tar: invalid tar header: a number is not valid")
    return int(text)
