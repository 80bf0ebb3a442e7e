"""What of a log is lost: for compiled callers only, see losses.pxd."""

def is_segment_name(name: str) -> bool:
    """Whether a file name is a segment's: 20 digits, a sequence, and `.seg`."""
