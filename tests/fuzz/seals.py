"""Checksums set right again, so that what is fuzzed lies behind them, too.

A wrong number behind a right checksum comes from no disk, but from a fault of our own, of a later version or of
somebody who means it. It may cost messages; it must not read or write where nothing is.
"""

from __future__ import annotations

import zlib

from pelton.core.base.buffer import crc32c_of

SEGMENT_HEAD = 32
INDEX_HEAD = 112


def u32(data: bytes | bytearray, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def put32(data: bytearray, at: int, value: int) -> None:
    data[at : at + 4] = value.to_bytes(4, "little")


def sealed(name: str, data: bytes) -> bytes:
    """A file of a log with its checksums right, as far as its lengths make sense."""
    if name.endswith(".seg"):
        return packed(data) if data[8:12] == b"\x02\0\0\0" else segment(data)
    return index(data) if name.endswith(".idx") else data


def segment(data: bytes) -> bytes:
    out = bytearray(data)
    if len(out) < SEGMENT_HEAD:
        return data
    put32(out, 28, crc32c_of(bytes(out[:28])))
    salt, at = u32(out, 12), SEGMENT_HEAD
    while at + 36 <= len(out):
        end = at + u32(out, at)
        if not at + 36 <= end <= len(out):
            break
        put32(out, end - 4, crc32c_of(bytes(out[at : end - 4]), salt))
        at = end
    return bytes(out)


def packed(data: bytes) -> bytes:
    out = bytearray(data)
    if len(out) < SEGMENT_HEAD + 24:
        return data
    put32(out, 28, crc32c_of(bytes(out[:28])))
    end, count = len(out), u32(out, len(out) - 16)
    if 4 * count <= end - SEGMENT_HEAD - 24:
        put32(out, end - 12, crc32c_of(bytes(out[end - 24 - 4 * count : end - 12])))
    return bytes(out)


def index(data: bytes) -> bytes:
    out = bytearray(data)
    entries_end = INDEX_HEAD + 12 * u32(out, 32)
    if len(out) < INDEX_HEAD or entries_end > len(out):
        return data
    put32(out, 96, crc32c_of(bytes(out[entries_end:])))
    put32(out, 100, crc32c_of(bytes(out[INDEX_HEAD:entries_end])))
    put32(out, 108, crc32c_of(bytes(out[:108])))
    return bytes(out)


def base(data: bytes) -> bytes:
    """A base of consumer states."""
    return data[:8] + zlib.crc32(data[12:]).to_bytes(4, "little") + data[12:]


def journal(data: bytes) -> bytes:
    """A journal of acks."""
    out = bytearray(data)
    if len(out) < 16:
        return data
    put32(out, 12, crc32c_of(bytes(out[:12])))
    salt, at = u32(out, 8), 16
    while at + 24 <= len(out):
        end = at + u32(out, at)
        if not at + 24 <= end <= len(out):
            break
        put32(out, at + 4, crc32c_of(bytes(out[at + 8 : end]), salt))
        at = end
    return bytes(out)


def state(data: bytes) -> bytes:
    """A consumer's state."""
    return data[:4] + crc32c_of(data[8:]).to_bytes(4, "little") + data[8:]
