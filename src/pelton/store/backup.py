"""Makes backups of a stopped store, or of a store that a server writes to.

The backup holds a stream's folder at one moment (core/base/readonly_disk), consumers before
messages, and copies the held files. The result is the state that a power cut at that moment would
have left: it has every message that was acknowledged before, and a server that starts on it
recovers as after a power cut. Files that a server can rebuild and files that an earlier start kept
aside are left out; index files of a damaged stream are copied, because they may be the only
evidence of what is missing.

A file with the inode, size and times of the previous backup is not read again, so a sealed segment
is copied once. Messages that are erased during the copy look like damaged records: the file is
copied again until the copy is sound, or two copies have the same damage.
"""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pelton.api.times import format_time
from pelton.core.base.readonly_disk import ReadOnlyDisk
from pelton.core.log.losses import is_segment_name
from pelton.core.log.segment_reader import SegmentReader
from pelton.store.checks import look_held
from pelton.store.describe import configuration, consumer_states
from pelton.store.layout import Store, StoreError, StreamFolder
from pelton.store.manifests import (
    BackedUpFile,
    BackedUpStream,
    BackupFolder,
    BadManifestError,
    Manifest,
)
from pelton.store.reports import LOST, SOUND, UNREADABLE, WORN, StreamReport

Progress = Callable[[int], object]
TRIES = 10
PAUSE_S = 0.02  # wait before another look at a stream that is being created
SETTLED_NS = 2_000_000_000


class _Changed(Exception):
    """A file changed during the copy."""


@dataclass
class _Copy:
    """One backup in progress."""

    disk: ReadOnlyDisk
    target: BackupFolder
    known: dict[str, BackedUpFile]
    began_ns: int
    progress: Progress
    new_bytes: int = 0
    unsound: set[str] = field(default_factory=set)  # hashes of damaged copies
    # label of a stream -> its unreadable parts
    told: dict[str, list[str]] = field(default_factory=dict)


def back_up(
    disk: ReadOnlyDisk,
    store: Store,
    places: list[StreamFolder],
    target: BackupFolder,
    now_ns: int,
    *,
    reread: bool = False,
    progress: Progress = lambda done: None,
    report: Callable[[str], object] = lambda what: None,
) -> Manifest:
    """Add a backup of these streams to a folder that this process has locked.

    `reread`: read also files that look unchanged. `progress` is called with the number of bytes
    done, see `size_of`; `report` with each part of a stream that cannot be read and is not in the
    backup. StoreError, OSError: there is no new backup, and the next one uses the copied files.
    """
    began = format_time(now_ns)
    name = target.free_id(began[:19].replace("-", "").replace(":", "") + "Z")
    copy = _Copy(disk, target, {} if reread else _known(target), now_ns, progress)
    owners = store.owners()
    manifest = Manifest(
        id=name,
        time=began,
        store=store.path,
        live=bool(owners),
        complete=len(places) == len(store.streams),
    )
    for place in places:
        entry = _stream(copy, place, place.root in owners)
        if entry is not None:
            manifest.streams.append(entry)
            for what in copy.told.get(place.label, ()):
                report(what)
    manifest.total_bytes = sum({each.sha256: each.size for each in manifest.files()}.values())
    manifest.new_bytes = copy.new_bytes
    target.write(manifest)
    return manifest


def size_of(disk: ReadOnlyDisk, places: list[StreamFolder]) -> int:
    """Return the bytes of the files that a backup of these streams would have now."""
    total = 0
    for place in places:
        for folder in (place.consumers_folder, place.folder, place.log_folder):
            for path, _, _ in _wanted(disk, place, folder):
                try:
                    total += disk.facts(path)[1]
                except FileNotFoundError:
                    continue
    return total


def _known(target: BackupFolder) -> dict[str, BackedUpFile]:
    """Return the files of the newest backup of each stream, by their path in the store."""
    found: dict[str, BackedUpFile] = {}
    for name in target.ids()[-10:]:
        try:
            manifest = target.read(name)
        except BadManifestError:
            continue
        for stream in manifest.streams:
            for each in stream.files:
                found[f"{stream.domain}/{stream.folder}/{each.path}"] = each
    return found


def _stream(copy: _Copy, place: StreamFolder, live: bool) -> BackedUpStream | None:
    """Copy one stream; None: the stream was deleted meanwhile."""
    # manifests have ASCII names only, like the folders that engine/files/files creates
    if not place.folder.removeprefix(place.root).isascii():
        raise StoreError(f"{place.folder} is not the folder of a stream; move it out of the store")
    for left in reversed(range(TRIES)):
        try:
            then = copy.disk.facts(place.folder)
            entry = _held(copy, place, live)
            same = copy.disk.facts(place.folder) == then
        except FileNotFoundError:
            if not live:
                raise
            if not copy.disk.is_dir(place.folder):
                return None
            continue
        except _Changed:
            continue
        # another stream may have taken the name, or a create is in progress
        if not live or (same and (entry.config is not None or left == 0)):
            return entry
        time.sleep(PAUSE_S)
    raise StoreError(f"{place.label} changes too fast to be backed up; try again")


