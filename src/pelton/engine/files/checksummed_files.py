"""Configuration files, each with a checksum and a copy.

    <name>         one line of JSON, then a line `crc32c <8 hex digits>` over the first with its end
    <name>.copy    the same

Both are on the disk before the server answers the call that wrote them, except for a create that a
server with `sync_interval` answers before it syncs. The copy is replaced first, so
that a replacement that fails half-way changes nothing. The file is used as long as it is sound; a file
without the second line (edited by hand) is used as it is. A damaged or missing file is restored: by
checksum repair of one flipped bit, otherwise from the other file. The damaged bytes are kept as
`<name>.bad-<n>`.

    the probability that other damage looks like one flipped bit is 8 n in 2^32 for n bytes: 1 in 500,000 at 1 KB

The module does not know what the files mean.
"""

import contextlib
import errno
from collections.abc import Callable
from typing import Protocol, TypeVar

from pelton.core.base.buffer import crc32c_of

COPY = ".copy"
_SUM = b"crc32c"
_MENDED_MAX_BYTES = 1 << 16
T = TypeVar("T")
DeferWrite = Callable[[str, Callable[[], None]], object]
"""Accepts a deferred write: a path, and a call that raises OSError until it succeeds."""


class FileStore(Protocol):
    """The storage of the files: a disk, or a disk that encrypts (engine/files/metadata_files)."""

    def exists(self, path: str) -> bool:
        """Return whether a file of that name exists."""

    def read_file(self, path: str) -> bytes:
        """Return the whole file."""

    def write_file_atomic(self, path: str, data: bytes, durable: bool = True) -> None:
        """Replace the whole file."""

    def write_files_atomic(self, paths: list[str], data: bytes, durable: bool = True) -> None:
        """Replace several files with the same bytes."""

    def unlink(self, path: str) -> None:
        """Remove the file if it exists."""


class BadFileError(Exception):
    """A file exists and is not valid; str() has its path and the reason."""


class DamagedFileError(BadFileError):
    """The bytes of a file are not the written ones."""


def sealed(data: bytes) -> bytes:
    """Return a line with its checksum line behind it."""
    line = data + b"\n"
    return line + b"%s %08x\n" % (_SUM, crc32c_of(line))


def unsealed(path: str, data: bytes) -> bytes:
    """Return the line of a file with a checksum, or the whole of a file without one. Raises
    DamagedFileError.
    """
    line, _, rest = data.partition(b"\n")
    if not rest.startswith(_SUM):
        if not data.strip():
            raise DamagedFileError(f"{path}: damaged: the file is empty")
        return data
    if data != sealed(line):
        raise DamagedFileError(f"{path}: damaged: the checksum in its second line does not match")
    return line


def incomplete(data: bytes) -> bool:
    """Return whether a power cut may have left these bytes of a file that was not synced: its end is
    missing, or zeros are in place of some bytes.
    """
    end = data.rstrip(b"\n")[-len(_SUM) - 9 :]
    return b"\0" in data or not data.endswith(b"\n") or not end.startswith(_SUM + b" ")


def mended(data: bytes) -> bytes | None:
    """Return the bytes of a file after checksum repair of one flipped bit, or None."""
    if len(data) > _MENDED_MAX_BYTES:
        return None
    copy = bytearray(data)
    for at in range(len(copy)):
        for bit in range(8):
            copy[at] ^= 1 << bit
            line, _, rest = bytes(copy).partition(b"\n")
            if rest.startswith(_SUM) and copy == sealed(line):
                return bytes(copy)
            copy[at] ^= 1 << bit
    return None


def write(disk: FileStore, path: str, data: bytes, *, durable: bool = True) -> None:
    """Replace a file and its copy. A write that is not durable must be the first of the file: a
    power cut may leave nothing of it.
    """
    disk.write_files_atomic(both(path), sealed(data), durable)


def both(path: str) -> list[str]:
    """Return the paths of the copy and of the file, in the order in which they are replaced."""
    return [path + COPY, path]


