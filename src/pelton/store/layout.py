"""The folders of a store.

    <store>/jetstream/<account>/streams/<stream>            engine/files/files has its files
    <store>/domain_<domain>/jetstream/...                   a second server of that JetStream domain

The module knows names and folders, and not the content of files.
"""

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pelton.core.base.readonly_disk import OverlayDisk, ReadOnlyDisk
from pelton.core.log.store_lock import NAME as LOCK
from pelton.core.log.store_lock import owner_of
from pelton.errors import PeltonError

if TYPE_CHECKING:
    from pelton.core.base.disk import Disk
    from pelton.vault import StreamCipher, Vault

_LEVELS_MOST, _FOLDERS_MOST = 3, 2000
_ESCAPED = re.compile(rb"%([0-9A-F]{2})")


class StoreError(PeltonError):
    """A request that is not possible; str() has the reason."""


class NoStoreError(StoreError):
    """There is no store in the folder or below it."""


@dataclass(frozen=True)
class StreamFolder:
    """The folder of one stream; `name` comes from the folder's name, and meta.json confirms it."""

    domain: str
    account: str
    name: str
    folder: str
    root: str  # the root of the store or of its domain
    vault: "Vault | None" = field(default=None, repr=False, compare=False)

    def cipher(self, disk: "Disk") -> "StreamCipher | None":
        """Return the stream's data keys; None: the stream is not encrypted, or no key is
        configured. StoreError: the key does not open the stream.
        """
        if self.vault is None:
            return None
        from pelton.engine.files.metadata_files import LockedError, MetadataFiles

        small = MetadataFiles(OverlayDisk(disk), self.folder, self.vault)
        try:
            small.unlock("meta.json")
        except LockedError as error:
            raise StoreError(f"{self.folder}: {error}") from None
        return small.cipher

    def numbered(self, disk: "Disk") -> bool:
        """Return whether the messages come with their sequences: the stream is a mirror. False when
        its configuration cannot be read.
        """
        from pelton.engine.files.files import BadFileError, StreamFiles

        files = StreamFiles(OverlayDisk(disk), self.folder, self.vault)
        try:
            meta = files.read(lambda problem: None)
        except (BadFileError, OSError):
            return False
        return meta is not None and meta.config.mirror is not None

    @property
    def log_folder(self) -> str:
        """The folder of the messages."""
        return f"{self.folder}/log"

    @property
    def consumers_folder(self) -> str:
        """The folder of the consumers."""
        return f"{self.folder}/consumers"

    @property
    def label(self) -> str:
        """`account/stream`, with the domain in front if there is one."""
        return "/".join(part for part in (self.domain, self.account, self.name) if part)


@dataclass(frozen=True)
class Store:
    """A store folder and the streams in it."""

    path: str
    roots: list[tuple[str, str]]  # domain, folder
    streams: list[StreamFolder]

    def owners(self) -> dict[str, int]:
        """Return the process id of the running server (0: unknown) by each folder that it has
        locked.
        """
        found = {root: owner_of(root) for _, root in self.roots}
        return {root: pid for root, pid in found.items() if pid is not None}

    def chosen(self, wanted: tuple[str, ...]) -> list[StreamFolder]:
        """Return the streams of these names: `stream`, `account/stream` or `domain/account/stream`;
        all when no name is given. StoreError: a name has no stream.
        """
        if not wanted:
            return self.streams
        found = []
        for name in wanted:
            matching = [each for each in self.streams if name in _names(each)]
            if not matching:
                have = ", ".join(each.label for each in self.streams) or "none"
                raise StoreError(f"no stream {name} in {self.path}; there are: {have}")
            found += [each for each in matching if each not in found]
        return found

    def one(self, wanted: str) -> StreamFolder:
        """Return the stream of a name. StoreError: there is none, or more than one."""
        found = self.chosen((wanted,))
        if len(found) > 1:
            several = ", ".join(each.label for each in found)
            raise StoreError(f"{wanted} names more than one stream: {several}")
        return found[0]


