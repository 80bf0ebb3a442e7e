"""Restores streams of a backup into a store that no server uses; verifies and removes backups.

Each byte is verified by its hash while it is written into `restoring/` of the account, and the log
is opened there once. When all streams are on the disk, one rename per stream puts it in place, so
each stream is complete, sound and has its index files. Until then the store does not change; the
next restore, or a start of the server, removes the files of an interrupted restore.
"""

from collections.abc import Callable, Iterable

from msgspec import Struct, field

from pelton.core.base.disk import Disk
from pelton.core.log import maintenance
from pelton.core.log.encryption import LogLocked
from pelton.core.log.recovery import open_log
from pelton.store.layout import StoreError, StreamFolder
from pelton.store.manifests import BackedUpStream, BackupFolder, BadManifestError, Manifest

Progress = Callable[[int], object]


class BackupCheck(Struct, kw_only=True):
    """The result of verifying one backup."""

    id: str
    streams: int = 0
    files: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)


class BackupsCheck(Struct, kw_only=True):
    """The result of verifying a backup folder."""

    folder: str
    backups: list[BackupCheck] = field(default_factory=list)
    objects: int = 0
    bytes: int = 0  # bytes that were hashed
    unreferenced: int = 0
    seconds: float = 0.0

    @property
    def sound(self) -> bool:
        """Whether every backup can be restored completely."""
        return not any(each.problems for each in self.backups)


def chosen(manifest: Manifest, wanted: tuple[str, ...]) -> list[BackedUpStream]:
    """Return the streams of these names (`stream` or `account/stream`). StoreError: a name has no
    stream.
    """
    if not wanted:
        return manifest.streams
    found = []
    for name in wanted:
        matching = [
            each
            for each in manifest.streams
            if name in (each.stream, f"{each.account}/{each.stream}", each.label)
        ]
        if not matching:
            have = ", ".join(each.label for each in manifest.streams) or "none"
            raise StoreError(f"no stream {name} in backup {manifest.id}; it has: {have}")
        found += [each for each in matching if each not in found]
    return found


def roots_of(streams: Iterable[BackedUpStream], store: str) -> list[str]:
    """Return the store folders that a restore of these streams has to lock."""
    return sorted({_root(each, store) for each in streams})


def restore(
    disk: Disk,
    target: BackupFolder,
    streams: list[BackedUpStream],
    store: str,
    *,
    progress: Progress = lambda done: None,
) -> list[str]:
    """Restore streams of a backup into a store whose folders this process has locked. Return the
    damage that the streams had at the time of the backup.

    StoreError: a stream of that name exists, or a part of the backup is damaged; the store has not
    changed. OSError: the same, unless one of the last renames has failed.
    """
    for each in streams:
        _check_free(disk, each, store)
    damage = []
    try:
        for each in streams:
            damage += _bring(disk, target, each, store, progress)
    except BaseException:
        for each in streams:
            disk.remove_tree(_waiting(each, store))
        raise
    for each in streams:
        _put_in_place(disk, each, store)
    return damage


def verify(target: BackupFolder, progress: Progress = lambda done: None) -> BackupsCheck:
    """Verify every manifest and every object, each hashed once."""
    result = BackupsCheck(folder=target.path)
    state: dict[str, str] = {}
    for name in target.ids():
        check = BackupCheck(id=name)
        result.backups.append(check)
        try:
            manifest = target.read(name)
        except BadManifestError as error:
            check.problems.append(str(error))
            continue
        check.streams = len(manifest.streams)
        for stream in manifest.streams:
            for entry in stream.files:
                check.files += 1
                check.bytes += entry.size
                if entry.sha256 not in state:
                    state[entry.sha256] = ""
                    try:
                        target.get(entry)
                        result.bytes += entry.size
                        progress(entry.size)
                    except (StoreError, OSError) as error:
                        state[entry.sha256] = str(error)
                if state[entry.sha256]:
                    check.problems.append(f"{stream.label}: {state[entry.sha256]}")
    result.objects = len(state)
    result.unreferenced = sum(name not in state for name, _ in target.objects())
    return result


