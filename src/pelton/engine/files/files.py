"""The folders of an account's streams and consumers, and their configuration files.

    <store>/jetstream/<account>/streams/<stream>/meta.json             the stream
                                                 key.0, key.1          its keys (engine/files/metadata_files)
                                                 log/                  its messages (core.log)
                                                 sources.json          the positions of its sources (engine/sources)
                                                 consumers/<c>.json    a consumer
                                                 consumers/states.N    their states (engine/files/consumer_states)
                                                 consumers/acks.N      changes since then
    <store>/jetstream/<account>/deleted/<stream>.<id>/                 a stream that is being removed
    <store>/jetstream/<account>/restoring/<id>/                        a stream that is being restored
    <store>/jetstream/<account>/interrupted/<stream>.<id>/             what a power cut left of an unsynced create
    <store>/jetstream/<account>/closed                                 while no server runs: all files are synced
    <store>/jetstream/<account>/unsynced                               creates of the last server may not be synced

Each .json file has a copy beside it, `<name>.json.copy`, from which a damaged file is restored
(engine/files/checksummed_files). sources.json has no copy, since the messages have the positions too.

A configuration is written as a whole (temporary files, fsync, rename, fsync of the folder) before
the server answers the call; the log of a new stream is made after that, so a folder without a log may
be an interrupted create. A server with `sync_interval` syncs a new configuration after its answer,
unless it is encrypted (`StreamFiles.unsynced`). The file `unsynced` tells the next server so: after a
power cut, a configuration that is missing or incomplete in both files is an interrupted create, of
which nothing was promised. It is set aside. A deleted stream is first renamed out of `streams`, so
that a crash never brings back half of it. The module does not know what the files mean.
"""

import contextlib
import hashlib
import string
from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct, field

from pelton.api.codec import JsonError, decode_request, encode
from pelton.api.consumers import ConsumerConfig
from pelton.api.fields import Int, Time, Uint64
from pelton.api.streams import StreamConfig
from pelton.core.base.disk import Disk
from pelton.engine.files import checksummed_files
from pelton.engine.files.checksummed_files import BadFileError as BadFileError
from pelton.engine.files.checksummed_files import (
    DamagedFileError,
    incomplete,
    sealed,
    unsealed,
)
from pelton.engine.files.consumer_states import ConsumerStates
from pelton.engine.files.metadata_files import LockedError as LockedError
from pelton.engine.files.metadata_files import MetadataFiles
from pelton.vault import Vault, is_sealed

_SAFE = frozenset(f"{string.ascii_letters}{string.digits}_-$@+=,~".encode())
FORMAT = 1
REMOVALS = 8
"""The number of folders of deleted streams that one call removes."""


class Dated(Struct, kw_only=True):
    """The fields that every file starts with."""

    format: Int = 0


class StreamFile(Dated, kw_only=True):
    """The content of meta.json."""

    created: Time = 0
    config: StreamConfig = field(default_factory=StreamConfig)


class ConsumerFile(Dated, kw_only=True):
    """The content of consumers/<c>.json; `start_seq` is the first sequence by the deliver policy at
    the creation.
    """

    created: Time = 0
    name: str = ""
    start_seq: Uint64 = 0
    config: ConsumerConfig = field(default_factory=ConsumerConfig)


class MisplacedError(BadFileError):
    """The configuration names another stream or consumer than the name of its folder or file: a
    user has copied or renamed it.
    """


class BadConsumer(Struct):
    """A consumer's file that is not valid; `name` is "" when it is not known."""

    name: str
    why: str


P = TypeVar("P", bound=Dated)
T = TypeVar("T")


