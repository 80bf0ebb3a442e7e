"""Disks for who must not write: one that refuses to, and one that keeps what is written to itself."""

from penstock.core.disk import Disk

class ReadOnlyDisk(Disk):
    """The machine's disk, for reading: whatever would change something is refused (OSError EROFS)."""

    def is_dir(self, path: str) -> bool: ...
    def facts(self, path: str) -> tuple[int, int, int, int]:
        """(inode, size, time of the last change of bytes, and of anything, in ns); OSError."""
    def hold(self, path: str) -> bool:
        """From now on the folder is seen as it is at one moment of this call; False: there is none.

        OSError EBUSY when its names change faster than they can be opened.
        """
    def release(self, path: str) -> None:
        """See the folder as it is again."""

class OverlayDisk(Disk):
    """Another disk, with what is written, renamed and removed kept in memory."""

    def __init__(self, base: Disk) -> None: ...
    def changes(self) -> dict[str, bytes | None]:
        """path -> what it would hold; None: it would be removed."""
