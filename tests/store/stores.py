"""Store folders for tests: made with the parts a server makes them with."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING

from pelton.api.consumers import ConsumerConfig
from pelton.api.streams import StreamConfig, StreamSource
from pelton.core.base.disk import Disk
from pelton.core.base.readonly_disk import ReadOnlyDisk
from pelton.core.consumer.snapshot import pack
from pelton.core.log import maintenance, queries
from pelton.core.log.recovery import open_log
from pelton.core.log.segment_reader import LogReader
from pelton.engine.files.files import FORMAT, AccountFiles, ConsumerFile, StreamFile, StreamFiles
from pelton.store.layout import Store, StreamFolder, find
from pelton.vault import Vault

if TYPE_CHECKING:
    from pelton.core.log.log import StoredMessage

CREATED = 1_700_000_000_000_000_000
SEGMENT = 4096


def make_stream(
    store: Path,
    name: str = "ORDERS",
    count: int = 200,
    *,
    account: str = "$G",
    compress: bool = False,
    mirror: str = "",
) -> Path:
    """A closed stream with removed messages and one consumer; its folder. `mirror`: its origin."""
    files = AccountFiles(Disk(), str(store), account)
    files.open()
    stream = files.stream(name)
    stream.create()
    config = StreamConfig(name=name, subjects=[f"{name}.>"])
    if mirror:
        config = StreamConfig(name=name, mirror=StreamSource(name=mirror))
    stream.write(StreamFile(format=FORMAT, created=CREATED, config=config))
    log = open_log(stream.log_folder, segment_bytes=SEGMENT)
    log.compress = compress
    pick = random.Random(count)
    for i in range(count):
        payload = b"message %d: " % i + b"state is on; " * pick.randint(0, 12)
        log.add(CREATED + i, f"{name}.{i % 7}", payload, b"NATS/1.0\r\nA: b\r\n\r\n" * (i % 2))
    for seq in range(3, count, 10):
        maintenance.delete(log, seq)
    log.flush()
    while maintenance.maintain(log):
        pass
    maintenance.close(log)
    make_consumer(stream, "packing", count)
    return Path(stream.folder)


def make_consumer(stream: StreamFiles, name: str, last_seq: int) -> None:
    config = ConsumerConfig(durable_name=name, ack_policy="explicit")
    meta = ConsumerFile(format=FORMAT, created=CREATED, name=name, start_seq=1, config=config)
    stream.write_consumer(meta)
    done = last_seq // 2
    entry = (done + 1, done + 1, CREATED, 1, 1)
    state = pack((done + 1, done + 1, done + 2, CREATED, done, done, CREATED), [entry], [])
    stream.states.put(name, CREATED, state)
    stream.states.begin()


def stores(path: Path) -> tuple[ReadOnlyDisk, Store]:
    disk = ReadOnlyDisk()
    return disk, find(disk, str(path))


def place_of(path: Path, name: str = "ORDERS") -> tuple[ReadOnlyDisk, StreamFolder]:
    disk, store = stores(path)
    return disk, store.one(name)


def make_encrypted_stream(root: Path) -> Path:
    """A stream SECRET with 100 messages under a key that nobody keeps; its folder."""
    vault = Vault.of("a key that is long enough", random=os.urandom)
    files = AccountFiles(Disk(), str(root), "$G", vault)
    files.open()
    stream = files.stream("SECRET")
    stream.create()
    config = StreamConfig(name="SECRET", subjects=["secret.>"])
    stream.write(StreamFile(format=FORMAT, created=CREATED, config=config))
    log = open_log(stream.log_folder, segment_bytes=4096, cipher=stream.small.cipher)
    for i in range(100):
        log.add(CREATED + i, "secret.a", b"payload %d" % i)
    maintenance.close(log)
    return Path(stream.folder)


def messages_of(folder: Path) -> dict[int, StoredMessage]:
    """What can be read of a stream's folder; nothing is changed."""
    log = LogReader(ReadOnlyDisk(), str(folder / "log")).log
    found = {}
    message = queries.next_of(log, ">", 1)
    while message is not None:
        found[message.seq] = message
        message = queries.next_of(log, ">", message.seq + 1)
    return found


def segments_of(folder: Path) -> list[Path]:
    return sorted((folder / "log").glob("*.seg"))


def tree(path: Path) -> dict[str, bytes]:
    """Every file below a folder, but for locks."""
    return {
        str(each.relative_to(path)): each.read_bytes()
        for each in path.rglob("*")
        if each.is_file() and each.name != "lock"
    }


def flip(path: Path, at: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


class Failing:
    """The machine's disk for PyDisk, which refuses everything from the nth change on."""

    def __init__(self, changes: int) -> None:
        self.left = changes
        self.inside = Disk()

    def _change(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.EIO, "the disk has failed")

    def open(self, path: str, create: bool) -> int:
        if create:
            self._change()
        return os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)

    def close(self, handle: int) -> None:
        os.close(handle)

    def write_at(self, handle: int, data: bytes, offset: int) -> None:
        self._change()
        os.pwrite(handle, data, offset)

    def read_at(self, handle: int, n: int, offset: int) -> bytes:
        return os.pread(handle, n, offset)

    def sync(self, handle: int) -> None:
        self._change()

    def size(self, handle: int) -> int:
        return os.fstat(handle).st_size

    def truncate(self, handle: int, size: int) -> None:
        self._change()
        os.ftruncate(handle, size)

    def make_dir(self, path: str) -> None:
        self._change()
        self.inside.make_dir(path)

    def list_dir(self, path: str) -> list[str]:
        return self.inside.list_dir(path)

    def exists(self, path: str) -> bool:
        return self.inside.exists(path)

    def rename(self, old: str, new: str) -> None:
        self._change()
        self.inside.rename(old, new)

    def unlink(self, path: str) -> None:
        self._change()
        self.inside.unlink(path)

    def remove_tree(self, path: str) -> None:
        if self.left > 0:  # what cleans up behind a failure may fail as well
            self.inside.remove_tree(path)

    def sync_dir(self, path: str) -> None:
        self._change()
