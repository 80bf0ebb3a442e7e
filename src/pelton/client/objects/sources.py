"""Contents to make objects from, which are read in chunks, and files that objects are written to.

``MemorySource`` has its bytes, ``FileSource`` reads and may block, ``PieceSource`` is given pieces by its caller:
``aio/objecttransfers.py`` reads each in its own way.
"""

from __future__ import annotations

import errno
import inspect
import io
import os
import stat
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import IO, Any, Protocol, TypeAlias

from ..base.arguments import refuse

Chunk: TypeAlias = bytes | memoryview
Progress: TypeAlias = Callable[[int, int | None], object]
"""Called with the bytes that are done, and the total or None when it is not known."""


class AsyncReader(Protocol):
    """A reader of asyncio, such as ``asyncio.StreamReader``."""

    def read(self, size: int, /) -> Awaitable[bytes]:
        """At most ``size`` bytes; b"" at the end."""


Content: TypeAlias = (
    bytes
    | bytearray
    | memoryview
    | os.PathLike[str]
    | IO[bytes]
    | Iterable[bytes]
    | AsyncIterable[bytes]
    | AsyncReader
)
"""What an object can be made from."""
Target: TypeAlias = str | os.PathLike[str] | IO[bytes]
"""Where an object can be written to."""

READ_BYTES = 1024 * 1024
"""About how much is read from a file at once."""
_END = object()


