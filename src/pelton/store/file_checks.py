"""Checks of data beside the records: the table of a compressed segment and the entries of an index
file. core/log/compressed_segment and core/log/index_file have the formats.
"""

import struct

from pelton.core.base.buffer import crc32c_of

_END = struct.Struct("<QII8s")
_END_MAGIC = b"PNSTKEN2"
_HEAD_BYTES = 32
_ROW_BYTES = 8
_INDEX_HEAD_BYTES = 112
_ENTRY_BYTES = 12


def bad_table(data: bytes) -> str:
    """Return the fault of the table at the end of a compressed segment file; "" when there is none."""
    if len(data) < _HEAD_BYTES + _END.size:
        return "the compressed file is cut short"
    _, count, check, magic = _END.unpack_from(data, len(data) - _END.size)
    start = len(data) - _END.size - _ROW_BYTES * count
    if magic != _END_MAGIC or start < _HEAD_BYTES:
        return "the table of the compressed file is damaged"
    if crc32c_of(data[start : len(data) - 12]) != check:
        return "the table of the compressed file is damaged"
    rows = struct.unpack_from(f"<{2 * count}I", data, start)
    at = _HEAD_BYTES
    for length, said in zip(rows[::2], rows[1::2], strict=True):
        end = at + 4 + (length & 0x7FFFFFFF)
        if int.from_bytes(data[at : at + 4], "little") != length:
            return "a block of the compressed file has a wrong length"
        if crc32c_of(data[at + 4 : end]) != said:
            return "a block of the compressed file is damaged"
        at = end
    return "" if at == start else "the blocks of the compressed file do not end where they should"


def bad_entries(data: bytes) -> bool:
    """Return whether the entries of an index file with a sound head fail their checksum."""
    count, said = (int.from_bytes(data[at : at + 4], "little") for at in (32, 100))
    entries = data[_INDEX_HEAD_BYTES : _INDEX_HEAD_BYTES + _ENTRY_BYTES * count]
    return crc32c_of(entries) != said
