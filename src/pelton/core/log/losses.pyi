"""Finding the lost sequences of a log: for compiled callers, see losses.pxd."""

def is_segment_name(name: str) -> bool:
    """Whether a file name is that of a segment: 20 digits and `.seg`, with a sequence from 1 to 2^63 - 1."""
