"""One flipped bit of a file of consumer states put right where its checksum proves it."""

from penstock.core.base.buffer import crc32c_of
from penstock.core.log.checksum_repair import flipped_bit_of

_MAGIC = b"PSSTATE2"
_HEAD_BYTES = 12


def mend_states(data: bytes) -> bytes | None:
    """A file of consumer states (engine/consumer_states draws it) put right; None: one bit does not explain
    what is wrong, or nothing is.
    """
    head, body = data[:_HEAD_BYTES], data[_HEAD_BYTES:]
    if len(head) < _HEAD_BYTES:
        return None
    stored = int.from_bytes(head[8:], "little")
    if crc32c_of(body) == stored:
        return _MAGIC + data[8:] if _bits(head[:8], _MAGIC) == 1 else None
    if head[:8] != _MAGIC:
        return None
    bit = flipped_bit_of(body, stored)
    if bit < 0:
        return None
    if bit >= 8 * len(body):
        return _MAGIC + crc32c_of(body).to_bytes(4, "little") + body
    fixed = bytearray(body)
    fixed[bit >> 3] ^= 1 << (bit & 7)
    return head + bytes(fixed)


def _bits(one: bytes, other: bytes) -> int:
    return (int.from_bytes(one, "little") ^ int.from_bytes(other, "little")).bit_count()
