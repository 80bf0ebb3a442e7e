"""The kind of store at a path, and its files under the names that a server's store has.

    <store>/jetstream/...            a store folder; a server may write in it
    <folder>/penstock-backups        backups of a store: the newest, or the one with an id
    <folder>/backup.json + archive   the backup of one stream, as the ``nats`` command writes it; a folder
                                     with such folders, too
    a file NATSARC1...               the archive of one stream alone, also compressed (S2)

A server without accounts has one account. The chosen account of the store takes its place, so that a
client needs no credentials.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pelton.api.archives import MAGIC
from pelton.api.calls import StreamRestoreRequest
from pelton.api.codec import JsonError, decode_request
from pelton.api.streams import StreamConfig, StreamState
from pelton.core.base.disk import Disk
from pelton.core.base.readonly_disk import ReadOnlyDisk
from pelton.core.base.s2 import FrameReader
from pelton.errors import PeltonError
from pelton.store.layout import find as find_store
from pelton.store.manifests import BackupFolder, is_backup

from .mapped import MappedFiles

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pelton.store.layout import Store, StreamFolder

FACTS, ARCHIVE = "backup.json", "stream.tar.s2"
FRAMED = b"\xff\x06\x00\x00S2sTwO"
ACCOUNT = "$G"
TRIES = 10


class NotStoredError(PeltonError):
    """There are no stored streams at a path; str() says what is there."""


@dataclass
class StoredFiles:
    """The files of a store, under ``root``."""

    root: str
    files: MappedFiles
    live: bool = False  # a server writes to them


@dataclass
class Archives:
    """Archives of single streams, which have to be unpacked."""

    streams: list[tuple[StreamRestoreRequest, Path]] = field(default_factory=list)
    time_ns: int = 0  # when the newest was written


def find(
    path: str, *, account: str = "", domain: str = "", backup: str = ""
) -> StoredFiles | Archives:
    """The store at a path. NotStoredError, StoreError: nothing, or not the wanted part."""
    place = path.rstrip("/") or "/"
    if not os.path.exists(place):
        raise NotStoredError(f"{path} does not exist")
    if is_backup(Disk(), place):
        return _from_backup(place, account, domain, backup)
    if backup:
        raise NotStoredError(f"{path} has no backups with ids")
    archives = _archives(Path(place))
    if archives.streams:
        if account or domain:
            raise NotStoredError(f"{path} is a backup of streams, without accounts and domains")
        return archives
    if not os.path.isdir(place):
        raise NotStoredError(f"{path} is neither a store folder nor an archive of a stream")
    return _from_store(find_store(ReadOnlyDisk(), place), account, domain)


# -- stores and their backups -----------------------------------------------------------------------


def _from_store(store: Store, account: str, domain: str) -> StoredFiles:
    root = dict(store.roots).get(domain)
    if root is None and not domain and len(store.roots) == 1:
        domain, root = store.roots[0]
    if root is None:
        have = ", ".join(name or "(none)" for name, _ in store.roots)
        raise NotStoredError(f"{store.path} has streams of the domains {have}; give --domain")
    places = [each for each in store.streams if each.domain == domain]
    chosen = _account(store.path, account, [each.account for each in places])
    live = root in store.owners()
    files = MappedFiles()
    files.add_folder(f"{root}/jetstream/{ACCOUNT}/streams")
    for place in places:
        if place.account == chosen:
            _add(files, place, f"{root}/jetstream/{ACCOUNT}/streams", live)
    return StoredFiles(root, files, live)


def _account(path: str, wanted: str, accounts: Iterable[str]) -> str:
    """The account that is meant: the only one, if none is named. NotStoredError."""
    have = sorted(set(accounts))
    if wanted:
        if wanted not in have:
            raise NotStoredError(f"{path} has no account {wanted}; it has: {_listed(have)}")
        return wanted
    if len(have) > 1:
        raise NotStoredError(f"{path} has streams of the accounts {_listed(have)}; give --account")
    return have[0] if have else ACCOUNT


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"


def _add(files: MappedFiles, place: StreamFolder, above: str, live: bool) -> None:
    """Add the folder of a stream; as it was at one moment, while a server writes in it."""
    name = f"{above}/{os.path.basename(place.folder)}"
    for _ in range(TRIES):
        # consumers first, so that the log has every message that their states name
        there = [
            files.add_all(f"{name}/consumers", place.consumers_folder, hold=live),
            files.add_all(name, place.folder, hold=live),
            files.add_all(f"{name}/log", place.log_folder, hold=live),
        ]
        if not there[1]:  # removed just now
            files.drop(name)
            return
        if not live or _same(files, name, place.folder):
            return
        files.drop(name)
    raise NotStoredError(f"{place.label} changes too fast to be read; try again")


def _same(files: MappedFiles, name: str, folder: str) -> bool:
    """Whether configuration and positions are still those that were added before the messages."""
    disk = Disk()
    for each in ("meta.json", "sources.json"):
        try:
            now = disk.read_file(f"{folder}/{each}")
        except FileNotFoundError:
            now = None
        if now != files.content(f"{name}/{each}"):
            return False
    return True


def _from_backup(path: str, account: str, domain: str, backup: str) -> StoredFiles:
    folder = BackupFolder(Disk(), path)
    folder.open()
    ids = folder.ids()
    if not ids:
        raise NotStoredError(f"{path} has no backup yet")
    manifest = folder.read(backup or ids[-1])
    domains = sorted({each.domain for each in manifest.streams})
    if domain not in domains and not domain and len(domains) == 1:
        domain = domains[0]
    if domains and domain not in domains:
        have = ", ".join(name or "(none)" for name in domains)
        raise NotStoredError(f"{path} has streams of the domains {have}; give --domain")
    found = [each for each in manifest.streams if each.domain == domain]
    chosen = _account(path, account, [each.account for each in found])
    files = MappedFiles()
    above = f"{path}/jetstream/{ACCOUNT}/streams"
    files.add_folder(above)
    for stream in found:
        if stream.account == chosen:
            name = f"{above}/{stream.folder.rpartition('/')[2]}"
            for inner in (name, f"{name}/log", f"{name}/consumers"):
                files.add_folder(inner)
            for file in stream.files:
                files.add_file(f"{name}/{file.path}", folder.object_path(file.sha256))
    return StoredFiles(path, files)


# -- archives of single streams ---------------------------------------------------------------------


def _archives(path: Path) -> Archives:
    found = Archives()
    if path.is_file():
        begins = archive_begins(path)
        if begins == MAGIC:
            name = path.name.partition(".")[0]
            facts = StreamRestoreRequest(
                config=StreamConfig(name=name, subjects=[name]), state=StreamState()
            )
            _found(found, facts, path)
        return found
    folders = [path, *sorted(each for each in path.iterdir() if each.is_dir())]
    for folder in folders:
        if (folder / FACTS).is_file() and (folder / ARCHIVE).is_file():
            _found(found, _facts(folder / FACTS), folder / ARCHIVE)
    return found


def _found(archives: Archives, facts: StreamRestoreRequest, path: Path) -> None:
    archives.streams.append((facts, path))
    archives.time_ns = max(archives.time_ns, path.stat().st_mtime_ns)


def _facts(path: Path) -> StreamRestoreRequest:
    try:
        facts = decode_request(StreamRestoreRequest, path.read_bytes(), strict=False)
    except JsonError as error:
        raise NotStoredError(f"{path}: {error}") from None
    if not facts.config.name:
        raise NotStoredError(f"{path} names no stream")
    return facts


def archive_begins(path: Path) -> bytes:
    """The first bytes of an archive, unpacked if it is compressed; b"" for none."""
    with path.open("rb") as file:
        begins = file.read(1 << 16)
        if not begins.startswith(FRAMED):
            return begins[: len(MAGIC)]
        frames = FrameReader()
        while begins:
            frames.feed(begins)
            try:
                piece = frames.next()
            except ValueError:
                return b""
            if piece:
                return piece[: len(MAGIC)]
            begins = file.read(1 << 16)
    return b""
