"""The contents of a backup: an archive of one stream, made in pieces of at most a slice.

    a stream in files     a tar file of nats-server's files: meta.inf, meta.sum, msgs/<n>.blk,
                          obs/<consumer>/{meta.inf, meta.sum, o.dat}
    a stream in memory    NATSARC1, as nats-server makes it from 2.15 on: state.json,
                          consumers/<name>, messages, end mark

Consumers with `mem_storage` make a NATSARC1 of a stream in files, too: nats-server reads their
positions from no tar file.

An empty piece is the end of a slice of work. The state of the consumers is that of the beginning,
before new messages are delivered. Does not depend on chunks, compression or receivers.
"""

from collections.abc import Iterator

import msgspec

from pelton.api import archives
from pelton.api.codec import encode
from pelton.core.stream.backup import BlockWriter, EntryWriter
from pelton.engine.account.catalog import ConsumerEntry, StreamEntry, stream_state
from pelton.engine.backups import archive
from pelton.engine.backups.nats_consumer_state import to_peer
from pelton.engine.backups.nats_files import (
    NatsConsumerState,
    checksum,
    consumer_meta,
    pack_state,
    stream_meta,
)

SLICE_BYTES = 256 * 1024
"""Bytes of the archive that one turn makes."""
BLOCK_BYTES = 4 * 1024 * 1024


def contents(entry: StreamEntry, stop: int, now_ns: int, *, consumers: bool) -> Iterator[bytes]:
    """Yield the archive of a stream up to sequence `stop`, with its consumers or without them."""
    in_memory = consumers and any(each.config.mem_storage for each in _kept(entry))
    if entry.files is None or in_memory:
        return _entries(entry, stop, now_ns, consumers)
    return _of_files(entry, stop, now_ns, consumers)


# -- NATSARC1


def _entries(entry: StreamEntry, stop: int, now_ns: int, consumers: bool) -> Iterator[bytes]:
    packed = [_consumer_entry(each, now_ns) for each in _kept(entry)] if consumers else []
    state = msgspec.structs.replace(stream_state(entry), last_seq=stop, consumer_count=len(packed))
    yield archives.MAGIC + archives.packed(archives.STATE, now_ns, 0, b"", encode(state))
    yield from packed
    log = entry.core.log
    writer, seq = EntryWriter(), max(log.first_seq, 1)
    while seq <= stop:
        seq = writer.fill(log, seq, stop, SLICE_BYTES)
        yield writer.take()
    yield archives.END


def _kept(entry: StreamEntry) -> list[ConsumerEntry]:
    """Return the consumers that an archive has: all that clients made, also those in memory."""
    return [each for each in entry.consumers.values() if not each.internal]


def _consumer_entry(consumer: ConsumerEntry, now_ns: int) -> bytes:
    config = msgspec.structs.replace(consumer.config, name=consumer.core.name)
    state = to_peer(consumer.core, config.ack_wait, now_ns)
    content = b'{"config":%s,"state":%s}' % (encode(config), msgspec.json.encode(_state_of(state)))
    return archives.packed(f"consumers/{config.name}", now_ns, 0, b"", content)


def _state_of(state: NatsConsumerState) -> dict[str, object]:
    found: dict[str, object] = {
        "delivered": {
            "consumer_seq": state.delivered_consumer,
            "stream_seq": state.delivered_stream,
        },
        "ack_floor": {"consumer_seq": state.floor_consumer, "stream_seq": state.floor_stream},
    }
    if state.pending:
        found["pending"] = {
            str(seq): {"Sequence": consumer_seq, "Timestamp": ns}
            for seq, (consumer_seq, ns) in state.pending.items()
        }
    if state.redelivered:
        found["redelivered"] = {str(seq): times for seq, times in state.redelivered.items()}
    return found


# -- the tar file


def _of_files(entry: StreamEntry, stop: int, now_ns: int, consumers: bool) -> Iterator[bytes]:
    name, log = entry.config.name, entry.core.log
    meta = stream_meta(entry.config, entry.created_ns)
    yield from _file("meta.inf", meta, now_ns)
    yield from _file("meta.sum", checksum(name, meta), now_ns)
    found = list(_consumer_files(entry, now_ns)) if consumers else []
    seq, index, last_ns = max(log.first_seq, 1), 0, log.last_ts_ns
    while seq <= stop:
        index += 1
        block = BlockWriter(name)
        block.start(index)
        while seq <= stop and len(block) < BLOCK_BYTES:
            seq = block.fill(log, seq, stop, SLICE_BYTES, BLOCK_BYTES)
            yield b""
        if len(block):
            yield from _file(f"msgs/{index}.blk", block.take(), now_ns)
    if stop and not log.size_of(stop):
        # the record of a removed last message: nothing else tells the last sequence. It has a block
        # of its own, since nats-server 2.10 does not see removed messages before it in a block.
        block = BlockWriter(name)
        block.start(index + 1)
        block.erased(stop, last_ns)
        yield from _file(f"msgs/{index + 1}.blk", block.take(), now_ns)
    for path, data in found:
        yield from _file(path, data, now_ns)
    yield archive.END


def _consumer_files(entry: StreamEntry, now_ns: int) -> Iterator[tuple[str, bytes]]:
    stream = entry.config.name
    for consumer in _kept(entry):
        name, config = consumer.name, consumer.config
        meta = consumer_meta(name, config, consumer.created_ns)
        state = to_peer(consumer.core, config.ack_wait, now_ns)
        yield f"obs/{name}/meta.inf", meta
        yield f"obs/{name}/meta.sum", checksum(f"{stream}/{name}", meta)
        yield f"obs/{name}/o.dat", pack_state(state)


def _file(name: str, data: bytes, mtime_ns: int) -> Iterator[bytes]:
    yield archive.head(name, len(data), mtime_ns)
    for at in range(0, len(data), SLICE_BYTES):
        yield data[at : at + SLICE_BYTES]
    yield archive.padding(len(data))