def find(disk: ReadOnlyDisk, path: str, vault: "Vault | None" = None) -> Store:
    """Return the streams of a store folder, or of the only store below a folder. NoStoreError: there
    is no store; StoreError: more than one. `vault`: the keys of an encrypted store.
    """
    path = path.rstrip("/") or "/"
    if not disk.is_dir(path):
        raise NoStoreError(f"folder {path} does not exist")
    roots = _roots(disk, path)
    if not roots:
        path = _below(disk, path)
        roots = _roots(disk, path)
    streams = []
    for domain, root in roots:
        for account in accounts_in(disk, root):
            inner = f"{root}/jetstream/{account}/streams"
            for name in disk.list_dir(inner):
                folder = f"{inner}/{name}"
                if disk.exists(f"{folder}/meta.inf"):
                    raise StoreError(f"{path} contains streams of a nats-server")
                if disk.is_dir(folder):
                    names = domain, plain_name(account), plain_name(name)
                    streams.append(StreamFolder(*names, folder, root, vault))
    return Store(path, roots, streams)


def is_store(disk: ReadOnlyDisk, path: str) -> bool:
    """Return whether a folder is a store, or has one below it."""
    return bool(_roots(disk, path) or stores_below(disk, path))


def check_place(disk: ReadOnlyDisk, path: str) -> None:
    """Check that a store may be made in a folder. StoreError: it would be a second one, around or
    inside another store.
    """
    path = path.rstrip("/") or "/"
    if not disk.is_dir(path) or _roots(disk, path):
        return
    around, _, name = path.rpartition("/")
    others = stores_below(disk, path)
    if name == "jetstream" and around and _is_root(disk, around):
        others.insert(0, around)
    if others:
        raise StoreError(f"{path} is not the store, but {others[0]} is one; give that folder")


def stores_below(disk: ReadOnlyDisk, path: str) -> list[str]:
    """Return the store folders below a folder: not deeper than `_LEVELS_MOST`, and of the first
    `_FOLDERS_MOST` folders.
    """
    found: list[str] = []
    level, left = [path], _FOLDERS_MOST
    for _ in range(_LEVELS_MOST):
        inner: list[str] = []
        for folder in level:
            for each in _folders(disk, folder):
                left -= 1
                if left < 0:
                    return found
                (found if _roots(disk, each) else inner).append(each)
        level = inner
    return found


def _below(disk: ReadOnlyDisk, path: str) -> str:
    """Return the only store below a folder. NoStoreError: there is none; StoreError: more than one."""
    found = stores_below(disk, path)
    if not found:
        raise NoStoreError(f"{path} is not a store, and there is none below it")
    if len(found) > 1:
        raise StoreError(
            f"there are {len(found)} stores below {path}: {', '.join(found)}; give one"
        )
    return found[0]


def _folders(disk: ReadOnlyDisk, folder: str) -> list[str]:
    """Return the folders in a folder; none if it cannot be read."""
    try:
        names = disk.list_dir(folder)
    except OSError:
        return []
    paths = (f"{folder.rstrip('/')}/{name}" for name in sorted(names))
    return [each for each in paths if disk.is_dir(each)]


def _roots(disk: ReadOnlyDisk, path: str) -> list[tuple[str, str]]:
    """Return the roots of a store folder with their domains; none if it is not one."""
    roots = [("", path)] if _is_root(disk, path) else []
    return roots + [
        (each.rpartition("/domain_")[2], each)
        for each in _folders(disk, path)
        if each.rpartition("/")[2].startswith("domain_") and _is_root(disk, each)
    ]


def _is_root(disk: ReadOnlyDisk, folder: str) -> bool:
    """Return whether a server has stored here: a folder `jetstream` alone may be anything."""
    inner = f"{folder}/jetstream"
    if not disk.is_dir(inner):
        return False
    locked = disk.exists(f"{folder}/{LOCK}")
    return locked or any(disk.is_dir(f"{each}/streams") for each in _folders(disk, inner))


def accounts_in(disk: ReadOnlyDisk, root: str) -> list[str]:
    """Return the folders of a store's accounts; files among them are ignored."""
    folder = f"{root}/jetstream"
    return [name for name in disk.list_dir(folder) if disk.is_dir(f"{folder}/{name}")]


def plain_name(name: str) -> str:
    """Return the name that a file name stands for (engine/files/files.file_name); a shortened one stays
    as it is.
    """
    data = _ESCAPED.sub(
        lambda found: bytes([int(found[1], 16)]), name.encode("utf-8", "surrogateescape")
    )
    return data.decode("utf-8", "backslashreplace")


def _names(place: StreamFolder) -> tuple[str, ...]:
    return place.name, f"{place.account}/{place.name}", place.label
