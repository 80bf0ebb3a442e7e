"""The simulated disk: it does everything that a disk may do to a server.

The target of ``pelton.core.base.disk.PyDisk``, for simulations and for the broker of a test. Until
a sync, writes and names are in memory; in a power cut, any of them may be lost, torn at any byte, or
reach the platter before earlier ones. A call may fail once or for good. A failed sync drops its
writes, and the next sync succeeds, as on Linux. A full disk writes the bytes that fit. `flip` flips a
bit. The caller's `Random` decides between the possible results; without one, everything that can be
lost is lost.

    disk.fail("write", errno.EIO, "*.seg", after=3)   # the fourth write to a segment fails, once
    disk.cut_after(10)                                # the process ends within the tenth call
    disk.crash(random)                                # a power cut
    disk.kill()                                       # the process ends; the page cache stays

The module does not know what the files mean. Inodes and names are in inodes.py.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, NamedTuple

from .inodes import Entry, File, Folder, Journal

if TYPE_CHECKING:
    from random import Random

CHANGES = frozenset(
    ("make_dir", "write", "sync", "rename", "link", "sync_dir")
)  # the calls that `fail_after` counts

VERBS = CHANGES | {"open", "read", "truncate", "unlink", "remove_tree"}
"""The calls of a disk."""


class PowerCut(BaseException):
    """The process ends within this call: no code of the server may catch it."""


class Handle(NamedTuple):
    """An open file or folder."""

    path: str
    node: File | Folder


@dataclass
class Fault:
    """A failing call: verb, pattern of the path, how many calls succeed before, how often it fails."""

    verb: str  # open, write, read, sync, truncate, make_dir, rename, link, unlink, remove_tree, sync_dir
    error: int
    pattern: str = "*"
    after: int = 0
    times: int | None = 1  # None: for ever

    def hits(self, verb: str, path: str) -> bool:
        """Whether this call fails; counts it."""
        if self.verb != verb or self.times == 0 or not fnmatchcase(path, self.pattern):
            return False
        if self.after > 0:
            self.after -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


class SimDisk:
    """The disk; `room` is the maximum of bytes in all files together."""

    def __init__(
        self, room: int | None = None, random: Random | None = None, *, reorders: bool = True
    ) -> None:
        """An empty disk; `random` decides what a failure or a power cut leaves."""
        self.room = room
        self.reorders = reorders  # False: a power cut takes only the last writes of a file
        self.random = random  # decides which part of a failing call is done nevertheless
        self.root = Folder()
        self.journal = Journal()
        self.handles: dict[int, Handle] = {}
        self.next_handle = 3
        self.serial = 0
        self.syncs = 0
        self.calls = 0
        self.counts: Counter[str] = Counter()  # how often each event happened
        self.faults: list[Fault] = []
        self.cut_at: int | None = None  # the number of the call within which the process ends
        self.heal()

    # --- events ----------------------------------------------------------------------------------

    def heal(self) -> None:
        """End all failures of calls."""
        self.faults.clear()
        self.fail_write = self.fail_sync = self.fail_read = (
            0  # an errno: each such call fails with it
        )
        self.fail_after: int | None = None  # so many changing calls succeed, then one fails
        self.broken = False  # whether all changing calls fail

    def fail(
        self, verb: str, error: int, pattern: str = "*", *, after: int = 0, times: int | None = 1
    ) -> None:
        """Let calls of a verb on matching paths fail, after so many successes; `times` None: for
        ever. ValueError for a verb that no disk has.
        """
        if verb not in VERBS:
            raise ValueError(f"a disk has no call {verb!r}, it has {', '.join(sorted(VERBS))}")
        self.faults.append(Fault(verb, error, pattern, after, times))

    def cut_after(self, calls: int) -> None:
        """Let the process end within a call, after so many more calls of any kind."""
        self.cut_at = self.calls + calls

    def crash(self, random: Random | None = None) -> None:
        """Cut the power. With `random`, some unsynced changes are on the disk afterwards; without,
        none.
        """
        self.journal.lose_power(random, self.counts)
        self.root.names = dict(self.root.durable)
        for _, node in self.root.walk():
            if isinstance(node, Folder):
                node.names = dict(node.durable)
            else:
                node.lose_power(random, self.counts, self.reorders)
        self.kill()
        self.counts["power cuts"] += 1

    def kill(self) -> None:
        """End the process: its handles and the pending faults are gone."""
        self.handles.clear()
        self.heal()
        self.cut_at = None

    def flip(self, path: str, at: int, bit: int = 0) -> None:
        """Flip one bit of a file, on the platter and in the page cache."""
        node = self.file(path)
        if at < len(node.data):  # the byte may be behind an end that was cut and not synced
            node.data[at] ^= 1 << bit
        if at < len(node.durable):
            node.durable[at] ^= 1 << bit
        self.counts["bits flipped"] += 1

    @property
    def names(self) -> dict[str, File]:
        """Return all files by their paths."""
        return {path: node for path, node in self.root.walk() if isinstance(node, File)}

    def used(self) -> int:
        """Return the bytes of all files."""
        return sum(len(node.data) for node in self.names.values())

    def file(self, path: str) -> File:
        """The file of a path."""
        node = self._find(path)
        assert isinstance(node, File), path
        return node

    # --- paths -----------------------------------------------------------------------------------

    def _find(self, path: str) -> File | Folder | None:
        node: File | Folder | None = self.root
        for name in path.split("/"):
            if name in ("", "."):
                continue
            if not isinstance(node, Folder):
                return None
            node = node.names.get(name)
        return node

    def _place(self, path: str) -> tuple[Folder, str]:
        """Return the folder of a path, and the last name of the path."""
        head, _, name = path.rstrip("/").rpartition("/")
        folder = self._find(head)
        if not isinstance(folder, Folder):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return folder, name

    def _change(self, *entries: Entry) -> None:
        self.serial += 1
        self.journal.change(self.serial, *entries)

    def _fails(self, verb: str, path: str) -> int:
        """Return the errno with which this call fails; 0: it succeeds."""
        self.calls += 1
        if self.cut_at is not None and self.calls > self.cut_at:
            self.counts["calls cut"] += 1
            raise PowerCut
        for fault in self.faults:
            if fault.hits(verb, path):
                self.counts[f"{verb} failed"] += 1
                return fault.error
        if verb in CHANGES:
            if self.fail_after is not None:
                self.fail_after -= 1
            if self.broken or self.fail_after == -1:
                self.fail_after = None
                return errno.EIO
        return 0

    def _step(self, verb: str, path: str) -> None:
        code = self._fails(verb, path)
        if code:
            raise OSError(code, os.strerror(code), path)

    # --- by handle -------------------------------------------------------------------------------

    def _handle(self, handle: int) -> Handle:
        try:
            return self.handles[handle]
        except KeyError:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None

    def _open_file(self, handle: int) -> tuple[str, File]:
        path, node = self._handle(handle)
        if not isinstance(node, File):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return path, node

    def _new_handle(self, path: str, node: File | Folder) -> int:
        self.next_handle += 1
        self.handles[self.next_handle] = Handle(path, node)
        return self.next_handle

    def open(self, path: str, create: bool) -> int:
        """A handle of a file."""
        self._step("open", path)
        node = self._find(path)
        if node is None and create:
            folder, name = self._place(path)
            node = File()
            self._change(Entry(folder, name, node))
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if isinstance(node, Folder):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return self._new_handle(path, node)

    def open_folder(self, path: str) -> int:
        """A handle of a folder, to sync its names by."""
        self._step("open", path)
        node = self._find(path)
        if not isinstance(node, Folder):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._new_handle(path, node)

    def close(self, handle: int) -> None:
        """Forget a handle."""
        self.handles.pop(handle, None)  # a crashed server still closes its handles

    def write_at(self, handle: int, data: bytes, offset: int) -> None:
        """Write into the page cache; a failing or full disk may take a part."""
        path, node = self._open_file(handle)
        try:
            code = self._fails("write", path) or self.fail_write
        except PowerCut:
            self._write_part(node, data, offset)
            raise
        if code:
            self._write_part(node, data, offset)
            raise OSError(code, os.strerror(code), path)
        if self.room is not None:
            short = self.used() + max(offset + len(data) - len(node.data), 0) - self.room
            if short > 0 and offset + len(data) > len(node.data):
                # as much as fits is written, as on a real disk
                self._put(node, data[: max(len(data) - short, 0)], offset)
                self.counts["writes to a full disk"] += 1
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        self._put(node, data, offset)

    def _put(self, node: File, data: bytes, offset: int) -> None:
        self.serial += 1
        if data:
            node.change(self.serial, offset, data)

    def _write_part(self, node: File, data: bytes, offset: int) -> None:
        if self.random is not None:
            self._put(node, data[: self.random.randint(0, len(data))], offset)

    def read_at(self, handle: int, n: int, offset: int) -> bytes:
        """The bytes in the page cache, as many as there are."""
        path, node = self._open_file(handle)
        self._step("read", path)
        if self.fail_read:
            raise OSError(self.fail_read, os.strerror(self.fail_read), path)
        return bytes(node.data[offset : offset + n])

    def sync(self, handle: int) -> None:
        """Bring the writes of a file, or the names of a folder, to the platter."""
        self.sync_upto(handle, self.serial)

    def sync_upto(self, handle: int, serial: int) -> None:
        """Finish a sync that began when `serial` was the newest change; later changes are not
        covered.
        """
        path, node = self._handle(handle)
        if isinstance(node, Folder):
            self._sync_names(path, node, serial)
            return
        code = self._fails("sync", path) or self.fail_sync
        if code:
            node.fail_sync(serial, self.random)
            raise OSError(code, os.strerror(code), path)
        self.syncs += 1
        node.sync(serial)

    def size(self, handle: int) -> int:
        """The size of a file in bytes."""
        return len(self._open_file(handle)[1].data)

    def truncate(self, handle: int, size: int) -> None:
        """Cut a file, or extend it with zeros."""
        path, node = self._open_file(handle)
        self._step("truncate", path)
        if size != len(node.data):
            self.serial += 1
            node.change(self.serial, size, None)

    # --- by path ---------------------------------------------------------------------------------

    def make_dir(self, path: str) -> None:
        """Create a folder with its parents; each name is a separate change."""
        self._step("make_dir", path)
        folder = self.root
        for name in path.split("/"):
            if name in ("", "."):
                continue
            if name not in folder.names:
                self._change(Entry(folder, name, Folder()))
            node = folder.names[name]
            if not isinstance(node, Folder):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            folder = node

    def list_dir(self, path: str) -> list[str]:
        """The names in a folder; none when there is no folder."""
        node = self._find(path)
        return list(node.names) if isinstance(node, Folder) else []

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder of that name."""
        return self._find(path) is not None

    def rename(self, old: str, new: str) -> None:
        """Rename, replacing a file that was there."""
        self._step("rename", old)
        (source, name), (target, new_name) = self._place(old), self._place(new)
        node, there = source.names.get(name), target.names.get(new_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        if isinstance(there, Folder) and there.names:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), new)
        self._change(Entry(source, name, None), Entry(target, new_name, node))

    def link(self, path: str, other: str) -> None:
        """Give a file a second name."""
        self._step("link", path)
        (source, name), (target, new_name) = self._place(path), self._place(other)
        if name not in source.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if new_name in target.names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), other)
        self._change(Entry(target, new_name, source.names[name]))

    def unlink(self, path: str) -> None:
        """Remove a file; no error when there is none."""
        self._step("unlink", path)
        if self._find(path) is not None:
            self._change(Entry(*self._place(path), None))

    def remove_tree(self, path: str) -> None:
        """Remove a folder with all in it; no error when there is none."""
        self._step("remove_tree", path)
        node = self._find(path)
        if isinstance(node, Folder):
            for name, inner in list(node.names.items()):
                if isinstance(inner, Folder):
                    self.remove_tree(f"{path}/{name}")
                else:
                    self.unlink(f"{path}/{name}")
        if node is not None:
            self._change(Entry(*self._place(path), None))

    def sync_dir(self, path: str) -> None:
        """Bring the names in a folder to the platter."""
        node = self._find(path)
        if not isinstance(node, Folder):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._sync_names(path, node, self.serial)

    def _sync_names(self, path: str, folder: Folder, serial: int) -> None:
        self._step("sync_dir", path)
        self.journal.sync(folder, serial)
