"""What a client gives as a backup: blocks, the entries of an archive, index.db, o.dat, tar files, whole restores.

A record whose checksum is wrong is refused at once, so the checksums of blocks are set right.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable

from pelton.core.base.highway_hash import highway64
from pelton.core.log import queries
from pelton.core.log.log import Log
from pelton.core.log.recovery import open_log
from pelton.core.stream.backup import BlockReader, BlockWriter, EntryReader, apply_state
from pelton.engine.backups.archive import ArchiveError, Entry, Reader, head, padding
from pelton.engine.backups.nats_files import (
    NatsConsumerState,
    pack_state,
    read_consumer_meta,
    read_stream_meta,
    unpack_state,
)
from tests.fuzz.folders import everything
from tests.fuzz.inputs import pieces

MAX_BYTES = 4096
KINDS = 6
KEY = hashlib.sha256(b"S-1").digest()
STATE_KEY = hashlib.sha256(b"S").digest()
WORDS = (b"NATSARC1", b"state.json", b"consumers/", b"meta.inf", b"msgs/1.blk", b"ustar\x00", b"\x16\x02", b"\x0b\x03", b"Nats-TTL: 1s", b"\xff" * 9)  # fmt: skip


def run(data: bytes) -> None:
    """Byte 0: what the rest is; byte 1: where it is split."""
    if len(data) < 2:
        return
    kind, seed, body = data[0] % KINDS, data[1], data[2:]
    if kind == 0:
        body = sealed_records(body)
        assert read_blocks([body]) == read_blocks(pieces(body, seed))
    elif kind == 1:
        assert read_entries([body]) == read_entries(pieces(body, seed))
    elif kind == 2:
        apply(body)
    elif kind == 3:
        state(body)
    elif kind == 4:
        assert read_tar([body]) == read_tar(pieces(body, seed))
    else:
        meta(body)


def holds(log: Log) -> list[tuple[int, bytes]]:
    found = everything(log)
    assert len(found) == log.msgs
    assert sum(queries.subjects(log).values()) == log.msgs
    return [(seq, message.headers + message.payload) for seq, message in found.items()]


def sealed_records(data: bytes) -> bytes:
    out, at = bytearray(data), 0
    while at + 30 <= len(out):
        said = int.from_bytes(out[at : at + 4], "little")
        length, names = said & 0x7FFFFFFF, int.from_bytes(out[at + 20 : at + 22], "little")
        body = at + 22 + names + (4 if said >> 31 else 0)
        end = at + length
        if end > len(out) or end - 8 < body:
            break
        checked = bytes(
            out[at + 4 : at + 20] + out[at + 22 : at + 22 + names] + out[body : end - 8]
        )
        out[end - 8 : end] = highway64(KEY, checked).to_bytes(8, "little")
        at = end
    return bytes(out)


def read_blocks(parts: list[bytes]) -> tuple[object, ...]:
    log = open_log(None)
    reader = BlockReader(log, "S")
    reader.start(1)
    problem = ""
    try:
        for part in parts:
            reader.feed(part)
            reader.run()
        reader.start(2)
    except ValueError as error:
        problem = str(error)
    return problem, reader.last_removed, log.last_seq, holds(log)


def read_entries(parts: list[bytes]) -> tuple[object, ...]:
    log = open_log(None)
    reader = EntryReader()
    reader.max_bytes = 2000
    reader.now_ns = 1_700_000_000_000_000_000
    files: list[tuple[str, bytes]] = []
    problem = ""
    try:
        for part in parts:
            reader.feed(part)
            while (entry := reader.run()) is not None:
                files.append(entry)
                if entry[0] == "state.json":
                    reader.log = log
    except ValueError as error:
        problem = str(error)
    return problem, files, reader.complete, log.last_seq, holds(log)


def apply(body: bytes) -> None:
    log = open_log(None)
    for k in range(70):
        log.add(k + 1, f"s.{k % 3}", b"m")
    checksum = highway64(STATE_KEY, body).to_bytes(8, "little")
    said = apply_state(log, body + checksum, STATE_KEY)
    assert said is None or len(said) == 2
    assert log.last_seq == 70
    holds(log)


def state(body: bytes) -> None:
    try:
        found = unpack_state(body)
    except ValueError:
        return
    for seq, (consumer_seq, _) in found.pending.items():
        assert seq > 0
        assert consumer_seq >= 0


def read_tar(parts: list[bytes]) -> tuple[object, ...]:
    reader = Reader()
    files: list[tuple[str, int, bytes]] = []
    problem = ""
    try:
        for part in parts:
            for each in reader.feed(part):
                if isinstance(each, Entry):
                    files.append((each.name, each.size, b""))
                else:
                    name, size, content = files.pop()
                    files.append((name, size, content + bytes(each.data)))
                    assert len(files[-1][2]) <= size
                    assert not each.last or len(files[-1][2]) == size
    except ArchiveError as error:
        problem = str(error)
    return problem, files, reader.ended


def meta(body: bytes) -> None:
    for read in (read_stream_meta, read_consumer_meta):
        try:
            read(body)
        except ValueError:
            continue


def seeds() -> Iterable[bytes]:
    log = open_log(None)
    for k in range(4):
        log.add(1000 + k, f"s.{k}", b"body" * k, b"NATS/1.0\r\nK: v\r\n\r\n" if k % 2 else b"")
    writer = BlockWriter("S")
    writer.start(1)
    writer.fill(log, 1, 4, 1 << 20, 1 << 20)
    writer.erased(7, 5)
    yield b"\0\5" + writer.take()
    yield b"\0\2" + struct.pack("<IQqH", 30, 2 | 1 << 62, 5, 0) + bytes(8)
    yield (
        b"\1\3NATSARC1"
        + entry(b"state.json", 0, 2, b"", b'{"first_seq":1,"last_seq":9}')
        + entry(b"s.a", 1, 5, b"NATS/1.0\r\nNats-TTL: 1s\r\n\r\n", b"x")
        + entry(b"s.b", 1 << 40, 5, b"", b"yy")
        + entry(b"consumers/c", 0, 0, b"", b"{}")
        + bytes(5)
    )
    yield (
        b"\2\0"
        + bytes.fromhex("0b03")
        + bytes(
            [70, 100, 1, 2, 70, 2, 1, 3, 0x73, 0x2E, 0x61, 2, 1, 1, 1, 1, 9, 3, 2, 40, 2, 1, 0, 0]
        )
        + struct.pack("<BBII", 22, 2, 1, 1)
        + struct.pack("<Q", 0)
        + b"\x10"
        + bytes(257)
        + b"\1"
        + bytes(8)
    )
    pending = {10: (6, 1795209257 * 10**9), 12: (8, 1795209258 * 10**9)}
    yield b"\3\0" + pack_state(NatsConsumerState(5, 8, 21, 24, pending, {10: 3}))
    yield b"\3\0" + b"\x16\x01\x05\x08\x03\x04\x01\x14\x02\x06\x00"
    yield (
        b"\4\7"
        + head("msgs/1.blk", 5, 0)
        + b"hello"
        + padding(5)
        + head("x" * 150, 0, 0)
        + bytes(1024)
    )
    yield b'\5\0{"Name":"S","created":"2024-01-01T00:00:00Z","name":"S","subjects":["a"],"retention":"limits","storage":"file"}'
    yield b'\5\0{"created":"2024-01-01T00:00:00Z","durable_name":"c","ack_policy":"explicit","deliver_policy":"all"}'


def entry(name: bytes, seq: int, ts: int, headers: bytes, payload: bytes) -> bytes:
    numbers = (len(name), ts << 1, seq, len(headers), len(payload))
    return b"".join(map(uvarint, numbers)) + name + headers + payload


def uvarint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])
