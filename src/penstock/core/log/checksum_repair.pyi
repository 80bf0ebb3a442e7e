"""What a CRC32C says besides good or bad: one flipped bit, a lost salt. Pure functions.

A damage of another kind passes for one flipped bit with probability (8n + 32) / 2^32 for n random
bytes, and never when an even number of bits is flipped.
"""

def flipped_bit_of(data: bytes, stored: int, start: int = 0) -> int:
    """Which single bit of data (0 to 8n - 1), or of the stored checksum (8n to 8n + 31), is wrong.

    -1: no single bit explains it, or nothing is wrong.
    """

def mend_record(data: bytes, salt: int) -> bytes | None:
    """A bad record put right when exactly one flipped bit explains its checksum; else None.

    `data`: its bytes up to the next good record or the end of the segment; `salt`: the segment's.
    """

def salt_of_records(data: bytes, offset: int = 0) -> int | None:
    """The salt with which most of what looks like records is good; None when nothing does."""
