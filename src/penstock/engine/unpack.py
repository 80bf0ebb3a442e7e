"""Backups of the two kinds that there are, unpacked into a stream that is being restored.

    tar       meta.inf, meta.sum, msgs/<n>.blk, msgs/index.db, obs/<consumer>/{meta.inf, meta.sum, o.dat}
    NATSARC1  state.json, consumers/<name>, messages, end mark

Knows nothing of chunks or compression. What it finds it hands to a Staging; nothing in an archive
decides where anything is written.
"""

import re
from typing import Protocol

import msgspec

from penstock.core.backup import BlockReader, EntryReader, apply_state
from penstock.engine.archive import ArchiveError, Entry, Reader
from penstock.engine.peer_files import (
    PeerState,
    checksum,
    read_consumer_meta,
    read_stream_meta,
    stream_key,
    unpack_state,
)
from penstock.engine.restored import Staging

_BLOCK = re.compile(r"msgs/([1-9][0-9]{0,8})\.blk")
_CONSUMER = re.compile(r"obs/([^/]+)/(meta\.inf|meta\.sum|o\.dat)")
_META_MAX_BYTES = 4 * 1024 * 1024
_STATE_MAX_BYTES = 256 * 1024 * 1024
_CONSUMERS_MAX = 1_000_000


class Unpacker(Protocol):
    """What a restore feeds."""

    def feed(self, data: memoryview) -> None:
        """Take in the next bytes. ArchiveError, ValueError, ApiError, OSError."""

    def finish(self) -> None:
        """There are no more bytes."""


def unpacker_of(magic: bytes, staging: Staging) -> Unpacker:
    """The one for an archive that begins so."""
    return Entries(staging) if magic == b"NATSARC1" else Files(staging)


class Files:
    """The tar archive of nats-server's files."""

    def __init__(self, staging: Staging) -> None:
        """At the start of an archive."""
        self._staging = staging
        self._tar = Reader()
        self._name = ""
        self._blocks: BlockReader | None = None  # of the messages, once a block has begun
        self._block = 0  # the number of the current one; 0: not in a block
        self._last_block = 0
        self._kept: dict[str, bytearray] = {}
        self._keep: bytearray | None = None  # the content of the current file, when it is wanted

    def feed(self, data: memoryview) -> None:
        """Take in the next bytes."""
        try:
            for part in self._tar.feed(bytes(data)):
                if isinstance(part, Entry):
                    self._begin(part)
                elif self._block and self._blocks is not None:
                    self._blocks.feed(part.data)
                    self._blocks.run()
                elif self._keep is not None:
                    self._keep += part.data
        except ArchiveError as error:
            if str(error) == "unexpected content":
                raise ArchiveError("unexpected content (account=$G)") from None
            raise

    def _begin(self, entry: Entry) -> None:
        name = entry.name.removeprefix("./")
        if name.startswith("/") or ".." in name.split("/") or "\0" in name:
            raise ArchiveError("unexpected content")
        self._name, self._block, self._keep = name, 0, None
        block = _BLOCK.fullmatch(name)
        if block is not None:
            self._begin_block(int(block[1]))
            return
        wanted = name in ("meta.inf", "meta.sum", "errors.txt", "msgs/index.db")
        if not wanted and not _CONSUMER.fullmatch(name):
            return  # what other versions add
        limit = _STATE_MAX_BYTES if name.endswith(("index.db", "o.dat")) else _META_MAX_BYTES
        if entry.size > limit:
            raise ArchiveError(f"{name} is too large: {entry.size} bytes")
        if len(self._kept) >= 3 * _CONSUMERS_MAX:
            raise ArchiveError("too many files")
        self._keep = self._kept[name] = bytearray()

    def _begin_block(self, number: int) -> None:
        if number <= self._last_block:
            raise ArchiveError(f"message block {number} after {self._last_block}")
        if self._blocks is None:
            self._check_meta()
            self._blocks = BlockReader(self._staging.open(), self._staging.config.name)
        self._blocks.start(number)
        self._block = self._last_block = number

    def _check_meta(self) -> None:
        meta = bytes(self._kept.get("meta.inf", b""))
        if not meta:
            raise ArchiveError("meta.inf is missing")
        config, created_ns = read_stream_meta(meta)
        name = self._staging.config.name
        if config.name != name:
            raise ArchiveError("stream names do not match")
        said = bytes(self._kept.get("meta.sum", b""))
        if said and said.strip() != checksum(name, meta):
            raise ArchiveError("the checksum of meta.inf does not match")
        if created_ns > 0:
            self._staging.created_ns = created_ns

    def finish(self) -> None:
        """There are no more bytes."""
        if not self._tar.ended:
            raise ArchiveError("unexpected EOF")
        staging = self._staging
        if self._blocks is None:
            self._check_meta()
            staging.open()
        else:
            self._blocks.start(self._last_block)  # which tells when the last one ends amid a record
        log = staging.open()
        first, last = 0, self._blocks.last_removed if self._blocks is not None else 0
        index = self._kept.get("msgs/index.db")
        if index is not None:
            found = apply_state(log, bytes(index), stream_key(staging.config.name))
            if found is not None:
                first, last = found[0], max(last, found[1])
        staging.settle(first, last)
        if "errors.txt" in self._kept:
            staging.warn(f"the backup names errors: {bytes(self._kept['errors.txt'])[:1000]!r}")
        names = {match[1] for each in self._kept if (match := _CONSUMER.fullmatch(each))}
        for name in sorted(names):
            self._consumer(name)

    def _consumer(self, name: str) -> None:
        try:
            meta = bytes(self._kept[f"obs/{name}/meta.inf"])
            said = bytes(self._kept[f"obs/{name}/meta.sum"])
            owner = f"{self._staging.config.name}/{name}"
            if said.strip() != checksum(owner, meta):
                raise ValueError("the checksum of meta.inf does not match")
            config, created_ns = read_consumer_meta(meta)
            state = unpack_state(bytes(self._kept.get(f"obs/{name}/o.dat", b"")))
        except KeyError as missing:
            raise ArchiveError(f'error restoring consumer ["{name}"]: no {missing}') from None
        except ValueError as error:
            raise ArchiveError(f'error restoring consumer ["{name}"]: {error}') from None
        self._staging.consumer(name, config, created_ns, state)


