"""Where an account's streams and consumers live on disk, and their configuration files.

    <store>/jetstream/<account>/streams/<stream>/meta.json             the stream
                                                 key.0, key.1          its keys (engine/metadata_files)
                                                 log/                  its messages (core.log)
                                                 sources.json          how far its sources are (engine/sources)
                                                 consumers/<c>.json    a consumer
                                                 consumers/states.N    their states (engine/consumer_states)
                                                 consumers/acks.N      what changed since
    <store>/jetstream/<account>/deleted/<stream>.<id>/                 being removed
    <store>/jetstream/<account>/restoring/<id>/                        a stream that is being restored

Each .json file has a copy beside it, `<name>.json.copy`: one that is damaged is made again from the
other (engine/checksummed_files draws them). sources.json has none, for the messages say the same.

Configuration is written whole (temporary files, fsync, rename, fsync of the folder) before a call
is answered. A deleted stream is first renamed out of `streams`, so that a crash never brings back half
of it. Knows nothing of what the files mean.
"""

import contextlib
import hashlib
import string
from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct, field

from penstock.api.codec import JsonError, decode_request, encode
from penstock.api.consumers import ConsumerConfig
from penstock.api.fields import Int, Time, Uint64
from penstock.api.streams import StreamConfig
from penstock.core.base.disk import Disk
from penstock.engine import checksummed_files
from penstock.engine.checksummed_files import BadFileError as BadFileError
from penstock.engine.checksummed_files import DamagedFileError, sealed, unsealed
from penstock.engine.consumer_states import ConsumerStates
from penstock.engine.metadata_files import LockedError as LockedError
from penstock.engine.metadata_files import MetadataFiles
from penstock.vault import Vault

_SAFE = frozenset(f"{string.ascii_letters}{string.digits}_-$@+=,~".encode())
FORMAT = 1
REMOVALS = 8
"""Folders of deleted streams that are removed in one go."""


class Dated(Struct, kw_only=True):
    """What every file starts with."""

    format: Int = 0


class StreamFile(Dated, kw_only=True):
    """meta.json."""

    created: Time = 0
    config: StreamConfig = field(default_factory=StreamConfig)


class ConsumerFile(Dated, kw_only=True):
    """consumers/<c>.json; `start_seq` is where the deliver policy pointed when it was created."""

    created: Time = 0
    name: str = ""
    start_seq: Uint64 = 0
    config: ConsumerConfig = field(default_factory=ConsumerConfig)


class MisplacedError(BadFileError):
    """A configuration is of another stream or consumer than the name of its folder or file says:
    somebody has copied or renamed that.
    """


class BadConsumer(Struct):
    """A consumer's files that can't be understood; `name` as far as it is known."""

    name: str
    why: str


P = TypeVar("P", bound=Dated)


class AccountFiles:
    """The folders of one account."""

    def __init__(self, disk: Disk, store: str, account: str, vault: Vault | None = None) -> None:
        """Nothing is touched before the first call."""
        self._disk = disk
        self._vault = vault
        root = f"{store}/jetstream/{file_name(account)}"
        self._streams = f"{root}/streams"
        self._deleted = f"{root}/deleted"
        self._restoring = f"{root}/restoring"

    def open(self) -> list[str]:
        """Make the folders; the stream folders there are."""
        if not self._disk.exists(self._streams):
            self._disk.make_dir_durable(self._streams)
        with contextlib.suppress(OSError):  # what a disk in trouble refuses, the next start does
            self._disk.make_dir_durable(self._streams)
            self._disk.make_dir(self._deleted)
            for name in self._disk.list_dir(self._restoring):
                self._disk.remove_tree(f"{self._restoring}/{name}")
        return [f"{self._streams}/{name}" for name in self._disk.list_dir(self._streams)]

    def stream(self, folder_or_name: str, *, by_name: bool = True) -> "StreamFiles":
        """The files of a stream, by its name or by its folder."""
        folder = f"{self._streams}/{file_name(folder_or_name)}" if by_name else folder_or_name
        return StreamFiles(self._disk, folder, self._vault)

    def restoring(self, unique: str) -> "StreamFiles":
        """The files of a stream that is being restored; a start of the server removes them."""
        return StreamFiles(self._disk, f"{self._restoring}/{unique}", self._vault)

    def adopt(self, files: "StreamFiles", name: str) -> "StreamFiles":
        """A restored stream's folder becomes the one of this stream, durably; all in it is on disk.

        FileExistsError: there is a stream in that one already.
        """
        placed = self.stream(name)
        placed.check_free()
        self._disk.sync_dir(files.folder)
        if self._disk.exists(placed.folder):
            self._disk.remove_tree(placed.folder)
        self._disk.rename(files.folder, placed.folder)
        self._disk.sync_dir(self._streams)
        self._disk.sync_dir(self._restoring)
        placed.small.take_keys(files.small)
        return placed

    def remove(self, files: "StreamFiles", unique: str) -> None:
        """Delete a stream's folder; what it holds is gone even if this is cut short after the
        rename.
        """
        self.finish_removal(self.move_away(files, unique))

    def move_away(self, files: "StreamFiles", unique: str) -> str:
        """The first half: rename the folder to a place where no stream is looked for."""
        name = files.folder.rpartition("/")[2]
        target = f"{self._deleted}/{unique}.{name}"[: len(self._deleted) + 200]
        if not self._disk.exists(self._deleted):
            self._disk.make_dir(self._deleted)
        self._disk.rename(files.folder, target)
        return target

    def finish_removal(self, target: str) -> None:
        """The second half; what it leaves is for `finish_removals`."""
        self._disk.sync_dir(self._streams)
        self._disk.remove_tree(target)

    def finish_removals(self, most: int = REMOVALS) -> bool:
        """Remove what removals have left, at most so many folders; whether that was all. OSError: the
        disk refuses, some or all of them.
        """
        deleted = self._disk.list_dir(self._deleted)
        if deleted:
            self._disk.sync_dir(self._streams)  # or power that goes now brings back half of one
        refused: OSError | None = None
        removed = 0
        for name in deleted:
            if removed == most:
                break
            try:
                self._disk.remove_tree(f"{self._deleted}/{name}")
                removed += 1
            except OSError as error:  # it does not keep the others
                refused = error
        if refused is not None:
            raise refused
        return removed == len(deleted)

    def discard(self, files: "StreamFiles", unique: str) -> bool:
        """Take back a create that failed half way, so that the next start finds nothing of it;
        False: the disk did not let us do all of that.
        """
        try:
            if self._disk.exists(files.folder):
                self.remove(files, unique)
            else:
                self._disk.sync_dir(self._streams)
        except OSError:
            files.discard()
            return False
        return True


