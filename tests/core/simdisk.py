"""A disk in memory that forgets what was not synced, may tear a write, fills up or fails as told.

A file is an inode with its durable bytes and the writes since its last sync; a folder's names
become durable with sync_dir.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random


class Inode:
    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = b""
        self.pending: list[tuple[int, bytes]] = []

    def settle(self) -> None:
        self.durable = bytes(self.data)
        self.pending = []


def apply(data: bytearray, offset: int, piece: bytes) -> None:
    if offset > len(data):
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(piece)] = piece


class SimDisk:
    def __init__(self, room: int | None = None) -> None:
        self.names: dict[str, Inode] = {}
        self.durable_names: dict[str, Inode] = {}
        self.folders: set[str] = set()
        self.handles: dict[int, Inode] = {}
        self.next_handle = 3
        self.room = room
        self.fail_write = 0
        self.fail_sync = 0
        self.fail_read = 0
        self.syncs = 0

    # --- the verbs -------------------------------------------------------------------------------

    def open(self, path: str, create: bool) -> int:
        if path not in self.names:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.names[path] = Inode()
        self.next_handle += 1
        self.handles[self.next_handle] = self.names[path]
        return self.next_handle

    def close(self, handle: int) -> None:
        del self.handles[handle]

    def write_at(self, handle: int, data: bytes, offset: int) -> None:
        inode = self.handles[handle]
        if self.fail_write:
            raise OSError(self.fail_write, "write")
        if self.room is not None:
            used = sum(len(i.data) for i in self.names.values())
            more = max(offset + len(data) - len(inode.data), 0)
            if used + more > self.room:
                # As much as fits is written, like the machine's disk does.
                fits = max(len(data) - (used + more - self.room), 0)
                apply(inode.data, offset, data[:fits])
                inode.pending.append((offset, data[:fits]))
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        apply(inode.data, offset, data)
        inode.pending.append((offset, data))

    def read_at(self, handle: int, n: int, offset: int) -> bytes:
        if self.fail_read:
            raise OSError(self.fail_read, "read")
        return bytes(self.handles[handle].data[offset : offset + n])

    def sync(self, handle: int) -> None:
        if self.fail_sync:
            raise OSError(self.fail_sync, "sync")
        self.syncs += 1
        self.handles[handle].settle()

    def size(self, handle: int) -> int:
        return len(self.handles[handle].data)

    def truncate(self, handle: int, size: int) -> None:
        inode = self.handles[handle]
        del inode.data[size:]
        inode.data.extend(bytes(size - len(inode.data)))
        inode.pending.append((-size, b""))

    def make_dir(self, path: str) -> None:
        self.folders.add(path)

    def list_dir(self, path: str) -> list[str]:
        return [name[len(path) + 1 :] for name in self.names if name.rpartition("/")[0] == path]

    def exists(self, path: str) -> bool:
        return path in self.names or path in self.folders

    def rename(self, old: str, new: str) -> None:
        self.names[new] = self.names.pop(old)

    def link(self, path: str, other: str) -> None:
        self.names[other] = self.names[path]

    def unlink(self, path: str) -> None:
        self.names.pop(path, None)

    def remove_tree(self, path: str) -> None:
        self.names = {n: i for n, i in self.names.items() if not n.startswith(path + "/")}
        self.folders.discard(path)

    def sync_dir(self, path: str) -> None:
        here = {n: i for n, i in self.names.items() if n.rpartition("/")[0] == path}
        there = {n: i for n, i in self.durable_names.items() if n.rpartition("/")[0] != path}
        self.durable_names = there | here

    # --- what happens to it ----------------------------------------------------------------------

    def crash(self, pick: random.Random | None = None) -> None:
        """Power goes: unsynced names and bytes are lost.

        With `pick`, some of the unsynced writes made it, and one of them is torn.
        """
        self.names = dict(self.durable_names)
        self.handles = {}
        self.fail_write = self.fail_sync = self.fail_read = 0
        for inode in self.names.values():
            data = bytearray(inode.durable)
            if pick is not None and inode.pending:
                kept = pick.randint(0, len(inode.pending))
                for offset, piece in inode.pending[:kept]:
                    if offset < 0:
                        del data[-offset:]
                    else:
                        apply(data, offset, piece)
                if kept < len(inode.pending) and inode.pending[kept][0] >= 0:
                    offset, piece = inode.pending[kept]
                    apply(data, offset, piece[: pick.randint(0, len(piece))])
            inode.data = data
            inode.settle()
