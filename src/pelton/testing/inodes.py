"""The content of the simulated disk: files, folders, and their changes that are not durable yet.

A file has the bytes that readers see (the page cache), the bytes on the platter, and the writes
between the two. Names change by a journal of atomic changes, of which a rename is one. After a
power cut, any part of the unsynced changes may be on the platter: the worst that POSIX allows, and
worse than any one file system.

The module does not know paths, handles or faults (simulated_disk.py).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator
    from random import Random

SECTOR = 512


class Write(NamedTuple):
    """A write since the last sync; without a piece, a truncation."""

    serial: int
    offset: int
    piece: bytes | None

    def apply(self, data: bytearray) -> None:
        """Do the write."""
        if self.piece is None:
            del data[self.offset :]
            data.extend(bytes(self.offset - len(data)))
        else:
            put(data, self.offset, self.piece)


def put(data: bytearray, offset: int, piece: bytes) -> None:
    """Write a piece; a hole before it has zeros."""
    if offset > len(data):
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(piece)] = piece


class File:
    """One inode: the bytes that readers see, the bytes on the platter, and the writes between."""

    def __init__(self) -> None:
        """An empty file."""
        self.data = bytearray()
        self.durable = bytearray()
        self.dirty: list[Write] = []
        self.dropped = False  # a failed sync has dropped writes that readers still see

    def change(self, serial: int, offset: int, piece: bytes | None) -> None:
        """Write, or truncate, in the page cache."""
        write = Write(serial, offset, piece)
        write.apply(self.data)
        self.dirty.append(write)

    def sync(self, upto: int) -> None:
        """Bring the writes up to a serial to the platter."""
        while self.dirty and self.dirty[0].serial <= upto:
            self.dirty.pop(0).apply(self.durable)

    def fail_sync(self, upto: int, random: Random | None) -> None:
        """Fail a sync: its pages count as clean, whether they reached the platter or not."""
        for write in self.dirty:
            if write.serial <= upto and random is not None and random.random() < 0.5:
                write.apply(self.durable)
        self.dirty = [write for write in self.dirty if write.serial > upto]
        self.dropped = True

    def forget_failure(self, serial: int) -> None:
        """Make the writes that a failed sync has dropped pending again.

        The process has ended, and the next process to open the file gets no error.
        """
        if self.dropped:
            self.dirty = [Write(serial, len(self.data), None), Write(serial, 0, bytes(self.data))]
            self.dropped = False

    def lose_power(self, random: Random | None, counts: Counter[str], reorders: bool) -> None:
        """Bring some of the unsynced writes to the platter, some of them in part; without `random`,
        none.
        """
        if random is not None and self.dirty:
            styles = ["none", "all", "first", "first", "any", "any"] if reorders else ["first"]
            self._some_made_it(random.choice(styles), random, counts)
        elif self.dirty:
            counts["writes lost"] += len(self.dirty)
        self.dirty = []
        self.dropped = False
        self.data = bytearray(self.durable)

    def _some_made_it(self, style: str, random: Random, counts: Counter[str]) -> None:
        kept = {"none": 0, "all": len(self.dirty)}.get(style, random.randint(0, len(self.dirty)))
        end = max((w.offset + len(w.piece) for w in self.dirty if w.piece), default=0)
        later = False
        for number, write in enumerate(self.dirty):
            fate = random.random()
            if number < kept if style != "any" else fate < 0.4:
                write.apply(self.durable)
                if later:
                    counts["writes reordered"] += 1
            elif write.piece and (number == kept if style == "first" else style == "any"):
                tear(self.durable, write.offset, write.piece, random, style == "any")
                counts["writes torn"] += 1
                later = True
            else:
                counts["writes lost"] += 1
                later = True
        if style in ("none", "any") and end > len(self.durable) and random.random() < 0.3:
            self.durable.extend(bytes(end - len(self.durable)))
            counts["files grown with zeros"] += 1


def tear(data: bytearray, offset: int, piece: bytes, random: Random, sectors: bool) -> None:
    """Bring a part of a write to the platter: up to any byte, or any of its sectors."""
    if not sectors or random.random() < 0.5:
        put(data, offset, piece[: random.randint(0, len(piece))])
        return
    cuts = [0, *range(SECTOR - offset % SECTOR, len(piece), SECTOR), len(piece)]
    for start, end in itertools.pairwise(cuts):
        if random.random() < 0.5:
            put(data, offset + start, piece[start:end])


class Folder:
    """A folder: the names that readers see, and the names on the platter."""

    def __init__(self) -> None:
        """An empty folder."""
        self.names: dict[str, File | Folder] = {}
        self.durable: dict[str, File | Folder] = {}

    def walk(self, path: str = "") -> Iterator[tuple[str, File | Folder]]:
        """Yield all files and folders below, with their paths."""
        for name, node in self.names.items():
            yield path + name, node
            if isinstance(node, Folder):
                yield from node.walk(f"{path}{name}/")


class Entry(NamedTuple):
    """A change of one name."""

    folder: Folder
    name: str
    node: File | Folder | None  # the new node of the name; None: the name is removed

    @property
    def key(self) -> tuple[int, str]:
        """The name that changes, as a key."""
        return id(self.folder), self.name

    def apply(self, names: dict[str, File | Folder]) -> None:
        """Change the name."""
        if self.node is None:
            names.pop(self.name, None)
        else:
            names[self.name] = self.node


class Change(NamedTuple):
    """Changes of names that take place together or not at all."""

    serial: int
    entries: tuple[Entry, ...]


class Journal:
    """The changes of names that no sync of a folder has made durable."""

    def __init__(self) -> None:
        """Nothing waits."""
        self.changes: list[Change] = []

    def change(self, serial: int, *entries: Entry) -> None:
        """Change names for readers, all at once."""
        for entry in entries:
            entry.apply(entry.folder.names)
        self.changes.append(Change(serial, entries))

    def sync(self, folder: Folder, upto: int) -> None:
        """Make the changes in a folder durable, with the earlier changes of the same names."""
        keys: set[tuple[int, str]] = set()
        chosen: list[Change] = []
        for change in reversed(self.changes):
            for entry in change.entries:
                here = entry.folder is folder and change.serial <= upto
                if here or (keys and entry.key in keys):
                    keys.update(each.key for each in change.entries)
                    chosen.append(change)
                    break
        if chosen:
            durable = {id(change) for change in chosen}
            self.changes = [change for change in self.changes if id(change) not in durable]
        for change in reversed(chosen):
            make_durable(change)

    def lose_power(self, random: Random | None, counts: Counter[str]) -> None:
        """Keep or lose each change; a change is lost when an earlier one of the same name is."""
        likely = random.choice([0.0, 0.5, 0.9, 1.0]) if random is not None else 0.0
        lost: set[tuple[int, str]] = set()
        for change in self.changes:
            keys = [entry.key for entry in change.entries]
            if random is None or random.random() >= likely or not lost.isdisjoint(keys):
                lost.update(keys)
                kind = (
                    "renames"
                    if len(keys) > 1
                    else "creates"
                    if change.entries[0].node
                    else "unlinks"
                )
                counts[f"{kind} lost"] += 1
            else:
                make_durable(change)
        self.changes = []


def make_durable(change: Change) -> None:
    """Bring a change of names to the platter."""
    for entry in change.entries:
        entry.apply(entry.folder.durable)