class AccountFiles:
    """The folders of one account."""

    def __init__(self, disk: Disk, store: str, account: str, vault: Vault | None = None) -> None:
        """Read and write nothing before the first call."""
        self._disk = disk
        self._vault = vault
        root = f"{store}/jetstream/{file_name(account)}"
        self._streams = f"{root}/streams"
        self._deleted = f"{root}/deleted"
        self._restoring = f"{root}/restoring"
        self._templates = f"{root}/templates"  # of 2020 (engine/lifecycles/templates)
        self._root = root
        self._interrupted = f"{root}/interrupted"
        self._mark = f"{root}/closed"
        self._unsynced_mark = f"{root}/unsynced"
        self._marked = True  # the mark may be there

        # creates of the last servers may not be on the disk, and power may have been cut since
        self.had_unsynced = False
        self.late_creates = False  # creates are synced after the answer

    def open(self, *, late_creates: bool = False) -> list[str]:
        """Create the folders; return the folders of the streams. `late_creates`: new streams and
        consumers are to be synced after the answer.
        """
        if not self._disk.exists(self._streams):
            self._disk.make_dir_durable(self._streams)
        with contextlib.suppress(OSError):  # the next start does what a failing disk refuses
            self._disk.make_dir_durable(self._streams)
            self._disk.make_dir(self._deleted)
            for name in self._disk.list_dir(self._restoring):
                self._disk.remove_tree(f"{self._restoring}/{name}")
        self.had_unsynced = self.late_creates = self._disk.exists(self._unsynced_mark)
        if late_creates and not self.had_unsynced:
            with contextlib.suppress(OSError):  # then creates wait for the disk
                self._disk.write_file_atomic(self._unsynced_mark, b"unsynced\n")
                self.late_creates = True
        self.late_creates &= late_creates
        return [f"{self._streams}/{name}" for name in self._disk.list_dir(self._streams)]

    def closed_cleanly(self) -> bool:
        """Return whether the last server has synced all files of the account and closed them.

        The account counts as open from now on. When the disk refuses that, no file counts as
        synced, and `finish_removals` tries again.
        """
        if not self._disk.exists(self._mark):
            self._marked = False
            return False
        try:
            self._unmark()
        except OSError:
            return False
        return True

    def mark_closed(self) -> None:
        """Note that all files of the account are synced and closed. OSError."""
        self._marked = True
        self._disk.unlink(self._unsynced_mark)
        self._disk.write_file_atomic(self._mark, b"closed\n")

    def _unmark(self) -> None:
        self._disk.unlink(self._mark)
        self._disk.sync_dir(self._root)
        self._marked = False

    def template_names(self) -> list[str]:
        """Return the names of the stored templates, in order."""
        names = {
            each.removesuffix(checksummed_files.COPY)
            for each in self._disk.list_dir(self._templates)
        }
        found = (name_of(each.removesuffix(".json")) for each in names if each.endswith(".json"))
        return sorted(name for name in found if name)

    def read_template(
        self, name: str, decode: Callable[[str, bytes], T], report: Callable[[str], None]
    ) -> T | None:
        """Return a template, as `checksummed_files.read`."""
        return checksummed_files.read(self._disk, self._template(name), decode, report)

    def write_template(self, name: str, data: bytes) -> None:
        """Store a template, durably."""
        self._disk.make_dir_durable(self._templates)
        checksummed_files.write(self._disk, self._template(name), data)

    def remove_template(self, name: str) -> None:
        """Delete a template, durably."""
        checksummed_files.remove(self._disk, self._template(name))
        self._disk.sync_dir(self._templates)

    def _template(self, name: str) -> str:
        return f"{self._templates}/{file_name(name)}.json"

    def stream(self, folder_or_name: str, *, by_name: bool = True) -> "StreamFiles":
        """Return the files of a stream by its name or by its folder."""
        folder = f"{self._streams}/{file_name(folder_or_name)}" if by_name else folder_or_name
        return StreamFiles(self._disk, folder, self._vault)

    def restoring(self, unique: str) -> "StreamFiles":
        """Return the files of a stream that is being restored; a start of the server removes them."""
        return StreamFiles(self._disk, f"{self._restoring}/{unique}", self._vault)

    def adopt(self, files: "StreamFiles", name: str) -> "StreamFiles":
        """Move the folder of a restored stream into its place, durably. All files in the folder are
        on the disk.

        FileExistsError: the place has a stream.
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

    def set_aside(self, files: "StreamFiles", unique: str) -> str:
        """Move what an interrupted create left out of the streams; return the new folder. OSError."""
        name = files.folder.rpartition("/")[2]
        target = f"{self._interrupted}/{unique}.{name}"[: len(self._interrupted) + 200]
        self._disk.make_dir_durable(self._interrupted)
        self._disk.rename(files.folder, target)
        self._disk.sync_dir(self._streams)
        self._disk.sync_dir(self._interrupted)
        return target

    def remove(self, files: "StreamFiles", unique: str) -> None:
        """Delete a stream's folder. A crash after the rename does not bring the stream back."""
        self.finish_removal(self.move_away(files, unique))

    def move_away(self, files: "StreamFiles", unique: str) -> str:
        """The first half of a removal: move the folder out of the streams."""
        name = files.folder.rpartition("/")[2]
        target = f"{self._deleted}/{unique}.{name}"[: len(self._deleted) + 200]
        if not self._disk.exists(self._deleted):
            self._disk.make_dir(self._deleted)
        self._disk.rename(files.folder, target)
        return target

    def finish_removal(self, target: str) -> None:
        """The second half of a removal. `finish_removals` removes the rest after an error."""
        self._disk.sync_dir(self._streams)
        self._disk.remove_tree(target)

    def finish_removals(self, most: int = REMOVALS) -> bool:
        """Remove at most `most` folders of deleted streams; return whether these were all.

        OSError: the disk refuses at least one removal.
        """
        if self._marked:
            self._unmark()
        deleted = self._disk.list_dir(self._deleted)
        if deleted:
            # else a power cut could bring back a part of a stream
            self._disk.sync_dir(self._streams)
        refused: OSError | None = None
        removed = 0
        for name in deleted:
            if removed == most:
                break
            try:
                self._disk.remove_tree(f"{self._deleted}/{name}")
                removed += 1
            except OSError as error:  # go on with the other folders
                refused = error
        if refused is not None:
            raise refused
        return removed == len(deleted)

    def discard(self, files: "StreamFiles", unique: str) -> bool:
        """Remove the files of a failed create, so that the next start does not find the stream.
        False: the disk refused a part of the removal.
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
        """Read and write nothing before the first call."""
        self._disk = disk
        self.folder = folder
        self.synced = False  # the files were closed cleanly, and nothing has changed them since
        # creates of the last servers may not be on the disk (AccountFiles.had_unsynced)
        self.had_unsynced = False
        # files and folders that a create wrote and no sync has covered: path -> the consumer, "" for
        # the stream, None for a folder
        self.unsynced: dict[str, str | None] = {}
        self.small = MetadataFiles(disk, folder, vault)
        self.log_folder = f"{folder}/log"
        self.consumers_folder = f"{folder}/consumers"
        self.states = ConsumerStates(disk, self.consumers_folder, self.small)
        # path -> a write that a read could not do
        self.unwritten: dict[str, Callable[[], None]] = {}

    def _later(self, path: str, write: Callable[[], None]) -> None:
        self.unwritten[path] = write

    def create(self) -> None:
        """Create the folders and the keys. The caller syncs the name of the folder. FileExistsError:
        the folders have a stream.

        Folders without a configuration and without a log are left over from an interrupted create.
        """
        self.check_free()
        self._disk.make_dir(self.folder)
        self._disk.make_dir(self.consumers_folder)
        self.small.begin()

    def check_free(self) -> None:
        """Raise FileExistsError when the folder has a stream."""
        for present in ("meta.json", f"meta.json{checksummed_files.COPY}", "log"):
            if self._disk.exists(f"{self.folder}/{present}"):
                raise FileExistsError(
                    f"{self.folder} has the files of a stream that could not be opened"
                )
        if self._disk.list_dir(self.consumers_folder):
            raise FileExistsError(f"{self.folder} has the consumers of a stream")

    def remove(self) -> None:
        """Remove the folder with all files in it."""
        self._disk.remove_tree(self.folder)

    def discard(self) -> None:
        """Remove the files of a failed create, as far as the disk allows."""
        with contextlib.suppress(OSError):
            checksummed_files.remove(self._disk, f"{self.folder}/meta.json")
            self._disk.sync_dir(self.folder)
        with contextlib.suppress(OSError):
            self._disk.remove_tree(self.folder)

    def has_log(self) -> bool:
        """Return whether the folder for messages exists."""
        return self._disk.exists(self.log_folder)

    def write(self, meta: StreamFile) -> None:
        """Replace meta.json and its copy, durably."""
        checksummed_files.write(self.small, f"{self.folder}/meta.json", encode(meta))

    def to_write(self, meta: StreamFile) -> tuple[list[str], bytes]:
        """Return the paths that `write` replaces, and the bytes for them."""
        path = f"{self.folder}/meta.json"
        return checksummed_files.both(path), self.small.stored(path, sealed(encode(meta)))

    def _note_unsynced(self, path: str, name: str) -> None:
        """Note that a configuration, its copy and their names may not be on the disk."""
        self.unsynced.update(dict.fromkeys(checksummed_files.both(path), name))
        self.unsynced[path.rpartition("/")[0]] = None

    def sync_created(self, most: int) -> list[str]:
        """Sync at most `most` files and folders of `unsynced`. Returns the names of configurations
        that have to be written again, durably, since their sync failed.
        """
        paths = list(self.unsynced)[:most]
        again: dict[str, None] = {}
        for path, error in zip(paths, self._disk.sync_paths(paths), strict=True):
            name = self.unsynced[path]
            if name is None and error is not None and self._disk.exists(path):
                continue  # the sync of a folder may be tried again
            del self.unsynced[path]
            if name is not None and error is not None and self._disk.exists(path):
                again[name] = None
        return list(again)

    def read(self, report: Callable[[str], None]) -> StreamFile | None:
        """Read the stream's keys, then meta.json; None when it does not exist, or when an interrupted
        create left both files incomplete.

        `report` gets a line for each repair of damage; a repair that the disk refuses goes to
        `unwritten`. BadFileError: the file is not valid, or is of another stream than the folder.
        LockedError: the stream is encrypted and cannot be opened. OSError.
        """
        path = f"{self.folder}/meta.json"
        if not checksummed_files.exists(self._disk, path):
            return None
        self.small.unlock("meta.json", self._later)

        def decode(at: str, data: bytes) -> StreamFile:
            meta = _decode(StreamFile, at, data)
            _check_place(at, "stream", meta.config.name, self.folder.rpartition("/")[2])
            return meta

        try:
            meta = checksummed_files.read(self.small, path, decode, report, self._later)
        except DamagedFileError:
            if self._interrupted(path):
                return None
            raise
        if self.had_unsynced:
            self.created_late()
        return meta

    def _interrupted(self, path: str) -> bool:
        """Return whether a configuration and its copy may be what a power cut left of a create that
        was not synced.
        """
        if not self.had_unsynced:
            return False
        found = [
            self.small.read_file(each)  # an opening may have encrypted what it found
            for each in checksummed_files.both(path)
            if self._disk.exists(each)
        ]
        return not any(is_sealed(data) or not incomplete(data) for data in found)

    def stream_name(self) -> str:
        """Return the stream's name from the name of its folder; "": the name is too long for that."""
        return name_of(self.folder.rpartition("/")[2])

    def read_positions(self, kind: type[P]) -> P | None:
        """Read sources.json; None when it does not exist. BadFileError: it is not valid."""
        path = f"{self.folder}/sources.json"
        if not self._disk.exists(path):
            return None
        return _decode(kind, path, self.small.read_file(path))

    def write_positions(self, positions: Struct) -> None:
        """Replace sources.json."""
        self.small.write_file_atomic(f"{self.folder}/sources.json", sealed(encode(positions)))

    def consumers(self, report: Callable[[str], None]) -> list[ConsumerFile | BadConsumer]:
        """Return every consumer, in the order of the file names, and a BadConsumer for each file
        that is not valid.

        `report` gets a line for each repair of damage; a repair that the disk refuses goes to
        `unwritten`.
        """
        if not self.synced and self._disk.exists(self.consumers_folder):
            # a killed process may have left changes that are not synced
            try:
                self._disk.sync_dir(self.consumers_folder)
            except OSError:
                self._later(
                    self.consumers_folder, lambda: self._disk.sync_dir(self.consumers_folder)
                )
        found: list[ConsumerFile | BadConsumer] = []
        names = {
            name.removesuffix(checksummed_files.COPY)
            for name in self._disk.list_dir(self.consumers_folder)
        }
        for name in sorted(name for name in names if name.endswith(".json")):
            path = f"{self.consumers_folder}/{name}"
            try:
                meta = checksummed_files.read(self.small, path, _consumer_at, report, self._later)
                if meta is None:
                    raise BadFileError(f"{path}: the file is missing")
                found.append(meta)
                if self.had_unsynced:
                    self._note_unsynced(path, meta.name)
            except (BadFileError, OSError) as error:
                if isinstance(error, DamagedFileError) and self._interrupted(path):
                    self._set_aside(path, report)
                    continue
                found.append(BadConsumer(name_of(name.removesuffix(".json")), str(error)))
        return found

    def _set_aside(self, path: str, report: Callable[[str], None]) -> None:
        """Rename what an interrupted create left of a consumer."""
        report(f"{path}: a power cut interrupted the create of this consumer; its name is free")
        number = 1
        while any(self._disk.exists(f"{path}.bad-{n}") for n in (number, number + 1)):
            number += 1
        with contextlib.suppress(OSError):  # the next opening tries again
            for each in checksummed_files.both(path):
                if self._disk.exists(each):
                    self._disk.rename(each, f"{path}.bad-{number}")
                    number += 1

    def write_consumer(self, meta: ConsumerFile) -> None:
        """Replace a consumer's configuration and its copy, durably."""
        checksummed_files.write(self.small, self._consumer(meta.name), encode(meta))

    def consumer_to_write(self, meta: ConsumerFile) -> tuple[list[str], bytes]:
        """Return the paths that `write_consumer` replaces, and the bytes for them."""
        path = self._consumer(meta.name)
        return checksummed_files.both(path), self.small.stored(path, sealed(encode(meta)))

    def created_late(self, consumer: str = "") -> None:
        """Note that the files of a new consumer, or of the new stream, were written without a sync."""
        if consumer:
            self._note_unsynced(self._consumer(consumer), consumer)
            return
        self._note_unsynced(f"{self.folder}/meta.json", "")
        self.unsynced[self.folder.rpartition("/")[0]] = None

    def remove_consumer(self, consumer: str) -> None:
        """Delete a consumer's configuration, durably. The call syncs the folder also when an
        earlier try has removed the file.
        """
        self.unlink_consumer(consumer)
        if self._disk.exists(self.consumers_folder):
            self._disk.sync_dir(self.consumers_folder)

    def unlink_consumer(self, consumer: str) -> None:
        """Delete a consumer's configuration; the caller syncs `consumers_folder`."""
        checksummed_files.remove(self._disk, self._consumer(consumer))

    def _consumer(self, name: str) -> str:
        return f"{self.consumers_folder}/{file_name(name)}.json"