class MemorySource:
    """Bytes in memory; chunks are views of them."""

    def __init__(self, view: memoryview, size: int) -> None:
        """Copies nothing. Chunks have ``size`` bytes, the last one may be shorter."""
        self.total = len(view)
        self._view = view
        self._size = size
        self._position = 0

    def read(self) -> list[Chunk]:
        """The next chunks; empty at the end."""
        begin = self._position
        count = max(1, READ_BYTES // self._size)
        self._position = min(len(self._view), begin + count * self._size)
        return [
            self._view[at : min(at + self._size, self._position)]
            for at in range(begin, self._position, self._size)
        ]


class FileSource:
    """A binary file that is open, or one to open; ``open`` and ``read`` may block."""

    def __init__(self, file: Any, size: int, *, path: os.PathLike[str] | None = None) -> None:
        """Reads from the file's present position; ``path``: open this one instead."""
        self.total: int | None = None
        self._file = file
        self._size = size
        self._path = path

    @property
    def finishes(self) -> bool:
        """Whether a read ends soon: one from a pipe may block for ever."""
        return size_left(self._file) is not None

    def open(self) -> None:
        """Open the file, and learn its size if it is a regular one; OSError."""
        if self._path is not None:
            self._file = open(self._path, "rb")  # noqa: SIM115  # ``close`` follows
        self.total = size_left(self._file)

    def read(self) -> list[Chunk]:
        """The next chunks, about READ_BYTES; empty at the end."""
        chunks: list[Chunk] = []
        for _ in range(max(1, READ_BYTES // self._size)):
            chunk = self._one()
            if chunk:
                chunks.append(chunk)
            if len(chunk) < self._size:
                break
        return chunks

    def _one(self) -> bytes:
        parts: list[bytes] = []
        left = self._size
        while left:
            # A raw file or a pipe may return less than is asked for, before its end.
            part = self._file.read(left)
            if part is None:
                raise BlockingIOError("the file to store is in non-blocking mode and has no bytes")
            if isinstance(part, str):
                raise TypeError("the file to store is open as text: open it in binary mode")
            if not part:
                break
            parts.append(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Close the file if this object opened it."""
        if self._path is not None and self._file is not None:
            self._file.close()


class PieceSource:
    """Pieces of any size, from an iterator or from awaitables, which the caller takes and adds."""

    total = None

    def __init__(
        self, next_piece: Callable[[], Any], size: int, *, awaited: bool, ends_empty: bool = False
    ) -> None:
        """``next_piece`` returns the next piece, or with ``awaited`` its awaitable.

        ``ends_empty``: an empty piece is the end, as it is for readers.
        """
        self.next_piece = next_piece
        self.awaited = awaited
        self._ends_empty = ends_empty
        self._size = size
        self._parts: list[memoryview] = []
        self._length = 0
        self._over = False

    @property
    def wants_more(self) -> bool:
        """Whether a chunk is not complete yet."""
        return self._length < self._size and not self._over

    def add(self, piece: Any) -> None:
        """Take the next piece, or the end."""
        if piece is _END:
            self._over = True
            return
        if isinstance(piece, str):
            raise TypeError("the pieces of an object must be bytes, not text")
        if not isinstance(piece, bytes):
            try:
                piece = bytes(memoryview(piece))  # its owner may fill it again for the next piece
            except TypeError:
                raise TypeError(
                    f"the pieces of an object must be bytes, not {type(piece).__name__}"
                ) from None
        if piece:
            self._parts.append(memoryview(piece))
            self._length += len(piece)
        elif self._ends_empty:
            self._over = True

    def read(self) -> list[Chunk]:
        """The next chunk, or as many as a large piece has; empty at the end."""
        if not self._length:
            return []
        size, length = self._size, self._length
        joined = self._parts[0] if len(self._parts) == 1 else memoryview(b"".join(self._parts))
        whole = length if self._over else length - length % size
        self._parts = [joined[whole:]] if whole < length else []
        self._length = length - whole
        return [joined[at : min(at + size, whole)] for at in range(0, whole, size)]


Source: TypeAlias = MemorySource | FileSource | PieceSource


def make_source(content: Any, size: int) -> Source:
    """The source for what a user gave; TypeError for anything else."""
    if isinstance(content, str):
        raise TypeError(
            "text is no object: give text.encode(), or for the file of that name a pathlib.Path"
        )
    if isinstance(content, os.PathLike):
        return FileSource(None, size, path=content)
    read = getattr(content, "read", None)
    if callable(read):
        if isinstance(content, io.TextIOBase):
            raise TypeError("the file to store is open as text: open it in binary mode")
        # An empty read is the end, as in asyncio.StreamReader.
        if inspect.iscoroutinefunction(read):
            most = max(size, READ_BYTES)
            return PieceSource(lambda: read(most), size, awaited=True, ends_empty=True)
        return FileSource(content, size)
    if isinstance(content, AsyncIterable):
        # With a default: a StopAsyncIteration out of the user's own code must not end the put as if it
        # were complete.
        later = aiter(content)
        return PieceSource(lambda: anext(later, _END), size, awaited=True)
    try:
        # Anything with a buffer, such as an array, counts as its bytes.
        return MemorySource(memoryview(content).cast("B"), size)
    except TypeError:
        if not isinstance(content, Iterable):
            refuse("content", "bytes, a binary file, a Path or an iterator of bytes", content)
    pieces = iter(content)
    return PieceSource(lambda: next(pieces, _END), size, awaited=False)


def size_left(file: Any) -> int | None:
    """The bytes after the file's position; None when it is no regular file, so that it may block for ever."""
    try:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            return None
        return max(0, found.st_size - int(file.tell()))
    # BytesIO and wrappers have no descriptor. They are read in a thread, and may block there as well.
    except (OSError, AttributeError, ValueError, TypeError):
        return None


def write_all(file: Any, chunks: list[bytes]) -> None:
    """Write chunks to a file, also to one that takes less than it is given."""
    for chunk in chunks:
        written = file.write(chunk)
        while written is not None and written < len(chunk):
            chunk = chunk[written:]
            written = file.write(chunk)


class PathTarget:
    """A file that appears under its name when all of it is written, and not before."""

    def __init__(self, path: str | os.PathLike[str], unique: str) -> None:
        """``unique`` makes the name of the temporary file beside it."""
        self.path = os.fspath(path)
        folder, name = os.path.split(self.path)
        # In the same folder, because os.replace cannot cross file systems. Cut: names have 255 bytes at most.
        self._temporary = os.path.join(folder, f".{name[:64]}.{unique}.part")
        self._file: io.BufferedWriter | None = None

    def open(self) -> io.BufferedWriter:
        """Open the temporary file; OSError."""
        if os.path.isdir(self.path):  # told before the object is read
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.path)
        self._file = open(self._temporary, "xb")  # noqa: SIM115  # ``keep`` or ``drop`` follows
        return self._file

    def keep(self) -> None:
        """The object is complete: give the file its name."""
        assert self._file is not None
        # The last bytes are written here, and Windows does not rename an open file.
        self._file.close()
        os.replace(self._temporary, self.path)
        self._file = None

    def drop(self) -> None:
        """The object is not complete: remove the file."""
        if self._file is not None:
            self._file.close()
            os.unlink(self._temporary)
