"""The disk as an object that the caller passes in; disk.pxd declares the methods by handle."""

from pelton.core.base.open_files import OpenFiles

def check_regular(path: str) -> None:
    """OSError when the path is not a regular file."""

def open_to_read(path: str) -> int:
    """Open a regular file for reading; return the handle. OSError, also for a pipe or a device."""

def open_files_limit() -> int:
    """How many files a disk keeps open: half of the descriptors of the process."""

class Disk:
    """The machine's disk. Paths may be relative to the working directory; OSError on failure."""

    open_files: OpenFiles
    """The files that stay open between uses."""
    spent: bool
    """Whether the disk is full and the reserve was given up: nothing that adds data may be written."""
    reserve_path: str | None
    def keep_reserve(self, path: str, size: int) -> None:
        """Use a file as the reserve; `refill` makes it. The first write that finds the disk full
        gets its room.
        """
    def refill(self) -> bool:
        """Make the reserve, unless it is there. False: the disk refuses; the caller tries again."""
    def make_dir(self, path: str) -> None: ...
    def make_dir_durable(self, path: str) -> None:
        """make_dir, with the names of what was made on the disk when it returns."""
    def list_dir(self, path: str) -> list[str]:
        """Names in a folder, sorted; an empty list when there is no such folder."""
    def exists(self, path: str) -> bool: ...
    def rename(self, old: str, new: str) -> None: ...
    def link(self, path: str, other: str) -> None:
        """Give a file a second name."""
    def unlink(self, path: str) -> None: ...
    def remove_tree(self, path: str) -> None: ...
    def sync_dir(self, path: str) -> None: ...
    def open_folder(self, path: str) -> int:
        """A handle to sync the names in a folder by."""
    def read_file(self, path: str) -> bytes: ...
    def write_file_atomic(self, path: str, data: bytes, durable: bool = True) -> None:
        """Replace a file as a whole: temporary file, fsync, rename, fsync of the folder.

        Without `durable` there are no syncs: whole or not there, but not for sure on the disk.
        """
    def write_files_atomic(self, paths: list[str], data: bytes, durable: bool = True) -> None:
        """The same for several files of one folder with one content; their syncs go together.

        They are replaced one after the other: after a failure some are as before, each is whole.
        """
    def write_groups(
        self, groups: list[tuple[list[str], bytes, str]], durable: bool = True
    ) -> list[OSError | None]:
        """The same for several groups (paths of one folder, data, parent), with two waits for the disk.

        `parent`: the folder of a new folder, whose name is on the disk before the files are; or "".
        Returns what prevented each group, or None; other groups are written all the same.
        """
    def sync_paths(self, paths: list[str]) -> list[OSError | None]:
        """Sync files and folders, with one wait for the disk. Returns None or an OSError for each."""

class PyDisk(Disk):
    """Forwards every verb to a Python object: open(path, create) -> handle, close(handle),
    write_at(handle, bytes, offset), read_at(handle, n, offset) -> bytes, sync(handle),
    size(handle), truncate(handle, size); by path make_dir, list_dir, exists, rename, unlink,
    remove_tree, sync_dir. Whole files are made of those.

    With background, syncs of streams are given to the reactor, as on the machine's own disk: its
    `on_sync` does them, whenever it likes; and there is open_folder(path) -> handle.
    """

    def __init__(self, target: object, background: bool = False) -> None: ...
