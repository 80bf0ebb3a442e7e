"""Backup folders: files by their hash, and one manifest per backup.

    <target>/penstock-backups            "penstock backups 1", the mark of a backup folder
             lock                        the lock of the writer (core/log/store_lock)
             objects/<2 hex>/<64 hex>    the bytes of a file; its name is their SHA-256
             backups/<id>.json           a manifest: one line of JSON (Manifest), then a line
                                         `sha256 <64 hex>` over the first with its end

An object is written once, whole or not at all, and shared by all backups that hold the file; a
manifest is written after all of its objects are on the disk. So an interrupted backup leaves at
most objects that no manifest names. The id of a backup is the time when it began, in UTC.

store/backup makes the entries.
"""

import hashlib
import re
from collections.abc import Iterator

import msgspec
from msgspec import Struct, field

from pelton.core.base.disk import Disk
from pelton.store.layout import StoreError

FORMAT = 1
MARK = "penstock-backups"
_SAID = f"penstock backups {FORMAT}\n".encode()
_ID = re.compile(r"\d{8}T\d{6}Z(-\d+)?")
_HASH = re.compile(r"[0-9a-f]{64}")
_ROLES = ("segment", "config", "consumer", "state", "index")


class BackedUpFile(Struct, kw_only=True):
    """A file of a stream; `path` is relative to the stream's folder."""

    path: str
    role: str  # segment, config, consumer, state, index
    size: int
    sha256: str
    facts: tuple[int, int, int, int] | None = None  # of the source file: inode, size, mtime, ctime


class BackedUpStream(Struct, kw_only=True):
    """A stream as it was at one moment."""

    domain: str = ""
    account: str
    stream: str
    folder: str  # the stream's folder, relative to the store's root
    state: str
    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    config: object = None  # meta.json as data; None: it could not be read
    consumers: list[object] = field(default_factory=list)
    files: list[BackedUpFile] = field(default_factory=list)

    @property
    def label(self) -> str:
        """`account/stream`, with its domain if it has one."""
        return "/".join(part for part in (self.domain, self.account, self.stream) if part)


class Manifest(Struct, kw_only=True):
    """One backup."""

    format: int = FORMAT
    id: str
    time: str  # the start of the backup
    store: str
    live: bool = False  # a server was writing to the store
    complete: bool = True  # False: only the named streams of the store
    streams: list[BackedUpStream] = field(default_factory=list)
    total_bytes: int = 0
    new_bytes: int = 0  # bytes of objects that no earlier backup had

    def files(self) -> Iterator[BackedUpFile]:
        """Return the files of all streams."""
        for stream in self.streams:
            yield from stream.files


class BadManifestError(StoreError):
    """A manifest is not valid; str() names it and the reason."""


