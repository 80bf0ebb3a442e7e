"""Where an account's streams and consumers live on disk, and their configuration files.

    <store>/jetstream/<account>/streams/<stream>/meta.json             the stream
                                                 log/                  its messages (core.log)
                                                 sources.json          how far its sources are (engine/sources)
                                                 consumers/<c>.json    a consumer
                                                 consumers/states.N    their states (engine/states)
                                                 consumers/acks.N      what changed since
    <store>/jetstream/<account>/deleted/<stream>.<id>/                 being removed
    <store>/jetstream/<account>/restoring/<id>/                        a stream that is being restored

A .json file is one line of JSON, then a line `crc32c <8 hex digits>` over the first with its end;
without such a line (somebody has changed the file by hand) it is taken as it is.

Configuration is written whole (temporary file, fsync, rename, fsync of the folder) before a call is
answered. A deleted stream is first renamed out of `streams`, so that a crash never brings back half
of it. Knows nothing of what the files mean.
"""

import contextlib
import hashlib
import string
from typing import TypeVar

from msgspec import Struct, field

from penstock.api.codec import JsonError, decode_request, encode
from penstock.api.consumers import ConsumerConfig
from penstock.api.fields import Int, Time, Uint64
from penstock.api.streams import StreamConfig
from penstock.core.buffer import crc32c_of
from penstock.core.disk import Disk
from penstock.engine.states import ConsumerStates

_SAFE = frozenset(f"{string.ascii_letters}{string.digits}_-$@+=,~".encode())
FORMAT = 1
_SUM = b"crc32c"


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


P = TypeVar("P", bound=Dated)


class BadFileError(Exception):
    """A file is there but can't be understood; str() says which and why."""


class AccountFiles:
    """The folders of one account."""

    def __init__(self, disk: Disk, store: str, account: str) -> None:
        """Nothing is touched before the first call."""
        self._disk = disk
        root = f"{store}/jetstream/{file_name(account)}"
        self._streams = f"{root}/streams"
        self._deleted = f"{root}/deleted"
        self._restoring = f"{root}/restoring"

    def open(self) -> list[str]:
        """Make the folders, finish deletions that were cut short; the stream folders there are."""
        self._disk.make_dir_durable(self._streams)
        self._disk.make_dir(self._deleted)
        for name in self._disk.list_dir(self._restoring):
            self._disk.remove_tree(f"{self._restoring}/{name}")
        for name in self._disk.list_dir(self._deleted):
            self._disk.remove_tree(f"{self._deleted}/{name}")
        return [f"{self._streams}/{name}" for name in self._disk.list_dir(self._streams)]

    def stream(self, folder_or_name: str, *, by_name: bool = True) -> "StreamFiles":
        """The files of a stream, by its name or by its folder."""
        folder = f"{self._streams}/{file_name(folder_or_name)}" if by_name else folder_or_name
        return StreamFiles(self._disk, folder)

    def restoring(self, unique: str) -> "StreamFiles":
        """The files of a stream that is being restored; a start of the server removes them."""
        return StreamFiles(self._disk, f"{self._restoring}/{unique}")

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
        return placed

    def remove(self, files: "StreamFiles", unique: str) -> None:
        """Delete a stream's folder; what it holds is gone even if this is cut short after the
        rename.
        """
        name = files.folder.rpartition("/")[2]
        target = f"{self._deleted}/{unique}.{name}"[: len(self._deleted) + 200]
        self._disk.rename(files.folder, target)
        self._disk.sync_dir(self._streams)
        self._disk.remove_tree(target)

    def discard(self, files: "StreamFiles", unique: str) -> None:
        """Take back a create that failed half way, as far as the disk lets us: the next start finds
        nothing of it.
        """
        try:
            self.remove(files, unique)
        except OSError:
            files.discard()