def size_of(target: BackupFolder) -> int:
    """Return the bytes that `verify` hashes."""
    sizes: dict[str, int] = {}
    for name in target.ids():
        try:
            sizes |= {each.sha256: each.size for each in target.read(name).files()}
        except BadManifestError:
            continue
    return sum(sizes.values())


class Pruning(Struct, kw_only=True):
    """The files that a prune removes."""

    backups: list[str]
    objects: list[str]  # paths of objects


def plan_prune(target: BackupFolder, remove: list[str]) -> Pruning:
    """Return the files to remove with these backups.

    BadManifestError: a remaining manifest cannot be read, so the objects that it needs are unknown.
    """
    needed = {
        entry.sha256
        for name in target.ids()
        if name not in remove
        for entry in target.read(name).files()
    }
    paths = [path for name, path in target.objects() if name not in needed]
    return Pruning(backups=remove, objects=paths)


def prune(target: BackupFolder, plan: Pruning) -> None:
    """Remove the manifests, durably, and then the objects."""
    target.remove(plan.backups)
    for path in plan.objects:
        target.remove_object(path)


def _root(entry: BackedUpStream, store: str) -> str:
    return f"{store}/domain_{entry.domain}" if entry.domain else store


def _waiting(entry: BackedUpStream, store: str) -> str:
    _, account, _, name = entry.folder.split("/")
    return f"{_root(entry, store)}/jetstream/{account}/restoring/{name}"


def _check_free(disk: Disk, entry: BackedUpStream, store: str) -> None:
    folder = f"{_root(entry, store)}/{entry.folder}"
    if disk.list_dir(folder):
        raise StoreError(
            f"stream {entry.label} already exists in {store}; the restore does not change it"
        )


def _bring(
    disk: Disk, target: BackupFolder, entry: BackedUpStream, store: str, progress: Progress
) -> list[str]:
    folder = _waiting(entry, store)
    disk.remove_tree(folder)
    for each in ("", "/log", "/consumers"):
        disk.make_dir(f"{folder}{each}")
    for file in entry.files:
        disk.write_file_atomic(f"{folder}/{file.path}", target.get(file))
        progress(file.size)
    damage = []
    if any(file.role == "segment" for file in entry.files):
        damage = _try_out(disk, folder, entry)
    for inner in (f"{folder}/log", f"{folder}/consumers", folder, folder.rpartition("/")[0]):
        disk.sync_dir(inner)
    return damage


def _try_out(disk: Disk, folder: str, entry: BackedUpStream) -> list[str]:
    # opening also writes the index files, so that the first start is fast
    try:
        numbered = StreamFolder("", "", "", folder, "").numbered(disk)
        log = open_log(f"{folder}/log", disk, create=False, numbered=numbered)
    except LogLocked:
        return []  # encrypted: the hashes alone prove the content
    try:
        lost = sum(count for _, count, _ in log.lost)
        there = log.msgs, log.last_seq
    finally:
        maintenance.close(log)
    if not lost and there != (entry.messages, entry.last_seq):
        # the bytes are those of the backup: a partial stream is better than none
        return [
            f"{entry.label}: the restored stream has {there[0]} messages up to {there[1]}, "
            f"the backup had {entry.messages} up to {entry.last_seq}"
        ]
    if not lost:
        return []
    return [f"{entry.label}: {lost} messages were already lost at the time of the backup"]


def _put_in_place(disk: Disk, entry: BackedUpStream, store: str) -> None:
    root = _root(entry, store)
    folder = f"{root}/{entry.folder}"
    streams = folder.rpartition("/")[0]
    account = streams.rpartition("/")[0]
    disk.make_dir(streams)
    for parent in (account, f"{root}/jetstream", root):
        disk.sync_dir(parent)
    if disk.exists(folder):
        disk.remove_tree(folder)  # an empty folder: `_check_free` has looked
    disk.rename(_waiting(entry, store), folder)
    disk.sync_dir(streams)
    disk.sync_dir(f"{account}/restoring")