class StreamFiles:
    """The files of one stream."""

    def __init__(self, disk: Disk, folder: str, vault: Vault | None = None) -> None:
        """Nothing is touched before the first call."""
        self._disk = disk
        self.folder = folder
        self.small = MetadataFiles(disk, folder, vault)
        self.log_folder = f"{folder}/log"
        self._consumers = f"{folder}/consumers"
        self.states = ConsumerStates(disk, self._consumers, self.small)
        self.unwritten: dict[str, Callable[[], None]] = {}  # what reading wished to write, by path

    def _later(self, path: str, write: Callable[[], None]) -> None:
        self.unwritten[path] = write

    def create(self) -> None:
        """Make the folders, durably; FileExistsError when there is a stream in them already.

        A folder that holds no configuration and no log is what a create that was cut short left
        behind.
        """
        self.check_free()
        self._disk.make_dir(self.folder)
        self._disk.make_dir(self._consumers)
        self._disk.sync_dir(self.folder.rpartition("/")[0])
        self.small.begin()

    def check_free(self) -> None:
        """FileExistsError when there is a stream in the folder."""
        for present in ("meta.json", f"meta.json{checksummed_files.COPY}", "log"):
            if self._disk.exists(f"{self.folder}/{present}"):
                raise FileExistsError(f"{self.folder} holds a stream that was left aside")

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        self._disk.remove_tree(self.folder)

    def discard(self) -> None:
        """Take back a create that failed half way, as far as the disk lets us."""
        with contextlib.suppress(OSError):
            checksummed_files.remove(self._disk, f"{self.folder}/meta.json")
            self._disk.sync_dir(self.folder)
        with contextlib.suppress(OSError):
            self._disk.remove_tree(self.folder)

    def has_log(self) -> bool:
        """Whether there is a folder for messages."""
        return self._disk.exists(self.log_folder)

    def write(self, meta: StreamFile) -> None:
        """Replace meta.json and its copy, durably."""
        checksummed_files.write(self.small, f"{self.folder}/meta.json", encode(meta))

    def read(self, report: Callable[[str], None]) -> StreamFile | None:
        """meta.json, after the stream's keys; None when there is none. BadFileError: it can't be
        understood, or is of another stream than the folder (LockedError: it is encrypted and can't
        be opened). `report` is told what was damaged and is mended; what the disk does not take for
        that is in `unwritten`. OSError.
        """
        path = f"{self.folder}/meta.json"
        if not checksummed_files.exists(self._disk, path):
            return None
        self.small.unlock("meta.json", self._later)

        def decode(at: str, data: bytes) -> StreamFile:
            meta = _decode(StreamFile, at, data)
            _check_place(at, "stream", meta.config.name, self.folder.rpartition("/")[2])
            return meta

        return checksummed_files.read(self.small, path, decode, report, self._later)

    def stream_name(self) -> str:
        """What the name of the folder says; "": a long name, which it does not tell."""
        return name_of(self.folder.rpartition("/")[2])

    def read_positions(self, kind: type[P]) -> P | None:
        """sources.json; None when there is none. BadFileError: it can't be understood."""
        path = f"{self.folder}/sources.json"
        if not self._disk.exists(path):
            return None
        return _decode(kind, path, self.small.read_file(path))

    def write_positions(self, positions: Struct) -> None:
        """Replace sources.json."""
        self.small.write_file_atomic(f"{self.folder}/sources.json", sealed(encode(positions)))

    def consumers(self, report: Callable[[str], None]) -> list[ConsumerFile | BadConsumer]:
        """Every consumer, by file name; a file that is no consumer as the reason. `report` is told
        what was damaged and is mended; what the disk does not take for that is in `unwritten`.
        """
        if self._disk.exists(self._consumers):
            # a process that was killed may have left changes that power could still take back
            try:
                self._disk.sync_dir(self._consumers)
            except OSError:
                self._later(self._consumers, lambda: self._disk.sync_dir(self._consumers))
        found: list[ConsumerFile | BadConsumer] = []
        names = {
            name.removesuffix(checksummed_files.COPY)
            for name in self._disk.list_dir(self._consumers)
        }
        for name in sorted(name for name in names if name.endswith(".json")):
            path = f"{self._consumers}/{name}"
            try:
                meta = checksummed_files.read(self.small, path, _consumer_at, report, self._later)
                if meta is None:
                    raise BadFileError(f"{path}: it is gone")
                found.append(meta)
            except (BadFileError, OSError) as error:
                found.append(BadConsumer(name_of(name.removesuffix(".json")), str(error)))
        return found

    def write_consumer(self, meta: ConsumerFile) -> None:
        """Replace a consumer's configuration and its copy, durably."""
        checksummed_files.write(self.small, self._consumer(meta.name), encode(meta))

    def remove_consumer(self, consumer: str) -> None:
        """Delete a consumer's configuration, durably; also when an earlier try had removed it and
        the disk refused to sync that.
        """
        checksummed_files.remove(self._disk, self._consumer(consumer))
        if self._disk.exists(self._consumers):
            self._disk.sync_dir(self._consumers)

    def _consumer(self, name: str) -> str:
        return f"{self._consumers}/{file_name(name)}.json"


