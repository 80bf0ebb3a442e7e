"""The saved states of a stream's consumers: two files, written in turn, each holding all of them.

    states.0, states.1:   8 bytes   "PSSTATE1"
                          4 bytes   CRC-32 of what follows, little endian
                          the rest  MessagePack [generation, [[name, created, state], ...]]

One write covers every consumer that has changed, and a damaged file costs one generation, not the
states: the other file has the one before. A state belongs to a consumer's name and creation time,
so that a new consumer never gets its namesake's. What a state means is core.consumer's.
"""

import zlib

import msgspec

from penstock.core.disk import Disk

_MAGIC = b"PSSTATE1"
_HEAD_BYTES = len(_MAGIC) + 4
_Row = tuple[bytes, int, bytes]
_File = tuple[int, list[_Row]]


class ConsumerStates:
    """The states of one stream's consumers, in memory and in a folder."""

    def __init__(self, disk: Disk, folder: str) -> None:
        """Nothing is touched before `load` or `write`."""
        self._disk = disk
        self._folder = folder
        self._generation = 0
        self._states: dict[str, tuple[int, bytes]] = {}
        self.unsaved = False  # memory is ahead of the files
        self.failed = False  # the last write failed

    def load(self) -> list[str]:
        """Read the newer good file; what is wrong with the other one, in words."""
        problems = []
        for number in (0, 1):
            path = self._path(number)
            try:
                if not self._disk.exists(path):
                    continue
                generation, rows = _unpack(self._disk.read_file(path))
            except (OSError, ValueError) as error:
                problems.append(f"{path}: {error}")
                continue
            if generation > self._generation:
                self._generation = generation
                self._states = {
                    name.decode("utf-8", "surrogateescape"): (created_ns, state)
                    for name, created_ns, state in rows
                }
        return problems

    def get(self, name: str, created_ns: int) -> bytes | None:
        """The state of the consumer of this name that was created then."""
        created, state = self._states.get(name, (0, b""))
        return state if state and created == created_ns else None

    def put(self, name: str, created_ns: int, state: bytes) -> None:
        """Take a new state; `write` brings it to disk."""
        self._states[name] = (created_ns, state)
        self.unsaved = True

    def drop(self, name: str) -> None:
        """Forget a consumer."""
        self._states.pop(name, None)

    def size_bytes(self) -> int:
        """About what a write writes."""
        return sum(len(name) + len(state) + 16 for name, (_, state) in self._states.items())

    def write(self, *, durable: bool) -> None:
        """Write all states; with `durable` they are on the disk itself afterwards. OSError: it
        could not be done.
        """
        rows = [
            (name.encode("utf-8", "surrogateescape"), created_ns, state)
            for name, (created_ns, state) in self._states.items()
        ]
        self.failed = True
        generation = self._generation + 1
        data = _pack(generation, rows)
        self._disk.write_file_atomic(self._path(generation % 2), data, durable)
        self._generation = generation
        self.unsaved = self.failed = False

    def _path(self, number: int) -> str:
        return f"{self._folder}/states.{number}"


def _pack(generation: int, rows: list[_Row]) -> bytes:
    body = msgspec.msgpack.encode((generation, rows))
    return _MAGIC + zlib.crc32(body).to_bytes(4, "little") + body


def _unpack(data: bytes) -> _File:
    body = data[_HEAD_BYTES:]
    if not data.startswith(_MAGIC):
        raise ValueError("not a file of consumer states")
    if zlib.crc32(body).to_bytes(4, "little") != data[len(_MAGIC) : _HEAD_BYTES]:
        raise ValueError("checksum does not match")
    try:
        found: _File = msgspec.msgpack.decode(body, type=_File)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from None
    return found
