"""Checksum repair: finding one flipped bit, or a lost salt, from a CRC32C. Pure functions.

Other damage is taken for one flipped bit with probability (8n + 32) / 2^32 for n random bytes, and
never if an even number of bits is flipped.
"""

def flipped_bit_of(data: bytes, stored: int, start: int = 0) -> int:
    """Which single bit of data (0 to 8n - 1), or of the stored checksum (8n to 8n + 31), is wrong.

    -1: no single bit explains the difference, or nothing is wrong. `start`: the initial value of the checksum.
    """

def mend_record(data: bytes, salt: int) -> bytes | None:
    """The corrected bytes of a bad record if one flipped bit explains its checksum; else None.

    `data`: its bytes up to the next good record or the end of the segment, so that its length field may be wrong;
    `salt`: the salt of the segment.
    """

def salt_of_records(data: bytes, offset: int = 0) -> int | None:
    """The salt with which most bytes that look like records are good records; None when there are no such bytes."""
