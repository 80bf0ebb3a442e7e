"""One flipped bit put right where a checksum proves it. Pure functions: bytes in, bytes out.

A CRC is linear: what one flipped bit changes of it depends only on how far from the end the bit is.
So the difference between the checksum that is stored and the one that the bytes have names the bit,
if one bit is all that is wrong. Damage of another kind passes for one bit with a probability of
about (8n + 32) / 2^32 for n bytes.
"""

import zlib

from penstock.core.buffer import crc32c_of

_CRC32C = 0x82F63B78
_CRC32 = 0xEDB88320
_SUM = b"crc32c "
_STATES_HEAD_BYTES = 12


def mend_text(data: bytes) -> bytes | None:
    """A configuration file (engine/files) put right; None when one bit does not explain it."""
    line, _, rest = data.partition(b"\n")
    line += b"\n"
    if rest.startswith(_SUM) and len(rest) == len(_SUM) + 9:
        try:
            stored = int(rest[len(_SUM) : -1], 16)
        except ValueError:
            stored = -1
        if stored >= 0:
            fixed = _flipped(line, crc32c_of(line) ^ stored, _CRC32C)
            if fixed is not None and _is_sealed(fixed + rest):
                return fixed + rest
    # the flipped bit may be in the second line, or be a line end
    for at in range(max(len(data) - 18, 0), len(data)):
        for bit in range(8):
            tried = bytearray(data)
            tried[at] ^= 1 << bit
            if _is_sealed(bytes(tried)):
                return bytes(tried)
    return None


def _is_sealed(data: bytes) -> bool:
    line, _, rest = data.partition(b"\n")
    return rest == _SUM + b"%08x\n" % crc32c_of(line + b"\n")


def mend_states(data: bytes) -> bytes | None:
    """A file of consumer states (engine/states) put right; None: one bit does not explain it."""
    head, body = data[:_STATES_HEAD_BYTES], data[_STATES_HEAD_BYTES:]
    if len(head) < _STATES_HEAD_BYTES:
        return None
    difference = zlib.crc32(body) ^ int.from_bytes(head[8:], "little")
    if difference == 0 or difference.bit_count() == 1:
        # only the eight bytes that say what the file is, or the checksum itself
        return b"PSSTATE1" + zlib.crc32(body).to_bytes(4, "little") + body
    fixed = _flipped(body, difference, _CRC32)
    return None if fixed is None or head[:8] != b"PSSTATE1" else head + fixed


def _flipped(data: bytes, difference: int, polynomial: int) -> bytes | None:
    # A flipped last bit changes the checksum by the polynomial; each bit before, by one step more.
    change = polynomial
    for place in range(len(data) * 8 - 1, -1, -1):
        if change == difference:
            fixed = bytearray(data)
            fixed[place >> 3] ^= 1 << (place & 7)
            return bytes(fixed)
        change = (change >> 1) ^ (polynomial if change & 1 else 0)
    return None