class StreamFiles:
    """The files of one stream."""

    def __init__(self, disk: Disk, folder: str) -> None:
        """Nothing is touched before the first call."""
        self._disk = disk
        self.folder = folder
        self.log_folder = f"{folder}/log"
        self._consumers = f"{folder}/consumers"
        self.states = ConsumerStates(disk, self._consumers)

    def create(self) -> None:
        """Make the folders, durably; FileExistsError when there is a stream in them already.

        A folder that holds no configuration and no log is what a create that was cut short left
        behind.
        """
        self.check_free()
        self._disk.make_dir(self.folder)
        self._disk.make_dir(self._consumers)
        self._disk.sync_dir(self.folder)
        self._disk.sync_dir(self.folder.rpartition("/")[0])

    def check_free(self) -> None:
        """FileExistsError when there is a stream in the folder."""
        for present in ("meta.json", "log"):
            if self._disk.exists(f"{self.folder}/{present}"):
                raise FileExistsError(f"{self.folder} holds a stream that was left aside")

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        self._disk.remove_tree(self.folder)

    def discard(self) -> None:
        """Take back a create that failed half way, as far as the disk lets us."""
        with contextlib.suppress(OSError):
            self._disk.unlink(f"{self.folder}/meta.json")
            self._disk.sync_dir(self.folder)
        with contextlib.suppress(OSError):
            self._disk.remove_tree(self.folder)

    def has_log(self) -> bool:
        """Whether there is a folder for messages."""
        return self._disk.exists(self.log_folder)

    def write(self, meta: StreamFile) -> None:
        """Replace meta.json."""
        self._disk.write_file_atomic(f"{self.folder}/meta.json", _sealed(encode(meta)))

    def read(self) -> StreamFile | None:
        """meta.json; None when there is none. BadFileError: it can't be understood."""
        path = f"{self.folder}/meta.json"
        if not self._disk.exists(path):
            return None
        meta = _decode(StreamFile, path, self._disk.read_file(path))
        if not meta.config.name:
            raise BadFileError(f"{path}: no stream name")
        return meta

    def read_positions(self, kind: type[P]) -> P | None:
        """sources.json; None when there is none. BadFileError: it can't be understood."""
        path = f"{self.folder}/sources.json"
        if not self._disk.exists(path):
            return None
        return _decode(kind, path, self._disk.read_file(path))

    def write_positions(self, positions: Struct) -> None:
        """Replace sources.json."""
        self._disk.write_file_atomic(f"{self.folder}/sources.json", _sealed(encode(positions)))

    def consumers(self) -> list[ConsumerFile | BadFileError]:
        """Every consumer, by file name; a file that is no consumer as the error."""
        found: list[ConsumerFile | BadFileError] = []
        for name in self._disk.list_dir(self._consumers):
            if not name.endswith(".json"):
                continue
            path = f"{self._consumers}/{name}"
            try:
                meta = _decode(ConsumerFile, path, self._disk.read_file(path))
                if not meta.name:
                    raise BadFileError(f"{path}: no consumer name")
                found.append(meta)
            except BadFileError as error:
                found.append(error)
        return found

    def write_consumer(self, meta: ConsumerFile) -> None:
        """Replace a consumer's configuration."""
        self._disk.write_file_atomic(self._consumer(meta.name), _sealed(encode(meta)))

    def remove_consumer(self, consumer: str) -> None:
        """Delete a consumer's configuration, durably."""
        path = self._consumer(consumer)
        if self._disk.exists(path):
            self._disk.unlink(path)
            self._disk.sync_dir(self._consumers)

    def _consumer(self, name: str) -> str:
        return f"{self._consumers}/{file_name(name)}.json"


_LONGEST = 240  # with the longest suffix, and one for a file that is being written, 255
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


def _sealed(data: bytes) -> bytes:
    line = data + b"\n"
    return line + b"%s %08x\n" % (_SUM, crc32c_of(line))


def _unsealed(path: str, data: bytes) -> bytes:
    line, _, rest = data.partition(b"\n")
    if not rest.startswith(_SUM):
        return data
    if data != _sealed(line):
        raise BadFileError(f"{path}: damaged: the checksum in its second line does not match")
    return line


def _decode(kind: type[P], path: str, data: bytes) -> P:
    try:
        value = decode_request(kind, _unsealed(path, data), strict=False)
    except JsonError as error:
        raise BadFileError(f"{path}: {error}") from None
    if value.format != FORMAT:
        raise BadFileError(f"{path}: format {value.format}, not {FORMAT}")
    return value
