"""Disks for who must not write: one that refuses to, and one that keeps what is written to itself."""

from collections.abc import Callable

from penstock.core.base.disk import Disk

class ReadOnlyDisk(Disk):
    """The machine's disk, for reading: whatever would change something is refused (OSError EROFS)."""

    def is_dir(self, path: str) -> bool: ...
    def is_file(self, path: str) -> bool:
        """Whether it is a regular file, or was one when its folder was held."""
    def facts(self, path: str) -> tuple[int, int, int, int]:
        """(inode, size, time of the last change of bytes, and of anything, in ns); OSError."""
    def hold(self, path: str) -> bool:
        """From now on the folder is seen as it is at one moment of this call; False: there is none.

        OSError EBUSY when its names change faster than they can be opened.
        """
    def redirect(self, path: str, other: str) -> None:
        """A file of a held folder is read from another one from now on; OSError."""
    def release(self, path: str) -> None:
        """See the folder as it is again."""

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