def _held(copy: _Copy, place: StreamFolder, live: bool) -> BackedUpStream:
    disk = copy.disk
    folders = (place.consumers_folder, place.folder, place.log_folder)
    try:
        # Consumers first, so that the log has every message in their states. The states may lack
        # acks that have removed messages from the log.
        there = [disk.hold(folder) for folder in folders]
        if there != [disk.is_dir(folder) for folder in folders]:
            raise _Changed  # a folder was created or deleted just now
        then = _facts(disk, place)
        files: list[BackedUpFile] = []
        left_out: list[str] = []
        for folder in folders:
            for path, name, role in _wanted(disk, place, folder):
                if not disk.is_file(path):
                    left_out.append(f"{path}: not a regular file")
                    continue
                files.append(_file(copy, place, path, name, role, live))
        # check the copies, since the files may change
        for each in files:
            disk.redirect(f"{place.folder}/{each.path}", copy.target.object_path(each.sha256))
        report = look_held(disk, place)
        if not left_out and report.state == UNREADABLE:
            left_out = [f"{each.file}: {each.reason}" for each in report.of_kind(LOST)[:1]]
        copy.told[place.label] = left_out
        if not _whole(report):
            # damaged index files are evidence of lost and removed messages
            for name in disk.list_dir(place.log_folder):
                path = f"{place.log_folder}/{name}"
                if name.endswith(".idx") and disk.is_file(path):
                    files.append(_file(copy, place, path, f"log/{name}", "index", live))
        config, _ = configuration(disk, place)
        entry = BackedUpStream(
            domain=place.domain,
            account=place.account,
            stream=report.stream,
            folder=place.folder.removeprefix(f"{place.root}/"),
            state=report.state,
            messages=report.messages,
            bytes=report.bytes,
            first_seq=report.first_seq,
            last_seq=report.last_seq,
            config=config,
            files=files,
        )
        consumers, _ = consumer_states(disk, place, held=True)
        entry.consumers = list(consumers)
    finally:
        for folder in folders:
            disk.release(folder)
    # meta.json and sources.json have to match the log: copy again when one has changed
    if _facts(disk, place) != then:
        raise _Changed
    return entry


def _whole(report: StreamReport) -> bool:
    """Return whether rebuilt index files would equal the existing ones."""
    return report.state == SOUND and report.cut is None and not report.of_kind(WORN)


def _facts(disk: ReadOnlyDisk, place: StreamFolder) -> dict[str, tuple[int, int, int, int]]:
    """Return the current facts of meta.json and sources.json."""
    found = {}
    for name in ("meta.json", "sources.json"):
        with contextlib.suppress(FileNotFoundError):
            found[name] = disk.facts(f"{place.folder}/{name}")
    return found


def _wanted(disk: ReadOnlyDisk, place: StreamFolder, folder: str) -> list[tuple[str, str, str]]:
    """Return (path, path below the stream's folder, role) of the files that a backup includes."""
    found = []
    for name in disk.list_dir(folder):
        role = _role(place, folder, name)
        path = f"{folder}/{name}"
        if role and (role != "config" or not disk.is_dir(path)):
            found.append((path, path.removeprefix(f"{place.folder}/"), role))
    return found


def _role(place: StreamFolder, folder: str, name: str) -> str:
    if name.endswith(".tmp"):
        return ""
    if folder == place.log_folder:
        return "segment" if is_segment_name(name) else ""
    if folder == place.folder:
        return "config"
    return "consumer" if name.endswith(".json") else "state"


def _file(
    copy: _Copy, place: StreamFolder, path: str, name: str, role: str, live: bool
) -> BackedUpFile:
    facts = copy.disk.facts(path)
    relative = place.folder.removeprefix(f"{place.root}/")
    known = copy.known.get(f"{place.domain}/{relative}/{name}")
    if known is not None and known.facts == facts and copy.target.has(known):
        copy.progress(facts[1])
        return BackedUpFile(path=name, role=role, size=known.size, sha256=known.sha256, facts=facts)
    data = copy.disk.read_file(path)
    digest, new = copy.target.put(data)
    # file times are coarse: a file that has just changed may change again at the same time
    settled = facts if copy.began_ns - facts[2] > SETTLED_NS else None
    copy.new_bytes += len(data) if new else 0
    copy.progress(len(data))
    if role == "segment" and live and digest not in copy.unsound:
        first = int(path.rpartition("/")[2][:20])
        if not SegmentReader(copy.disk, path, first).sound():
            copy.unsound.add(digest)  # the same damage in a second copy is in the file
            raise _Changed
    return BackedUpFile(path=name, role=role, size=len(data), sha256=digest, facts=settled)
