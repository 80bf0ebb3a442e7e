"""Unpackers for the two backup formats; they fill a stream that is being restored.

    tar       meta.inf, meta.sum, msgs/<n>.blk, msgs/index.db, obs/<consumer>/{meta.inf, meta.sum, o.dat}
    NATSARC1  state.json, consumers/<name>, messages, end mark

An unpacker does not know chunks or compression. It hands messages and states to a Staging; nothing
in an archive decides where a file is written. Messages go into the log as they come; the spool of
the staging keeps the files that are used after the last message.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import msgspec

from pelton.api.archives import MAGIC
from pelton.core.stream.backup import BlockReader, EntryReader, apply_state
from pelton.engine.backups.archive import ArchiveError, Entry, Reader
from pelton.engine.backups.nats_files import (
    NatsConsumerState,
    checksum,
    read_consumer_meta,
    read_stream_meta,
    stream_key,
    unpack_state,
)
from pelton.engine.backups.restore_staging import Staging

_BLOCK = re.compile(r"msgs/([1-9][0-9]{0,8})\.blk")
_CONSUMER = re.compile(r"obs/([^/]+)/(meta\.inf|meta\.sum|o\.dat)")
_SMALL_FILES = ("meta.inf", "meta.sum", "errors.txt")
_SUM_MAX_BYTES = 1024
_ERRORS_MAX_BYTES = 1000
_STATE_MAX_BYTES = 256 * 1024 * 1024
_MESSAGE_MAX_BYTES = 30
"""Bytes of an entry for one message in o.dat, at most."""
_ENTRY_COST = 1024
"""Bytes of memory for the place of one file in the spool, at most."""


class _Place(NamedTuple):
    """The position of a file in the spool."""

    start: int
    size: int


class Unpacker(Protocol):
    """The interface of an unpacker."""

    @property
    def waiting(self) -> int:
        """Bytes of an incomplete record."""

    def feed(self, data: memoryview) -> None:
        """Unpack the next bytes. ArchiveError, ValueError, ApiError, OSError."""

    def finish(self) -> Iterator[None]:
        """Do the work after the last byte, in steps. The same errors as `feed`."""


def unpacker_of(magic: bytes, staging: Staging) -> Unpacker:
    """Return the unpacker for an archive with these first bytes."""
    return EntryUnpacker(staging) if magic == MAGIC else TarUnpacker(staging)


class TarUnpacker:
    """Unpacks the tar archive of nats-server's files."""

    def __init__(self, staging: Staging) -> None:
        """Start at the beginning of an archive."""
        self._staging = staging
        self._tar = Reader()
        self._name = ""
        self._blocks: BlockReader | None = None  # the reader of messages, once a block has begun
        self._block = 0  # the number of the current block; 0: not in a block
        self._last_block = 0
        self._small: dict[str, bytearray] = {}  # the small files of the stream itself
        self._index: _Place | None = None  # the place of msgs/index.db
        self._consumers: dict[str, dict[str, _Place]] = {}
        self._keep: bytearray | None = None  # the content of the current file, when it is small
        self._spooled = False  # whether the current file goes to the spool

    @property
    def waiting(self) -> int:
        """Bytes of an incomplete message."""
        return self._blocks.waiting if self._blocks is not None else 0

    def feed(self, data: memoryview) -> None:
        """Unpack the next bytes."""
        try:
            for part in self._tar.feed(bytes(data)):
                if isinstance(part, Entry):
                    self._begin(part)
                elif self._block and self._blocks is not None:
                    self._blocks.feed(part.data)
                    self._blocks.run()
                elif self._spooled:
                    self._staging.spool.put(part.data)
                elif self._keep is not None:
                    self._keep += part.data[: self._staging.meta_max - len(self._keep)]
        except ArchiveError as error:
            if str(error) == "unexpected content":
                raise ArchiveError("unexpected content (account=$G)") from None
            raise

    def _begin(self, entry: Entry) -> None:
        name = entry.name.removeprefix("./")
        if name.startswith("/") or ".." in name.split("/") or "\0" in name:
            raise ArchiveError("unexpected content")
        self._block, self._keep, self._spooled = 0, None, False
        block = _BLOCK.fullmatch(name)
        if block is not None:
            self._begin_block(int(block[1]))
            return
        consumer = _CONSUMER.fullmatch(name)
        if name not in (*_SMALL_FILES, "msgs/index.db") and consumer is None:
            return  # a file of another version
        last = name.rpartition("/")[2]
        limits = {"meta.inf": self._staging.meta_max, "meta.sum": _SUM_MAX_BYTES}
        if name != "errors.txt" and entry.size > limits.get(last, _STATE_MAX_BYTES):
            raise ArchiveError(f"{name} is too large: {entry.size} bytes")
        if name in _SMALL_FILES:
            self._keep = self._small[name] = bytearray()
            return
        self._spooled = True
        place = _Place(self._staging.spool.size, entry.size)
        if consumer is None:
            self._index = place
            return
        self._consumers.setdefault(consumer[1], {})[consumer[2]] = place
        self._staging.noted_bytes += _ENTRY_COST + len(name)

    def _begin_block(self, number: int) -> None:
        if number <= self._last_block:
            raise ArchiveError(f"message block {number} follows message block {self._last_block}")
        if self._blocks is None:
            self._check_meta()
            self._blocks = BlockReader(self._staging.open(), self._staging.config.name)
        self._blocks.start(number)
        self._block = self._last_block = number

    def _check_meta(self) -> None:
        meta = bytes(self._small.get("meta.inf", b""))
        if not meta:
            raise ArchiveError("meta.inf is missing")
        config, created_ns = read_stream_meta(meta)
        name = self._staging.config.name
        if config.name != name:
            raise ArchiveError("stream names do not match")
        said = bytes(self._small.get("meta.sum", b""))
        if said and said.strip() != checksum(name, meta):
            raise ArchiveError("the checksum of meta.inf does not match")
        if created_ns > 0:
            self._staging.created_ns = created_ns

    def finish(self) -> Iterator[None]:
        """Do the work after the last byte, in steps."""
        if not self._tar.ended:
            raise ArchiveError("unexpected EOF")
        staging = self._staging
        if self._blocks is None:
            self._check_meta()
            staging.open()
        else:
            self._blocks.start(self._last_block)  # raises when the last block ends within a record
        log = staging.open()
        first, last = 0, self._blocks.last_removed if self._blocks is not None else 0
        if self._index is not None:
            index = staging.spool.read(*self._index)
            found = apply_state(log, index, stream_key(staging.config.name))
            if found is not None:
                first, last = found[0], max(last, found[1])
        staging.settle(first, last)
        if "errors.txt" in self._small:
            errors = bytes(self._small["errors.txt"][:_ERRORS_MAX_BYTES])
            staging.warn(f"the backup was made with errors: {errors!r}")
        for name in sorted(self._consumers):
            self._consumer(name, self._consumers[name])
            yield

    def _consumer(self, name: str, files: dict[str, _Place]) -> None:
        spool, most = self._staging.spool, self._staging.named_max
        try:
            meta = spool.read(*files["meta.inf"])
            said = spool.read(*files["meta.sum"])
            owner = f"{self._staging.config.name}/{name}"
            if said.strip() != checksum(owner, meta):
                raise ValueError("the checksum of meta.inf does not match")
            config, created_ns = read_consumer_meta(meta)
            place = files.get("o.dat", _Place(0, 0))
            if place.size > 100 + 2 * _MESSAGE_MAX_BYTES * most:
                raise ValueError(f"not a consumer state: {place.size} bytes")
            state = unpack_state(spool.read(*place), most)
        except KeyError as missing:
            raise ArchiveError(f'error restoring consumer ["{name}"]: no {missing}') from None
        except ValueError as error:
            raise ArchiveError(f'error restoring consumer ["{name}"]: {error}') from None
        self._staging.consumer(name, config, created_ns, state)


