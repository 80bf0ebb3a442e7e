"""Disks for readers: `ReadOnlyDisk` refuses writes, `OverlayDisk` keeps writes in memory."""

from collections.abc import Callable

from pelton.core.base.disk import Disk

def hold_once(path: str, names: list[str]) -> dict[str, tuple[int, int]] | None:
    """path -> (handle, size) of all files of a folder but temporary ones; None when a name vanished or was given to
    another file meanwhile. OSError.
    """

class ReadOnlyDisk(Disk):
    """The machine's disk, for reading: it refuses every change (OSError EROFS)."""

    def is_dir(self, path: str) -> bool: ...
    def is_file(self, path: str) -> bool:
        """Whether it is a regular file, or was one when its folder was held."""
    def facts(self, path: str) -> tuple[int, int, int, int]:
        """(inode, size, mtime in ns, ctime in ns); a file that was changed differs in one of them. OSError."""
    def hold(self, path: str) -> bool:
        """Hold the folder as it is at one moment of this call; False: there is no such folder.

        OSError EBUSY when its names change faster than they can be opened.
        """
    def redirect(self, path: str, other: str) -> None:
        """From now on, read a file of a held folder from another file; OSError."""
    def release(self, path: str) -> None:
        """End hold(): read the folder as it is now."""

class OverlayDisk(Disk):
    """Another disk, with what is written, renamed and removed kept in memory."""

    forgotten: set[str]
    """Paths that were written, and not kept."""
    def __init__(
        self, base: Disk, *, forget: str = "", progress: Callable[[int], object] | None = None
    ) -> None:
        """`forget`: files whose names end so are not kept when they are written (as a whole, by renaming).

        `progress` is called with the bytes of each large read.
        """
    def is_dir(self, path: str) -> bool: ...
    def facts(self, path: str) -> tuple[int, int, int, int]:
        """As that of a ReadOnlyDisk, which the base has to be; of what is in memory, the size alone."""
    def patch(self, path: str, start: bytes) -> None:
        """From now on a file of the base begins with these bytes."""
    def read_start(self, path: str, n: int) -> bytes:
        """The first n bytes of a file, or what there is; OSError."""
    def changes(self) -> dict[str, bytes | None]:
        """path -> what it would hold; None: it would be removed."""