def remove(disk: FileStore, path: str) -> None:
    """Remove a file and its copy. The caller syncs the folder to make the removal durable."""
    disk.unlink(path)
    disk.unlink(path + COPY)


def exists(disk: FileStore, path: str) -> bool:
    """Return whether the file or its copy exists."""
    return disk.exists(path) or disk.exists(path + COPY)


def read(
    disk: FileStore,
    path: str,
    decode: Callable[[str, bytes], T],
    report: Callable[[str], None],
    later: DeferWrite | None = None,
) -> T | None:
    """Read and decode a file; None when it does not exist.

    `decode` gets path and bytes and raises BadFileError. `report` gets a line for each file that
    was restored. When the disk does not accept the restored file, `later` gets a call to repeat
    until it raises no OSError; without `later`, the next read tries again. BadFileError: neither
    the file nor its copy is sound. OSError: the files cannot be read.
    """
    first = _read(disk, path)
    second = _read(disk, path + COPY)
    if first is None and second is None:
        return None
    if first is not None and first == second:
        with contextlib.suppress(DamagedFileError):
            return decode(path, first)
    wrong: BadFileError | None = None
    for at, data in ((path, first), (path + COPY, second)):
        whole, value, problem = _understood(at, data, decode)
        if value is not None and whole is not None:
            bad = [not _sound(at, data, decode) for data in (first, second)]
            try:
                _restore(disk, path, (first, second), bad, whole, report)
            except OSError as error:
                report(f"cannot restore {path} or its copy, one of them is damaged: {error}")
                if later is not None:
                    later(path, lambda: restore(disk, path, decode, report))
            return value
        if problem is not None and not isinstance(problem, DamagedFileError):
            raise problem  # the checksum matches: a later version or a user wrote the file so
        wrong = wrong or problem
    raise wrong or DamagedFileError(f"{path}: the file and its copy are missing")


def restore(
    disk: FileStore, path: str, decode: Callable[[str, bytes], T], report: Callable[[str], None]
) -> None:
    """Restore a file and its copy from the sound one. OSError: the disk does not accept the write."""
    failed: list[tuple[str, Callable[[], None]]] = []
    with contextlib.suppress(BadFileError):
        read(disk, path, decode, lambda _: None, lambda *one: failed.append(one))
    if failed:
        raise OSError(errno.EIO, "cannot restore the file or its copy", path)
    report(f"restored {path} and its copy")


def _read(disk: FileStore, path: str) -> bytes | None:
    return disk.read_file(path) if disk.exists(path) else None


def _understood(
    path: str, data: bytes | None, decode: Callable[[str, bytes], T]
) -> tuple[bytes | None, T | None, BadFileError | None]:
    """Return the sound bytes and their decoded value, or the error."""
    if data is None:
        return None, None, None
    try:
        return data, decode(path, data), None
    except DamagedFileError as error:
        whole = mended(data)
        return (whole, decode(path, whole), None) if whole else (None, None, error)
    except BadFileError as error:
        return None, None, error


def _restore(
    disk: FileStore,
    path: str,
    found: tuple[bytes | None, bytes | None],
    bad: list[bool],
    whole: bytes,
    report: Callable[[str], None],
) -> None:
    """Make the file and its copy equal. OSError.

    When both are sound and differ, an interrupted write left the older one, or a user edited the
    file.
    """
    if found == (whole, whole):
        return
    for at, data, damaged in zip((path, path + COPY), found, bad, strict=True):
        if data == whole:
            continue
        told = ""
        if data is not None and damaged:
            number = 1
            while disk.exists(f"{path}.bad-{number}"):
                number += 1
            disk.write_file_atomic(f"{path}.bad-{number}", data)
            told = (
                f"{at} was damaged and is restored; the damaged file is kept as {path}.bad-{number}"
            )
        elif data is None and at == path:
            told = f"{at} was missing and is restored from its copy"
        disk.write_file_atomic(at, whole)
        if told:
            report(told)


def _sound(path: str, data: bytes | None, decode: Callable[[str, bytes], object]) -> bool:
    try:
        if data is not None:
            decode(path, data)
    except BadFileError:
        return False
    return True