class _Pair(msgspec.Struct):
    consumer_seq: int = 0
    stream_seq: int = 0


class _Pending(msgspec.Struct):
    Sequence: int = 0
    Timestamp: int = 0


class _State(msgspec.Struct):
    delivered: _Pair = msgspec.field(default_factory=_Pair)
    ack_floor: _Pair = msgspec.field(default_factory=_Pair)
    pending: dict[int, _Pending] | None = None
    redelivered: dict[int, int] | None = None


class _Consumer(msgspec.Struct):
    config: msgspec.Raw
    state: _State


class _Counts(msgspec.Struct):
    first_seq: int = 0
    last_seq: int = 0
    consumer_count: int = 0


class Entries:
    """The archive of 2.15."""

    def __init__(self, staging: Staging) -> None:
        """At the start of an archive."""
        self._staging = staging
        self._entries = EntryReader()
        self._entries.max_bytes = staging.config.max_msg_size
        self._entries.now_ns = staging.now_ns
        self._counts: _Counts | None = None
        self._consumers: list[tuple[str, bytes]] = []

    def feed(self, data: memoryview) -> None:
        """Take in the next bytes."""
        self._entries.feed(data)
        while (entry := self._entries.run()) is not None:
            name, content = entry
            if self._counts is None:
                self._begin(name, content)
            elif name.startswith("consumers/") and len(self._consumers) < _CONSUMERS_MAX:
                self._consumers.append((name.removeprefix("consumers/"), content))
            else:
                raise ArchiveError(f'expected consumer, found "{name}"')

    def _begin(self, name: str, content: bytes) -> None:
        if name != "state.json":
            raise ArchiveError("expected state.json first")
        try:
            counts = msgspec.json.decode(content, type=_Counts)
        except msgspec.DecodeError as error:
            raise ArchiveError(f"error in state.json: {error}") from None
        if not 0 <= counts.first_seq < 1 << 62 or not 0 <= counts.last_seq < 1 << 62:
            raise ArchiveError("error in state.json: sequences that are too high")
        self._counts = counts
        self._entries.log = self._staging.open(max(counts.first_seq, 1))

    def finish(self) -> None:
        """There are no more bytes."""
        counts = self._counts
        if counts is None or not self._entries.complete:
            raise ArchiveError("backup was truncated")
        if self._entries.waiting:
            raise ArchiveError("bytes behind the end of the archive")
        if len(self._consumers) != counts.consumer_count:
            raise ArchiveError("backup was truncated: consumers are missing")
        self._staging.settle(0, counts.last_seq)
        for name, content in self._consumers:
            try:
                found = msgspec.json.decode(content, type=_Consumer)
                config, _ = read_consumer_meta(bytes(found.config))
            except (msgspec.DecodeError, ValueError) as error:
                what = f'failed to decode consumer "{name}" state: {error}'
                raise ArchiveError(what) from None
            self._staging.consumer(name, config, 0, _peer_state(found.state))


def _peer_state(state: _State) -> PeerState:
    return PeerState(
        floor_consumer=state.ack_floor.consumer_seq,
        floor_stream=state.ack_floor.stream_seq,
        delivered_consumer=state.delivered.consumer_seq,
        delivered_stream=state.delivered.stream_seq,
        pending={seq: (p.Sequence, p.Timestamp) for seq, p in (state.pending or {}).items()},
        redelivered=state.redelivered or {},
    )