class _Pair(msgspec.Struct):
    consumer_seq: int = 0
    stream_seq: int = 0


_NOTHING = msgspec.Raw(b"null")


class _Pending(msgspec.Struct):
    Sequence: int = 0
    Timestamp: int = 0


class _State(msgspec.Struct):
    delivered: _Pair = msgspec.field(default_factory=_Pair)
    ack_floor: _Pair = msgspec.field(default_factory=_Pair)
    pending: msgspec.Raw = _NOTHING
    redelivered: msgspec.Raw = _NOTHING


class _Consumer(msgspec.Struct):
    config: msgspec.Raw
    state: _State


class _Counts(msgspec.Struct):
    first_seq: int = 0
    last_seq: int = 0
    consumer_count: int = 0


class EntryUnpacker:
    """Unpacks the archive of nats-server 2.15."""

    def __init__(self, staging: Staging) -> None:
        """Start at the beginning of an archive."""
        self._staging = staging
        self._entries = EntryReader()
        of_stream = staging.config.max_msg_size
        most = staging.payload_max
        self._entries.max_bytes = min(of_stream, most) if of_stream >= 0 else most
        self._entries.now_ns = staging.now_ns
        self._counts: _Counts | None = None
        self._consumers: dict[str, _Place] = {}

    @property
    def waiting(self) -> int:
        """Bytes of an incomplete entry."""
        return self._entries.waiting

    def feed(self, data: memoryview) -> None:
        """Unpack the next bytes."""
        self._entries.feed(data)
        while (entry := self._entries.run()) is not None:
            name, content = entry
            if self._counts is None:
                self._begin(name, content)
            else:
                self._keep(name, content, self._counts.consumer_count)

    def _keep(self, path: str, content: bytes, most: int) -> None:
        name = path.removeprefix("consumers/")
        if name == path or len(self._consumers) >= most:
            raise ArchiveError(f'expected message, found "{path}"')
        if name in self._consumers:
            raise ArchiveError(
                f'error restoring consumer ["{name}"]: the archive has the consumer twice'
            )
        spool = self._staging.spool
        self._consumers[name] = _Place(spool.size, len(content))
        self._staging.noted_bytes += _ENTRY_COST + len(name)
        spool.put(content)

    def _begin(self, name: str, content: bytes) -> None:
        if name != "state.json":
            raise ArchiveError("expected state.json first")
        try:
            counts = msgspec.json.decode(content, type=_Counts)
        except msgspec.DecodeError as error:
            raise ArchiveError(f"error in state.json: {error}") from None
        if not 0 <= counts.first_seq < 1 << 62 or not 0 <= counts.last_seq < 1 << 62:
            raise ArchiveError("error in state.json: the sequences are too high")
        self._counts = counts
        self._entries.log = self._staging.open(max(counts.first_seq, 1))

    def finish(self) -> Iterator[None]:
        """Do the work after the last byte, in steps."""
        counts = self._counts
        if counts is None or not self._entries.complete:
            raise ArchiveError("backup was truncated")
        if self._entries.waiting:
            raise ArchiveError("the archive has bytes after its end")
        if len(self._consumers) != counts.consumer_count:
            raise ArchiveError("backup was truncated: consumers are missing")
        self._staging.settle(0, counts.last_seq)
        for name, place in self._consumers.items():
            self._consumer(name, place)
            yield

    def _consumer(self, name: str, place: _Place) -> None:
        staging = self._staging
        try:
            found = msgspec.json.decode(staging.spool.read(*place), type=_Consumer)
            if len(bytes(found.config)) > staging.meta_max:
                raise ValueError("the configuration is too long")
            config, _ = read_consumer_meta(bytes(found.config))
            state = _peer_state(found.state, staging.named_max)
        except (msgspec.DecodeError, ValueError) as error:
            what = f'failed to decode consumer "{name}" state: {error}'
            raise ArchiveError(what) from None
        staging.consumer(name, config, 0, state)


def _peer_state(state: _State, most: int) -> NatsConsumerState:
    # a pending message has a brace, a redelivered one a colon: count them before decoding
    for raw, sign in ((state.pending, b"{"), (state.redelivered, b":")):
        if bytes(raw).count(sign) > most + 1:
            raise ValueError(f"the state names more messages than the {most} that are possible")
    pending = msgspec.json.decode(state.pending, type=dict[int, _Pending] | None) or {}
    redelivered = msgspec.json.decode(state.redelivered, type=dict[int, int] | None) or {}
    return NatsConsumerState(
        floor_consumer=state.ack_floor.consumer_seq,
        floor_stream=state.ack_floor.stream_seq,
        delivered_consumer=state.delivered.consumer_seq,
        delivered_stream=state.delivered.stream_seq,
        pending={seq: (p.Sequence, p.Timestamp) for seq, p in pending.items()},
        redelivered=redelivered,
    )