class BackupFolder:
    """The files of a backup folder."""

    def __init__(self, disk: Disk, path: str) -> None:
        """Read and write nothing before the first call."""
        self._disk = disk
        self.path = path
        self._made: set[str] = set()

    def open(self) -> None:
        """Raise StoreError when the folder is no backup folder."""
        mark = f"{self.path}/{MARK}"
        if not self._disk.exists(mark):
            raise StoreError(f"{self.path} is not a backup folder")
        said = self._disk.read_file(mark)
        if said != _SAID:
            raise StoreError(
                f"{self.path}: {said[:60].decode('utf-8', 'replace').strip()} is an unknown format"
            )

    def make(self) -> None:
        """Create the folder, or open an existing one. StoreError: the folder has other files."""
        if self._disk.exists(f"{self.path}/{MARK}"):
            return self.open()
        present = [name for name in self._disk.list_dir(self.path) if not name.startswith(MARK)]
        if present and present != ["lock"]:
            raise StoreError(f"{self.path} is not empty and not a backup folder")
        for name in ("objects", "backups"):
            self._disk.make_dir(f"{self.path}/{name}")
        self._disk.write_file_atomic(f"{self.path}/{MARK}", _SAID)
        return None

    def has(self, entry: BackedUpFile) -> bool:
        """Return whether the object of a file exists."""
        return self._disk.exists(self.object_path(entry.sha256))

    def put(self, data: bytes) -> tuple[str, bool]:
        """Store bytes durably; return (their hash, whether the object is new). A damaged object is
        written again.
        """
        name = hashlib.sha256(data).hexdigest()
        path = self.object_path(name)
        if self._disk.exists(path) and self._holds(path, data):
            return name, False
        folder = path.rpartition("/")[0]
        if folder not in self._made:
            self._disk.make_dir(folder)
            self._disk.sync_dir(f"{self.path}/objects")
            self._made.add(folder)
        self._disk.write_file_atomic(path, data)
        return name, True

    def _holds(self, path: str, data: bytes) -> bool:
        try:
            return self._disk.read_file(path) == data
        except OSError:  # the object is unreadable, or was removed
            return False

    def get(self, entry: BackedUpFile) -> bytes:
        """Return the bytes of a file, verified by their hash. StoreError: the object is damaged or
        missing.
        """
        path = self.object_path(entry.sha256)
        try:
            data = self._disk.read_file(path)
        except FileNotFoundError:
            raise StoreError(f"{path} is missing ({entry.path})") from None
        if len(data) != entry.size or hashlib.sha256(data).hexdigest() != entry.sha256:
            raise StoreError(f"{path} is damaged ({entry.path})")
        return data

    def objects(self) -> Iterator[tuple[str, str]]:
        """Return (hash, path) of every object."""
        for folder in self._disk.list_dir(f"{self.path}/objects"):
            for name in self._disk.list_dir(f"{self.path}/objects/{folder}"):
                yield name, f"{self.path}/objects/{folder}/{name}"

    def ids(self) -> list[str]:
        """Return the ids of all backups, the oldest first."""
        names = self._disk.list_dir(f"{self.path}/backups")
        return sorted(
            (name[:-5] for name in names if name.endswith(".json") and _ID.fullmatch(name[:-5])),
            key=_order,
        )

    def free_id(self, wanted: str) -> str:
        """Return this id, or the id with a number when it is taken."""
        taken = set(self.ids())
        number, found = 1, wanted
        while found in taken:
            number += 1
            found = f"{wanted}-{number}"
        return found

    def manifest_path(self, name: str) -> str:
        """Return the path of a backup's manifest."""
        return f"{self.path}/backups/{name}.json"

    def write(self, manifest: Manifest) -> None:
        """Write the manifest of a backup whose objects are all on the disk."""
        line = msgspec.json.encode(manifest) + b"\n"
        check = f"sha256 {hashlib.sha256(line).hexdigest()}\n".encode()
        self._disk.write_file_atomic(self.manifest_path(manifest.id), line + check)

    def read(self, name: str) -> Manifest:
        """Read a manifest. BadManifestError: it is not valid. StoreError: there is none of that id."""
        path = self.manifest_path(name)
        if not _ID.fullmatch(name) or not self._disk.exists(path):
            have = ", ".join(self.ids()[-5:]) or "none"
            raise StoreError(f"no backup {name} in {self.path}; the newest are: {have}")
        line, _, rest = self._disk.read_file(path).partition(b"\n")
        line += b"\n"
        if rest != f"sha256 {hashlib.sha256(line).hexdigest()}\n".encode():
            raise BadManifestError(f"{path} is damaged: its hash does not match")
        try:
            manifest = msgspec.json.decode(line, type=Manifest)
        except msgspec.DecodeError as error:
            raise BadManifestError(f"{path}: {error}") from None
        if manifest.format != FORMAT:
            raise BadManifestError(f"{path}: format {manifest.format}, not {FORMAT}")
        for stream in manifest.streams:
            _check(path, stream)
        return manifest

    def remove(self, names: list[str]) -> None:
        """Remove manifests; their objects stay."""
        for name in names:
            self._disk.unlink(self.manifest_path(name))
        self._disk.sync_dir(f"{self.path}/backups")

    def remove_object(self, path: str) -> None:
        """Remove one object."""
        self._disk.unlink(path)

    def object_path(self, name: str) -> str:
        """Return the path of the object with this hash."""
        return f"{self.path}/objects/{name[:2]}/{name}"


def is_backup(disk: Disk, path: str) -> bool:
    """Return whether the folder is a backup folder."""
    return disk.exists(f"{path}/{MARK}")


def _order(name: str) -> tuple[str, int]:
    time, _, number = name.partition("-")
    return time, int(number or 1)


def _check(path: str, stream: BackedUpStream) -> None:
    # a manifest names paths of files: none may lead out of the store
    parts = stream.folder.split("/")
    good = len(parts) == 4 and parts[0] == "jetstream" and parts[2] == "streams"
    names = [*parts, *(part for file in stream.files for part in file.path.split("/"))]
    if "/" in stream.domain:
        good = False
    for file in stream.files:
        good = good and bool(_HASH.fullmatch(file.sha256)) and file.role in _ROLES
    if not good or any(part in ("", ".", "..") or "\0" in part for part in names):
        raise BadManifestError(f"{path}: stream {stream.label} has invalid names")
