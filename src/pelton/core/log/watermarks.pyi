"""The written and synced watermarks of a log: for compiled callers, see watermarks.pxd."""

class Watermarks:
    written_seq: int
    synced_seq: int