def is_file_name(name: str) -> bool:
    """Whether a stream or consumer of this name can have files, here and on other servers, which name
    them as they are called.
    """
    return "\0" not in name


_LONGEST = 240  # with the longest suffixes (.json.copy.tmp) 254, of 255
_KEPT = 200


def file_name(name: str) -> str:
    """A name as a file name: letters, digits and `_-$@+=,~` stay, every other byte becomes %XX.

    File systems take 255 bytes: a longer one keeps its beginning, and its hash stands for the rest.
    """
    data = name.encode("utf-8", "surrogateescape")
    safe = "".join(chr(byte) if byte in _SAFE else f"%{byte:02X}" for byte in data)
    if len(safe) <= _LONGEST:
        return safe
    return f"{safe[:_KEPT]}%{hashlib.sha256(data).hexdigest()[:32]}"


def name_of(file: str) -> str:
    """The name that `file_name` made a file name of; "": it does not tell."""
    data = bytearray()
    parts = file.split("%")
    data += parts[0].encode("utf-8", "surrogateescape")
    for part in parts[1:]:
        try:
            data.append(int(part[:2], 16))
        except ValueError:
            return ""
        data += part[2:].encode("utf-8", "surrogateescape")
    name = data.decode("utf-8", "surrogateescape")
    return name if file_name(name) == file else ""


def _consumer_at(path: str, data: bytes) -> ConsumerFile:
    meta = _decode(ConsumerFile, path, data)
    file = path.rpartition("/")[2].removesuffix(checksummed_files.COPY).removesuffix(".json")
    _check_place(path, "consumer", meta.name, file)
    return meta


def _check_place(path: str, what: str, name: str, place: str) -> None:
    """MisplacedError when the name that a configuration says does not belong to its place."""
    if not name:
        raise BadFileError(f"{path}: no {what} name")
    if file_name(name) != place:
        raise MisplacedError(f"{path}: it is of {what} {name}, and its place is {file_name(name)}")


def _decode(kind: type[P], path: str, data: bytes) -> P:
    try:
        line = unsealed(path, data)
        value = decode_request(kind, line, strict=False)
    except JsonError as error:
        # with a checksum that matches it was written so
        kind_of_error = BadFileError if line != data else DamagedFileError
        raise kind_of_error(f"{path}: {error}") from None
    if value.format != FORMAT:
        raise BadFileError(f"{path}: format {value.format}, not {FORMAT}")
    return value