def is_file_name(name: str) -> bool:
    """Return whether a stream or consumer of this name can have files, here and on other servers,
    which use the name itself as a file name.
    """
    return "\0" not in name


def unsynced_mark(stream_folder: str) -> str:
    """Return the path of the file `unsynced` of the account that has a stream in this folder."""
    return f"{stream_folder.rsplit('/', 2)[0]}/unsynced"


_LONGEST = 240  # with the longest suffixes (.json.copy.tmp) 254, of 255
_KEPT = 200


def file_name(name: str) -> str:
    """Return the file name for a name: letters, digits and `_-$@+=,~` stay, every other byte
    becomes %XX.

    File systems allow 255 bytes: of a longer name the beginning stays, and a hash replaces the
    rest.
    """
    data = name.encode("utf-8", "surrogateescape")
    safe = "".join(chr(byte) if byte in _SAFE else f"%{byte:02X}" for byte in data)
    if len(safe) <= _LONGEST:
        return safe
    return f"{safe[:_KEPT]}%{hashlib.sha256(data).hexdigest()[:32]}"


def name_of(file: str) -> str:
    """Return the name that `file_name` made this file name from; "": it cannot be told."""
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
    """Raise MisplacedError when the file of a consumer, or the folder of a stream, has the name of
    another one.
    """
    if not name:
        raise BadFileError(f"{path}: the file has no {what} name")
    right = file_name(name)
    if right != place:
        kind = "folder" if what == "stream" else "file"
        right += "" if what == "stream" else ".json"
        raise MisplacedError(
            f"{path}: this is the file of {what} {name}; its {kind} must be named {right}"
        )


def _decode(kind: type[P], path: str, data: bytes) -> P:
    try:
        line = unsealed(path, data)
        value = decode_request(kind, line, strict=False)
    except JsonError as error:
        # the checksum matches: the file was written so
        kind_of_error = BadFileError if line != data else DamagedFileError
        raise kind_of_error(f"{path}: {error}") from None
    if value.format != FORMAT:
        raise BadFileError(f"{path}: format {value.format}, not {FORMAT}")
    return value
