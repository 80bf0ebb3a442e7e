"""The bytes of an archive that a restore keeps in the store until the last chunk has come.

    <folder>/spool.<n>     pieces of 1 MiB, encrypted as the stream's files are; the last one, which is
                           shorter, is in memory

The spool appends bytes and reads them by position. The bytes count against the limits of stored
bytes. The module does not know their meaning.
"""

import contextlib
from collections.abc import Callable

from pelton.core.base.quota import Quota
from pelton.engine.files.metadata_files import MetadataFiles

PIECE_BYTES = 1 << 20


class Spool:
    """The bytes of one restore."""

    def __init__(self, folder: Callable[[], MetadataFiles], quota: Quota) -> None:
        """`folder` creates the folder at its first call; nothing is on the disk before that."""
        self.size = 0
        self._folder = folder
        self._quota = quota
        self._tail = bytearray()
        self._pieces = 0  # how many pieces are on the disk
        self._read = (-1, b"")  # the number and the bytes of the last piece that was read

    @property
    def held_bytes(self) -> int:
        """Bytes of memory in use."""
        return len(self._tail) + len(self._read[1])

    def put(self, data: bytes | memoryview) -> None:
        """Append bytes. OSError."""
        self._tail += data
        self.size += len(data)
        self._quota.add(len(data))
        while len(self._tail) >= PIECE_BYTES:
            piece = bytes(self._tail[:PIECE_BYTES])
            self._folder().write_file_atomic(self._path(self._pieces), piece, durable=False)
            self._pieces += 1
            del self._tail[:PIECE_BYTES]

    def read(self, start: int, size: int) -> bytes:
        """Return `size` bytes from a position on. OSError."""
        parts: list[bytes] = []
        while size:
            piece, at = divmod(start, PIECE_BYTES)
            part = bytes(self._piece(piece)[at : at + size])
            if not part:
                raise ValueError(
                    "a piece of the archive is missing in the store; start the restore again"
                )
            parts.append(part)
            start += len(part)
            size -= len(part)
        return b"".join(parts)

    def _piece(self, number: int) -> bytes | bytearray:
        if number == self._pieces:
            return self._tail
        if self._read[0] != number:
            self._read = number, self._folder().read_file(self._path(number))
        return self._read[1]

    def _path(self, number: int) -> str:
        return f"{self._folder().folder}/spool.{number}"

    def close(self) -> None:
        """Forget all bytes and remove the files, as far as the disk allows."""
        for number in range(self._pieces):
            with contextlib.suppress(OSError):
                self._folder().unlink(self._path(number))
        self._quota.add(-self.size)
        self.size = self._pieces = 0
        self._tail = bytearray()
        self._read = (-1, b"")
