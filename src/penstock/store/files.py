"""Checks of single files that are not records: the table of a compressed segment, an index file's
entries. core/packed and core/sidecar draw them.
"""

import struct

from penstock.core.buffer import crc32c_of

_END = struct.Struct("<QII8s")
_END_MAGIC = b"PNSTKEND"
_HEAD_BYTES = 32
_INDEX_HEAD_BYTES = 112
_ENTRY_BYTES = 12


def bad_table(data: bytes) -> str:
    """What is wrong with the table at the end of a compressed segment file; "" for nothing."""
    if len(data) < _HEAD_BYTES + _END.size:
        return "the compressed file is cut short"
    _, count, check, magic = _END.unpack_from(data, len(data) - _END.size)
    start = len(data) - _END.size - 4 * count
    if magic != _END_MAGIC or start < _HEAD_BYTES:
        return "the table of the compressed file is damaged"
    if crc32c_of(data[start : len(data) - 12]) != check:
        return "the table of the compressed file is damaged"
    lengths = struct.unpack_from(f"<{count}I", data, start)
    at = _HEAD_BYTES
    for length in lengths:
        if int.from_bytes(data[at : at + 4], "little") != length:
            return "a block of the compressed file has a wrong length"
        at += 4 + (length & 0x7FFFFFFF)
    return "" if at == start else "the blocks of the compressed file do not end where they should"


def bad_entries(data: bytes) -> bool:
    """Whether the entries of an index file (its head is sound) do not match their checksum."""
    count, said = (int.from_bytes(data[at : at + 4], "little") for at in (32, 100))
    entries = data[_INDEX_HEAD_BYTES : _INDEX_HEAD_BYTES + _ENTRY_BYTES * count]
    return crc32c_of(entries) != said
